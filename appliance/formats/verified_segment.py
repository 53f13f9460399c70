"""Sealed segments of which no byte is given out that was not checked at that reading.

    footer    copied once, checked as a whole, then read from the copy
    records   copied; the CRC of the copy is compared with that of when all of the leaf was right

A file that was right once may be wrong when it comes from the disk again. So what is kept is not
that a leaf was right: of a copy that hashes to the leaf's id the CRC32C of each record is kept.

A footer is believed when the footer of the next segment names it. Where there is no such witness,
or it is broken itself, the segment is read whole, and its index must be the one that its records
give. What nobody can hash, the links to a room's older segments, is for the reader to check: a
room's records are dense.
"""

from array import array
from collections.abc import Iterable
from typing import Protocol

from appliance.base.checksum import crc32c
from appliance.base.errors import FormatError
from appliance.base.limits import LEAVES_VERIFIED_MAX, SEGMENTS_VERIFIED_MAX
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.segment import (
    RoomEntry,
    SegmentView,
    footer_leaf_ids,
    leaf_id,
    leaf_record_count,
    segment_id,
)


class Segments(Protocol):
    """Sealed segments of one shard, mapped on demand by whoever owns the files."""

    oldest: int  # older ones are freed for good

    def view(self, number: int) -> SegmentView | None:
        """Segment `number`, or None when it cannot be read now."""


class SegmentBroken(FormatError):
    """Bytes of segment `number` are not what they were: it is to be mended from a peer."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"segment {number}: {what}; it is being repaired")
        self.number = number


class VerifiedSegment:
    """Lookups in a sealed segment, as in a `SegmentView`; each raises SegmentBroken."""

    def __init__(
        self, view: SegmentView, footer: bytes, sums: "dict[tuple[int, int], array[int]]"
    ) -> None:
        """`footer` is a copy that was checked; `sums` is shared by all segments of a log."""
        self.number, self.footer = view.number, view.footer
        self._records, self._size = view, view.geometry.records_max
        self._index = view.with_footer(footer)
        self._leaf_ids = footer_leaf_ids(footer, view.footer)
        self._sums = sums

    def renewed(self, view: SegmentView) -> "VerifiedSegment":
        """The same with the mapping that is valid now."""
        self._records = view
        return self

    def room(self, room_id: bytes) -> RoomEntry | None:
        """The entry of a room, if any record of it lies here."""
        return self._index.room(room_id)

    def rows(self, first_row: int, count: int) -> list[tuple[int, int]]:
        """(seq, slot) of `count` rows from `first_row` on; those of a room are dense and ascend."""
        return self._index.rows(first_row, count)

    def record(self, slot: int) -> bytes:
        """A copy of the record in `slot`, checked."""
        return self.at((slot,))[0]

    def records(self, slot: int, count: int) -> bytes:
        """Copies of `count` records from `slot` on, checked."""
        return b"".join(self.at(range(slot, slot + count)))

    def at(self, slots: Iterable[int]) -> list[bytes]:
        """Copies of the records in these slots, checked."""
        known, number, size, copy = self._sums, self.number, self._size, self._records.records
        found = []
        for slot in slots:
            leaf, place = divmod(slot, size)
            sums = known.get((number, leaf)) or self._verify(leaf)
            raw = copy(slot, 1)
            if crc32c(raw) != sums[place]:
                raise SegmentBroken(number, f"record {slot} of it is broken")
            found.append(raw)
        return found

    def _verify(self, leaf: int) -> "array[int]":
        """The CRCs of a leaf's records, from a copy that hashes to its id."""
        first, count = leaf * self._size, leaf_record_count(self._records.geometry, leaf)
        raw = memoryview(self._records.records(first, count))
        if leaf_id(raw) != self._leaf_ids[leaf]:
            raise SegmentBroken(self.number, f"leaf {leaf} of it is broken")
        if len(self._sums) >= LEAVES_VERIFIED_MAX:
            del self._sums[next(iter(self._sums))]
        sums = array(
            "I", [crc32c(raw[at : at + RECORD_SIZE]) for at in range(0, len(raw), RECORD_SIZE)]
        )
        self._sums[self.number, leaf] = sums
        return sums


class VerifiedSegments:
    """Sealed segments by number, verified; those that were asked for last are remembered."""

    def __init__(self, segments: Segments, geometry: Geometry) -> None:
        self.segments, self.geometry = segments, geometry
        self._known: dict[int, VerifiedSegment] = {}
        # segment, leaf -> CRCs of its records
        self._sums: dict[tuple[int, int], array[int]] = {}

    @property
    def oldest(self) -> int:
        """Older ones are freed for good."""
        return self.segments.oldest

    def segment(self, number: int) -> VerifiedSegment | None:
        """Segment `number`, or None when it cannot be read now. Raises SegmentBroken."""
        view = self.segments.view(number)
        known = self._known.pop(number, None)
        if view is None:
            return None
        found = known.renewed(view) if known is not None else self._verified(view)
        self._known[number] = found  # now the newest in order
        if len(self._known) > SEGMENTS_VERIFIED_MAX:
            del self._known[next(iter(self._known))]
        return found

    def _verified(self, view: SegmentView) -> VerifiedSegment:
        footer = bytes(view.footer_bytes)
        following = self.segments.view(view.number + 1)
        if following is None or segment_id(footer) != following.footer.previous_id:
            try:
                view.with_footer(footer).verify(None)
            except FormatError as error:
                raise SegmentBroken(view.number, str(error)) from error
        return VerifiedSegment(view, footer, self._sums)
