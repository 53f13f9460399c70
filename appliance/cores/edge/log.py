"""The committed records of one shard: the shared ring and sealed segments as one history.

    segment   0 ... n-2        n-1            n (open)
              sealed files     ring, index    ring, index    indexed here while records pass
              footer: rows, link to the room's previous segment

The newest two segments lie in the ring; which of their records belong to which room is remembered
as they are committed. Older ones are found from a room's newest sealed segment backwards, by the
links in the footers. What is read from a sealed segment is checked at each reading against what its
leaf promises, and must be the record that was asked for; what is broken is noted in `broken`, for
the replica to mend.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container
from typing import NamedTuple, TypeVar

import numpy as np

from appliance.base.limits import SEGMENTS_REPORTED_MAX
from appliance.formats.client_errors import Unavailable
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import RECORD, log_seq_in, msg_id_in, room_id_in, seq_in, timestamp_in
from appliance.formats.segment import RingView, RoomEntry, first_log_seq_of, number_of, slot_of
from appliance.formats.verified_segment import (
    SegmentBroken,
    Segments,
    VerifiedSegment,
    VerifiedSegments,
)

__all__ = ["Fresh", "Mending", "Segments", "ShardLog"]


class Rows(NamedTuple):
    """The records of a room in a segment: they are dense, so the n-th has op first_op + n."""

    first_op: int
    slots: list[int]


_Found = TypeVar("_Found")
Index = dict[bytes, Rows]
Fresh = dict[bytes, list[memoryview]]  # room_id -> its new records, in order


class Mending(Unavailable):
    """What was asked for is broken on this node's disk; its replica fetches it from a peer."""

    @property
    def name(self) -> str:
        """To a client it is unavailable, as anything else that this node cannot read now."""
        return Unavailable(str(self)).name


class Path:
    """The sealed segments that hold one room, as far back as somebody asked."""

    __slots__ = ("steps", "link")

    def __init__(self, link: int) -> None:
        self.steps: list[tuple[int, int]] = []  # (first op, segment number), ascending
        self.link = link  # next older segment + 1, 0 = none


class ShardLog:
    """Reads by room and op, or by log_seq. Every result is a copy."""

    def __init__(self, geometry: Geometry, ring: memoryview, segments: Segments) -> None:
        self.geometry = geometry
        self.segments = VerifiedSegments(segments, geometry)
        self.broken: set[int] = set()  # segments that readers found broken; the edge takes them
        self.log_seq = 0  # records up to here were seen by `advance`
        self._ring = RingView(ring, geometry)
        self._index: dict[int, Index] = {}  # of the newest two segments
        self._paths: dict[bytes, Path] = {}  # of the rooms that are tracked

    # --- following the log

    def open(self, log_seq: int) -> bool:
        """Index the ring up to `log_seq`; False when the ring has moved on, try again with a newer
        one. A segment that `log_seq` fills is sealed: the ring of a replica that has just started
        does not hold it, and need not. A segment is indexed whole or not at all."""
        self._index.clear()
        self._paths.clear()
        self.log_seq = log_seq
        if log_seq == 0:
            return True
        newest = number_of(self.geometry, log_seq)
        for number in range(max(0, newest - 1), newest + 1):
            self.log_seq = first_log_seq_of(self.geometry, number) - 1
            end = min(log_seq, first_log_seq_of(self.geometry, number + 1) - 1)
            if self.advance(end, ()) is None:
                self._index.clear()
                if number == newest:
                    if slot_of(self.geometry, log_seq) != self.geometry.segment_records - 1:
                        return False
                    self.log_seq = log_seq
        return self.log_seq == log_seq

    def advance(
        self, log_seq: int, wanted: Container[bytes], also: bytes | None = None
    ) -> Fresh | None:
        """Index the records up to `log_seq`; those of `wanted` rooms, and of `also`, or None when
        the ring lost some."""
        fresh: Fresh = {}
        while self.log_seq < log_seq:
            number, slot = (
                number_of(self.geometry, self.log_seq + 1),
                slot_of(self.geometry, self.log_seq + 1),
            )
            count = min(
                log_seq - self.log_seq,
                self.geometry.segment_records - slot,
                self.geometry.records_max,
            )
            if not self._take(number, slot, count, wanted, also, fresh):
                return None
            self.log_seq += count
        return fresh

    def _start(self, number: int) -> None:
        """Segment `number` is open from now on: the one before is sealed."""
        self._index.pop(number - 2, None)
        self._index[number] = {}
        for room_id, rows in self._index.get(number - 1, {}).items():
            path = self._paths.get(room_id)
            if path is not None:
                path.steps.append((rows.first_op, number - 1))

    def _take(
        self,
        number: int,
        slot: int,
        count: int,
        wanted: Container[bytes],
        also: bytes | None,
        fresh: Fresh,
    ) -> bool:
        """Index records of the ring, and copy those that are wanted, each by itself: a copy of all
        would be as large as a request, for what is mostly not asked for. False: it lost some."""
        view = self._ring.view(number, slot, count)
        if view is None:
            return False
        rows = np.frombuffer(view, RECORD)
        room_ids, ops = rows["room_id"].tolist(), rows["seq"].tolist()
        found = [
            (room_id, memoryview(bytes(view[i * RECORD_SIZE : (i + 1) * RECORD_SIZE])))
            for i, room_id in enumerate(room_ids)
            if room_id in wanted or room_id == also
        ]
        if self._ring.record_count(number) is None:
            return False
        if number not in self._index:
            self._start(number)
        index = self._index[number]
        for i, room_id in enumerate(room_ids):
            entry = index.get(room_id)
            if entry is None:
                index[room_id] = Rows(ops[i], [slot + i])
            else:
                entry.slots.append(slot + i)
        for room_id, record in found:
            fresh.setdefault(room_id, []).append(record)
        return True

    # --- rooms

    def track(
        self, room_id: bytes, *, sealed_segment: int, message_count: int, log_seq: int
    ) -> int | None:
        """Follow a room whose row, as of `log_seq`, is known; the op of its newest record.

        None when that row is too new, or what came after it is not indexed here: ask again.
        """
        open_number = number_of(self.geometry, max(self.log_seq, 1))
        if log_seq > self.log_seq or (
            log_seq < self.log_seq and number_of(self.geometry, log_seq + 1) not in self._index
        ):
            return None
        path = Path(sealed_segment)
        before = self._index.get(open_number - 1, {}).get(room_id)
        if before is not None and sealed_segment < open_number:
            path.steps.append((before.first_op, open_number - 1))  # sealed since that row
        self._paths[room_id] = path
        newest = self._index.get(open_number, {}).get(room_id) or before
        return message_count if newest is None else newest.first_op + len(newest.slots) - 1

    def forget(self, room_id: bytes) -> None:
        """Nobody asks for this room any more."""
        self._paths.pop(room_id, None)

    # --- reading

    def read(self, room_id: bytes, op: int, count: int) -> list[bytes]:
        """Records op, op + 1, ... of a tracked room, `count` of those it has.

        None at all when `op` was freed. Raises Unavailable when they cannot be read now: the ring
        of a replica that fetches its state holds less than was read from it before.
        """
        found: list[bytes] = []
        while len(found) < count:
            part = self._read_part(room_id, op + len(found), count - len(found))
            if not part:
                break
            found += part
        return found

    def first_op(self, room_id: bytes) -> int:
        """The oldest record of a tracked room that is still kept; 1 for a room without any."""
        path = self._paths[room_id]
        freed = bisect_left([number for _, number in path.steps], self.segments.oldest)
        if freed:  # since they were noted
            path.link = path.steps[freed - 1][1] + 1
            del path.steps[:freed]
        while path.link and self._extend(room_id, path):
            pass
        if path.steps:
            return path.steps[0][0]
        firsts = [index[room_id].first_op for index in self._index.values() if room_id in index]
        return min(firsts, default=1)

    def record(self, log_seq: int) -> bytes | None:
        """The record `log_seq`; None when it was freed. Raises Unavailable."""
        assert 1 <= log_seq <= self.log_seq
        number, slot = number_of(self.geometry, log_seq), slot_of(self.geometry, log_seq)
        raw = self._ring.records(number, slot, 1)
        if raw is None:
            segment = self._segment(number)
            if segment is None:
                return None
            (raw,) = self._sealed_records(segment, [slot])
        if log_seq_in(raw) != log_seq:
            raise Unavailable("a stored record is not the one that was asked for")
        return raw

    def numbers(self) -> range:
        """The segments of which any record can be read, oldest first."""
        newest = number_of(self.geometry, self.log_seq) if self.log_seq else -1
        return range(min(self.segments.oldest, newest + 1), newest + 1)

    def first_timestamp(self, number: int) -> int:
        """Of the oldest record of a segment; 0 when it was freed. Raises Unavailable. Of a sealed
        one it is as the footer says, which nobody has checked."""
        first = self._ring.records(number, 0, 1)
        if first is not None:
            return timestamp_in(first)
        return self._sealed(number, self.segments.first_timestamp) or 0

    def with_message_id(self, number: int, msg_id: bytes) -> bytes | None:
        """The record of a segment with this msg_id, of several the first; None when there is none,
        or the segment was freed. Raises Unavailable."""
        first_log_seq = first_log_seq_of(self.geometry, number)
        count = min(self.log_seq + 1 - first_log_seq, self.geometry.segment_records)
        slots = self._ring.slots_of_message(number, count, msg_id)
        if slots is None:
            index = self._sealed(number, self.segments.index)
            slot = None if index is None else index.slot_of_message(msg_id)
            slots = [] if slot is None else [slot]
        raw = self.record(first_log_seq + slots[0]) if slots else None
        if raw is not None and msg_id_in(raw) != msg_id:
            raise Unavailable("a stored record is not the one that was asked for")
        return raw

    def _read_part(self, room_id: bytes, op: int, count: int) -> list[bytes]:
        for number in sorted(self._index, reverse=True):
            entry = self._index[number].get(room_id)
            if entry is not None and 0 <= op - entry.first_op < len(entry.slots):
                start = op - entry.first_op
                slots = entry.slots[start : start + count]
                found = [self._ring.records(number, slot, 1) for slot in slots]
                if None not in found:
                    return found  # type: ignore[return-value]
                return self._read_sealed(room_id, number, op, count)
        path = self._paths[room_id]
        while not path.steps or path.steps[0][0] > op:
            if not path.link or not self._extend(room_id, path):
                return []
        number = path.steps[bisect_right(path.steps, (op, 1 << 63)) - 1][1]
        return self._read_sealed(room_id, number, op, count)

    def _extend(self, room_id: bytes, path: Path) -> bool:
        """Go one segment further back; False when the room's past before was freed."""
        number = path.link - 1
        segment = self._segment(number)
        if segment is None:
            return False
        entry = self._entry(segment, room_id)
        first_op = segment.rows(entry.first_row, 1)[0][0]
        following = path.steps[0][0] if path.steps else None
        dense = following is None or first_op + entry.row_count == following
        begins = first_op == 1 if entry.previous == 0 else first_op > 1
        if not dense or not begins or entry.previous > number:
            raise self._found(SegmentBroken(number, "a room in it has not all its records"))
        path.steps.insert(0, (first_op, number))
        path.link = entry.previous
        return True

    def _read_sealed(self, room_id: bytes, number: int, op: int, count: int) -> list[bytes]:
        segment = self._segment(number)
        if segment is None:
            return []
        entry = self._entry(segment, room_id)
        first_op = segment.rows(entry.first_row, 1)[0][0]
        skip = op - first_op
        if not 0 <= skip < entry.row_count:
            raise Unavailable("a stored segment does not hold the record")
        rows = segment.rows(entry.first_row + skip, min(count, entry.row_count - skip))
        found = self._sealed_records(segment, [slot for _, slot in rows])
        for (seq, _), raw in zip(rows, found, strict=True):
            if room_id_in(raw) != room_id or seq_in(raw) != seq:
                raise Unavailable("a stored record is not the one that was asked for")
        return found

    def _segment(self, number: int) -> VerifiedSegment | None:
        """A segment; None when it was freed. Raises Unavailable."""
        return self._sealed(number, self.segments.segment)

    def _sealed(self, number: int, get: Callable[[int], _Found | None]) -> _Found | None:
        """What `get` gives of a segment; None when it was freed. Raises Unavailable when it should
        be there, Mending when it is broken, and Unavailable for one that is not full: its file is
        still being written."""
        if first_log_seq_of(self.geometry, number + 1) > self.log_seq + 1:
            raise Unavailable("the replica of this node is fetching its state")
        if number < self.segments.oldest:
            return None  # its extent may be half overwritten: that is no fault
        try:
            found = get(number)
        except SegmentBroken as error:
            raise self._found(error) from error
        if found is None and number >= self.segments.oldest:
            raise self._found(SegmentBroken(number, "it cannot be read"))
        return found

    def _found(self, broken: SegmentBroken) -> Mending:
        """Note what has to be mended; the error for whoever asked."""
        if len(self.broken) < SEGMENTS_REPORTED_MAX:
            self.broken.add(broken.number)
        return Mending("a stored segment is broken; it is being repaired")

    def _entry(self, segment: VerifiedSegment, room_id: bytes) -> RoomEntry:
        entry = segment.room(room_id)
        if entry is None or entry.first_row + entry.row_count > self.geometry.segment_records:
            raise Unavailable("a stored segment has no entry for the room")
        return entry

    def _sealed_records(self, segment: VerifiedSegment, slots: list[int]) -> list[bytes]:
        if max(slots) >= self.geometry.segment_records:
            raise Unavailable("a stored segment's index is broken")
        try:
            return segment.at(slots)
        except SegmentBroken as error:
            raise self._found(error) from error
