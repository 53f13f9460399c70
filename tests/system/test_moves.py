"""Replicas move from node to node by a placement alone, while clients write; nothing acknowledged
is lost, and what was moved away runs no more."""

import asyncio
import json
import random
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from appliance.cores.directory.signed import open_directory
from appliance.drivers.chat.client import Client
from appliance.formats.site import FARM, SITE_FILE, load_site
from tests.ports import FreePorts
from tests.system.chat_load import Writer, pace
from tests.system.disk_history import SHARD_ROOM, histories
from tests.system.ledger import Ledger, Stored, check, read
from tests.system.local_site import (
    LocalSite,
    alarms_of_the_site,
    ports_in_a_row,
    run,
    wait_until,
)

PACE_S = 0.05  # between two messages of a writer
MOVE_S = 60.0
EDGE_S = 2.0  # for an edge to answer
KILLS = 8  # in the middle of a move of two shards
NEW = 3  # the node that joins
# What is done each second, several times a second, and volumes that take no time to make.
HURRIED: dict[str, float] = {
    "appliance.roles.farm.role.POLL_S": 0.2,
    "appliance.roles.farm.role.MOVES_S": 0.2,
    "appliance.roles.farm.role.HELD_S": 0.2,
    "appliance.drivers.host.service.HEARTBEAT_S": 0.3,
    "appliance.roles.farm.holding.BRIEF": 1,
}
ANY_KEY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificates are the matter of other tests
ANY_KEY.check_hostname, ANY_KEY.verify_mode = False, ssl.CERT_NONE


def done(*words: str) -> str:
    result = run(*words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class Moves:
    """What an operator says, and what is so then."""

    def __init__(self, site: LocalSite) -> None:
        self.site, self.local = site, ("--local", str(site.folder))

    def want(self, shard: int, *nodes: int) -> None:
        done("farm", "place", str(shard), *(f"node-{node}" for node in nodes), *self.local)

    def group(self, node: int, shard: int = 0) -> dict[str, Any] | None:
        """Of a shard, by the directory that the edge of a node hands out, whole and signed."""
        described = load_site(self.site.folder / SITE_FILE)
        url = f"https://127.0.0.1:{described.nodes[node].client_port}/directory"
        with urllib.request.urlopen(url, context=ANY_KEY, timeout=EDGE_S) as answer:
            data = answer.read()
        content = open_directory(data, cluster=FARM, offline=described.farm_key, version_least=0)
        return next((row for row in content["groups"] if row["shard"] == shard), None)

    def publisher(self) -> int:
        """The node that signs the directory, as a member knows it."""
        rows = run("farm", "status", "--json", *self.local).stdout.splitlines()
        views = [json.loads(row).get("view") or {} for row in rows]
        return max((view.get("publisher", 0) for view in views), default=0) - 1

    def shown(self) -> str:
        """By `status`."""
        return run("status", *self.local).stdout

    def told(self) -> str:
        return run("farm", "status", *self.local).stdout

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, MOVE_S, lambda: f"{what}: {self.told()}")

    def is_placed(self, shard: int, nodes: set[int], gone: int, told: Sequence[int] = ()) -> bool:
        """The group is these nodes, by the directory that the edges of `told` hand out, of all of
        them unless it is said; the other one's process has ended, and its volume lies aside."""
        for teller in told or sorted(nodes):
            try:
                group = self.group(teller, shard)
            except OSError:
                return False  # it is being started
            if group is None or {*group["voters"], *group["standbys"]} != {n + 1 for n in nodes}:
                return False
        place = self.site.place(gone)
        aside = [path for path in place.glob(f"shard-{shard}.left-*") if path.is_dir()]
        return bool(aside) and not self.site.replicas(gone, shard)


async def moved_under_load(
    site: LocalSite, ledger: Ledger, seed: int, work: Callable[[], None], *, writers: int = 4
) -> None:
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        rooms = [(await client.create_room(f"room-{i}")).room_id for i in range(2)]
    load = [Writer(number, access, ledger, seed) for number in range(writers)]
    pace(load, PACE_S)
    stop = asyncio.Event()
    writing = [asyncio.create_task(writer.write(rooms, stop)) for writer in load]
    working = asyncio.create_task(asyncio.to_thread(work))
    try:
        finished, _ = await asyncio.wait([working, *writing], return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
        await working
        stop.set()
        await asyncio.gather(*writing)
    finally:
        stop.set()
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)


def validated(
    folder: Path, site: LocalSite, ledger: Ledger, nodes: Sequence[int], rooms: int
) -> list[list[Stored]]:
    """What is on the disks of a site that was stopped, once it was held against the ledger."""
    ledger.close()
    log = (folder / "site.log").read_text(errors="replace")
    assert "Traceback" not in log and "HALT" not in log, log[-3000:]
    stored = histories(site, nodes)
    violations = check(read(folder / "ledger.jsonl"), stored)
    assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])
    said = [row for row in stored[0] if row.room != SHARD_ROOM]  # there stand the steps
    assert len(said) == ledger.counts["invoke"] + rooms
    return stored


def test_a_replica_moves_to_another_node_and_back_by_its_placement_while_clients_write(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    site = LocalSite(
        tmp_path / "site",
        ports_in_a_row(free_ports),
        farm=True,
        log_level="info",
        constants=HURRIED,
    )
    moves = Moves(site)

    def work() -> None:
        done("member", "add", "--brief", *moves.local)
        site.start(NEW)
        moves.want(0, 1, 2, NEW)
        moves.wait("node 3 came for node 0", lambda: moves.is_placed(0, {1, 2, NEW}, 0))
        assert not (site.place(0) / "shard-0").exists()
        wait_until(lambda: not alarms_of_the_site(moves.shown()), MOVE_S, moves.shown)
        site.kill_node(0)
        site.start(0)  # it runs without a replica, and takes one when it is asked to
        moves.want(0, 0, 1, 2)
        moves.wait("node 0 came for node 3", lambda: moves.is_placed(0, {0, 1, 2}, NEW))

    with site:
        site.nodes = range(NEW + 1)
        asyncio.run(moved_under_load(site, ledger, seed, work))
        assert "to move" not in moves.told()
        nodes = (0, 1, 2)

        def equal() -> bool:
            found = [site.status(node) for node in nodes]
            places = {(s["view"], s["op"], s["commit_min"]) for s in found if s}
            return all(found) and len(places) == 1

        wait_until(equal, MOVE_S, lambda: f"{[site.status(n) for n in nodes]}")
        site.stop()
    stored = validated(tmp_path, site, ledger, nodes, rooms=2)
    steps = [json.loads(r.body)["act"] for r in stored[0] if '"do":"move"' in r.body]
    assert [row["step"] for row in steps] == ["exchange", "remove", "add", "exchange", "remove"]


class MovingSite(LocalSite):
    """Of two shards, each with three who vote; the other nodes follow both."""

    def _format(self, *words: str) -> Any:
        listed = [*words]
        count = listed.index("--nodes") + 1
        standbys = int(listed[count]) - 3
        listed[count] = "3"
        return run(*listed, "--standbys", str(standbys))


def rows_of_ports(free_ports: FreePorts) -> int:
    """The first of eight hundred in a row."""
    before = free_ports(400)
    for _ in range(10):
        ports = free_ports(400)
        if ports[0] == before[-1] + 1:
            return before[0]
        before = ports
    raise AssertionError("no 800 free ports in a row")


@pytest.mark.soak
def test_two_shards_move_to_a_seventh_node_while_who_leads_and_who_publishes_is_killed(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    """And back, to nodes that have to make volumes anew."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    chance, killed = random.Random(seed), Counter[str]()
    new, both = 6, [2, 3, 4, 5]  # nodes that always hold both shards: edges of others serve nobody
    site = MovingSite(
        tmp_path / "site",
        rows_of_ports(free_ports),
        nodes=new,
        shards=2,
        farm=True,
        log_level="info",
        constants=HURRIED,
    )
    moves = Moves(site)

    def kill() -> None:
        """Who leads a shard, or who moves them."""
        what = chance.choice(["leader", "publisher"])
        if what == "leader":
            shard = chance.randrange(2)
            node = site.primary(shard)
            if node is not None and site.kill_replica(node, shard) is not None:
                killed[what] += 1
            return
        for process in site.processes(moves.publisher(), "farm"):
            process.kill()
            killed[what] += 1

    def moved(first: list[int], gone_of_first: int, second: list[int], gone: int) -> None:
        """Until both shards are on these nodes, and the others' replicas have ended."""
        moves.want(0, *first)
        moves.want(1, *second)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 2))
            kill()
        asked = time.monotonic()
        moves.wait(f"shard 0 left {gone_of_first}", lambda: moves.is_placed(
            0, {*first}, gone_of_first, both))  # fmt: skip
        moves.wait(f"shard 1 left {gone}", lambda: moves.is_placed(1, {*second}, gone, both))
        print(f"moves: killed {dict(killed)}; right {time.monotonic() - asked:.1f} s afterwards")

    def work() -> None:
        done("member", "add", "--brief", *moves.local)
        site.nodes = range(new + 1)
        site.start(new)
        moved([0, 2, new, 3, 4, 5], 1, [1, 2, new, 3, 4, 5], 0)
        moved([0, 1, 2, 3, 4, 5], new, [0, 1, 2, 3, 4, 5], new)

    with site:
        asyncio.run(moved_under_load(site, ledger, seed, work, writers=8))
        wait_until(lambda: site_is_level(site, both), MOVE_S, "all are level")
        site.stop()
    assert killed["leader"] and killed["publisher"]
    validated(tmp_path, site, ledger, both, rooms=2)


def site_is_level(site: LocalSite, nodes: list[int]) -> bool:
    """Whether these nodes have executed the same of both shards."""
    for shard in range(site.shards):
        found = [site.status(node, shard) for node in nodes]
        if not all(found) or len({(s["op"], s["commit_min"]) for s in found if s}) != 1:
            return False
    return True
