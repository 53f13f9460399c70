"""Refilling sealed segments from peers, the newest first.

    footer of n -> leaves of n ------> written
            names n - 1
               -> footer of n - 1 ---> leaves of n - 1 ---> ...

The footer of a segment names the one before, so the next is fetched while this one is being
written; `SEGMENTS_AT_ONCE` bounds what is held in memory. Of a segment only what came from peers is
written; what is whole on our own disk is left as it is.
"""

from collections import deque

from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr import chunks, wants
from appliance.cores.vsr.chunks import Wanted
from appliance.cores.vsr.member import Member
from appliance.formats import checkpoint as ck
from appliance.formats import segment as seg
from appliance.formats.checkpoint import ChunkLocation
from appliance.formats.geometry import RECORD_SIZE, whole_sectors

SEGMENTS_AT_ONCE = 3


class Segment:
    """One sealed segment on its way to the disk."""

    __slots__ = ("number", "footer", "leaves", "writes")

    def __init__(self, number: int, footer: Wanted) -> None:
        assert number >= 0
        assert footer.location.kind == ck.KIND_FOOTER
        assert footer.location.number == number
        self.number = number
        self.footer = footer
        self.leaves: list[Wanted] = []  # in order; known when the footer is here
        self.writes = -1  # on their way; -1: not begun

    @property
    def here(self) -> bool:
        """Whether all of it is in memory."""
        return bool(self.leaves) and all(leaf.data is not None for leaf in self.leaves)


class Backfill:
    """Sealed segments from `number` down to `low`."""

    __slots__ = ("low", "next", "next_id", "segments", "chunks")

    def __init__(self, number: int, segment_id: bytes, low: int) -> None:
        assert number >= 0
        assert low >= 0
        self.low = low
        self.next = number  # to be begun, when its id is known
        self.next_id: bytes | None = segment_id
        self.segments: deque[Segment] = deque()  # the newest first
        self.chunks: dict[ChunkLocation, Wanted] = {}

    @property
    def number(self) -> int:
        """The newest segment that is not known to be whole here."""
        return self.segments[0].number if self.segments else self.next


def begin(member: Member, number: int, segment_id: bytes, low: int) -> None:
    """Refill `number` down to `low`, from now on; `segment_id` is the id of `number`."""
    assert number >= 0
    assert member.superblock is not None
    member.backfill = Backfill(number, segment_id, low)
    member.timeouts["chunks"].start()
    advance(member)


def advance(member: Member) -> None:
    """Write what is here, forget what is written, begin what there is room for."""
    work: Backfill | None = member.backfill
    if work is None:
        return
    _leave_dropped(work, member.state_machine.oldest_segment)
    assert len(work.segments) <= SEGMENTS_AT_ONCE
    for segment in work.segments:
        if segment.writes < 0 and segment.here:
            _write(member, segment)
    while work.segments and work.segments[0].writes == 0:
        _forget(work, work.segments.popleft())
        member.mark("segment_backfilled")
    while (
        work.next_id is not None and work.next >= work.low and len(work.segments) < SEGMENTS_AT_ONCE
    ):
        _begin_segment(member, work, work.next_id)
    if not work.segments and work.next < work.low:
        end(member)
        wants.ask_acknowledgements(member)
        member.mark("backfill_done")


def end(member: Member) -> None:
    """Nothing is refilled any more."""
    member.backfill = None


def _leave_dropped(work: Backfill, oldest: int) -> None:
    """What the group keeps no longer is not refilled: peers need not have it any more, and its
    extents will be those of new segments.
    """
    work.low = max(work.low, oldest)
    assert work.low >= oldest
    while work.segments and work.segments[-1].number < work.low:
        _forget(work, work.segments.pop())


def _forget(work: Backfill, segment: Segment) -> None:
    assert segment.footer.location in work.chunks
    assert work.chunks[segment.footer.location] is segment.footer
    for chunk in (segment.footer, *segment.leaves):
        del work.chunks[chunk.location]


def _begin_segment(member: Member, work: Backfill, segment_id: bytes) -> None:
    assert work.low <= work.next
    assert len(work.segments) < SEGMENTS_AT_ONCE
    location = ChunkLocation(ck.KIND_FOOTER, 0, 0, work.next)
    footer = Wanted(segment_id, location, _on_footer)
    assert location not in work.chunks
    work.segments.append(Segment(work.next, footer))
    work.chunks[location] = footer
    work.next, work.next_id = work.next - 1, None
    chunks.read_local(member, footer, member.geometry.footer_size_max)


def _on_footer(member: Member, chunk: Wanted, data: bytes) -> None:
    """A footer is here and verified: it names its leaves, and the segment before."""
    work: Backfill = member.backfill
    assert chunk.data is None
    assert work.next_id is None
    chunk.data = data
    (segment,) = (s for s in work.segments if s.footer is chunk)
    assert not segment.leaves
    assert segment.writes < 0
    footer = seg.decode_footer(data, member.geometry)
    for i, leaf_id in enumerate(seg.footer_leaf_ids(data, footer)):
        records = seg.leaf_record_count(member.geometry, i)
        leaf = Wanted(leaf_id, ChunkLocation(ck.KIND_LEAF, records, i, segment.number), _on_leaf)
        segment.leaves.append(leaf)
        work.chunks[leaf.location] = leaf
        chunks.read_local(member, leaf, records * RECORD_SIZE)
    work.next_id = footer.previous_id  # only the last segment's footer is ever outstanding


def _on_leaf(_member: Member, chunk: Wanted, data: bytes) -> None:
    assert chunk.data is None
    assert chunk.location.kind == ck.KIND_LEAF
    chunk.data = data


def _write(member: Member, segment: Segment) -> None:
    """Write what came from peers, in whole sectors. What was whole here is left as it is: a segment
    takes seconds to be written, and a reader may wait for one leaf of it.
    """
    assert segment.here
    assert segment.writes < 0
    assert segment.footer.data is not None
    segment.writes = 0
    address, _ = chunks.local_address(member, segment.leaves[0].location)
    for start, end in _spans(segment.leaves):
        data = _between(segment.leaves, start, end)
        segment.writes += chunks.write_in_steps(member, address + start, data, _on_written, segment)
    if segment.footer.remote and segment.footer.data is not None:
        address, _ = chunks.local_address(member, segment.footer.location)
        segment.writes += chunks.write_in_steps(
            member, address, [segment.footer.data], _on_written, segment
        )


def _spans(leaves: list[Wanted]) -> list[tuple[int, int]]:
    """Where the leaves lie that came from peers: whole sectors, neighbours joined, so that no two
    writes share a sector.
    """
    assert leaves
    spans: list[tuple[int, int]] = []
    end = 0
    for leaf in leaves:
        start, end = end, end + leaf.location.count * RECORD_SIZE
        if not leaf.remote:
            continue
        first, last = start - start % SECTOR_SIZE, whole_sectors(end)
        if spans and first <= spans[-1][1]:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    assert len(spans) <= len(leaves)
    return spans


def _between(leaves: list[Wanted], start: int, end: int) -> list[memoryview]:
    """The bytes of the leaves from `start` to `end`; fewer where the last leaf ends before."""
    assert 0 <= start < end
    pieces, at = [], 0
    for leaf in leaves:
        assert leaf.data is not None
        pieces.append(memoryview(leaf.data)[max(0, start - at) : max(0, end - at)])
        at += len(leaf.data)
    assert sum(len(piece) for piece in pieces) <= end - start
    return pieces


def _on_written(_member: Member, segment: Segment) -> None:
    assert segment.writes > 0
    segment.writes -= 1
