"""The open segment: appends records to the shared ring, makes leaf ids, seals, queues disk writes.

    extent   |-------- issued: whole sectors ---------|-- tail --|
             0                                   issued_end    end of the newest record

A leaf's sectors are written as soon as it is full, except the last one, which the next leaf shares:
so writes do not overlap. Only a flush writes the tail; the write after it covers the same sectors
again, with the old bytes unchanged, and waits until the tail is durable.
"""

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from appliance.base.checksum import sha256
from appliance.base.limits import SECTOR_SIZE
from appliance.cores.rooms.open_ids import OpenIds
from appliance.formats.geometry import RECORD_SIZE, Geometry, whole_sectors
from appliance.formats.record import LOG_SEQ, PREV_HASH, SEQ
from appliance.formats.segment import (
    HEAD_SIZE,
    ID_SIZE,
    RING_HEAD_SIZE,
    ROOM,
    decode_footer,
    encode_footer,
    leaf_record_count,
    ring_buffer_size,
    ring_size,
    segment_id,
)

_SEQS = struct.Struct("<QQ")  # seq, log_seq
assert LOG_SEQ == SEQ + 8

NUMBER, COUNT = 0, 1  # words of a ring buffer's head


@dataclass(slots=True, eq=False)
class SegmentWrite:
    """Whole sectors for the extent of segment `number`; the caller makes them durable.

    `data` lies in the ring and stays as it is until the write is reported back; what follows the
    records in a tail's last sector may change meanwhile, and means nothing.
    """

    number: int
    offset: int  # in the extent
    data: memoryview | bytes
    last_log_seq: int  # once this and all earlier writes are durable, so is this record
    tail: bool  # a later write covers the same sectors again
    done: bool = False


class OpenSegment:
    """Where the next record goes, and what of the log is durable in segments.

    Invariants: number, slot = divmod(log_seq, segment_records); leaf_ids are of the full leaves of
    segment `number`, hashes of the records after them, `ids` of all of its records;
    durable_log_seq <= log_seq; a buffer of the ring is begun only when the segment it held is
    durable.
    """

    def __init__(self, *, geometry: Geometry, cluster: bytes, shard: int, ring: memoryview) -> None:
        assert len(ring) >= ring_size(geometry)
        self._geometry = geometry
        self._cluster = cluster
        self._shard = shard
        self._ring = ring
        self._words = ring[: ring_size(geometry)].cast("Q")
        self._buffer_size = ring_buffer_size(geometry)
        self.log_seq = 0  # of the newest record
        self.leaf_ids: list[bytes] = []
        self.newest_id = bytes(ID_SIZE)  # of the newest sealed segment
        self.ids = OpenIds(self.record)
        self.clear()

    def clear(self) -> None:
        """Back to an empty log. Both buffers of the ring lose their names."""
        for base in (0, self._buffer_size // 8):
            self._words[base + COUNT] = 0
            self._words[base + NUMBER] = 0
        self.resume(log_seq=0, newest_id=bytes(ID_SIZE))

    def resume(self, *, log_seq: int, newest_id: bytes) -> None:
        """Go on after `log_seq`, durable; `load` brings the records of its open segment."""
        self.log_seq = self.durable_log_seq = log_seq
        self.number = log_seq // self._geometry.segment_records
        self.newest_id = newest_id
        self.leaf_ids = []
        self.ids.clear()
        self.full = False  # it waits for `seal`
        self._hashes: list[bytes] = []  # of the records after the full leaves
        self._leaf_full = leaf_record_count(self._geometry, 0)
        self._begun = False  # the ring buffer of `number` has been taken
        self._base = self._start = 0  # in the ring: its records; the next record
        self._durable_segments = self.number  # segments below this one are durable
        self._issued_end = 0  # bytes of the open segment, whole sectors
        self._flushed_log_seq = log_seq  # newest record that a queued write covers
        self._queue: deque[SegmentWrite] = deque()
        self._flight: deque[SegmentWrite] = deque()
        self._tail_in_flight = False

    # --- appending

    def can_append(self, record_count: int) -> bool:
        """Whether `record_count` records find their buffers free."""
        assert record_count <= self._geometry.segment_records
        last = (self.log_seq + max(record_count, 1) - 1) // self._geometry.segment_records
        if last == self.number and self._begun:
            return True
        return self._durable_segments >= last - 1

    def append(self, record: memoryview, prev_hash: bytes, seq: int) -> bytes:
        """Copy a record, whose id stands in `ids`, into the ring as number log_seq + 1 and return
        its hash.

        The caller calls `seal` when `full` afterwards, and `publish` at the end of its batch.
        """
        if not self._begun:
            self._begin()
        start = self._start
        self._start = end = start + RECORD_SIZE
        self.log_seq = log_seq = self.log_seq + 1
        ring = self._ring
        ring[start:end] = record
        ring[start + PREV_HASH : start + PREV_HASH + ID_SIZE] = prev_hash
        _SEQS.pack_into(ring, start + SEQ, seq, log_seq)
        digest = sha256(ring[start:end])
        self._hashes.append(digest)
        if len(self._hashes) == self._leaf_full:
            self._close_leaf()
        return digest

    def _begin(self) -> None:
        """Take the buffer of segment `number`: first its count, then its name, then its bytes."""
        assert self._durable_segments >= self.number - 1
        base = self.number % 2 * self._buffer_size
        self._words[base // 8 + COUNT] = 0
        self._words[base // 8 + NUMBER] = self.number
        self._base = base + RING_HEAD_SIZE
        self._start = self._base
        self._begun = True

    def _close_leaf(self) -> None:
        """The newest record fills its leaf, and perhaps the segment."""
        self.leaf_ids.append(sha256(b"".join(self._hashes)))
        self._hashes.clear()
        self.full = len(self.leaf_ids) == self._geometry.leaf_count_max
        if not self.full:
            self._leaf_full = leaf_record_count(self._geometry, len(self.leaf_ids))
            self._issue_sectors()

    def leaf_ids_so_far(self) -> list[bytes]:
        """Ids of the open segment's leaves, the last one as far as it goes."""
        if not self._hashes:
            return list(self.leaf_ids)
        return [*self.leaf_ids, sha256(b"".join(self._hashes))]

    def publish(self) -> None:
        """Let readers of the ring see what was appended."""
        if self._begun:
            count = (self._start - self._base) // RECORD_SIZE
            self._words[self._base // 8 - RING_HEAD_SIZE // 8 + COUNT] = count

    # --- sealing

    def seal(self, previous_of: Callable[[bytes], int]) -> list[bytes]:
        """Make the footer of the full segment and go on to the next; the ids of its rooms."""
        assert self.full
        geometry = self._geometry
        self.publish()
        records = self._ring[self._base : self._start]
        assert len(records) == geometry.segment_records * RECORD_SIZE
        footer = encode_footer(
            records,
            cluster=self._cluster,
            shard=self._shard,
            number=self.number,
            previous_id=self.newest_id,
            leaf_ids=self.leaf_ids,
            previous_of=previous_of,
        )
        self._issue_rest(footer)
        head = decode_footer(footer, geometry)
        rooms = np.frombuffer(footer, ROOM, head.room_count, HEAD_SIZE + ID_SIZE * head.leaf_count)
        self.newest_id = segment_id(footer)
        self.number += 1
        self.leaf_ids = []
        self.ids.clear()
        self.full = False
        self._leaf_full = leaf_record_count(geometry, 0)
        self._begun = False
        self._issued_end = 0
        return [room_id.tobytes() for room_id in rooms["room_id"]]

    # --- writes

    def _issue(self, end: int, last_log_seq: int) -> None:
        """Queue the sectors from what was issued before up to `end`."""
        if end > self._issued_end:
            data = self._ring[self._base + self._issued_end : self._base + end]
            self._queue.append(
                SegmentWrite(self.number, self._issued_end, data, last_log_seq, tail=False)
            )
            self._issued_end = end

    def _issue_sectors(self) -> None:
        """Queue the whole sectors of what stands in the ring."""
        end = (self._start - self._base) // SECTOR_SIZE * SECTOR_SIZE
        first = self.number * self._geometry.segment_records
        self._issue(end, first + end // RECORD_SIZE)

    def _issue_rest(self, footer: bytes) -> None:
        """Queue what is left of a full segment, then its footer."""
        size = self._geometry.segment_data_size
        padding = self._base + size - self._start
        self._ring[self._start : self._start + padding] = bytes(padding)
        self._issue(size, self.log_seq)
        self._flushed_log_seq = self.log_seq
        self._queue.append(
            SegmentWrite(
                self.number,
                size,
                footer.ljust(whole_sectors(len(footer)), b"\0"),
                self.log_seq,
                tail=False,
            )
        )

    def flush(self) -> None:
        """Queue the tail, so that every record up to now becomes durable."""
        if self._flushed_log_seq == self.log_seq or not self._begun:
            return
        self._issue_sectors()
        used = self._start - self._base
        end = whole_sectors(used)
        self._ring[self._start : self._base + end] = bytes(end - used)
        self._flushed_log_seq = self.log_seq
        if end > self._issued_end:
            data = self._ring[self._base + self._issued_end : self._base + end]
            self._queue.append(
                SegmentWrite(self.number, self._issued_end, data, self.log_seq, tail=True)
            )

    def take_writes(self) -> list[SegmentWrite]:
        """The writes that may start now, in order; others wait for the tail they would overlap.

        To be called after records were committed, after `flush`, and after a write was reported.
        """
        taken: list[SegmentWrite] = []
        while self._queue and not self._tail_in_flight:
            write = self._queue.popleft()
            self._flight.append(write)
            taken.append(write)
            self._tail_in_flight = write.tail
        return taken

    def on_written(self, write: SegmentWrite) -> None:
        """`write` is durable."""
        if write not in self._flight:
            return  # of a log that `clear` or `resume` has left behind
        assert not write.done
        write.done = True
        if write.tail:
            self._tail_in_flight = False
        while self._flight and self._flight[0].done:
            first = self._flight.popleft()
            assert first.last_log_seq >= self.durable_log_seq
            self.durable_log_seq = first.last_log_seq
            if first.offset == self._geometry.segment_data_size:
                self._durable_segments = first.number + 1

    # --- reading and loading

    def leaf(self, number: int, index: int, count: int) -> bytes | None:
        """The first `count` records of a leaf, if the ring holds that segment as far."""
        base = number % 2 * self._buffer_size
        words = base // 8
        start = index * self._geometry.records_max
        if self._words[words + NUMBER] != number or self._words[words + COUNT] < start + count:
            return None
        at = base + RING_HEAD_SIZE + start * RECORD_SIZE
        return bytes(self._ring[at : at + count * RECORD_SIZE])

    def record(self, log_seq: int) -> memoryview:
        """A record of the open segment, as it stands in the ring."""
        slot = log_seq - 1 - self.number * self._geometry.segment_records
        start = self._base + slot * RECORD_SIZE
        assert slot >= 0 and start < self._start
        return self._ring[start : start + RECORD_SIZE]

    def newest_sealed(self) -> tuple[int, bytes]:
        """(number, id) of the newest sealed segment; -1 while it is not durable, or none is."""
        durable = self._durable_segments >= self.number
        return (self.number - 1 if durable else -1), self.newest_id

    def in_ring(self, number: int) -> bool:
        """Whether one of the ring's buffers holds segment `number`."""
        words = number % 2 * self._buffer_size // 8
        return self._words[words + NUMBER] == number and self._words[words + COUNT] > 0

    def durable_sectors(self, number: int, offset: int, size: int) -> bytes:
        """The bytes of an extent from `offset` on, at most `size`: whole sectors that hold records
        which are durable; empty when the ring does not hold that segment."""
        assert offset % SECTOR_SIZE == 0 and size % SECTOR_SIZE == 0
        if not self.in_ring(number):
            return b""
        first = number * self._geometry.segment_records
        count = min(
            self.durable_log_seq - first, self._words[number % 2 * self._buffer_size // 8 + COUNT]
        )
        end = min(max(count, 0) * RECORD_SIZE // SECTOR_SIZE * SECTOR_SIZE, offset + size)
        at = number % 2 * self._buffer_size + RING_HEAD_SIZE
        return bytes(self._ring[at + offset : at + end]) if end > offset else b""

    def load(self, records: bytes) -> list[bytes]:
        """Put the records of the open segment, durable on disk, into the ring; their hashes."""
        assert not self._begun
        if not records:
            return []
        self._begin()
        end = self._base + len(records)
        self._ring[self._base : end] = records
        self.ids.load(records, self.number * self._geometry.segment_records + 1)
        digests = []
        while self._start < end:
            digests.append(sha256(self._ring[self._start : self._start + RECORD_SIZE]))
            self._start += RECORD_SIZE
            self._hashes.append(digests[-1])
            if len(self._hashes) == self._leaf_full:
                self._close_leaf()
        self._queue.clear()  # the bytes came from where they would go
        self._issued_end = len(records) // SECTOR_SIZE * SECTOR_SIZE
        self.publish()
        return digests
