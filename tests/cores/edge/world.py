"""An edge between clients and one small shard, all in one thread, every step taken by the test.

The shard is a stand-in for its replica: it numbers, chains and deduplicates records as one does,
writes them into a ring and seals segments. Requests wait in `requests` until `process` is called,
commits reach the edge when `publish` is called: so a test can put anything between any two steps.
"""

import struct
from typing import Any
from uuid import UUID

import jwt
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.base.errors import FormatError
from appliance.base.limits import SEGMENT_MEND_MS_MAX
from appliance.base.prng import Prng
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.edge import CLOSE, LIST, LOOKUP, MEND, REQUEST, Edge
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.joining_nodes import JoiningNodes
from appliance.cores.edge.revocations import Revocations
from appliance.cores.edge.room_names import RoomNames
from appliance.cores.edge.session import Session
from appliance.cores.edge.token import Tokens
from appliance.formats import segment
from appliance.formats import session as replies
from appliance.formats.checkpoint import ROOM_ROW
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.frame import Frame, encode_binary, encode_json
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent
from appliance.formats.event import decode_policy
from appliance.formats.geometry import RECORD_SIZE, SESSION_BLOCK_SIZE, SMALL
from appliance.formats.policy_bits import POLICY_CLOSED, POLICY_SHARED
from appliance.formats.record import (
    KIND_IMPORTED,
    KIND_MESSAGE,
    KIND_ROOM_CREATE,
    KIND_ROOM_POLICY,
    RECORD,
    RECORD_STRUCT,
    record_hash,
    seal,
)
from appliance.formats.room_name import room_id_of

START_US = 1_800_000_000_000_000
TICK_NS, TICK_US = 10_000_000, 10_000
EPOCH = 7
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
UNLIMITED = dict.fromkeys(("device_rate", "user_rate", "room_rate", "address_rate"), 10000000)


def token(
    name: str = "anna",
    *,
    rights: dict[str, Any] | None = None,
    key: Ed25519PrivateKey = KEY,
    headers: dict[str, Any] | None = None,
    algorithm: str = "EdDSA",
    **claims: object,
) -> str:
    """A token that is good unless told otherwise."""
    now_s = START_US // 1_000_000
    payload = {
        "iss": "site",
        "aud": "chat",
        "sub": name,
        "exp": now_s + 3600,
        "nbf": now_s,
        "iat": now_s,
        "rights": {"*": ["read", "send", "moderate"]} if rights is None else rights,
    } | claims
    payload = {name: value for name, value in payload.items() if value is not None}
    return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": "k1", **(headers or {})})


def device(number: int) -> UUID:
    """A client_id."""
    return UUID(int=1000 + number)


class Files:
    """Sealed segments by number; what is not there cannot be read."""

    def __init__(self) -> None:
        self.oldest = 0
        self.extents: dict[int, bytes] = {}

    def view(self, number: int) -> segment.SegmentView | None:
        data = self.extents.get(number)
        if data is None or number < self.oldest:
            return None
        try:
            return segment.SegmentView(data, SMALL)
        except FormatError:
            return None


class Shard:
    """What a replica does to records, small enough to be seen at a glance."""

    def __init__(self) -> None:
        self.ring = memoryview(bytearray(segment.ring_size(SMALL)))
        self.files = Files()
        self.log: list[bytes] = []
        self.rooms: dict[bytes, dict[str, Any]] = {}
        self.windows: dict[tuple[bytes, bytes], list[int]] = {}
        self.refuse_with = replies.OK  # a code for whatever comes next
        self.step_us = 1  # between two records
        self.fetching = False  # others commit meanwhile
        self.newest_id = bytes(32)  # of the newest sealed segment

    def apply(self, body: bytes | memoryview) -> bytes:
        """Judge and commit the records of a request; their results."""
        records = np.frombuffer(body, RECORD)
        return b"".join(
            self._apply_one(RECORD_STRUCT.unpack(record.tobytes())) for record in records
        )

    def _apply_one(self, fields: tuple[Any, ...]) -> bytes:
        room_id, client_id, client_seq, kind = fields[0], fields[10], fields[11], fields[13]
        room, window = self.rooms.get(room_id), self.windows.setdefault((client_id, room_id), [])
        if self.refuse_with:
            return _result(code=self.refuse_with)
        if kind == KIND_ROOM_CREATE and room is not None:
            return _result(code=replies.DUPLICATE, log_seq=room["created"])
        if room is None and kind != KIND_ROOM_CREATE:
            return _result(code=replies.ROOM_UNKNOWN)
        if client_seq <= len(window) - 64:
            return _result(code=replies.DUPLICATE_EXPIRED)
        if client_seq <= len(window):
            return _result(code=replies.DUPLICATE, log_seq=window[client_seq - 1])
        if client_seq > len(window) + 1:
            return _result(code=replies.SEQUENCE_GAP, seq=len(window) + 1)
        if room is not None and kind in (KIND_MESSAGE, KIND_IMPORTED):
            if room.get("bits", 0) & POLICY_CLOSED:
                return _result(code=replies.FORBIDDEN)
        if room is None:
            room = self.rooms[room_id] = {
                "count": 0,
                "head": bytes(32),
                "created": len(self.log) + 1,
                "sealed": 0,
            }
        room["count"] += 1
        window.append(len(self.log) + 1)
        return self._store(room, fields)

    def _store(self, room: dict[str, Any], fields: tuple[Any, ...]) -> bytes:
        (
            room_id,
            msg_id,
            author,
            _,
            parent,
            _,
            size,
            body,
            crc,
            _,
            client_id,
            client_seq,
            blob,
            flags,
            _,
            _,
            _,
        ) = fields
        log_seq = len(self.log) + 1
        if flags == KIND_ROOM_POLICY:
            policy = decode_policy(body[:size])
            assert policy is not None
            room |= {"policy": log_seq, "bits": policy.bits}
        timestamp = START_US + len(self.log) * self.step_us
        made = RECORD_STRUCT.pack(
            room_id,
            msg_id,
            author,
            b"",
            parent,
            timestamp,
            size,
            body,
            crc,
            room["head"],
            client_id,
            client_seq,
            blob,
            flags,
            b"",
            room["count"],
            log_seq,
        )
        record = _sealed(made)
        room["head"] = record_hash(record)
        self.log.append(record)
        self.write(record, log_seq)
        return _result(seq=room["count"], log_seq=log_seq, timestamp=timestamp, digest=room["head"])

    def write(self, record: bytes, log_seq: int) -> None:
        number, slot = segment.number_of(SMALL, log_seq), segment.slot_of(SMALL, log_seq)
        if not self.fetching:
            self._write(number, slot, record)
        if slot + 1 == SMALL.segment_records:
            self._seal(number)

    def _write(self, number: int, slot: int, record: bytes) -> None:
        base = number % 2 * segment.ring_buffer_size(SMALL)
        words = self.ring[base : base + 16].cast("Q")
        words[0] = number
        start = base + segment.RING_HEAD_SIZE + slot * RECORD_SIZE
        self.ring[start : start + RECORD_SIZE] = record
        words[1] = slot + 1

    def fetch(self) -> None:
        """A state sync begins: both buffers of the ring are empty until it ends."""
        self.fetching = True
        self.ring[:] = bytes(len(self.ring))

    def fetched(self) -> None:
        """The state sync ends: the ring holds the open segment, and nothing before it."""
        self.fetching = False
        first = len(self.log) // SMALL.segment_records * SMALL.segment_records
        for log_seq in range(first + 1, len(self.log) + 1):
            self.write(self.log[log_seq - 1], log_seq)

    def _seal(self, number: int) -> None:
        records = b"".join(self.log[number * SMALL.segment_records :])
        step = SMALL.records_max * RECORD_SIZE
        leaves = [segment.leaf_id(records[at : at + step]) for at in range(0, len(records), step)]
        footer = segment.encode_footer(
            records,
            cluster=bytes(16),
            shard=0,
            number=number,
            previous_id=self.newest_id,
            leaf_ids=leaves,
            previous_of=lambda room_id: self.rooms[room_id]["sealed"],
        )
        self.newest_id = segment.segment_id(footer)
        extent = records.ljust(SMALL.segment_data_size, b"\0") + footer
        self.files.extents[number] = extent.ljust(SMALL.extent_size, b"\0")
        for room_id in {record[:16] for record in self.log[number * SMALL.segment_records :]}:
            self.rooms[room_id]["sealed"] = number + 1

    def row(self, room_id: bytes) -> bytes:
        room = self.rooms.get(room_id)
        if room is None:
            return bytes(ROOM_ROW.itemsize)
        row = np.zeros(1, ROOM_ROW)
        row["room_id"], row["message_count"] = np.void(room_id), room["count"]
        row["sealed_segment"] = room["sealed"]
        policy = room.get("policy", room["created"]), room["created"], room.get("bits", 0)
        row["policy"] = np.void(struct.pack("<QQQ", *policy))
        row["sites"][0, 0] = bool(room.get("bits", 0) & POLICY_SHARED)
        return row.tobytes()


def _sealed(record: bytes) -> bytes:
    """As a replica seals what it stores."""
    made = bytearray(record)
    seal(made, 0)
    return bytes(made)


def _result(
    *,
    code: int = replies.OK,
    seq: int = 0,
    log_seq: int = 0,
    timestamp: int = 0,
    digest: bytes = b"",
) -> bytes:
    return replies.RESULT_STRUCT.pack(seq, log_seq, timestamp, code, b"", digest)


# by whether it is binary; frames go over this wire as they are
ENCODINGS = [Encoding(binary=binary, framing=bytes) for binary in (False, True)]


class Closed(dict[int, str]):
    """Names of errors; none of a session that lives, so that a test which expects one fails."""

    def __missing__(self, number: int) -> str:
        return ""


class World:
    """The edge, the shard, and what each client has received."""

    def __init__(
        self,
        *,
        rates: dict[str, Any] | None = None,
        log_sessions: int = 4,
        attached: bool = True,
        revocations: Revocations | None = None,
        joining: JoiningNodes | None = None,
        room_names: RoomNames | None = None,
    ) -> None:
        self.shard = Shard()
        self.tokens = Tokens(issuer="site", audience="chat", keys={"k1": KEY.public_key()})
        self.edge = Edge(
            geometry=SMALL,
            node=1,
            epoch=EPOCH,
            shard_count=1,
            shard_of=lambda room_id: 0,
            tokens=self.tokens,
            admission=Admission(**(UNLIMITED | (rates or {}))),
            prng=Prng(1),
            log_sessions_per_shard=log_sessions,
            revocations=revocations,
            joining=joining,
        )
        if room_names is not None:
            self.edge.lookup.read_names(room_names)
        if revocations is not None:
            self.tokens.is_revoked = revocations.is_revoked
        self.requests: list[tuple[int, bytes, int]] = []  # log session, records, count
        self.received: dict[int, list] = {}  # session number -> frames
        self.closed = Closed()  # session number -> name of the error
        self.mends: set[int] = set()  # segments that the replica was asked to mend
        self.now_ns, self.now_us = 0, START_US
        self.lookups_answered = True
        self.rooms_here = True  # else the replica's tables are not there, and lack every room
        self.edge.on_tick(0, START_US)
        for log_session in range(log_sessions):
            self.edge.on_ready(0, log_session)
        if attached:
            self.attach()

    def attach(self) -> None:
        self.edge.on_attached(0, self.shard.ring, self.shard.files, len(self.shard.log))

    def open(
        self,
        *,
        number: int = 1,
        binary: bool = True,
        name: str = "anna",
        rights: dict[str, Any] | None = None,
        address: str = "10.0.0.1",
    ) -> Session:
        """A session that has said hello."""
        session = self.edge.on_open(address, ENCODINGS[binary])
        self.send(session, Hello(token=token(name, rights=rights), client_id=device(number)))
        assert [type(frame) for frame in self.take(session)] == [Welcome]
        return session

    def send(self, session: Session, *frames: Frame) -> None:
        """Frames of a client, in its encoding; many of a kind that may be many in one."""
        if session.binary:
            self.edge.on_frame(session, encode_binary(*frames), False)
        else:
            for frame in frames:
                self.edge.on_frame(session, encode_json(frame), True)
        self.step()

    def step(self) -> None:
        """One beat: look-ups are answered at once, requests wait for `process`."""
        for _ in range(100_000):
            more = self.edge.beat()
            effects = self.edge.take_effects()
            for effect in effects:
                self._perform(effect)
            self._collect()
            if not more and not effects and not self.edge.is_unfinished:
                return
        raise AssertionError("the edge never comes to rest")

    def _perform(self, effect: tuple[Any, ...]) -> None:
        if effect[0] == REQUEST:
            _, shard, log_session, body, count = effect
            records = body[SESSION_BLOCK_SIZE:]
            assert shard == 0
            assert 1 <= count <= SMALL.records_max
            assert len(records) == count * RECORD_SIZE
            assert not any(waiting == log_session for waiting, _, _ in self.requests)
            self.requests.append((log_session, bytes(records), count))
        elif effect[0] == LOOKUP and self.lookups_answered:
            rows = b"".join(
                self.shard.row(room_id if self.rooms_here else bytes(16)) for room_id in effect[2]
            )
            self.edge.on_rooms(0, len(self.shard.log), effect[2], rows)
        elif effect[0] == LIST:
            names = list(self.shard.rooms)[effect[2] : effect[2] + effect[3]]
            if self.rooms_here:
                rows = b"".join(self.shard.row(room_id) for room_id in names)
                self.edge.on_list(0, len(self.shard.log), rows)
            else:
                self.edge.on_list(0, 0, b"")
        elif effect[0] == MEND:
            self.mends.update(effect[2])
        elif effect[0] == CLOSE:
            self.closed[effect[1].number] = effect[2].name

    def _collect(self) -> None:
        for session, payloads in self.edge.take_output():
            frames = self.received.setdefault(session.number, [])
            for payload in payloads:
                frames += parse_binary_edge(payload) if session.binary else _json_frames(payload)

    def process(self, count: int = 1_000_000) -> None:
        """The shard answers that many waiting requests, oldest first."""
        for _ in range(count):
            if not self.requests:
                return
            log_session, records, _ = self.requests.pop(0)
            self.edge.on_reply(0, log_session, self.shard.apply(records))
            self.edge.on_ready(0, log_session)
            self.step()

    def publish(self, log_seq: int | None = None) -> None:
        """The replica of this node has committed that far, or all."""
        self.edge.on_committed(0, len(self.shard.log) if log_seq is None else log_seq)
        self.step()

    def settle(self) -> None:
        """All that is on its way arrives."""
        for _ in range(3):
            self.process()
            self.publish()
            self.tick(2)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_ns += TICK_NS
            self.now_us += TICK_US
            self.edge.on_tick(self.now_ns, self.now_us)
            self.step()

    def mending_fails(self) -> None:
        """As long as a reader waits for a segment to be mended."""
        self.tick(SEGMENT_MEND_MS_MAX * 1_000_000 // TICK_NS + 1)

    def take(self, session: Session) -> list[Any]:
        """What the client has received since the last time."""
        self.step()
        frames, self.received[session.number] = self.received.get(session.number, []), []
        return frames

    def room(self, session: Session, name: str = "general") -> UUID:
        """A room that exists and that the edge knows."""
        self.send(session, CreateRoom(name=name))
        self.settle()
        (frame,) = [frame for frame in self.take(session) if type(frame) is RoomAnswer]
        assert frame.room_id == id_of(room_id_of(name))
        return frame.room_id

    def say(self, session: Session, room_id: UUID, first: int, count: int, size: int = 3) -> None:
        """Messages first ... of this session's device, in frames of a batch each."""
        seqs = range(first, first + count)
        for at in range(0, count, 7):
            self.send(
                session,
                *[
                    SendMessage(room_id=room_id, client_seq=seq, body="x" * size)
                    for seq in seqs[at : at + 7]
                ],
            )

    def ops(self, room_id: UUID) -> list[bytes]:
        """All stored records of a room."""
        return [record for record in self.shard.log if record[:16] == id_bytes(room_id)]


def _json_frames(payload: bytes) -> list[Any]:
    """One payload is one frame, or several live events that were joined."""
    return [
        parse_json_edge(b"{" + part.removeprefix(b"{"))
        for part in payload.replace(b'}{"type":', b'}\0{"type":').split(b"\0")
    ]


def errors(frames: list[Any]) -> list[str]:
    return [frame.name for frame in frames if type(frame) is ErrorFrame]


def events(frames: list[Any]) -> list[int]:
    return [frame.op for frame in frames if type(frame) is MessageEvent]


def acks(frames: list[Any]) -> list[tuple[int, int]]:
    """(client_seq, op) of all acks."""
    return [(frame.client_seq, frame.op) for frame in frames if type(frame) is MessageAck]
