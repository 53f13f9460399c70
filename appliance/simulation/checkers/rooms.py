"""A second, plain state machine for records, fed by the first commit of each op.

It keeps every record for ever, in dictionaries: no windows, no tables, no rings. What the
product's rooms answer must agree with it, and all replicas must answer alike.
"""

import hashlib
import struct
from typing import NamedTuple

from appliance.base.limits import WINDOW_AHEAD_US, WINDOW_LENGTH
from appliance.formats import event
from appliance.formats import record as rec
from appliance.formats import session as ses
from appliance.formats.geometry import RECORD_SIZE, RESULT_SIZE
from appliance.simulation.failure import violated

NAME = "rooms"
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_ASKED = ((0, rec.TIMESTAMP), (rec.BODY_LEN, rec.CHECKSUM), (rec.CLIENT_ID, rec.SEQ))
UUID_OF_NOW = 7  # version of a msg_id that tells when its message was made
WINDOWS_FEW = 2  # an author with no more loses only what is the oldest of all
REFUSED = (ses.ROOM_UNKNOWN, ses.FORBIDDEN, ses.LIMIT, ses.STORAGE_FULL)


class Key(NamedTuple):
    """What makes a record the same record, however often it is asked for."""

    client_id: bytes
    room_id: bytes
    client_seq: int


class Applied(NamedTuple):
    """What became of an accepted record."""

    seq: int
    log_seq: int
    timestamp: int
    hash: bytes


class Window(NamedTuple):
    """Whose a device's window is, its newest record, and the latest that one was given or said."""

    author_id: int
    log_seq: int
    told_us: int


class Room:
    """A room's records, their count, and the hash of the newest one."""

    __slots__ = ("count", "head_hash", "keys")

    def __init__(self) -> None:
        self.count, self.head_hash = 0, bytes(32)
        self.keys: list[Key] = []  # of its records, by seq - 1


class RoomsModel:
    """Everything that was asked and everything that was accepted.

    With `windows_max` the shard may forget devices, once there were so many: when, is left to it.
    """

    def __init__(self, *, segment_records: int, windows_max: int = 0) -> None:
        self._segment_records, self._windows_max = segment_records, windows_max
        self.oldest = 0  # segment that is kept
        self._windows: dict[tuple[bytes, bytes], Window] = {}
        self.asked: dict[Key, bytes] = {}  # records as their devices made them
        self.applied: dict[Key, Applied] = {}
        self.hashes: list[bytes] = []  # of record log_seq at log_seq - 1
        self.rooms: dict[bytes, Room] = {}
        self.names: dict[bytes, str] = {}  # of rooms that edges may create
        self._newest: dict[tuple[bytes, bytes], int] = {}
        self._results: dict[int, bytes] = {}  # op -> results

    @property
    def log_seq(self) -> int:
        return len(self.hashes)

    def on_ask(self, record: bytes) -> None:
        """A device makes a record; asking again means the same bytes."""
        key = key_of(record)
        if self.asked.setdefault(key, record) != record:
            violated(NAME, f"the simulated device asks otherwise than before for {key}")

    def on_commit(self, replica: int, op: int, timestamp: int, body: bytes, results: bytes) -> None:
        """`replica` applied the records of `op` with these results."""
        known = self._results.get(op)
        if known is not None:
            if known != results:
                violated(NAME, f"replica {replica} has other results for op {op} than the first")
            return
        self._results[op] = results
        count = len(body) // RECORD_SIZE
        if len(body) != count * RECORD_SIZE or len(results) != count * RESULT_SIZE:
            violated(NAME, f"op {op}: {len(body)} bytes of records, {len(results)} of results")
        for i in range(count):
            record = body[i * RECORD_SIZE : (i + 1) * RECORD_SIZE]
            result = results[i * RESULT_SIZE : (i + 1) * RESULT_SIZE]
            self._check(op, timestamp - (count - 1 - i), record, result)

    def _check(self, op: int, timestamp: int, record: bytes, result: bytes) -> None:
        key = key_of(record)
        if not self._was_asked(key, record):
            violated(NAME, f"op {op} holds a record that nobody asked for: {key}")
        if _U64.unpack_from(record, rec.TIMESTAMP)[0] != timestamp or not rec.sealed(record):
            violated(NAME, f"op {op}: a record has the wrong timestamp or checksum: {key}")
        seq, log_seq, stamped, code, _, record_hash = ses.RESULT_STRUCT.unpack(result)
        newest = self._newest.get(key[:2], 0)
        if code == ses.OK:
            self._accept(op, key, record, Applied(seq, log_seq, stamped, record_hash), timestamp)
        elif code in (ses.DUPLICATE_EXPIRED, ses.SEQUENCE_GAP) and self._may_forget(key, seq, code):
            pass
        elif code in (ses.DUPLICATE, ses.DUPLICATE_EXPIRED):
            self._duplicate(op, key, code, log_seq, newest)
        elif code == ses.SEQUENCE_GAP:
            if key.client_seq <= newest + 1 or seq != newest + 1:
                violated(
                    NAME, f"op {op}: gap answered to {key}, newest is {newest}, expected {seq}"
                )
        elif code not in REFUSED:
            violated(NAME, f"op {op}: unknown code {code}")
        elif code == ses.ROOM_UNKNOWN and key.room_id in self.rooms:
            violated(NAME, f"op {op}: a room that exists is unknown")

    def _may_forget(self, key: Key, expected: int, code: int) -> bool:
        """Whether the window of this device may have been given up, and this is what it is told
        then: its first number is refused, any other one is told to begin with that.
        """
        if not self._windows_max or len(self._windows) < self._windows_max:
            return False
        if (key.client_seq == 1) != (code == ses.DUPLICATE_EXPIRED) or expected > 1:
            return False
        own = self._windows.get(key[:2])
        if own is None:
            return True  # not known ever: it may have been made before one that is forgotten
        age = own.told_us, own.log_seq
        newer = [other for other in self._windows.values() if (other.told_us, other.log_seq) > age]
        of_author = sum(other.author_id == own.author_id for other in newer)
        return of_author >= WINDOWS_FEW or len(newer) >= self._windows_max - 1

    def _was_asked(self, key: Key, record: bytes) -> bool:
        asked = self.asked.get(key)
        if asked is not None:
            return all(asked[a:b] == record[a:b] for a, b in _ASKED)
        if key.client_id == bytes(16):  # an edge asks whether there is such a room
            return key.client_seq > 1
        name = self.names.get(key.room_id, "").encode()  # edges make these records themselves
        body = record[rec.BODY : rec.BODY + _U32.unpack_from(record, rec.BODY_LEN)[0]]
        creates = _U32.unpack_from(record, rec.FLAGS)[0] == rec.KIND_ROOM_CREATE
        return creates and name != b"" and body == name

    def _accept(self, op: int, key: Key, record: bytes, applied: Applied, timestamp: int) -> None:
        if key in self.applied:
            violated(NAME, f"op {op} applies {key} a second time")
        if key.client_seq != self._newest.get(key[:2], 0) + 1:
            violated(NAME, f"op {op} applies {key} out of order")
        room = self.rooms.setdefault(key.room_id, Room())
        committed = bytearray(record)
        committed[rec.PREV_HASH : rec.PREV_HASH + len(room.head_hash)] = room.head_hash
        _U64.pack_into(committed, rec.SEQ, room.count + 1)
        _U64.pack_into(committed, rec.LOG_SEQ, self.log_seq + 1)
        digest = hashlib.sha256(committed).digest()
        expected = Applied(room.count + 1, self.log_seq + 1, timestamp, digest)
        if applied != expected:
            violated(NAME, f"op {op}: {key} became {applied}, expected {expected}")
        room.count += 1
        room.head_hash = digest
        room.keys.append(key)
        self.hashes.append(digest)
        self.applied[key] = applied
        self._newest[key[:2]] = key.client_seq
        author_id = _U64.unpack_from(record, rec.AUTHOR_ID)[0]
        before = self._windows.get(key[:2], Window(author_id, 0, 0))
        told_us = max(before.told_us, timestamp, made_us(record, timestamp))
        self._windows[key[:2]] = Window(author_id, applied.log_seq, told_us)
        if _U32.unpack_from(record, rec.FLAGS)[0] == rec.KIND_RETAIN:
            size = _U32.unpack_from(record, rec.BODY_LEN)[0]
            retain = event.decode_retain(record[rec.BODY : rec.BODY + size])
            if retain is None or retain.oldest < self.oldest:
                violated(NAME, f"op {op} drops segments: {retain}, {self.oldest} was kept")
            self.oldest = retain.oldest

    def _duplicate(self, op: int, key: Key, code: int, log_seq: int, newest: int) -> None:
        known = self.applied.get(key)
        if known is None and key.room_id in self.names and key.room_id in self.rooms:
            known = self.applied[self.rooms[key.room_id].keys[0]]  # somebody else created it
        if known is None:
            violated(NAME, f"op {op} calls {key} a duplicate, but it was never applied")
        freed = known.log_seq <= self.oldest * self._segment_records
        expired = newest - key.client_seq >= WINDOW_LENGTH or freed
        if expired != (code == ses.DUPLICATE_EXPIRED):
            violated(NAME, f"op {op}: code {code} for {key}, newest is {newest}")
        if code == ses.DUPLICATE and log_seq != known.log_seq:
            violated(
                NAME, f"op {op}: {key} is a duplicate of record {known.log_seq}, not {log_seq}"
            )


def key_of(record: bytes | memoryview) -> Key:
    """The idempotency key of a record."""
    return Key(
        bytes(rec.client_id_in(record)),
        bytes(rec.room_id_in(record)),
        _U64.unpack_from(record, rec.CLIENT_SEQ)[0],
    )


def made_us(record: bytes | memoryview, timestamp: int) -> int:
    """When a message says that it was made, a minute after `timestamp` at most; 0: it does not."""
    msg_id = int.from_bytes(rec.msg_id_in(record), "little")
    flags = _U32.unpack_from(record, rec.FLAGS)[0]
    if flags != rec.KIND_MESSAGE or msg_id >> 76 & 15 != UUID_OF_NOW:
        return 0
    return min((msg_id >> 80) * 1000, timestamp + WINDOW_AHEAD_US)
