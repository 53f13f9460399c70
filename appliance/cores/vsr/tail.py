"""The end of the log: what comes into it, what is cut off, what a new primary has to hold of it
before it leads.
"""

from appliance.cores.vsr import wants
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.wal import on_unreadable, read_prepare
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message


def install_header(member: Member, header: Header) -> None:
    """Install unless the slot already belongs to a later op."""
    assert header.command == env.PREPARE
    known = member.journal.headers[member.journal.slot(header.op)]
    if known is None or known.op <= header.op:
        member.journal.install(header)


def clear_above(member: Member, head: int) -> None:
    """No slot above the head is of any meaning to this log: what was lost there was proven
    uncommitted.
    """
    assert head >= 0
    limit = member.geometry.prepare_max(member.checkpoint_op)
    for op in range(head + 1, limit + 1):
        slot = member.journal.slot(op)
        known = member.journal.headers[slot]
        if known is None:
            if member.journal.faulty[slot]:
                member.journal.forget_faults(slot)
        elif known.op > head:
            member.journal.remove(known.op)


def in_memory(member: Member) -> bool:
    """Whether the uncommitted tail's bodies are here: a request in it must be known when it comes
    again.
    """
    whole = True
    assert member.op - member.commit_max <= member.geometry.pipeline_max
    for op in range(member.commit_max + 1, member.op + 1):
        header = member.journal.at(op)
        assert header is not None
        if member.prepare_in_memory(header) is None:
            whole = False
            slot = member.journal.slot(op)
            if slot not in member.rereading:
                member.rereading[slot] = header.digest
                read_prepare(member, header, on_tail_read)
    return whole


def on_tail_read(member: Member, message: Message | None, header: Header) -> None:
    """A prepare of the tail was read back; if it cannot be, a peer is asked for it."""
    assert header.op > 0
    member.rereading.pop(member.journal.slot(header.op), None)
    if message is None:
        on_unreadable(member, header)
        wants.ask_repair(member)
    else:
        member.keep_prepare(message)


def window(member: Member) -> list[Header]:
    """Headers of repair_min..head; the chain is known to be unbroken."""
    assert member.commit_min <= member.op
    headers = [member.journal.at(op) for op in range(max(1, member.repair_min), member.op + 1)]
    return [h for h in headers if h is not None]


def hold(member: Member, op: int) -> None:
    """The prepare at `op` ends the log until it is applied here."""
    assert op > member.commit_min
    member.reconfiguring = op


def release(member: Member) -> None:
    """It is applied: the log may go on."""
    member.reconfiguring = 0


def find_pending(member: Member) -> None:
    """A change of group or clock in the tail is still to be committed: nothing may follow it."""
    assert member.commit_min <= member.op
    for op in range(member.commit_min + 1, member.op + 1):
        header = member.journal.at(op)
        if header is not None and header.operation in env.OPERATIONS_ALONE:
            hold(member, op)
