"""Whatever comes to the UDP port of an edge fills no memory, and who sends over TCP goes on."""

import asyncio
import contextlib
import itertools
import os
import random
import socket
import uuid
from collections.abc import Iterator

import psutil
import pytest

from appliance.base.limits import CONNECTION_HELD_MAX
from appliance.formats.client.sign_in import Hello, Welcome
from tests.drivers.network.quic.raw_client import raw_dial
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.removal import folder_on_disk
from tests.roles.edge_site import EdgeSite, until
from tests.roles.floods import FLOODS, Poured, pour, pour_half_open
from tests.roles.talk import Talk
from tests.roles.ways import WebSocketHttp3

GROWTH_MAX = 1.1
HALF_OPEN = "half_open"
STRINGS, STRINGS_SOAK, AT_ONCE = 10_000, 100_000, 50
NAMED = {  # what becomes of a datagram that belongs to no connection
    *("quic_malformed", "quic_stray", "quic_retry", "quic_version", "quic_reset"),
    *("quic_answers_too_many", "quic_handshakes_too_many"),
}


@pytest.fixture(scope="module")
def site(free_ports: FreePorts) -> Iterator[EdgeSite]:
    """One node."""
    ports = next(port for port in free_ports(310) if port % 10 == 0)
    with folder_on_disk() as place:
        all_come = {"address_connect_rate": 1_000_000}
        with EdgeSite(place / "a", nodes=1, ports=ports, geometry="small", **all_come) as made:
            made.start_all()
            yield made


def packets(chance: random.Random, identifier: bytes) -> Iterator[bytes]:
    """Random bytes, some behind what gets them past the first look."""
    stems = (
        b"",
        b"\xc3\x00\x00\x00\x01\x08" + bytes(8) + b"\x08" + bytes(8),  # an Initial
        b"\xc3\x00\x00\x00\x09\x08" + bytes(8) + b"\x08" + bytes(8),  # of another version
        b"\xe3\x00\x00\x00\x01\x08" + identifier + b"\x08" + bytes(8),  # a Handshake
        b"\x43" + identifier,  # of a connection that was there
    )
    for index in itertools.count():
        stem = stems[index % len(stems)]
        size = 1200 if index % 16 < 5 else chance.randrange(1, 300)
        yield stem + chance.randbytes(size)


def came(site: EdgeSite) -> int:
    """Datagrams that the edge has taken notice of, by any name."""
    status = site.edge_status(0)
    assert status is not None
    named = status["connection_events"]
    return sum(count for name, count in named.items() if name in NAMED)


@pytest.mark.parametrize("count", [STRINGS, pytest.param(STRINGS_SOAK, marks=pytest.mark.soak)])
def test_random_strings_at_the_udp_port_do_no_harm_and_are_counted(
    site: EdgeSite, seed: int, count: int
) -> None:
    edge = psutil.Process(site.edges[0].pid)
    thrown = packets(random.Random(seed), identifier_of(site))
    with Talk(site) as talk, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", site.ports[0]))

        def throw(count: int) -> None:
            for _ in range(0, count, AT_ONCE):  # few, so that the system drops none
                before = came(site)
                for _ in range(AT_ONCE):
                    with contextlib.suppress(ConnectionError):
                        sock.send(next(thrown))
                until(lambda before=before: came(site) >= before + AT_ONCE, "they are counted")

        throw(count // 4)
        before = edge.memory_info().rss
        throw(count - count // 4)
    assert talk.said > 0
    until(lambda: edge.memory_info().rss <= before * GROWTH_MAX, "what they took is given back")


FLOOD_S, FLOOD_S_SOAK, FLOODING = 0.05, 5, 3  # connections
PACKETS_MIN, HALF_OPEN_MIN = 600, 6


async def flood(
    site: EdgeSite, kind: str, seconds: float, least: int, connections: int = FLOODING
) -> tuple[Poured, int]:
    """For so long, and of so many packets or handshakes: what was poured, and the most memory that
    the edge had meanwhile."""
    edge, poured, peak = psutil.Process(site.edges[0].pid), Poured(), 0
    port = site.ports[0]
    pouring = [
        asyncio.create_task(
            pour_half_open(port, poured) if kind == HALF_OPEN else pour(port, FLOODS[kind], poured)
        )
        for _ in range(connections)
    ]
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline or poured.packets < least:
        await asyncio.sleep(0.02)
        peak = max(peak, edge.memory_info().rss)
        for one in pouring:
            if one.done():
                one.result()
    for one in pouring:
        one.cancel()
    await asyncio.gather(*pouring, return_exceptions=True)
    return poured, peak


@pytest.mark.parametrize("seconds", [FLOOD_S, pytest.param(FLOOD_S_SOAK, marks=pytest.mark.soak)])
def test_floods_fill_no_memory_and_hold_nobody_up(site: EdgeSite, seconds: float) -> None:
    edge = psutil.Process(site.edges[0].pid)
    with Talk(site) as talk:
        for kind in (*FLOODS, HALF_OPEN):
            asyncio.run(flood(site, kind, 0, 1, 1))  # what is made once is made
            before, said = edge.memory_info().rss, talk.said
            least = HALF_OPEN_MIN if kind == HALF_OPEN else PACKETS_MIN
            poured, peak = asyncio.run(flood(site, kind, seconds, least))
            until(lambda said=said: talk.said > said + 1 or talk.failure, "sends go on")
            grown = (peak - before) >> 10
            print(
                f"{kind}: {poured.packets} packets, {poured.connections} connections, {grown} KiB"
            )
            assert peak - before <= FLOODING * CONNECTION_HELD_MAX, kind
            until(
                lambda before=before: edge.memory_info().rss <= before * GROWTH_MAX,
                f"what {kind} took is given back",
            )


def identifier_of(site: EdgeSite) -> bytes:
    """Of a connection that has ended."""

    async def test() -> bytes:
        async with raw_dial(site.ports[0]) as client:
            return bytes(client.quic._peer_cid.cid)

    found = asyncio.run(test())
    until(lambda: (site.edge_status(0) or {})["quic_connections"] == 0, "it is forgotten")
    return found


def test_an_edge_that_was_killed_and_started_again_resets_what_it_has_forgotten(
    site: EdgeSite,
) -> None:
    async def promised() -> tuple[bytes, bytes]:
        async with WebSocketHttp3(site.ports[0], binary=True) as way:
            await way.send(Hello(token=site.token(), client_id=uuid.uuid4()))
            assert isinstance(await way.next(), Welcome)
            peer = way.client._quic._peer_cid
            site.edges[0].kill()
            return bytes(peer.cid), bytes(peer.stateless_reset_token)

    identifier, token = asyncio.run(promised())
    site.stop_edge(0)
    site.start_edge(0)
    site.wait_serving(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(HUNG_S)
        sock.sendto(b"\x43" + identifier + os.urandom(60), ("127.0.0.1", site.ports[0]))
        heard = sock.recv(2000)
    assert heard[-16:] == token and len(heard) < 1 + len(identifier) + 60
