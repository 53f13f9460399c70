"""Sealed segments of which no byte is given out that was not checked at that reading.

    footer    copied once, checked as a whole, then read from the copy
    records   copied, hashed, compared with what the leaf promised when all of it was checked

A file that was right once may be wrong when it comes from the disk again. So what is kept is not
that a leaf was right, but the hash of each of its records: the leaf's id is the hash over them.

A footer is believed when the footer of the next segment names it. The newest sealed segment has no
such witness; it is read whole, and its index must be the one that its records give. What nobody can
hash, the links to a room's older segments, is for the reader to check: a room's records are dense.
"""

from typing import Protocol

from appliance.base.errors import FormatError
from appliance.base.limits import LEAVES_VERIFIED_MAX, SEGMENTS_VERIFIED_MAX
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import record_hash
from appliance.formats.segment import (
    ID_SIZE,
    RoomEntry,
    SegmentView,
    footer_leaf_ids,
    leaf_id_of,
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
        self, view: SegmentView, footer: bytes, hashes: dict[tuple[int, int], bytes]
    ) -> None:
        """`footer` is a copy that was checked; `hashes` is shared by all segments of a log."""
        self.number, self.footer = view.number, view.footer
        self._records = view
        self._index = view.with_footer(footer)
        self._leaf_ids = footer_leaf_ids(footer, view.footer)
        self._hashes = hashes

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
        leaf, place = divmod(slot, self._records.geometry.records_max)
        hashes = self._leaf_hashes(leaf)
        raw = self._records.record(slot)
        if record_hash(raw) != hashes[place * ID_SIZE : (place + 1) * ID_SIZE]:
            raise SegmentBroken(self.number, f"record {slot} of it is broken")
        return raw

    def records(self, slot: int, count: int) -> bytes:
        """Copies of `count` records from `slot` on, checked."""
        return b"".join(self.record(at) for at in range(slot, slot + count))

    def _leaf_hashes(self, leaf: int) -> bytes:
        """The hashes of a leaf's records, once all of it was seen to be right."""
        key = self.number, leaf
        hashes = self._hashes.pop(key, None)
        if hashes is None:
            geometry = self._records.geometry
            first, count = leaf * geometry.records_max, leaf_record_count(geometry, leaf)
            raw = memoryview(self._records.records(first, count))
            hashes = b"".join(
                record_hash(raw[at : at + RECORD_SIZE]) for at in range(0, len(raw), RECORD_SIZE)
            )
            if leaf_id_of(hashes) != self._leaf_ids[leaf]:
                raise SegmentBroken(self.number, f"leaf {leaf} of it is broken")
            if len(self._hashes) >= LEAVES_VERIFIED_MAX:
                del self._hashes[next(iter(self._hashes))]
        self._hashes[key] = hashes  # now the newest in order
        return hashes


class VerifiedSegments:
    """Sealed segments by number, verified; those that were asked for last are remembered."""

    def __init__(self, segments: Segments, geometry: Geometry) -> None:
        self.segments, self.geometry = segments, geometry
        self._known: dict[int, VerifiedSegment] = {}
        self._hashes: dict[tuple[int, int], bytes] = {}  # segment, leaf -> hashes of its records

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
            if following is not None:
                raise SegmentBroken(view.number + 1, "it does not name the one before")
        return VerifiedSegment(view, footer, self._hashes)
