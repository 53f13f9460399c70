"""Streams over real sockets: who is let in, what order and bounds hold, what ends them."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from appliance.base.errors import ConfigurationError, PacketRefused
from appliance.base.limits import HANDSHAKES_MAX
from appliance.base.prng import Prng
from appliance.drivers.network.stream import acceptor as acceptor_module
from appliance.drivers.network.stream import dialler as dialler_module
from appliance.drivers.network.stream.acceptor import Acceptor
from appliance.drivers.network.stream.certificate import add_anchor, certificate_of
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.stream.stream import BOUNDS, Bounds, Stream
from appliance.drivers.network.tls import client_context, server_context
from tests.drivers.network.site import TestNode, make_expired_node, make_node
from tests.patience import within
from tests.ports import FreePorts

Story = Callable[[], Coroutine[None, None, None]]


class Recording:
    """A codec that keeps what it hears; a byte 0xff is refused."""

    def __init__(self, end: "End", stream: Stream) -> None:
        self.end, self.stream = end, stream
        self.heard = bytearray()
        self.closed = ""
        self.writable = 0

    def on_bytes(self, data: bytes) -> None:
        self.heard += data
        if 0xFF in data:
            self.stream.send(b"bye")
            raise PacketRefused("bad_record")

    def on_writable(self) -> None:
        self.writable += 1

    def on_closed(self, reason: str) -> None:
        self.closed = reason


class End:
    """One side: its codecs in order of their streams."""

    def __init__(self, welcome: bool = True) -> None:
        self.codecs: list[Recording] = []
        self.counters: Counter[str] = Counter()
        self.welcome = welcome

    def make(self, stream: Stream) -> Recording | None:
        if not self.welcome:
            return None
        self.codecs.append(Recording(self, stream))
        return self.codecs[-1]

    async def until(self, holds: Callable[["End"], bool]) -> None:
        while not holds(self):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
def nodes(tmp_path: Path) -> list[TestNode]:
    return [make_node(tmp_path, index) for index in range(2)]


def run(story: Story) -> None:
    async def bounded() -> None:
        async with within(30):
            await story()

    uvloop.run(bounded())


async def accepting(
    end: End, node: TestNode, known: list[TestNode], bounds: Bounds = BOUNDS
) -> Acceptor:
    context = server_context(node.certificate, node.private, [one.pem for one in known])
    pins = {one.spki: f"node-{one.index}" for one in known}
    acceptor = Acceptor(end.make, context=context, pins=pins, counters=end.counters, bounds=bounds)
    await acceptor.start("127.0.0.1", 0)
    return acceptor


def dialling(
    end: End, node: TestNode, server: TestNode, port: int, bounds: Bounds = BOUNDS
) -> Dialler:
    dialler = Dialler(
        end.make,
        "127.0.0.1",
        port,
        context=client_context(node.certificate, node.private, [server.pem]),
        pins={server.spki: f"node-{server.index}"},
        prng=Prng(1),
        counters=end.counters,
        bounds=bounds,
    )
    dialler.start()
    return dialler


def test_bytes_arrive_whole_and_in_order_both_ways_and_name_the_peer(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = End(), End()
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port)
        await server.until(lambda end: len(end.codecs) == 1)
        await client.until(lambda end: len(end.codecs) == 1)
        there, here = server.codecs[0], client.codecs[0]
        assert (there.stream.peer, here.stream.peer) == ("node-1", "node-0")
        data = bytes(range(255)) * 4000
        for at in range(0, len(data), 70_000):
            assert here.stream.send(data[at : at + 70_000])
        assert there.stream.send(data[::-1])
        await server.until(lambda end: len(there.heard) == len(data))
        await client.until(lambda end: len(here.heard) == len(data))
        assert there.heard == data and here.heard == data[::-1]
        assert here.stream.bytes_out == there.stream.bytes_in == len(data)
        await dialler.close()
        await server.until(lambda end: there.closed == "peer_closed")
        await acceptor.close()

    run(story)


def test_a_stream_that_ends_is_dialled_again(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = End(), End()
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port)
        for count in (1, 2, 3):
            await server.until(lambda end, count=count: len(end.codecs) == count)
            server.codecs[-1].stream.abort("test")
            await client.until(lambda end: bool(end.codecs) and bool(end.codecs[-1].closed))
        port = acceptor.port
        await acceptor.close()
        await client.until(lambda end: end.counters["dial_failed"] > 0)
        again = Acceptor(server.make, context=None, pins={}, counters=server.counters)
        await again.start("127.0.0.1", port)  # the port is free again
        await again.close()
        await dialler.close()

    run(story)


async def expect_refusal(server: End, acceptor: Acceptor, dialler: Dialler, reason: str) -> None:
    await server.until(lambda end: end.counters["closed_" + reason] >= 2)  # it tries again, in vain
    assert not server.codecs
    await dialler.close()
    await acceptor.close()


def test_a_certificate_nobody_knows_is_refused(tmp_path: Path, nodes: list[TestNode]) -> None:
    stranger = make_node(tmp_path, 1)

    async def story() -> None:
        server = End()
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(End(), stranger, nodes[0], acceptor.port)
        await expect_refusal(server, acceptor, dialler, "certificate")

    run(story)


def test_an_expired_certificate_is_refused(tmp_path: Path, nodes: list[TestNode]) -> None:
    expired = make_expired_node(tmp_path, 5)

    async def story() -> None:
        server = End()
        acceptor = await accepting(server, nodes[0], [*nodes, expired])
        dialler = dialling(End(), expired, nodes[0], acceptor.port)
        await expect_refusal(server, acceptor, dialler, "certificate")

    run(story)


def test_a_known_certificate_without_a_pin_is_refused(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server = End()
        context = server_context(
            nodes[0].certificate, nodes[0].private, [node.pem for node in nodes]
        )
        acceptor = Acceptor(server.make, context=context, pins={}, counters=server.counters)
        await acceptor.start("127.0.0.1", 0)
        dialler = dialling(End(), nodes[1], nodes[0], acceptor.port)
        await expect_refusal(server, acceptor, dialler, "pin")

    run(story)


def test_a_handshake_that_failed_is_no_stream_any_more(nodes: list[TestNode]) -> None:
    """Counted for ever, a few thousand of them would close the port."""

    async def story() -> None:
        server = End()
        acceptor = await accepting(server, nodes[0], nodes)
        for number in range(1, 4):
            _, writer = await asyncio.open_connection("127.0.0.1", acceptor.port)
            writer.write(b"no TLS at all\r\n\r\n")
            while server.counters["closed_handshake"] < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert acceptor.count() == 0
            writer.close()
        await acceptor.close()

    run(story)


def test_whoever_the_codec_turns_away_is_closed(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server = End(welcome=False)
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(End(), nodes[1], nodes[0], acceptor.port)
        await expect_refusal(server, acceptor, dialler, "refused")

    run(story)


def test_a_client_refuses_a_server_with_another_key(tmp_path: Path, nodes: list[TestNode]) -> None:
    other = make_node(tmp_path, 3)

    async def story() -> None:
        server, client = End(), End()
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(client, nodes[1], other, acceptor.port)
        await client.until(lambda end: end.counters["dial_failed"] >= 2)
        assert not client.codecs and not server.codecs
        await dialler.close()
        await acceptor.close()

    run(story)


def test_a_refused_packet_closes_the_stream_after_what_was_answered(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = End(), End()
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port)
        await client.until(lambda end: len(end.codecs) == 1)
        client.codecs[0].stream.send(b"\xff")
        await client.until(lambda end: bool(end.codecs[0].closed))
        assert client.codecs[0].heard == b"bye"
        assert server.codecs[0].closed == "bad_record"
        assert server.counters["refused_bad_record"] == 1
        await dialler.close()
        await acceptor.close()

    run(story)


def test_what_waits_is_bounded_and_one_byte_more_closes_the_stream(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = End(), End()
        bounds = Bounds(waiting_max=1 << 16)
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port, bounds)
        await client.until(lambda end: len(end.codecs) == 1)
        stream = client.codecs[0].stream
        assert stream.send(bytes(1 << 16))
        assert not stream.send(bytes((1 << 16) + 1)) and stream.reason == "overflow"
        assert not stream.send(b"more")
        await client.until(lambda end: end.counters["closed_overflow"] == 1)
        await dialler.close()
        await acceptor.close()

    run(story)


def test_a_codec_hears_when_it_may_write_again(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = End(), End()
        bounds = Bounds(waiting_max=8 << 20)
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port, bounds)
        await server.until(lambda end: len(end.codecs) == 1)
        await client.until(lambda end: len(end.codecs) == 1)
        server.codecs[0].stream.pause_reading()
        here = client.codecs[0]
        while here.stream.waiting <= 5 << 20:
            assert here.stream.send(bytes(1 << 18))
            await asyncio.sleep(0)
        assert here.writable == 0
        server.codecs[0].stream.resume_reading()
        await client.until(lambda end: here.writable > 0)
        await dialler.close()
        await acceptor.close()

    run(story)


def test_a_peer_that_sends_nothing_or_takes_nothing_is_closed(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = End(), End()
        acceptor = await accepting(server, nodes[0], nodes, Bounds(silence_ms_max=300))
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port, Bounds(stall_ms_max=300))
        await server.until(lambda end: end.counters["closed_silent"] == 1)
        await server.until(lambda end: len(end.codecs) == 2)
        await client.until(lambda end: len(end.codecs) == 2)
        server.codecs[1].stream.pause_reading()
        while client.codecs[1].stream.waiting < 1 << 20:
            assert client.codecs[1].stream.send(bytes(1 << 18))
            await asyncio.sleep(0)
        await client.until(lambda end: end.counters["closed_stalled"] == 1)
        await dialler.close()
        await acceptor.close()

    run(story)


def test_connections_that_say_nothing_cost_no_more_than_the_bound(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = End(), End()
        acceptor = await accepting(server, nodes[0], nodes)
        idle = []
        for _ in range(HANDSHAKES_MAX + 1):
            idle.append(socket.create_connection(("127.0.0.1", acceptor.port)))
            await asyncio.sleep(0)
        await server.until(lambda end: end.counters["closed_too_many_handshakes"] == 1)
        for one in idle:
            one.close()
        await server.until(lambda end: end.counters["closed_handshake_end"] == HANDSHAKES_MAX)
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port)
        await server.until(lambda end: len(end.codecs) == 1)  # there is room again
        await dialler.close()
        await acceptor.close()

    run(story)


def test_a_peer_is_paired_by_its_fingerprint(tmp_path: Path, nodes: list[TestNode]) -> None:
    """The stranger's certificate is fetched, compared, and made an anchor while we listen."""
    stranger = make_node(tmp_path, 4)

    async def story() -> None:
        server, client, there = End(), End(), End()
        theirs = await accepting(there, stranger, [stranger])
        with pytest.raises(ConfigurationError, match="fingerprint"):
            await certificate_of("127.0.0.1", theirs.port, bytes(32))
        shown = await certificate_of("127.0.0.1", theirs.port, stranger.spki)
        await theirs.close()
        with pytest.raises(ConfigurationError, match="nobody"):
            await certificate_of("127.0.0.1", 1, stranger.spki)
        context = server_context(nodes[0].certificate, nodes[0].private, [nodes[0].pem])
        pins: dict[bytes, str] = {}
        acceptor = Acceptor(server.make, context=context, pins=pins, counters=server.counters)
        await acceptor.start("127.0.0.1", 0)
        dialler = dialling(client, stranger, nodes[0], acceptor.port)
        await server.until(lambda end: end.counters["closed_certificate"] >= 1)
        add_anchor(context, shown)
        pins[stranger.spki] = "them"
        await server.until(lambda end: len(end.codecs) == 1)
        assert server.codecs[0].stream.peer == "them"
        await dialler.close()
        await acceptor.close()

    run(story)


async def plain(server: End, client: End) -> tuple[Acceptor, Dialler]:
    """The ends of streams without certificates."""
    acceptor = Acceptor(server.make, context=None, pins={}, counters=server.counters)
    await acceptor.start("127.0.0.1", 0)
    dialler = Dialler(
        client.make,
        "127.0.0.1",
        acceptor.port,
        context=None,
        pins={},
        prng=Prng(1),
        counters=client.counters,
    )
    dialler.start()
    return acceptor, dialler


def test_who_dials_pauses_no_longer_than_it_is_told(free_ports: FreePorts) -> None:
    async def story() -> None:
        end = End()
        dialler = Dialler(
            end.make,
            "127.0.0.1",
            free_ports(1)[0],
            context=None,
            pins={},
            prng=Prng(1),
            counters=end.counters,
            pause_ms_max=50,
        )
        dialler.start()
        async with within(60):  # twice as long with the usual pauses of up to 5 s
            await end.until(lambda end: end.counters["dial_failed"] == 40)
        await dialler.close()

    run(story)


def test_a_plain_stream_needs_no_certificate() -> None:
    async def story() -> None:
        server, client = End(), End()
        acceptor, dialler = await plain(server, client)
        await client.until(lambda end: len(end.codecs) == 1)
        client.codecs[0].stream.send(b"hello")
        await server.until(lambda end: bool(end.codecs) and end.codecs[0].heard == b"hello")
        await dialler.close()
        await acceptor.close()

    run(story)


def test_a_stream_that_is_cut_short_when_it_is_made_is_over_for_its_codec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process stands still past the time for a handshake, at both ends, and goes on: the loop
    closes what it had just made without a word, which nobody may take for open."""
    time_ms = 300
    for module in (dialler_module, acceptor_module):
        monkeypatch.setattr(module, "HANDSHAKE_MS_MAX", time_ms)

    class Still(End):
        def make(self, stream: Stream) -> Recording | None:
            if not self.codecs:
                end = time.monotonic() + 2 * time_ms / 1000 + 1
                while time.monotonic() < end:  # as a process that gets no processor
                    pass
            return super().make(stream)

    async def story() -> None:
        server, client = End(), Still()
        acceptor, dialler = await plain(server, client)
        await client.until(lambda end: len(end.codecs) == 2)
        assert client.codecs[0].closed == "handshake_timeout" and not client.codecs[1].closed
        assert not client.codecs[0].stream.send(b"x") and client.codecs[1].stream.send(b"hello")
        await server.until(lambda end: bool(end.codecs) and end.codecs[-1].heard == b"hello")
        await dialler.close()
        await acceptor.close()

        still = Still()
        acceptor = Acceptor(still.make, context=None, pins={}, counters=still.counters)
        await acceptor.start("127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", acceptor.port)
        await still.until(lambda end: bool(end.codecs and end.codecs[0].closed))
        assert still.codecs[0].closed == "handshake_timeout"
        writer.close()
        await acceptor.close()

    run(story)


def test_a_port_that_is_taken_is_a_mistake_of_the_operator() -> None:
    async def story() -> None:
        end = End()
        one = Acceptor(end.make, context=None, pins={}, counters=end.counters)
        two = Acceptor(end.make, context=None, pins={}, counters=end.counters)
        await one.start("127.0.0.1", 0)
        with pytest.raises(ConfigurationError, match="cannot be bound"):
            await two.start("127.0.0.1", one.port)
        await one.close()

    run(story)
