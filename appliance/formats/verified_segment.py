"""Sealed segments of which no byte is given out that was not checked at that reading.

    footer    copied once, checked as a whole, then read from the copy
    records   from a copy of their leaf in memory, which was checked as a whole; else copied, and
              the CRC of the copy is compared with that of when all of the leaf was right

A file that was right once may be wrong when it comes from the disk again. So what is kept is not
that a leaf was right: of a copy that hashes to the leaf's id the CRC32C of each record is kept, and
of the leaves that are read most the copy itself, since comparing costs readers a tenth.

A footer is believed when the footer of the next segment names it. Where there is no such witness,
or it is broken itself, the segment is read whole, and its index must be the one that its records
give. What nobody can hash, the links to a room's older segments, is for the reader to check: a
room's records are dense.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Protocol

from appliance.base.checksum import crc32c
from appliance.base.errors import FormatError
from appliance.base.limits import LEAVES_KEPT_MAX, SEGMENTS_SUMMED_MAX, SEGMENTS_VERIFIED_MAX
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.segment import (
    RoomEntry,
    SegmentView,
    footer_leaf_ids,
    leaf_id,
    leaf_record_count,
    segment_id,
)

UNKNOWN = -1  # instead of a CRC: nobody has read the record's leaf yet
KEPT_SHARE = 8  # who reads an eighth of a leaf has all of it kept
KEPT_RECORDS_MIN = 64  # leaves of fewer are read from the disk each time


class Segments(Protocol):
    """Sealed segments of one shard, mapped on demand by whoever owns the files."""

    oldest: int  # older ones are freed for good

    def view(self, number: int) -> SegmentView | None:
        """Segment `number`, or None when it cannot be read now."""


class MessageIndex(Protocol):
    """What a footer tells of messages."""

    def slot_of_message(self, msg_id: bytes) -> int | None:
        """Where the (first) record with this msg_id lies, if here."""


class SegmentBroken(FormatError):
    """Bytes of segment `number` are not what they were: it is to be mended from a peer."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"segment {number}: {what}; it is being repaired")
        self.number = number


class VerifiedSegment:
    """Lookups in a sealed segment, as in a `SegmentView`; each raises SegmentBroken."""

    def __init__(self, view: SegmentView, footer: bytes, known: "Known") -> None:
        """`footer` is a copy that was checked; `known` is shared by all segments of a log."""
        self.number, self.footer = view.number, view.footer
        self._records, self._size = view, view.geometry.records_max
        self._index = view.with_footer(footer)
        self._leaf_ids = footer_leaf_ids(footer, view.footer)
        self._known, self._sums = known, known.sums(view.number)

    def renewed(self, view: SegmentView) -> "VerifiedSegment":
        """The same with the mapping that is valid now."""
        self._records = view
        return self

    def room(self, room_id: bytes) -> RoomEntry | None:
        """The entry of a room, if any record of it lies here."""
        return self._index.room(room_id)

    def rooms(self) -> Iterator[RoomEntry]:
        """The entries of all rooms of which a record lies here."""
        return self._index.rooms()

    def rows(self, first_row: int, count: int) -> list[tuple[int, int]]:
        """(seq, slot) of `count` rows from `first_row` on; those of a room are dense and ascend."""
        return self._index.rows(first_row, count)

    def slot_of_message(self, msg_id: bytes) -> int | None:
        """Where the (first) record with this msg_id lies, if here."""
        return self._index.slot_of_message(msg_id)

    def record(self, slot: int) -> bytes:
        """A copy of the record in `slot`, checked."""
        return self.at((slot,))[0]

    def records(self, slot: int, count: int) -> bytes:
        """Copies of `count` records from `slot` on, checked."""
        return b"".join(self.at(range(slot, slot + count)))

    def at(self, slots: Iterable[int]) -> list[bytes]:
        """Copies of the records in these slots, checked."""
        found: list[bytes] = []
        for leaf, group in groupby(slots, self._size.__rfloordiv__):
            own = list(group)
            copy = self._known.copy(self.number, leaf)
            if copy is None:
                found += self._read(leaf, own)
            else:
                found += self._of(copy, leaf, own)
        return found

    def _of(self, copy: bytes, leaf: int, slots: list[int]) -> list[bytes]:
        base = leaf * self._size * RECORD_SIZE
        starts = [slot * RECORD_SIZE - base for slot in slots]
        return [copy[start : start + RECORD_SIZE] for start in starts]

    def _read(self, leaf: int, slots: list[int]) -> list[bytes]:
        """Records of a leaf from the file; all of it where so many are asked for that others soon
        will be."""
        is_known = self._sums[leaf * self._size] != UNKNOWN
        if self._known.leaves_kept:
            if not is_known or len(slots) * KEPT_SHARE >= self._size:
                return self._of(self._verify(leaf), leaf, slots)
        elif not is_known:
            self._verify(leaf)
        found = []
        for slot in slots:
            raw = self._records.record(slot)
            if crc32c(raw) != self._sums[slot]:
                raise SegmentBroken(self.number, f"record {slot} of it is broken")
            found.append(raw)
        return found

    def _verify(self, leaf: int) -> bytes:
        """A copy of a leaf that hashes to its id, or whose CRCs are those of one that did; kept."""
        first, count = leaf * self._size, leaf_record_count(self._records.geometry, leaf)
        copy = self._records.records(first, count)
        view, ends = memoryview(copy), range(RECORD_SIZE, len(copy) + 1, RECORD_SIZE)
        found = array("q", [crc32c(view[end - RECORD_SIZE : end]) for end in ends])
        known = self._sums[first : first + count]
        if known[0] == UNKNOWN:
            if leaf_id(view) != self._leaf_ids[leaf]:
                raise SegmentBroken(self.number, f"leaf {leaf} of it is broken")
            self._sums[first : first + count] = found
        elif found != known:
            raise SegmentBroken(self.number, f"a record of leaf {leaf} of it is broken")
        self._known.keep(self.number, leaf, copy)
        return copy


class Known:
    """What is known of the leaves of a log's segments; what was used last stays."""

    def __init__(self, geometry: Geometry, leaves_kept: int) -> None:
        self._geometry, self.leaves_kept = geometry, leaves_kept
        self._sums: dict[int, array[int]] = {}
        self._copies: dict[tuple[int, int], bytes] = {}

    def sums(self, number: int) -> "array[int]":
        """The CRC of each record of a segment, or UNKNOWN: by leaves."""
        sums = self._sums.pop(number, None)
        if sums is None:
            sums = array("q", [UNKNOWN]) * self._geometry.segment_records
        self._sums[number] = sums
        if len(self._sums) > SEGMENTS_SUMMED_MAX:
            del self._sums[next(iter(self._sums))]
        return sums

    def copy(self, number: int, leaf: int) -> bytes | None:
        """A leaf in memory."""
        copy = self._copies.pop((number, leaf), None)
        if copy is not None:
            self._copies[number, leaf] = copy
        return copy

    def keep(self, number: int, leaf: int, copy: bytes) -> None:
        """Remember a leaf that was checked."""
        self._copies[number, leaf] = copy
        if len(self._copies) > self.leaves_kept:
            del self._copies[next(iter(self._copies))]


class VerifiedSegments:
    """Sealed segments by number, verified; those that were asked for last are remembered."""

    def __init__(
        self,
        segments: Segments,
        geometry: Geometry,
        *,
        leaves_kept: int | None = None,
        kept: int = SEGMENTS_VERIFIED_MAX,
    ) -> None:
        """`leaves_kept` in memory; unless it is said, none of small ones: in simulated worlds what
        is read shall come from the disk. So many segments are `kept`, each with its mapping."""
        if leaves_kept is None:
            leaves_kept = LEAVES_KEPT_MAX if geometry.records_max >= KEPT_RECORDS_MIN else 0
        self.segments = segments
        self._verified: dict[int, VerifiedSegment] = {}
        self._kept = kept
        self._known = Known(geometry, leaves_kept)

    @property
    def oldest(self) -> int:
        """Older ones are freed for good."""
        return self.segments.oldest

    def segment(self, number: int) -> VerifiedSegment | None:
        """Segment `number`, or None when it cannot be read now. Raises SegmentBroken."""
        view = self.segments.view(number)
        verified = self._verified.pop(number, None)
        if view is None:
            return None
        found = verified.renewed(view) if verified is not None else self._verify(view)
        self._verified[number] = found  # now the newest in order
        if len(self._verified) > self._kept:
            del self._verified[next(iter(self._verified))]
        return found

    def index(self, number: int) -> MessageIndex | None:
        """As `segment`, to look up what its footer tells and no record: for who goes through many,
        so it is not remembered, unless all of it had to be read."""
        view = None if number in self._verified else self.segments.view(number)
        if view is None:
            return self.segment(number)
        footer = bytes(view.footer_bytes)
        return view.with_footer(footer) if self._is_named(footer, number) else self.segment(number)

    def first_timestamp(self, number: int) -> int | None:
        """Of the oldest record of a segment, as its footer says, which nobody has checked; None
        when it cannot be read now."""
        view = self.segments.view(number)
        return None if view is None else view.footer.first_timestamp

    def _is_named(self, footer: bytes, number: int) -> bool:
        """Whether the footer of the next segment names this one."""
        following = self.segments.view(number + 1)
        return following is not None and segment_id(footer) == following.footer.previous_id

    def _verify(self, view: SegmentView) -> VerifiedSegment:
        footer = bytes(view.footer_bytes)
        if not self._is_named(footer, view.number):
            try:
                view.with_footer(footer).verify(None)
            except FormatError as error:
                raise SegmentBroken(view.number, str(error)) from error
        return VerifiedSegment(view, footer, self._known)
