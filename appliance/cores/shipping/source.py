"""Records by their number, from the shared ring or from sealed segments; verified copies.

What the ring holds was committed by this node's replica and is checked by its CRCs. What comes from
a sealed segment is checked at each reading against what its leaf promises; what is broken is noted
in `broken`, for the replica to mend.
"""

import numpy as np

from appliance.base.errors import FormatError
from appliance.base.limits import SEGMENTS_REPORTED_MAX
from appliance.formats.event import SHIP_MANIFEST, Shipped, decode_shipped
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import (
    BODY,
    BODY_LEN,
    KIND_SHIPPED,
    LOG_SEQ,
    RECORD,
    SHARD_ROOM_ID,
    TIMESTAMP,
    sealed,
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


class Source:
    """Reads what is committed; `log_seq` is the newest record that the replica has told of."""

    def __init__(self, geometry: Geometry, ring: memoryview, segments: Segments) -> None:
        self.geometry = geometry
        self.log_seq = 0
        self.oldest_segment = 0  # that the replica has told of; older ones may be gone
        self._ring = RingView(ring, geometry)
        self._segments = VerifiedSegments(segments, geometry, leaves_kept=1)
        self.broken: set[int] = set()  # segments that were found broken; the shipper takes them

    def records(self, first_log_seq: int, last_log_seq: int) -> bytes:
        """The records of a range that lies in one segment. Raises NotHere."""
        assert 1 <= first_log_seq <= last_log_seq <= self.log_seq
        number = number_of(self.geometry, first_log_seq)
        assert number == number_of(self.geometry, last_log_seq)
        slot, count = slot_of(self.geometry, first_log_seq), last_log_seq - first_log_seq + 1
        raw = self._ring.records(number, slot, count)
        if raw is None:
            raw = self._sealed(number, slot, count)
        elif not all(sealed(raw, at) for at in range(0, len(raw), RECORD_SIZE)):
            raise NotHere(f"records {first_log_seq} to {last_log_seq}: a CRC is wrong in the ring")
        found = np.frombuffer(raw, RECORD)["log_seq"]
        if not (found == np.arange(first_log_seq, last_log_seq + 1, dtype=np.uint64)).all():
            raise NotHere(f"records {first_log_seq} to {last_log_seq}: others lie in their place")
        return raw

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
        if int.from_bytes(raw[LOG_SEQ : LOG_SEQ + 8], "little") != log_seq:
            raise NotHere(f"record {log_seq}: another lies in its place")
        return int.from_bytes(raw[TIMESTAMP : TIMESTAMP + 8], "little")

    def last_before(self, first_log_seq: int, time_us: int) -> int:
        """The newest record older than `time_us`; first_log_seq - 1 when none of the range is."""
        low, high = first_log_seq, self.log_seq + 1
        while low < high:
            middle = (low + high) // 2
            if self.timestamp(middle) < time_us:
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
        first = first_log_seq_of(self.geometry, number)
        last = min(self.log_seq, first + self.geometry.segment_records - 1)
        in_ring = self._ring.records(number, 0, last - first + 1)
        if in_ring is not None:
            rows = np.frombuffer(in_ring, RECORD)
            slots = np.flatnonzero(
                (rows["flags"] == KIND_SHIPPED) & (rows["room_id"] == np.void(SHARD_ROOM_ID))
            )
            raws = [
                in_ring[slot * RECORD_SIZE : (slot + 1) * RECORD_SIZE] for slot in slots.tolist()
            ]
        else:
            segment = self._segment(number)
            entry = segment.room(SHARD_ROOM_ID)
            if entry is None:
                return []
            rows_of_room = segment.rows(entry.first_row, entry.row_count)
            raws = [self._sealed(number, slot, 1) for _, slot in rows_of_room]
        bodies = (
            raw[BODY : BODY + int.from_bytes(raw[BODY_LEN : BODY_LEN + 4], "little")]
            for raw in raws
        )
        told = (decode_shipped(body) for body in bodies)
        return [
            shipped for shipped in told if shipped is not None and shipped.action == SHIP_MANIFEST
        ]
