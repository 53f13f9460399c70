"""Random byte strings at each port that clients and operators use, 4,000 here and 100,000 in
`make soak`: no harm, all counted.

The port between peers has the same test beside its role, in tests/roles/test_replica.py.
"""

import asyncio
import contextlib
import multiprocessing
import random
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from appliance.drivers.chat.client import Client
from appliance.drivers.network.ask import ask_status
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.console_session import ConsoleSession
from tests.system.local_site import LocalSite, ports_in_a_row, wait_until

COUNT, COUNT_SOAK = 4_000, 100_000
WARM = 2_000  # after so many memory is looked at for the first time
AT_ONCE = 8  # connections to each port
GROWTH_MAX = 1.1  # of what a process held after the first
IN_TLS_EVERY = 50  # strings at the console: a handshake costs a millisecond
STEMS = (  # what random bytes follow, so that they get past the first look
    b"",
    b"GET / HTTP/1.1\r\n",
    b"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
    (
        b"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: tigerchat.v1.binary\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ),
)


def throw(port: int, seed: int, count: int, in_tls_every: int) -> None:
    """So many connections with random bytes each, a stem before some, several at a time; the other
    end closes them."""
    chance = random.Random(seed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for first in range(0, count, AT_ONCE):
        with contextlib.ExitStack() as stack:
            strangers = []
            for i in range(first, min(first + AT_ONCE, count)):
                stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
                strangers.append(stranger)
                with contextlib.suppress(OSError):  # a reset is as good a close
                    if in_tls_every and i % in_tls_every == 0:
                        strangers[-1] = stranger = stack.enter_context(
                            context.wrap_socket(stranger)
                        )
                    stem = STEMS[i % len(STEMS)]
                    stranger.sendall(stem + chance.randbytes(chance.randrange(1, 200)))
                    stranger.shutdown(socket.SHUT_WR)
            for stranger in strangers:
                with contextlib.suppress(OSError):
                    while stranger.recv(4096):
                        pass


@pytest.fixture
def site(tmp_path: Path, free_ports: FreePorts) -> Iterator[LocalSite]:
    ports = ports_in_a_row(free_ports)
    with LocalSite(tmp_path / "site", ports, client_tls=False) as made:
        yield made


def edge_status(site: LocalSite) -> dict[str, Any]:
    folder = site.place(0) / "sockets"
    found = ask_status(folder, cluster=site.site.cluster, shard=0, kind="edge", timeout_s=HUNG_S)
    assert found is not None
    return found


async def talk(site: LocalSite) -> None:
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        room = (await client.create_room("harmless")).room_id
        assert (await client.send(room, "still here")).op >= 2


@pytest.mark.parametrize("count", [COUNT, pytest.param(COUNT_SOAK, marks=pytest.mark.soak)])
def test_thousands_of_random_strings_at_each_port_do_no_harm(
    site: LocalSite, seed: int, count: int
) -> None:
    node = site.site.nodes[0]
    work = (
        ("edge", node.client_port, seed, 0),
        ("console", node.console_port, seed + 1, IN_TLS_EVERY),
    )
    processes = {role: site.processes(0, role)[0] for role, *_ in work}
    console = ConsoleSession(site, 0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:

        def throw_all(count: int) -> None:
            waiting = [
                pool.submit(throw, port, first + count, count, every)
                for _, port, first, every in work
            ]
            for done in waiting:
                done.result()

        throw_all(WARM)
        before = {role: process.memory_info().rss for role, process in processes.items()}
        throw_all(count - WARM)

    for role, process in processes.items():
        assert process.is_running(), f"the {role} ended"

    def grown() -> dict[str, float]:
        ratios = {
            role: process.memory_info().rss / before[role] for role, process in processes.items()
        }
        return {role: ratio for role, ratio in ratios.items() if ratio >= GROWTH_MAX}

    wait_until(lambda: not grown(), HUNG_S, lambda: f"memory is given back: {grown()}")
    for role, process in processes.items():
        assert process.num_fds() < 200, f"the {role} keeps connections"
    asyncio.run(talk(site))
    events = edge_status(site)["connection_events"]
    assert events["accepted"] >= count
    ended = ("http", "ended_head", "ended_open", "ended_closing")
    assert sum(events.get(name, 0) for name in ended) >= count, events
    assert events["ended_head"] >= count // 2  # as many had no whole request
    assert events["ended_open"] + events["ended_closing"] >= count // 8  # or broke the protocol
    in_tls = sum(len(range(0, n, IN_TLS_EVERY)) for n in (WARM, count - WARM))

    def all_counted() -> bool:
        seen = console.shown()["connection_events"]
        return (
            seen["handshakes"] >= count
            and seen["connected"] + seen["closed_handshake"] >= count
            and seen["closed_handshake"] >= count - in_tls
            and seen["connected"] >= in_tls * 0.9  # some gave up on a busy machine
            and seen["malformed"] > 0
        )

    wait_until(all_counted, HUNG_S, lambda: f"all counted: {console.shown()['connection_events']}")
