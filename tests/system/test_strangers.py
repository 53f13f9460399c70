"""100,000 random byte strings at each port that clients and operators use: no harm, all counted.

The port between peers has the same test beside its role, in tests/roles/test_replica.py.
"""

import asyncio
import contextlib
import json
import multiprocessing
import random
import re
import socket
import ssl
import urllib.request
from concurrent.futures import ProcessPoolExecutor

import pytest

from appliance.drivers.chat.client import Client
from appliance.drivers.network.ask import ask_status
from tests.patience import HUNG_S
from tests.system.local_site import LocalSite, ports_in_a_row, wait_until

COUNT, WARM = 100_000, 10_000  # memory is looked at first after the first ten thousand
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


def throw(port: int, seed: int, count: int, stems: tuple[bytes, ...], in_tls_every: int) -> None:
    """So many connections with random bytes each, a stem before some; the other end closes them."""
    chance = random.Random(seed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for i in range(count):
        with contextlib.ExitStack() as stack:
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            with contextlib.suppress(OSError):  # a reset is as good a close
                if in_tls_every and i % in_tls_every == 0:
                    stranger = stack.enter_context(context.wrap_socket(stranger))
                stem = stems[i % len(stems)]
                stranger.sendall(stem + chance.randbytes(chance.randrange(1, 200)))
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass


@pytest.fixture
def site(tmp_path, free_ports):
    ports = ports_in_a_row(free_ports)
    with LocalSite(tmp_path / "site", ports, client_tls=False) as made:
        yield made


def edge_status(site: LocalSite) -> dict:
    folder = site.place(0) / "sockets"
    found = ask_status(folder, cluster=site.site.cluster, shard=0, kind="edge", timeout_s=HUNG_S)
    assert found is not None
    return found


def console_status(site: LocalSite) -> dict:
    """What a signed-in operator is told."""
    port = site.site.nodes[0].console_port
    log = (site.folder.parent / f"{site.folder.name}.log").read_text(errors="replace")
    secret = re.findall(rf":{port}/console\s+one-time secret: (\S+)", log)[-1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    base = f"https://127.0.0.1:{port}/console"
    enter = urllib.request.Request(
        f"{base}/sign-in",
        data=json.dumps({"secret": secret}).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(enter, context=context) as answer:
        cookie = answer.headers["set-cookie"].split(";")[0]
    look = urllib.request.Request(f"{base}/status", headers={"cookie": cookie})
    with urllib.request.urlopen(look, context=context) as answer:
        return json.load(answer)


async def talk(site: LocalSite) -> None:
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        room = (await client.create_room("harmless")).room_id
        assert (await client.send(room, "still here")).op >= 2


def test_a_hundred_thousand_random_strings_at_each_port_do_no_harm(site, seed):
    node = site.site.nodes[0]
    work = (
        ("edge", (node.client_port, seed, STEMS, 0)),
        ("console", (node.console_port, seed + 1, STEMS, IN_TLS_EVERY)),
    )
    processes = {role: site.processes(0, role)[0] for role, _ in work}
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:

        def throw_all(count: int) -> None:
            waiting = [
                pool.submit(throw, port, first + count, count, stems, every)
                for _, (port, first, stems, every) in work
            ]
            for done in waiting:
                done.result()

        throw_all(WARM)
        before = {role: process.memory_info().rss for role, process in processes.items()}
        throw_all(COUNT - WARM)
    for role, process in processes.items():
        assert process.is_running(), f"the {role} ended"
        assert process.memory_info().rss < before[role] * 1.1, f"the {role} grew"
        assert process.num_fds() < 200, f"the {role} keeps connections"
    asyncio.run(talk(site))
    events = edge_status(site)["connection_events"]
    assert events["accepted"] >= COUNT
    ended = ("http", "ended_head", "ended_open", "ended_closing")
    assert sum(events.get(name, 0) for name in ended) >= COUNT, events
    assert events["ended_head"] >= COUNT // 2  # as many had no whole request
    assert events["ended_open"] + events["ended_closing"] >= COUNT // 8  # or broke the protocol

    def counted() -> bool:
        seen = console_status(site)["connection_events"]
        in_tls = sum(len(range(0, n, IN_TLS_EVERY)) for n in (WARM, COUNT - WARM))
        return (
            seen["handshakes"] >= COUNT
            and seen["closed_handshake"] >= COUNT - in_tls
            and seen["connected"] >= in_tls
            and seen["malformed"] > 0
        )

    wait_until(counted, 10, lambda: f"all counted: {console_status(site)['connection_events']}")
