"""Broken segments that a reader of this node has found: mended at once, before the scrubber
comes.

    report of n ─▶ id of n known? ──yes──▶ refilled (`backfill`): what is whole is left as it is
                        │ no
                        ▼
                   footers are read, from the nearest one above whose id is known, down to n

A report is believed by nobody: refilling reads the segment and asks peers for what is wrong in it.
"""

from appliance.base.limits import SEGMENTS_REPORTED_MAX
from appliance.cores.vsr import backfill, chunks
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats import checkpoint as ck
from appliance.formats import segment as seg
from appliance.formats.checkpoint import ChunkLocation
from appliance.formats.geometry import whole_sectors


class Reports:
    """What was reported and is not mended yet, and which ids of sealed segments are known."""

    __slots__ = ("numbers", "ids", "reading")

    def __init__(self) -> None:
        self.numbers: dict[int, None] = {}  # in the order in which they came
        self.ids: dict[int, bytes] = {}  # segment -> its id, from verified footers
        self.reading = False


def on_report(member: Member, number: int) -> None:
    """A reader found segment `number` broken, or could not read it."""
    reports: Reports = member.reports
    work = member.backfill
    if number in reports.numbers or len(reports.numbers) >= SEGMENTS_REPORTED_MAX:
        return
    if work is not None and work.low <= number <= work.number:
        return  # it is being refilled
    reports.numbers[number] = None
    member.mark("segment_reported")


def learn(member: Member, number: int, segment_id: bytes) -> None:
    """The id of a sealed segment is known."""
    assert len(segment_id) == 32
    member.reports.ids[number] = segment_id


def advance(member: Member) -> None:
    """Begin to mend the oldest report, when nothing else is refilled."""
    reports: Reports = member.reports
    assert len(reports.numbers) <= SEGMENTS_REPORTED_MAX
    if not reports.numbers or reports.reading or member.backfill is not None:
        return
    if member.status != Status.NORMAL or not member.state_ready or member.installing:
        return
    number = next(iter(reports.numbers))
    oldest, newest = member.state_machine.oldest_segment, newest_durable(member)
    if not oldest <= number <= newest:
        del reports.numbers[number]  # dropped, or still in the ring: nobody needs it from here
        return
    for old in [known for known in reports.ids if known < oldest]:
        del reports.ids[old]
    if number in reports.ids:
        assert member.backfill is None
        del reports.numbers[number]
        backfill.begin(member, number, reports.ids[number], number)
        return
    assert not reports.reading
    _read_footer(member, min(known for known in reports.ids if known > number))


def newest_durable(member: Member) -> int:
    """The newest sealed segment that is durable, also one that no checkpoint names yet; its id is
    known from now on."""
    number, segment_id = member.state_machine.newest_sealed()
    if number < 0:
        return newest_sealed(member)
    learn(member, number, segment_id)
    return number


def newest_sealed(member: Member) -> int:
    """The newest sealed segment of the last checkpoint, whose id the manifest tells; or -1."""
    raw = member.manifests.get(member.checkpoint_op)
    if raw is None:
        return -1
    manifest = ck.decode(raw, member.geometry)
    assert manifest.op == member.checkpoint_op
    newest = manifest.log_seq // member.geometry.segment_records - 1
    if newest >= 0:
        learn(member, newest, manifest.newest_segment_id)
    return newest


def _read_footer(member: Member, number: int) -> None:
    assert number >= 0
    assert not member.reports.reading
    member.reports.reading = True
    address, _ = chunks.local_address(member, ChunkLocation(ck.KIND_FOOTER, 0, 0, number))
    length = whole_sectors(member.geometry.footer_size_max)
    member.read(address, length, _on_footer, number)


def _on_footer(member: Member, data: bytes | None, number: int) -> None:
    """A footer above the one that was reported names the one below it, or is broken itself."""
    reports: Reports = member.reports
    assert reports.reading
    reports.reading = False
    footer = chunks.footer_of(data, member)
    if number not in reports.ids:
        return  # dropped meanwhile
    if footer is not None and seg.segment_id(footer) == reports.ids[number]:
        learn(member, number - 1, seg.decode_footer(footer, member.geometry).previous_id)
    elif member.backfill is None:
        backfill.begin(member, number, reports.ids[number], number)
