"""What drivers and cores of an edge can do is also asked of them: each test turns red when one wire
of the role is taken out."""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame as WireFrame
from websockets.frames import Opcode
from websockets.uri import parse_uri

from appliance.base import limits
from appliance.base.limits import KIB
from appliance.drivers.chat.access import local_token
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.client.connection import ErrorFrame, Ping, Pong
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, Frame, encode_binary
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.parse import parse_binary_edge
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.roles.edge import role as edge_role
from appliance.roles.edge.role import EdgeRole
from appliance.roles.edge.waking import DESERTED_TICKS, QUIET_TICKS
from tests.drivers.nvme.rot import flip
from tests.roles.conftest import MakeSite
from tests.roles.edge_site import RIGHTS
from tests.roles.wired_site import WiredSite, until

# --- what clients are charged for


class Wire:
    """A chat client of which each byte is the test's own: it reads when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = ClientProtocol(
            parse_uri("ws://127.0.0.1/v1"),
            subprotocols=[SUBPROTOCOL_BINARY],  # type: ignore[list-item]
            max_size=None,
        )
        self._frames: list[Any] = []
        self.code = 0  # with which it was closed
        self.room = uuid.UUID(int=0)  # that it made

    @classmethod
    async def dial(cls, site: WiredSite, edge: EdgeRole) -> "Wire":
        """A client that has said hello; little of what it is told waits on its side."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", edge._listeners.port))
        wire = cls(*await asyncio.open_connection(sock=sock, limit=KIB))
        wire._protocol.send_request(wire._protocol.connect())
        token = local_token(site.folder, "anna", RIGHTS, 3600)
        while wire._protocol.handshake_exc is None and not wire._protocol.events_received():
            wire.flush()
            wire._protocol.receive_data(await wire._reader.read(64 * KIB))
        wire.say(Hello(token=token, client_id=uuid.UUID(int=7)))
        await wire.next(Welcome)
        return wire

    def flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._writer.write(data)

    def say(self, *frames: Frame) -> None:
        self._protocol.send_binary(encode_binary(*frames))
        self.flush()

    def raw(self, opcode: Opcode, data: bytes, *, fin: bool = True) -> None:
        """A frame of the WebSocket, at once."""
        self.bytes(WireFrame(opcode, data, fin).serialize(mask=True))

    def bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def next(self, *kinds: type) -> Any:
        """The next frame of these kinds; those before it are passed over."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if type(frame) in kinds:
                    return frame
            assert await self._receive(), f"closed with code {self.code}"

    async def ended(self) -> int:
        """The code with which it is closed, when it is."""
        while await self._receive():
            pass
        return self.code

    async def _receive(self) -> bool:
        """Whether more came: it is parsed, and what the protocol answers is sent."""
        data = await self._reader.read(64 * KIB)
        if data:
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                assert isinstance(event, WireFrame)
                if event.opcode is Opcode.BINARY:
                    self._frames += parse_binary_edge(bytes(event.data))
                elif event.opcode is Opcode.CLOSE:
                    self.code = int.from_bytes(event.data[:2], "big")
            self.flush()
        return bool(data)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def chatting(site: WiredSite, story: Callable[[EdgeRole, Wire], Any]) -> None:
    """A story of an edge and one client."""

    async def whole(site: WiredSite) -> None:
        await site.start_replica(0)
        edge = await site.start_edge(0)
        await until(lambda: not edge.health())
        wire = await Wire.dial(site, edge)
        try:
            await story(edge, wire)
        finally:
            await wire.close()

    site.run(whole)


MANY = 20  # more than two seconds of the rates here, in one piece
PING = encode_binary(Ping(request="p"))


@pytest.mark.parametrize("limit", ["device", "user", "address", "room"])
def test_each_rate_of_the_settings_is_that_of_what_it_is_named_for(
    make_site: MakeSite, limit: str
) -> None:
    async def story(edge: EdgeRole, wire: Wire) -> None:
        if limit == "room":
            wire.say(CreateRoom(name="rated"))
            room = (await wire.next(RoomAnswer)).room_id
            sent = [SendMessage(room_id=room, client_seq=n, body="x") for n in range(1, 1 + MANY)]
            wire.say(*sent)
        else:
            for n in range(MANY):
                wire.say(Ping(request=f"{n}"))
        error = None
        for _ in range(MANY):
            error = await wire.next(Pong, MessageAck, ErrorFrame)
            if type(error) is ErrorFrame:
                break
        assert type(error) is ErrorFrame
        assert error.name == "rate_limited" and f"for this {limit}" in error.detail, error
        # An edge that stops waits for what it has taken, and here nobody would answer it.
        await until(lambda: not any(one.in_flight for one in edge._edge.sessions.values()))

    chatting(make_site(1, **{f"{limit}_rate": 1}), story)


def in_parts(wire: Wire) -> None:
    """One message in as many parts."""
    step = -(-len(PING) // MANY)
    wire.raw(Opcode.BINARY, PING[:step], fin=False)
    for at in range(MANY):
        wire.raw(Opcode.CONT, PING[(1 + at) * step : (2 + at) * step], fin=at == MANY - 1)


def with_pings(wire: Wire) -> None:
    for _ in range(MANY):
        wire.raw(Opcode.PING, b"")
    wire.raw(Opcode.BINARY, PING)


def with_pongs(wire: Wire) -> None:
    for _ in range(MANY):
        wire.raw(Opcode.PONG, b"")
    wire.raw(Opcode.BINARY, PING)


def malformed(wire: Wire) -> None:
    for _ in range(MANY):
        wire.raw(Opcode.BINARY, b"\x2f")


def beyond_its_rights(wire: Wire) -> None:
    """To a room that nobody knows."""
    room = uuid.UUID(int=4711)
    wire.say(*[SendMessage(room_id=room, client_seq=n, body="x") for n in range(1, 1 + MANY)])


@pytest.mark.parametrize("send", [in_parts, with_pings, with_pongs, malformed, beyond_its_rights])
def test_whatever_a_client_sends_costs_it_and_it_is_not_read_from_for_a_moment(
    make_site: MakeSite, send: Callable[[Wire], None]
) -> None:
    async def story(edge: EdgeRole, wire: Wire) -> None:
        (connection,) = edge._listeners.server.conversations()
        read_on, heard = connection.read_on, set()

        def told(wanted: bool) -> None:
            heard.add(wanted)
            read_on(wanted)

        connection.read_on = told  # type: ignore[method-assign]
        send(wire)
        assert await wire.next(Pong, ErrorFrame)
        assert False in heard

    chatting(make_site(1, device_rate=9), story)


# --- what the log has answered


def test_an_ack_leaves_with_the_reading_that_brought_the_reply_of_the_log(
    make_site: MakeSite,
) -> None:
    async def story(edge: EdgeRole, wire: Wire) -> None:
        wire.say(CreateRoom(name="prompt"))
        room = (await wire.next(RoomAnswer)).room_id
        happened: list[str] = []
        on_reply, write = edge._edge.on_reply, edge._traffic.write

        def replied(shard: int, log_session: int, results: bytes | memoryview) -> None:
            asyncio.get_running_loop().call_soon(happened.append, "the loop has turned")
            on_reply(shard, log_session, results)
            happened.append("replied")

        def written(connection: Any, frames: list[bytes]) -> None:
            happened.append("written")
            write(connection, frames)

        edge._edge.on_reply = replied  # type: ignore[method-assign]
        edge._traffic.write = written  # type: ignore[method-assign]
        for seq in range(1, 4):
            happened.clear()
            wire.say(SendMessage(room_id=room, client_seq=seq, body="x"))
            await wire.next(MessageAck)
            assert happened == ["replied", "written", "the loop has turned"]

    chatting(make_site(1), story)


def test_what_replicas_say_wakes_an_edge_for_its_clients_alone(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        await site.start_replica(0)
        edge = await site.start_edge(0)
        (link,) = edge._replicas._links.values()
        await until(lambda: not edge.health() and edge._waking._idle() == DESERTED_TICKS - 1)
        assert not edge._awake
        edge._replicas._locals[0].on_batch(link)
        assert not edge._awake
        wire = await Wire.dial(site, edge)
        edge._replicas._locals[0].on_batch(link)
        assert edge._awake
        await until(lambda: edge._waking._idle() == QUIET_TICKS - 1)
        await wire.close()

    make_site(1).run(story)


def test_a_full_edge_serves_and_is_not_ready(make_site: MakeSite) -> None:
    """Who asks takes the only place there is."""

    async def story(site: WiredSite) -> None:
        await site.start_replica(0)
        edge = await site.start_edge(0)
        await until(lambda: not edge.health())
        for path, end in ((b"/readyz", b"503"), (b"/healthz", b"200")):
            reader, writer = await asyncio.open_connection("127.0.0.1", edge._listeners.port)
            writer.write(b"GET %b HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n" % path)
            assert (await reader.read()).split()[1] == end, path
            writer.close()
            await until(lambda: not edge._listeners.server.entrance.visitors)

    make_site(1, connections_max=1).run(story)


# --- what the edge holds for clients


HELD_MAX = 64 * KIB
UNFINISHED = b"\x82\xff" + (1 << 19).to_bytes(8, "big") + bytes(4) + bytes(2 * HELD_MAX)


def unfinished(wire: Wire, _history: list[Frame]) -> None:
    """A frame that never ends."""
    wire.bytes(UNFINISHED)


def unfinished_in_parts(wire: Wire, _history: list[Frame]) -> None:
    """A message that never ends, each part of it whole."""
    wire.raw(Opcode.BINARY, bytes(KIB), fin=False)
    for _ in range(2 * HELD_MAX // KIB):
        wire.raw(Opcode.CONT, bytes(KIB), fin=False)


def unread(wire: Wire, history: list[Frame]) -> None:
    """History that nobody takes."""
    for request in history:
        wire.say(request)


async def history(wire: Wire) -> list[Frame]:
    """Requests for more than all buffers between two processes hold."""
    wire.say(CreateRoom(name="large"))
    room = (await wire.next(RoomAnswer)).room_id
    for first in range(1, 61, 5):
        sent = range(first, first + 5)
        wire.say(*[SendMessage(room_id=room, client_seq=n, body="x" * 2000) for n in sent])
        for _ in sent:
            answer = await wire.next(MessageAck, ErrorFrame)
            assert type(answer) is MessageAck, answer
    return [SnapshotRequest(room_id=room, limit=90) for _ in range(PAGES)]


PAGES = 120  # of 100 KiB and more each


@pytest.mark.parametrize("send", [unfinished, unfinished_in_parts, unread])
def test_a_client_for_which_too_much_is_held_is_closed(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, send: Callable[[Wire, list[Frame]], None]
) -> None:
    async def story(edge: EdgeRole, wire: Wire) -> None:
        asked = await history(wire)
        monkeypatch.setattr(limits, "CONNECTION_HELD_MAX", HELD_MAX)
        send(wire, asked)
        beat = edge._waking
        counted = beat._counted
        counters = edge._edge.counters
        await until(lambda: "error_held_too_much" in counters or beat._counted > counted + 300)
        assert counters.get("error_held_too_much") == 1
        assert await wire.ended() == 4013

    chatting(make_site(1), story)


def test_nothing_is_made_for_a_client_that_does_not_read_and_all_once_it_does(
    make_site: MakeSite,
) -> None:
    async def story(edge: EdgeRole, wire: Wire) -> None:
        asked = await history(wire)
        (connection,) = edge._listeners.server.conversations()
        unread(wire, asked)
        await until(lambda: connection.blocked)
        counted = edge._waking._counted
        await until(lambda: edge._waking._counted > counted + 30)
        assert connection.held < 512 * KIB, "64 KiB, and what was made before it was blocked"
        for _ in asked:
            assert await wire.next(SnapshotChunk, ErrorFrame)

    chatting(make_site(1), story)


def test_a_client_that_takes_nothing_for_very_long_is_closed(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LAG_MS_MAX", 0)
    monkeypatch.setattr(edge_role, "_STUCK_TICKS", 10)

    async def story(edge: EdgeRole, wire: Wire) -> None:
        unread(wire, await history(wire))
        counted, counters = edge._waking._counted, edge._edge.counters
        closed = "error_subscription_too_slow"
        await until(lambda: closed in counters or edge._waking._counted > counted + 300)
        assert closed in counters

    chatting(make_site(1), story)


# --- what a reader finds broken


LEAF_SIZE = SMALL.records_max * RECORD_SIZE
EVERY_LEAF = tuple(range(100, SMALL.segment_records * RECORD_SIZE, LEAF_SIZE))


@pytest.mark.parametrize(
    ("number", "places"),
    [(0, (700,)), (1, (700,)), (0, (700, 9 * LEAF_SIZE)), (1, EVERY_LEAF)],
    ids=["a leaf", "a leaf of a later segment", "two leaves", "every leaf"],
)
def test_what_a_reader_finds_broken_is_mended_from_a_peer_and_the_reader_gets_it(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, number: int, places: tuple[int, ...]
) -> None:
    monkeypatch.setattr(limits, "SEGMENT_MEND_MS_MAX", MEND_MS)

    async def story(site: WiredSite) -> None:
        await site.start_replica(1)
        own = await site.start_replica(0)
        edge = await site.start_edge(0)
        await until(lambda: not edge.health())
        wire = await Wire.dial(site, edge)
        bodies = await written(wire, own.status().log_seq)
        await until(lambda: own._rooms.log_seq == site.replicas[1]._rooms.log_seq)
        volumes = [VolumeReader(site.node(node) / "shard-0") for node in range(2)]
        await until(lambda: volumes[0].read_extent(number) == volumes[1].read_extent(number))
        for place in places:
            flip(site.node(0) / f"shard-0/segments/{number:06d}", place)
        asked_before = own.status().sent.get("request_chunk", 0)
        wire.say(SnapshotRequest(room_id=wire.room, from_op=number * 100 + 1, limit=90))
        page = await wire.next(SnapshotChunk, ErrorFrame)
        assert type(page) is SnapshotChunk, page
        assert [(m.op, m.body) for m in page.messages] == [
            (op, bodies[op]) for op in range(number * 100 + 1, number * 100 + 1 + 90)
        ]
        told = own.status()
        assert told.marks["segment_reported"] >= 1
        assert "scrub_found_segment" not in told.marks, "the reader's word was not needed"
        # each broken piece was asked for once: the reader waits for no second try
        assert told.sent["request_chunk"] - asked_before <= len(places)
        assert told.received["chunk"] == len(places)
        await until(lambda: volumes[0].read_extent(number) == volumes[1].read_extent(number))
        await wire.close()

    make_site(2, scrub_interval_ms=600_000).run(story)


MEND_MS = 60_000  # longer than the product waits: a busy machine is no broken wire
RECORDS = 360  # two segments are sealed and have left the ring


async def written(wire: Wire, log_seq: int) -> dict[int, str]:
    """The bodies of a room of that many records, by op."""
    assert log_seq == 0
    wire.say(CreateRoom(name="long"))
    wire.room = (await wire.next(RoomAnswer)).room_id
    bodies = {1: "long"}
    for first in range(1, RECORDS, 20):
        sent = range(first, first + 20)
        said = {n: f"message {n}" for n in sent}
        wire.say(*[SendMessage(room_id=wire.room, client_seq=n, body=said[n]) for n in sent])
        for _ in sent:
            ack = await wire.next(MessageAck)
            bodies[ack.op] = said[ack.client_seq]
    return bodies
