"""The list of headers by which a replica describes its log to others, and what it can say of each:
that it has the prepare, or that it never had it.
"""

from appliance.cores.vsr.evaluate import DoViewChange, blank
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.wal import writing
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE


def describe(member: Member) -> list[Header]:
    """The list of a do_view_change: from the head down to the first op that is known committed.

    Headers that the start_view of this log named are put in where the journal lacks them: one
    beyond prepare_max or one whose slot was lost must not look as if it had never been.
    """
    named = {h.op: h for h in member.view_headers if not blank(h)}
    top = member.op
    if not (member.is_primary and member.dvc_quorum) and member.view_headers:
        top = max(top, member.view_headers[0].op)
    headers: list[Header] = []
    for op in range(top, -1, -1):
        header = member.journal.at(op) or named.get(op)
        headers.append(header or env.reserved(op, member.cluster, member.shard))
        if op <= member.commit_max:
            break
    assert len(headers) <= member.geometry.pipeline_max + 1, (top, member.commit_max, member.op)
    assert not blank(headers[0])
    return headers


def bits(member: Member, headers: list[Header]) -> tuple[int, int]:
    """(presents, nacks) of this replica for its list, as its journal stands now."""
    assert headers
    presents = nacks = 0
    journal = member.journal
    for i, header in enumerate(headers):
        slot = journal.slot(header.op)
        known = journal.at(header.op)
        valid = not blank(header)
        same = known is not None and valid and known.digest == header.digest
        if (
            (known is None and not journal.faulty[slot])
            or (known is not None and valid and not same)
            or (
                # a durable prepare may have been acknowledged: its witness can be lost, too
                same
                and journal.dirty[slot]
                and not journal.faulty[slot]
                and journal.present[slot] != header.digest
            )
        ):
            nacks |= 1 << i
        if valid and (
            journal.present[slot] == header.digest
            or writing(member, header)
            or member.prepare_in_memory(header) is not None
        ):
            presents |= 1 << i
    assert presents >> len(headers) == 0
    assert nacks >> len(headers) == 0
    return presents, nacks


def is_of_log(member: Member, header: Header) -> bool:
    """Whether a header that another one tells of is of this shard's log at all."""
    ours = header.cluster == member.cluster and header.shard == member.shard
    return ours and header.command == env.PREPARE


def parse_headers(body: bytes | memoryview, member: Member) -> list[Header] | None:
    """Headers of a list, strictly descending in op; None if one is broken or of another shard."""
    if len(body) % HEADER_SIZE:
        return None
    out: list[Header] = []
    for offset in range(0, len(body), HEADER_SIZE):
        header = env.decode_stored(body[offset : offset + HEADER_SIZE])
        if header is None or not is_of_log(member, header):
            return None
        if out and header.op >= out[-1].op:
            return None
        out.append(header)
    return out


def parse_do_view_change(member: Member, message: Message) -> DoViewChange | None:
    """None when a static rule is broken."""
    header = message.header
    headers = parse_headers(message.body, member)
    if not headers or len(headers) > member.geometry.pipeline_max + 1:
        return None
    presents, nacks, checkpoint = cmd.DoViewChange.unpack(header.area)
    assert header.op >= header.commit_num >= checkpoint
    assert header.aux < header.view
    if (
        blank(headers[0])
        or headers[0].op != header.op
        or headers[-1].op != header.op - len(headers) + 1
    ):
        return None
    if presents >> len(headers) or nacks >> len(headers):
        return None
    if any(h.viewstamp > header.viewstamp for h in headers):
        return None
    return DoViewChange(
        message.sender,
        header.aux,
        header.op,
        header.commit_num,
        checkpoint,
        headers,
        presents,
        nacks,
    )
