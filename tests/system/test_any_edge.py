"""Two shards that no node holds both of: every edge takes every room, whoever dies."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from appliance.drivers.chat.client import Client
from appliance.drivers.network.ask import ask_status
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.chat_load import Writer, listen, pace
from tests.system.disk_history import SHARD_ROOM, of_shard
from tests.system.ledger import Ledger, check, read
from tests.system.local_site import wait_until
from tests.system.test_moves import HURRIED, MOVE_S, Moves, MovingSite, rows_of_ports

HOLDERS = [[0, 1, 2], [3, 4, 5]]  # nodes, by shard
ROOMS = [f"room-{i}" for i in range(4)]  # of both shards
PACE_S = 0.1
LOAD_S = 4.0  # before and after a node dies


def edge_status(site: MovingSite, node: int) -> dict[str, Any]:
    """What the edge of a node says of itself; empty when it does not answer."""
    sockets = site.place(node) / "sockets"
    found = ask_status(sockets, cluster=site.site.cluster, shard=0, kind="edge", timeout_s=2.0)
    return found or {}


def sources(site: MovingSite, node: int) -> list[int]:
    """The nodes by which an edge that serves reads what its own node does not hold."""
    status = edge_status(site, node)
    if not status or status["health"]:
        return []
    return [int(told.removeprefix("node-")) for told in status["remote"].values() if told]


def wait_served(site: MovingSite) -> None:
    """Until each edge serves all rooms."""

    def told() -> str:
        rows = [edge_status(site, node) for node in site.nodes]
        return str([(row.get("health"), row.get("remote")) for row in rows])

    wait_until(lambda: all(len(sources(site, node)) == 1 for node in site.nodes), MOVE_S, told)


def is_level(site: MovingSite) -> bool:
    """Whether all who hold a shard have executed the same of it."""
    for shard, holders in enumerate(HOLDERS):
        found = [site.status(node, shard) for node in holders]
        if not all(found) or len({(s["op"], s["commit_min"]) for s in found if s}) != 1:
            return False
    return True


async def chatted(site: MovingSite, ledger: Ledger, seed: int) -> None:
    """Clients write and listen at every node while nodes die from which edges read."""
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        rooms = [(await client.create_room(name)).room_id for name in ROOMS]
    writers = [Writer(number, access, ledger, seed) for number in site.nodes]
    pace(writers, PACE_S)
    stop = asyncio.Event()
    writing = [asyncio.create_task(writer.write(rooms, stop)) for writer in writers]
    listening = [asyncio.create_task(listen(n, access, ledger, rooms)) for n in site.nodes]
    try:
        await asyncio.sleep(LOAD_S)
        for reader in (HOLDERS[0][0], HOLDERS[1][0]):
            (told,) = await asyncio.to_thread(sources, site, reader)
            await asyncio.to_thread(site.kill_node, told)
            await asyncio.sleep(LOAD_S)
            await asyncio.to_thread(site.start, told)
            await asyncio.to_thread(wait_served, site)
        stop.set()
        await asyncio.gather(*writing)
        heard = len(site.nodes) * (ledger.counts["invoke"] + len(ROOMS))
        async with asyncio.timeout(HUNG_S):
            while ledger.counts["event"] < heard:
                assert not any(task.done() for task in listening)
                await asyncio.sleep(0.1)
    finally:
        stop.set()
        for task in (*writing, *listening):
            task.cancel()
        await asyncio.gather(*writing, *listening, return_exceptions=True)


@pytest.mark.soak
def test_every_edge_takes_rooms_of_shards_that_its_node_does_not_hold(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    site = MovingSite(
        tmp_path / "site",
        rows_of_ports(free_ports),
        nodes=6,
        shards=2,
        farm=True,
        log_level="info",
        constants=HURRIED,
    )
    moves = Moves(site)
    with site:
        for shard, holders in enumerate(HOLDERS):
            moves.want(shard, *holders)
        for shard, holders in enumerate(HOLDERS):
            for gone in HOLDERS[1 - shard]:
                moves.wait(
                    f"shard {shard} left node {gone}",
                    lambda s=shard, h=holders, g=gone: moves.is_placed(s, {*h}, g),  # type: ignore
                )
        wait_served(site)
        asyncio.run(chatted(site, ledger, seed))
        wait_until(lambda: is_level(site), MOVE_S, "all are level")
        site.stop()
    ledger.close()
    log = (tmp_path / "site.log").read_text(errors="replace")
    assert "Traceback" not in log and "HALT" not in log, log[-3000:]
    stored = [
        [row for shard, node in enumerate(pair) for row in of_shard(site, node, shard)]
        for pair in zip(*HOLDERS, strict=True)
    ]
    events = read(tmp_path / "ledger.jsonl")
    violations = check(events, stored)
    assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])
    said = [row for row in stored[0] if row.room != SHARD_ROOM]
    assert len(said) == ledger.counts["invoke"] + len(ROOMS)
    assert {row.room for row in said if row.op == 1} and len({row.room for row in said}) == 4
