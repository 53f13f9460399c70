"""From messages to requests: they are packed as records into the batch a log session is filling.

    log session    ready? -- request --> in flight -- reply --> ready       one request at a time
    its queue      [full] [full] [filling]             bounded; then senders are told `busy`

One request is filled before another log session is used: the same messages cost fewer requests,
each with its flushes and signatures. Whoever has records in a log session goes on in it, since they
overtake each other; once these are answered, any of them will do.

A batch keeps its bytes until it is answered. If the session of the log is lost meanwhile, the same
bytes are sent again under the next one: what was committed comes back as `duplicate`, answered like
the first time.
"""

from collections import deque
from typing import Any

import numpy as np

from appliance.base.checksum import crc32c
from appliance.base.limits import BODY_SIZE_MAX, LOG_SESSION_BATCHES_MAX
from appliance.cores.edge.message_id import check_message_id
from appliance.formats.client.fields import NUMBER_MAX
from appliance.formats.client.sending import SendItem
from appliance.formats.client_errors import BodyTooLarge, FieldInvalid, KindRefused
from appliance.formats.geometry import RECORD_SIZE, SESSION_BLOCK_SIZE, Geometry
from appliance.formats.imported import decode_imported
from appliance.formats.record import CHECKSUM, KIND_IMPORTED, KIND_MESSAGE, MSG_ID, RECORD_STRUCT

_pack = RECORD_STRUCT.pack_into
_CHECKSUM_END = CHECKSUM + 4
ZERO16 = bytes(16)


class MessageIds:
    """UUIDv7s: the milliseconds, then a counter that starts at a random place on every tick."""

    __slots__ = ("_prng", "_base", "_low")
    _base: int
    _low: int

    def __init__(self, prng: Any) -> None:
        self._prng = prng
        self.on_tick(0)

    def on_tick(self, realtime_us: int) -> None:
        """A new millisecond, a new start."""
        self._base = (realtime_us // 1000 & 0xFFFF_FFFF_FFFF) << 80 | 7 << 76 | 2 << 62
        self._low = self._prng.next_u64() >> 3  # 61 bits: never carries out of the 62 below

    def next(self) -> bytes:
        """16 bytes as they stand in records."""
        self._low += 1
        return (self._base | self._low).to_bytes(16, "little")


class Batch:
    """Records of one request, and to whom each result belongs."""

    __slots__ = ("_whole", "view", "count", "runs", "sent")

    def __init__(self, records_max: int) -> None:
        # of numpy, whose zeros take no memory before they are written: few batches are ever full
        self._whole = np.zeros(SESSION_BLOCK_SIZE + records_max * RECORD_SIZE, np.uint8).data
        self.view = self._whole[SESSION_BLOCK_SIZE:]  # the records
        self.clear()

    @property
    def body(self) -> memoryview:
        """That of its request: room for the session's block, and the records."""
        return self._whole[: SESSION_BLOCK_SIZE + self.count * RECORD_SIZE]

    def clear(self) -> None:
        """Ready to be filled again; each record is written whole, so old bytes need no wiping."""
        self.count = 0
        self.runs: list[list[Any]] = []  # [owner, first record, records, device]
        self.sent = False

    def claim(self, owner: Any, count: int, device: bytes) -> None:
        """The last `count` records are `owner`'s, sent by `device`."""
        if self.runs and self.runs[-1][0] is owner:
            self.runs[-1][2] += count
        else:
            self.runs.append([owner, self.count - count, count, device])


class LogSession:
    """One session of the replicated log: what it has in flight and what collects behind it."""

    def __init__(self, geometry: Geometry, shard: int, index: int) -> None:
        self.shard, self.index = shard, index
        self.has_session = False  # else what collects waits until it has one
        self.ready = False  # the session may take a request now
        self.in_flight: Batch | None = None
        self.records_max = geometry.records_max
        self._queue: deque[Batch] = deque([Batch(self.records_max)])
        self._free: list[Batch] = []
        self._devices: dict[bytes, int] = {}  # runs of each that are not answered

    def holds(self, device: bytes) -> bool:
        """Whether records of `device` wait here or are in flight."""
        return device in self._devices

    @property
    def has_space(self) -> bool:
        """Whether a record that is added now goes out with the next request."""
        return len(self._queue) == 1 and self._queue[0].count < self.records_max

    @property
    def depth(self) -> int:
        """Records that wait or are in flight."""
        depth = self.in_flight.count if self.in_flight is not None else 0
        for batch in self._queue:
            depth += batch.count
        return depth

    def vacancy(self) -> int:
        """Records that may be added before `busy` is the answer."""
        batches = LOG_SESSION_BATCHES_MAX - len(self._queue) + 1
        return batches * self.records_max - self._queue[-1].count

    def filling(self) -> Batch:
        """The batch with room for a record; only when there is a vacancy."""
        batch = self._queue[-1]
        if batch.count == self.records_max:
            assert len(self._queue) < LOG_SESSION_BATCHES_MAX
            batch = self._free.pop() if self._free else Batch(self.records_max)
            self._queue.append(batch)
        return batch

    def claim(self, owner: Any, count: int, device: bytes) -> None:
        """The last `count` records that were packed here are `owner`'s, sent by `device`."""
        runs = self._queue[-1].runs
        before = len(runs)
        self._queue[-1].claim(owner, count, device)
        if len(runs) > before:
            self._devices[device] = self._devices.get(device, 0) + 1

    def on_ready(self) -> None:
        """The session is registered and has no request in flight."""
        self.has_session = self.ready = True

    def take(self) -> Batch | None:
        """The batch to request now, if the session is ready: one to repeat, or the oldest
        collected."""
        if not self.ready:
            return None
        batch = self.in_flight
        if batch is None and self._queue[0].count:
            batch = self.in_flight = self._queue.popleft()
            if not self._queue:
                self._queue.append(self._free.pop() if self._free else Batch(self.records_max))
        if batch is None or batch.sent:
            return None
        batch.sent, self.ready = True, False
        return batch

    def on_reply(self) -> Batch:
        """The batch in flight is answered; give it back by `recycle`."""
        batch = self.in_flight
        assert batch is not None
        self.in_flight = None
        devices = self._devices
        for _, _, _, device in batch.runs:
            left = devices[device] - 1
            if left:
                devices[device] = left
            else:
                del devices[device]
        return batch

    def recycle(self, batch: Batch) -> None:
        """The batch's bytes are not needed any more."""
        batch.clear()
        if len(self._free) < 2:
            self._free.append(batch)

    def on_evicted(self) -> None:
        """The session of the log is lost: the batch in flight goes out again under the next one."""
        self.has_session = self.ready = False
        if self.in_flight is not None:
            self.in_flight.sent = False


def log_session_for(log_sessions: list[LogSession], device: bytes) -> LogSession:
    """Where what `device` sends next collects: with what it has sent before, else in the first
    log session whose next request has space."""
    for log_session in log_sessions:
        if log_session.holds(device):
            return log_session
    spacious = None
    for log_session in log_sessions:
        if log_session.has_space:
            if log_session.has_session:
                return log_session
            spacious = spacious or log_session
    return spacious or max(log_sessions, key=LogSession.vacancy)


def check_item(item: SendItem, expected_kind: int, now_us: int) -> None:
    """Raises what is wrong with a message, whoever sent it."""
    _, client_seq, _, msg_id, kind, body = item
    if len(body) > BODY_SIZE_MAX:
        raise BodyTooLarge(f"a body of {len(body)} bytes, at most {BODY_SIZE_MAX} are allowed")
    if not 1 <= client_seq <= NUMBER_MAX:
        raise FieldInvalid("client_seq starts at 1 and is below 2^63")
    if kind != expected_kind:
        raise KindRefused(f"kind {expected_kind} is taken here, not {kind}")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeError:
            raise FieldInvalid("the body is not UTF-8") from None
    if msg_id != ZERO16:
        check_message_id(msg_id, kind, now_us)
    if kind == KIND_IMPORTED and decode_imported(body) is None:
        raise FieldInvalid("an imported body begins with a line: microseconds, a space, an author")


def pack(
    batch: Batch,
    *,
    room_id: bytes,
    msg_id: bytes,
    author_id: int,
    parent_id: bytes,
    body: bytes,
    client_id: bytes,
    client_seq: int,
    kind: int,
) -> None:
    """Append one sealed record, as `formats.record.encode` makes it, without a copy."""
    offset = batch.count * RECORD_SIZE
    view = batch.view
    _pack(
        view,
        offset,
        room_id,
        msg_id,
        author_id,
        b"",
        parent_id,
        0,
        len(body),
        body,
        0,
        b"",
        client_id,
        client_seq,
        b"",
        kind,
        b"",
        0,
        0,
    )
    checksum = crc32c(view[offset + MSG_ID : offset + CHECKSUM])
    view[offset + CHECKSUM : offset + _CHECKSUM_END] = checksum.to_bytes(4, "little")
    batch.count += 1


def pack_probe(batch: Batch, room_id: bytes, ids: MessageIds) -> None:
    """Append a record that asks whether there is such a room, and that no room can take: no device
    has the id zero, and a device's first message has number 1. A room that exists answers
    `sequence_gap`, one that does not `room_unknown`, and nothing changes."""
    pack(
        batch,
        room_id=room_id,
        msg_id=ids.next(),
        author_id=0,
        parent_id=ZERO16,
        body=b"",
        client_id=ZERO16,
        client_seq=NUMBER_MAX,
        kind=KIND_MESSAGE,
    )


def pack_items(
    batch: Batch, items: list[SendItem], *, author_id: int, client_id: bytes, ids: MessageIds
) -> None:
    """Append checked messages of one device."""
    view, offset = batch.view, batch.count * RECORD_SIZE
    for room_id, client_seq, parent_id, msg_id, kind, body in items:
        if msg_id == ZERO16:
            msg_id = ids.next()
        _pack(
            view,
            offset,
            room_id,
            msg_id,
            author_id,
            b"",
            parent_id,
            0,
            len(body),
            body,
            0,
            b"",
            client_id,
            client_seq,
            b"",
            kind,
            b"",
            0,
            0,
        )
        checksum = crc32c(view[offset + MSG_ID : offset + CHECKSUM])
        view[offset + CHECKSUM : offset + _CHECKSUM_END] = checksum.to_bytes(4, "little")
        offset += RECORD_SIZE
    batch.count += len(items)
