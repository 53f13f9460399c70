"""Two processes of a node share the UDP port: a client that moves is heard by its own one."""

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.base.errors import ConfigurationError
from appliance.drivers.network.quic.keys import PortKeys
from appliance.drivers.network.quic.neighbours import Neighbours
from appliance.drivers.network.quic.port import QuicPort
from tests.drivers.network.quic.port_site import SECRET, echo, make_port
from tests.drivers.network.quic.quic_client import H3Client, dial
from tests.drivers.network.site import TestNode, make_node

MOVES = 60
PAIR = 2  # processes


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("keys"), 0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a short name, as sockets want it."""
    with tempfile.TemporaryDirectory(prefix="quic-") as name:
        yield Path(name)


@asynccontextmanager
async def process(
    node: TestNode, folder: Path, number: int, port: int, *, app: Any = echo
) -> AsyncIterator[QuicPort]:
    """What one process of the node has of the port."""
    made = make_port(node, app, number=number)
    beside = Neighbours(folder, number, take=made.on_handed, counters=made.counters)
    made.hand_over = beside.hand_over
    await made.open("127.0.0.1", port, shared=True)
    beside.open()
    try:
        yield made
    finally:
        made.close()
        beside.close()


async def move(client: H3Client) -> None:
    """The client goes on from another port of its own, as behind a network that was bound anew. It
    says so at once: who has nothing to say is sent what it waits for where it was, for ever."""
    former = client._transport
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)  # for both, as the library's own
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("::", 0))
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, sock=sock)
    assert former is not None
    former.close()
    client._quic.send_ping(0)
    client.transmit()


def test_a_client_that_moves_sixty_times_keeps_its_connection_and_loses_nothing(
    node: TestNode, folder: Path
) -> None:
    body = os.urandom(20_000)

    async def run() -> None:
        async with process(node, folder, 0, 0) as first:
            async with process(node, folder, 1, first.port) as second:
                async with dial(first.port) as client:
                    for _ in range(MOVES):
                        answer = client.answer(await client.request("/", method="POST", body=body))
                        await move(client)
                        await client.until(lambda answer=answer: answer.ended)
                        assert bytes(answer.body) == body
                    assert not client.terminated
                both = first.counters + second.counters
                assert both["quic_accepted"] == 1
                assert both["quic_handed_over"] >= MOVES // 10
                assert both["quic_handed_to_us"] > both["quic_handed_over"] // 2  # some are lost
                assert not both["quic_reset"]

    uvloop.run(asyncio.wait_for(run(), 120))


def test_a_client_that_moves_while_it_has_nothing_to_say_hears_what_it_waits_for(
    node: TestNode, folder: Path
) -> None:
    moved = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await moved.wait()
        await send({"type": "http.response.body", "body": b"late", "more_body": False})

    async def run() -> None:
        async with process(node, folder, 0, 0, app=slow) as port, dial(port.port) as client:
            answer = client.answer(await client.request("/"))
            await client.until(lambda: answer.headers)
            space = client._quic._loss.spaces[-1]
            while space.ack_eliciting_in_flight or space.ack_at:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # until nothing has to be sent, nor sent again
            await move(client)
            moved.set()
            await client.until(lambda: answer.ended)
            assert bytes(answer.body) == b"late"

    uvloop.run(asyncio.wait_for(run(), 120))


def test_what_a_dead_process_had_promised_its_successor_or_neighbour_answers_with_a_reset(
    node: TestNode, folder: Path
) -> None:
    async def run() -> None:
        async with process(node, folder, 0, 0) as neighbour:
            port = neighbour.port
            async with process(node, folder, 1, port) as dying:
                async with dial(port) as client:
                    owner = dying if dying.clients else neighbour
                    identifier = client._quic._peer_cid.cid
                    assert PortKeys.owner_of(identifier) == owner.keys.number
                    for one in list(owner.clients):  # as if the process were another
                        owner.forget(one)
                    client._quic.send_ping(1)
                    client.transmit()
                    heard: list[bytes] = []
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
                        raw.settimeout(10)
                        raw.sendto(b"\x40" + identifier + os.urandom(40), ("127.0.0.1", port))
                        heard.append(await asyncio.to_thread(raw.recv, 2000))
                    expected = PortKeys(SECRET, 0).reset_token(identifier)
                    assert heard[0][-16:] == expected
                    assert len(heard[0]) < 1 + 8 + 40

    uvloop.run(asyncio.wait_for(run(), 60))


def test_what_is_not_a_handed_datagram_is_counted_and_nobody_there_is_told(
    node: TestNode, folder: Path
) -> None:
    async def run() -> None:
        async with process(node, folder, 0, 0) as port:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(b"\xc1 nothing", str(folder / "quic-0"))
            for _ in range(1000):
                if port.counters["quic_handed_malformed"]:
                    break
                await asyncio.sleep(0.01)
            assert port.counters["quic_handed_malformed"] == 1
            assert port.hand_over is not None
            assert not port.hand_over(7, b"data", ("127.0.0.1", 9), [])
            assert (folder / "quic-0").stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigurationError, match="keep its name short"):
            Neighbours(folder / "nowhere", 0, take=port.on_handed, counters=port.counters).open()

    uvloop.run(asyncio.wait_for(run(), 60))
