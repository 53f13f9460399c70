"""Records by their number, from the shared ring or from sealed segments; verified copies.

What the ring holds was committed by this node's replica and is checked by its CRCs. What comes from
a sealed segment is checked at each reading against what its leaf promises; what is broken is noted
in `broken`, for the replica to mend.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from appliance.base.errors import FormatError
from appliance.base.limits import SEGMENTS_READ_MAX, SEGMENTS_REPORTED_MAX
from appliance.cores.shipping.seams import Seams
from appliance.formats.event import (
    SHIP_MANIFEST,
    Shipped,
    decode_correction,
    decode_shipped,
)
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import (
    BODY,
    KIND_CLOCK,
    KIND_SHIPPED,
    RECORD,
    SHARD_ROOM_ID,
    body_len_in,
    flags_in,
    log_seq_in,
    sealed,
    timestamp_in,
)
from appliance.formats.segment import RingView, first_log_seq_of, number_of, slot_of
from appliance.formats.verified_segment import (
    SegmentBroken,
    Segments,
    VerifiedSegment,
    VerifiedSegments,
)


class NotHere(FormatError):
    """Records that this node cannot give now: still being fetched or repaired, or freed."""


class LogTime(NamedTuple):
    """The log's own time now, which may be ahead of the wall's clock and never goes back; records
    bear `ahead_us` less since the clock was corrected."""

    log_us: int = 0
    ahead_us: int = 0

    def past_us(self, wall_us: int) -> int:
        """Up to when all is over, of the log's own time, by it or by `wall_us` of the clock."""
        return max(wall_us + self.ahead_us, self.log_us)


NO_TIME = LogTime()


class Source:
    """Reads what is committed; `log_seq` is the newest record that the replica has told of."""

    def __init__(self, geometry: Geometry, ring: memoryview, segments: Segments) -> None:
        self.geometry = geometry
        self.log_seq = 0
        # behind it none crosses to other sites, as far as `log_seq`; 0: the replica has not told
        self.crossing = 0
        self.oldest_segment = 0  # that the replica has told of; older ones may be gone
        self._ring = RingView(ring, geometry)
        self._segments = VerifiedSegments(segments, geometry, leaves_kept=1, kept=SEGMENTS_READ_MAX)
        self._seams = Seams()
        self.broken: set[int] = set()  # segments that were found broken; the shipper takes them

    def records(self, first_log_seq: int, last_log_seq: int) -> bytes:
        """The records of a range that lies in one segment. Raises NotHere."""
        number, slot, count = self._span(first_log_seq, last_log_seq)
        raw = self._ring.records(number, slot, count)
        if raw is None:
            raw = self._sealed(number, slot, count)
        elif not all(sealed(raw, at) for at in range(0, len(raw), RECORD_SIZE)):
            raise _wrong(first_log_seq, last_log_seq)
        _check_order(np.frombuffer(raw, RECORD)["log_seq"], first_log_seq, last_log_seq)
        return raw

    def picked(
        self, first_log_seq: int, last_log_seq: int, pick: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Those records of such a range, RECORD each, for which `pick` has True. Raises NotHere.

        In the ring `pick` sees them as they lie there, and what it leaves is neither copied nor
        checked by its CRC, which does not cover the room and the kind of a record anyway.
        """
        number, slot, count = self._span(first_log_seq, last_log_seq)
        seen = self._ring.view(number, slot, count)
        found: np.ndarray | None = None
        if seen is not None:
            rows = np.frombuffer(seen, RECORD)
            order, found = rows["log_seq"].copy(), rows[pick(rows)]
        if found is None or self._ring.record_count(number) is None:  # or overwritten meanwhile
            rows = np.frombuffer(self._sealed(number, slot, count), RECORD)
            order, found = rows["log_seq"], rows[pick(rows)]
        else:
            raw = found.view(np.uint8).data
            if not all(sealed(raw, at) for at in range(0, len(raw), RECORD_SIZE)):
                raise _wrong(first_log_seq, last_log_seq)
        _check_order(order, first_log_seq, last_log_seq)
        return found

    def _span(self, first_log_seq: int, last_log_seq: int) -> tuple[int, int, int]:
        """(segment, slot in it, how many) of a range."""
        assert 1 <= first_log_seq <= last_log_seq <= self.log_seq
        number = number_of(self.geometry, first_log_seq)
        assert number == number_of(self.geometry, last_log_seq)
        return number, slot_of(self.geometry, first_log_seq), last_log_seq - first_log_seq + 1

    def keeps(self, log_seq: int) -> bool:
        """Whether the shard has not dropped the record."""
        oldest = max(self.oldest_segment, self._segments.oldest)
        return number_of(self.geometry, log_seq) >= oldest

    def _sealed(self, number: int, slot: int, count: int) -> bytes:
        try:
            return self._segment(number).records(slot, count)
        except SegmentBroken as error:
            raise self._found(error) from error

    def _segment(self, number: int) -> VerifiedSegment:
        try:
            segment = self._segments.segment(number)
        except SegmentBroken as error:
            raise self._found(error) from error
        if segment is None:
            if self.keeps(first_log_seq_of(self.geometry, number)) and self._is_full(number):
                self._found(SegmentBroken(number, "it cannot be read"))
            raise NotHere(f"segment {number} is not on this node now")
        return segment

    def _is_full(self, number: int) -> bool:
        return first_log_seq_of(self.geometry, number + 1) <= self.log_seq + 1

    def _found(self, broken: SegmentBroken) -> NotHere:
        """Note what has to be mended; the error for whoever asked."""
        if len(self.broken) < SEGMENTS_REPORTED_MAX:
            self.broken.add(broken.number)
        return NotHere(str(broken))

    def timestamp(self, log_seq: int) -> int:
        """Of one record."""
        assert 1 <= log_seq <= self.log_seq
        number, slot = number_of(self.geometry, log_seq), slot_of(self.geometry, log_seq)
        raw = self._ring.records(number, slot, 1)
        if raw is None:
            raw = self._sealed(number, slot, 1)
        if log_seq_in(raw) != log_seq:
            raise NotHere(f"record {log_seq}: another lies in its place")
        return timestamp_in(raw)

    def log_time(self, log_seq: int, ahead_us: int) -> int:
        """The log's own time of one record, if the log is now ahead by `ahead_us` of the times that
        records bear: it never goes back. Raises NotHere."""
        return self.timestamp(log_seq) + self.ahead_at(log_seq, ahead_us)

    def is_corrected_behind(self, log_seq: int, ahead_us: int) -> bool:
        """Whether records are there from behind a correction of the clock that a state as of record
        `log_seq`, with `ahead_us`, does not know."""
        known = min(log_seq, self.log_seq)
        newest_us = self.log_time(self.log_seq, ahead_us)
        return known > 0 and newest_us < self.log_time(known, ahead_us)

    def ahead_at(self, log_seq: int, ahead_us: int) -> int:
        """By how much the log was ahead at a record, if it is by `ahead_us` now."""
        seams = self.seams(ahead_us).items()
        return next((before_us for seam, before_us in seams if seam > log_seq), ahead_us)

    def knows_seams(self, ahead_us: int) -> bool:
        """Whether `seams` can be told for a log that is ahead by so much."""
        return ahead_us == self._seams.ahead_us

    def seek_seams(self, ahead_us: int, log_seq: int) -> None:
        """Look for them through some more segments, from record `log_seq` back, as of which the
        log is ahead by so much. Reads the disk. Raises NotHere while something is missing."""
        if log_seq > self.log_seq:
            raise NotHere(f"record {log_seq} is not on this node yet")

        def told_in(number: int) -> list[tuple[int, int]]:
            told = self._told_in(number, KIND_CLOCK)
            seams = ((seam, decode_correction(body)) for seam, body in told if seam <= log_seq)
            return [(seam, found.ahead_us) for seam, found in seams if found is not None]

        oldest = max(self.oldest_segment, self._segments.oldest)
        self._seams.seek(ahead_us, number_of(self.geometry, log_seq), oldest, told_in)

    def seams(self, ahead_us: int) -> dict[int, int]:
        """Records at which the clock was corrected, in order, as far back as they are kept, and by
        how much the log was ahead until each. Raises NotHere while they are not all found."""
        if not self.knows_seams(ahead_us):
            raise NotHere("records that corrected the clock are still being looked for")
        return self._seams.found

    def last_before(self, first_log_seq: int, time_us: int, ahead_us: int = 0) -> int:
        """The newest record older than `time_us` of the log's own time; first_log_seq - 1 when none
        of the range is."""
        low, high = first_log_seq, self.log_seq + 1
        while low < high:
            middle = (low + high) // 2
            if self.log_time(middle, ahead_us) < time_us:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def manifests(self) -> list[Shipped]:
        """What the log tells of shipped manifests, in order, as far back as it is kept."""
        found: list[Shipped] = []
        if self.log_seq == 0:
            return found
        newest = number_of(self.geometry, self.log_seq)
        for number in range(newest, -1, -1):
            try:
                told = self._manifests_of(number)
            except NotHere:
                break
            found[:0] = told
            if found and found[0].number == 0:
                break
        return found

    def _manifests_of(self, number: int) -> list[Shipped]:
        told = (decode_shipped(body) for _, body in self._told_in(number, KIND_SHIPPED))
        return [
            shipped for shipped in told if shipped is not None and shipped.action == SHIP_MANIFEST
        ]

    def _told_in(self, number: int, kind: int) -> list[tuple[int, bytes]]:
        """(log_seq, body) of the records of this kind in the shard's own room, in a segment."""
        first = first_log_seq_of(self.geometry, number)
        last = min(self.log_seq, first + self.geometry.segment_records - 1)
        in_ring = self._ring.records(number, 0, last - first + 1)
        if in_ring is not None:
            rows = np.frombuffer(in_ring, RECORD)
            slots = np.flatnonzero(
                (rows["flags"] == kind) & (rows["room_id"] == np.void(SHARD_ROOM_ID))
            ).tolist()
            raws = [in_ring[slot * RECORD_SIZE : (slot + 1) * RECORD_SIZE] for slot in slots]
        else:
            segment = self._segment(number)
            entry = segment.room(SHARD_ROOM_ID)
            if entry is None:
                return []
            rows_of_room = segment.rows(entry.first_row, entry.row_count)
            slots = [slot for _, slot in rows_of_room]
            raws = [self._sealed(number, slot, 1) for slot in slots]
        return [
            (
                first + slot,
                raw[BODY : BODY + body_len_in(raw)],
            )
            for slot, raw in zip(slots, raws, strict=True)
            if flags_in(raw) == kind
        ]


def _check_order(found: np.ndarray, first: int, last: int) -> None:
    if not (found == np.arange(first, last + 1, dtype=np.uint64)).all():
        raise NotHere(f"records {first} to {last}: others lie in their place")


def _wrong(first: int, last: int) -> NotHere:
    return NotHere(f"records {first} to {last}: a CRC is wrong in the ring")
