"""The newest records of a shard of which this node holds no replica, as a member of another node
tells them: a ring like that of a replica, filled in the order of the log.

    begin ──▶ take, take, ... ──▶ a segment is full: the next one takes the other buffer

What is taken follows what is there: dense in the log, each record whole, dense in its room, and
naming the hash of the room's record before wherever that one is known. Anything else is refused as
a whole, and nothing of it can be read.
"""

from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import (
    PREV_HASH,
    log_seq_in,
    record_hash,
    room_id_in,
    sealed,
    seq_in,
)
from appliance.formats.segment import (
    ID_SIZE,
    RING_HEAD_SIZE,
    first_log_seq_of,
    number_of,
    ring_buffer_size,
    ring_size,
    slot_of,
)

_NUMBER, _COUNT = 0, 1  # words of a buffer's head
_WORD_SIZE = 8
_NO_HASH = bytes(ID_SIZE)  # before the first record of a room
_Heads = dict[bytes, tuple[int, bytes, int]]  # room_id -> seq, hash, log_seq of its newest record


class CopiedRing:
    """`memory` is what a `ShardLog` reads; `log_seq` is the newest record in it."""

    def __init__(self, geometry: Geometry, memory: memoryview) -> None:
        assert len(memory) >= ring_size(geometry)
        self.log_seq = 0
        self.memory = memory
        self._geometry = geometry
        self._words = memory[: ring_size(geometry)].cast("Q")
        self._heads: _Heads = {}

    def begin(self, log_seq: int) -> None:
        """Nothing is known; the next record will be the one behind `log_seq`, of a segment that
        begins there."""
        assert log_seq % self._geometry.segment_records == 0
        self.log_seq = log_seq
        self._heads = {}
        for number in (0, 1):
            base = self._base(number) // _WORD_SIZE
            self._words[base + _COUNT] = self._words[base + _NUMBER] = 0

    def take(self, records: memoryview) -> str:
        """Records that follow, any number of them. Why they are refused; empty: they are here."""
        ends = range(RECORD_SIZE, len(records) + 1, RECORD_SIZE)
        heads: _Heads = {}  # of the rooms of these
        log_seq = self.log_seq
        for end in ends:
            record = records[end - RECORD_SIZE : end]
            log_seq += 1
            if log_seq_in(record) != log_seq:
                return "a record is not the next one of the log"
            if not sealed(record):
                return "a record is not whole"
            room_id, seq = bytes(room_id_in(record)), seq_in(record)
            before = heads.get(room_id) or self._heads.get(room_id)
            if before is None:
                follows = seq > 1 or seq == 1 and self._names(record, _NO_HASH)
            else:
                follows = seq == before[0] + 1 and self._names(record, before[1])
            if not follows:
                return "a record does not follow the one before it in its room"
            heads[room_id] = seq, record_hash(record), log_seq
        self._heads |= heads
        self._put(records)
        return ""

    @staticmethod
    def _names(record: memoryview, digest: bytes) -> bool:
        return record[PREV_HASH : PREV_HASH + ID_SIZE] == digest

    def _put(self, records: memoryview) -> None:
        while records:
            number, slot = (
                number_of(self._geometry, self.log_seq + 1),
                slot_of(self._geometry, self.log_seq + 1),
            )
            base = self._base(number)
            words = base // _WORD_SIZE
            if slot == 0:
                self._words[words + _COUNT] = 0
                self._words[words + _NUMBER] = number
                self._forget_before(number - 1)
            assert self._words[words + _NUMBER] == number
            size = min(len(records), (self._geometry.segment_records - slot) * RECORD_SIZE)
            start = base + RING_HEAD_SIZE + slot * RECORD_SIZE
            self.memory[start : start + size] = records[:size]
            self._words[words + _COUNT] = slot + size // RECORD_SIZE
            self.log_seq += size // RECORD_SIZE
            records = records[size:]

    def _forget_before(self, number: int) -> None:
        """Rooms of which no record lies in the ring any more."""
        first = first_log_seq_of(self._geometry, number)
        self._heads = {room: head for room, head in self._heads.items() if head[2] >= first}

    def _base(self, number: int) -> int:
        """Where the buffer of a segment begins."""
        return number % 2 * ring_buffer_size(self._geometry)
