"""A node that hears no quorum serves the past, and says so within a second to everybody."""

import asyncio
import ssl
import time
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from appliance.drivers.chat.client import Client
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import LocalSite, ports_in_a_row, run, wait_until

ROOM = "past"


def alone(site: LocalSite, node: int) -> AbstractContextManager[None]:
    """All other replicas stand still: the one of `node` hears nobody."""
    return site.standing_still(
        [process for other in site.nodes if other != node for process in site.replicas(other)]
    )


def probe(port: int, path: str) -> int:
    """The status code."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=HUNG_S, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def follow(site: LocalSite) -> None:
    """One client can only stay, the other has another address; both have a message before."""
    access = site.access()
    async with (
        Client(access.endpoints[:1], access.token, patience_s=HUNG_S) as stays,
        Client(access.endpoints[:2], access.token, patience_s=HUNG_S) as moves,
    ):
        room = (await stays.create_room(ROOM)).room_id
        await stays.send(room, "before")
        assert (await stays.snapshot(room, from_op=1)).stale_since is None
        assert stays.stale_since is None and moves.node == 0
        cut_us = time.time_ns() // 1000
        with alone(site, 0):
            async with asyncio.timeout(HUNG_S):
                while stays.stale_since is None or moves.connects < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert moves.node == 1 and stays.connects == 1
            assert abs(stays.stale_since - cut_us) < 30_000_000
            node = site.site.nodes[0]
            assert await asyncio.to_thread(probe, node.client_port, "/healthz") == 503
            # the console looks each second, and waits for whoever stands still
            unready = partial(probe, node.console_port, "/readyz")
            await asyncio.to_thread(wait_until, lambda: unready() == 503, 10, "readyz tells")
            shown = await asyncio.to_thread(run, "status", "--node-folder", str(site.place(0)))
            assert "hears no quorum for" in shown.stdout and shown.returncode == 1
        async with asyncio.timeout(HUNG_S):
            while stays.stale_since is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await stays.send(room, "after")
        page = await stays.snapshot(room, from_op=1)
        assert [message.body for message in page.messages][1:] == ["before", "after"]
        assert page.stale_since is None


def test_a_node_that_hears_no_quorum_says_so_and_clients_move_on(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    ports = ports_in_a_row(free_ports)
    with LocalSite(tmp_path / "site", ports, geometry="small", log_level="warning") as site:
        asyncio.run(follow(site))
        port = site.site.nodes[0].client_port
        wait_until(lambda: probe(port, "/healthz") == 200, 10, "node 0 is well again")
