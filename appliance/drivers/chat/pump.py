"""The load generator's ends of a connection: as little work for a message as can be.

A sender keeps each of its flows (a room, a body, a depth) full: whatever frame of acknowledgements
comes in is answered by one frame with as many new messages to the same rooms. In binary both are
numpy columns; a message costs about a microsecond, which matters because the generator shares the
machine with what it measures. Numbers and ops are kept and judged when the run is over.

A listener counts the events of one room, all of the same size, and checks that none is missing.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import msgspec
import numpy as np

from appliance.base.errors import InputError
from appliance.base.layout import offset_of
from appliance.base.limits import KIB, WINDOW_LENGTH
from appliance.drivers.chat.carrier import Carrier, Dial
from appliance.drivers.chat.connection import dial as dial_websocket
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import ConnectionLost
from appliance.formats.client.acks import ACK_ITEM
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.frame import (
    SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON,
    Frame,
    binary_head,
    encode_binary,
    encode_json,
    layout_of,
)
from appliance.formats.client.objects import ObjectEvent, ObjectState
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.sending import SEND_ITEM_SIZE, MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from appliance.formats.record import room_low

DIAL_TIMEOUT_S = 30.0  # a thousand at once take their time
_CODE_ACK, _CODE_EVENT = MessageAck.code, MessageEvent.code
_HEAD = 4  # bytes before the items of a binary frame
_FRAME_SIZE = 256 * KIB  # of a frame of messages: smaller than allowed, so that none waits for it


class Load(NamedTuple):
    """One flow of a sender."""

    room_id: bytes
    body: bytes
    depth: int


class Told(NamedTuple):
    """What a sender was told: columns over all acknowledgements, in the order they came."""

    flow: np.ndarray
    client_seq: np.ndarray
    op: np.ndarray
    at_ns: np.ndarray
    latency_ns: np.ndarray


class _AckJson(msgspec.Struct):
    type: str
    room_id: str = ""
    client_seq: int = 0
    op: int = 0
    name: str = ""
    detail: str = ""


class _End:
    """A connection on which the node said welcome; whatever is wrong ends up in `failure`.

    Frames go to whoever asked for an answer, else to `on_data`.
    """

    def __init__(self, binary: bool, on_data: Callable[[bytes], None]) -> None:
        self.binary = binary
        self._on_data = on_data
        self.failure = ""
        self.temporary = False  # the failure is one that passes: the same may work a little later
        self.connection: Carrier | None = None
        self._first: asyncio.Future[bytes] | None = None

    async def connect(self, endpoint: Endpoint, token: str, dial: Dial = dial_websocket) -> None:
        """`dial` opens a connection, by the one transport or another."""
        subprotocol = SUBPROTOCOL_BINARY if self.binary else SUBPROTOCOL_JSON
        self.connection = await dial(endpoint, subprotocol, self._on_any, DIAL_TIMEOUT_S)
        hello = Hello(token=token, client_id=uuid4())
        await self.ask(hello, Welcome)

    async def ask(self, frame: Frame, answer: type[Frame]) -> Frame:
        """Send a frame, return the next one, which must be of the kind given."""
        assert self.connection is not None
        self._first = asyncio.get_running_loop().create_future()
        encode = encode_binary if self.binary else encode_json
        self.connection.send(encode(frame))
        waited: list[asyncio.Future[Any]] = [self._first, self.connection.lost]
        await asyncio.wait(waited, timeout=DIAL_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if not self._first.done():
            raise ConnectionLost(f"{self.connection.endpoint.url}: no answer to {type(frame)}")
        data = self._first.result()
        parsed = parse_binary_edge(data)[0] if self.binary else parse_json_edge(data)
        if not isinstance(parsed, answer):
            raise ConnectionLost(f"{self.connection.endpoint.url}: {parsed}")
        return parsed

    def _on_any(self, data: bytes) -> None:
        if self._first is not None and not self._first.done():
            self._first.set_result(data)
        else:
            self._on_data(data)

    def fail(self, data: bytes) -> None:
        """Note the first frame that should not have come; what people changed of a room's objects
        may come with any subscription.
        """
        if self.failure:
            return
        try:
            frames = parse_binary_edge(data) if self.binary else [parse_json_edge(data)]
            if all(isinstance(frame, ObjectState | ObjectEvent) for frame in frames):
                return
            self.failure = str(frames)
            self.temporary = all(isinstance(one, ErrorFrame) and one.temporary for one in frames)
        except InputError as error:
            self.failure = f"{error}: {data[:100]!r}"

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()


class Sender(_End):
    """Keeps its flows full until it is told to stop."""

    def __init__(self, loads: list[Load], binary: bool, on_progress: Callable[[], None]) -> None:
        super().__init__(binary, self._on_acks if binary else self._on_ack)
        assert loads and all(load.depth <= WINDOW_LENGTH for load in loads)
        order = sorted(range(len(loads)), key=lambda i: room_low(loads[i].room_id))
        self.loads = [loads[i] for i in order]
        self.order = order  # position in the given list of each flow
        self.acked = 0
        self.sent = 0
        self.running = False
        self._on_progress = on_progress
        self._keys = np.array([room_low(load.room_id) for load in self.loads], dtype="<u8")
        assert len(set(self._keys.tolist())) == len(self.loads)
        self._depths = np.array([load.depth for load in self.loads], dtype=np.uint64)
        self._sent_at = np.zeros((len(self.loads), WINDOW_LENGTH), dtype=np.int64)
        self._told: list[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._prepare_binary() if binary else self._prepare_json()

    # --- running

    def start(self) -> None:
        """Fill all flows."""
        self.running = True
        flows = np.repeat(np.arange(len(self.loads)), self._depths.astype(int))
        seqs = np.concatenate([np.arange(1, load.depth + 1) for load in self.loads])
        order = np.argsort(seqs, kind="stable")
        self._send(flows[order], seqs[order].astype(np.uint64), time.perf_counter_ns())

    def stop(self) -> None:
        """Send no more; what is in flight is still answered."""
        self.running = False

    @property
    def waiting(self) -> int:
        """Messages without an acknowledgement."""
        return self.sent - self.acked

    def told(self) -> Told:
        """Everything that was acknowledged."""
        if not self._told:
            empty = np.zeros(0, dtype=np.int64)
            return Told(empty, empty, empty, empty, empty)
        at = np.repeat([row[0] for row in self._told], [len(row[1]) for row in self._told])
        flow, seq, op, latency = (
            np.concatenate(column) for column in list(zip(*self._told, strict=True))[1:]
        )
        return Told(flow, seq, op, at, latency)

    def _on_acks(self, data: bytes) -> None:
        """A binary frame of acknowledgements."""
        if data[0] != _CODE_ACK:
            self.fail(data)
            return
        items = np.frombuffer(data, dtype=_ACK, offset=_HEAD)
        flows = np.searchsorted(self._keys, items["room"])
        self._note(flows, items["client_seq"], items["op"])

    def _on_ack(self, data: bytes) -> None:
        """One acknowledgement as JSON."""
        ack = self._decode(data)
        if ack.type != "message_ack":
            self.fail(data)
            return
        flows = np.array([self._flow_of[ack.room_id]])
        self._note(flows, np.array([ack.client_seq], dtype=np.uint64), np.array([ack.op]))

    def _note(self, flows: np.ndarray, seqs: np.ndarray, ops: np.ndarray) -> None:
        now = time.perf_counter_ns()
        latency = now - self._sent_at[flows, seqs & _MASK]
        self._told.append((now, flows, seqs, ops, latency))
        self.acked += len(flows)
        if self.running:
            self._send(flows, seqs + self._depths[flows], now)
        self._on_progress()

    def _send(self, flows: np.ndarray, seqs: np.ndarray, now: int) -> None:
        assert self.connection is not None
        self._sent_at[flows, seqs & _MASK] = now
        self.sent += len(flows)
        if self.binary:
            items = self._templates[flows]
            items["client_seq"] = seqs
            for start in range(0, len(items), self._items_max):
                part = items[start : start + self._items_max]
                head = binary_head(SendMessage, len(part))
                self.connection.send(head + part.tobytes())
            return
        for flow, seq in zip(flows.tolist(), seqs.tolist(), strict=True):
            before, after = self._halves[flow]
            self.connection.send(b"%b%d%b" % (before, seq, after))

    # --- forms of a message

    def _prepare_binary(self) -> None:
        size = len(self.loads[0].body)
        assert all(len(load.body) == size for load in self.loads)
        item = np.dtype(
            [
                ("room", "V16"),
                ("client_seq", "<u8"),
                ("parent", "V16"),
                ("msg", "V16"),
                ("kind", "u1"),
                ("size", "<u4"),
                ("body", f"V{size}"),
            ]
        )
        assert item.itemsize == SEND_ITEM_SIZE + size
        self._templates = np.zeros(len(self.loads), dtype=item)
        for row, load in zip(self._templates, self.loads, strict=True):
            row["room"], row["size"], row["body"] = load.room_id, size, load.body
        self._items_max = _FRAME_SIZE // item.itemsize

    def _prepare_json(self) -> None:
        ids = [UUID(int=int.from_bytes(load.room_id, "little")) for load in self.loads]
        self._flow_of = {str(room): flow for flow, room in enumerate(ids)}
        self._decode = msgspec.json.Decoder(_AckJson).decode
        self._halves = []
        for room, load in zip(ids, self.loads, strict=True):
            body = msgspec.json.encode(load.body.decode())
            self._halves.append(
                (
                    b'{"type":"send_message","room_id":"%b","client_seq":' % str(room).encode(),
                    b',"body":%b}' % body,
                )
            )


# The first half of a room's id as a number: enough to tell the rooms of one run apart.
_ACK = np.dtype(
    {
        "names": ["room", "client_seq", "op"],
        "formats": ["<u8"] * 3,
        "offsets": [offset_of(ACK_ITEM, name) for name in ("room_id", "client_seq", "op")],
        "itemsize": ACK_ITEM.itemsize,
    }
)
_MASK = np.uint64(WINDOW_LENGTH - 1)
assert WINDOW_LENGTH & (WINDOW_LENGTH - 1) == 0


class Listener(_End):
    """Counts the events of one room from now on."""

    def __init__(self, room_id: UUID, body_size: int, on_progress: Callable[[], None]) -> None:
        super().__init__(True, self._on_events)
        self.room_id = room_id
        self.delivered = 0
        self.next_op = 0
        self.latencies_us: list[int] = []  # of the newest event of each frame
        self._on_progress = on_progress
        before = layout_of(MessageEvent).struct().size
        self._item = np.dtype(
            [
                ("room", "V16"),
                ("op", "<u8"),
                ("msg", "V16"),
                ("author", "<u8"),
                ("parent", "V16"),
                ("timestamp", "<u8"),
                ("rest", f"V{before - 72 + body_size}"),
            ]
        )
        assert self._item.itemsize == before + body_size

    async def listen(self) -> None:
        """Subscribe; events that follow are counted."""
        answer = await self.ask(SubscribeRoom(room_id=self.room_id), Subscribed)
        assert isinstance(answer, Subscribed)
        self.next_op = answer.next_op

    def _on_events(self, data: bytes) -> None:
        if data[0] != _CODE_EVENT:
            self.fail(data)
            return
        items = np.frombuffer(data, dtype=self._item, offset=_HEAD)
        ops, count = items["op"], len(items)
        expected = self.next_op
        if ops[0] != expected or ops[-1] != expected + count - 1:
            self.failure = self.failure or f"op {ops[0]} to {ops[-1]} came, {expected} was due"
        self.next_op = expected + count
        self.delivered += count
        self.latencies_us.append(time.time_ns() // 1000 - int(items["timestamp"][-1]))
        self._on_progress()
