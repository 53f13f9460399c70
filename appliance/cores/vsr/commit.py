"""Committing: applying prepares, strictly in op order, to the state machine and the table of
sessions.

Everybody applies the same way; only the primary answers. A prepare is applied once its op is
known committed and its header is known to belong to the log: linked by digests to the head, or
prepared in this very view.
"""

from appliance.cores.vsr import appending, membership, wal, write_order
from appliance.cores.vsr import effects as fx
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import SESSION_BLOCK_SIZE

COMMITS_PER_SETTLE_MAX = 16  # then other events get their turn; the next event goes on


def is_due(member: Member) -> bool:
    """Whether something is to be applied, or to be told: a checkpoint that was fetched may hold all
    that was ever committed, and nobody has to write for its readers to hear of it.
    """
    return member.commit_min < member.commit_max or member.state_machine.log_seq != member.published


def advance(member: Member) -> None:
    """Apply what can be applied now."""
    if member.status not in (Status.NORMAL, Status.VIEW_CHANGE) or not member.state_ready:
        return
    if member.status == Status.VIEW_CHANGE and not member.dvc_quorum:
        return
    assert member.commit_min <= member.commit_max
    before = member.state_machine.log_seq
    for _ in range(COMMITS_PER_SETTLE_MAX):
        if member.commit_min >= member.commit_max or not _next(member):
            break
    if member.state_machine.log_seq != before:
        write_segments(member)
    if member.state_machine.log_seq != member.published:  # a checkpoint may hold all there is
        member.effects.append((fx.PUBLISH, member.state_machine.log_seq))
        member.published = member.state_machine.log_seq


def committable(member: Member, op: int) -> Header | None:
    """The header at `op`, if the log certainly holds this very prepare there."""
    header = member.journal.at(op)
    if header is None or op > member.op:
        return None
    if member.chained_from(op):
        return header
    anchor = min(member.commit_max, member.op)
    known = member.journal.at(anchor)
    if known is None:
        return None
    named = member.commit_anchor == (anchor, known.digest)
    if not named and not (known.viewstamp == member.viewstamp == member.log_viewstamp):
        return None
    for n in range(anchor, op, -1):  # at most a ring of ops; usually a pipeline
        below = member.journal.at(n - 1)
        if below is None or below.digest != known.parent:
            return None
        known = below
    return header


def _blocked(member: Member) -> bool:
    """The state at commit_min has to be frozen for a checkpoint before anything changes it."""
    return member.checkpoint_due


def unblock(member: Member) -> None:
    """The state is frozen, or is another one now."""
    member.checkpoint_due = False


def jump(member: Member, op: int) -> None:
    """The state is that of a checkpoint, or will be: whatever led to it is not applied here."""
    assert op >= member.commit_min
    member.commit_min = op
    member.commit_reading = -1


def _next(member: Member) -> bool:
    """Apply the next op; False when something is missing or on its way."""
    op = member.commit_min + 1
    header = committable(member, op)
    if header is None or member.commit_reading == op or member.index < 0 or _blocked(member):
        return False
    if header.operation not in env.OPERATIONS_KNOWN:
        member.halt(
            "OPERATION_UNKNOWN",
            f"op {op} is operation {header.operation}, which this program does not know: a newer "
            "one wrote it",
        )
        return False
    assert header.op == op
    message = member.prepare_in_memory(header)
    if message is None:
        slot = member.journal.slot(op)
        if member.journal.present[slot] == header.digest:
            member.commit_reading = op
            wal.read_prepare(member, header, _on_read)
        return False
    if not _room(member, message):
        return False
    apply(member, message)
    return True


def _on_read(member: Member, message: Message | None, header: Header) -> None:
    member.commit_reading = -1
    if message is None:
        wal.on_unreadable(member, header)
    else:
        member.keep_prepare(message)


def _room(member: Member, message: Message) -> bool:
    if message.header.operation not in env.OPERATIONS_APPEND:
        return True
    block = ses.decode(message.body)
    assert block is not None
    return member.state_machine.can_commit(block.record_count)


def apply(member: Member, message: Message) -> None:
    """Run the state machine, build the reply, remember it; answer if this is the primary."""
    header = message.header
    assert header.op == member.commit_min + 1
    operation = header.operation
    results = b""
    block = ses.decode(message.body) if header.body_size else None
    if operation in env.OPERATIONS_APPEND:
        assert block is not None
        results = member.state_machine.commit(
            header.op, operation, header.timestamp, memoryview(message.body)[SESSION_BLOCK_SIZE:]
        )
        appending.on_applied(member, operation)
    change = operation in membership.OPERATIONS
    if change:
        results = membership.apply(member, header, message.body)
    member.commit_min = header.op
    assert member.commit_min <= member.commit_max
    member.learn_timestamp(header.timestamp)
    if block is not None:
        _remember(member, header, block, results)
    if change:
        membership.take_effect(member, header)
    if member.commit_min == member.geometry.checkpoint_next(member.checkpoint_applied):
        member.checkpoint_due = True


def _remember(member: Member, header: Header, block: ses.SessionBlock, results: bytes) -> None:
    """Update the table of sessions and send the reply."""
    sessions = member.sessions
    session = block.session
    if header.operation == env.OPERATION_REGISTER:
        session = header.op
        sessions.register(block.client, header.op)
    entry = sessions.get(block.client)
    if entry is None or entry.session != session:
        member.mark("committed_for_an_evicted_session")
        return
    body = (
        ses.encode(
            ses.SessionBlock(
                block.client,
                session,
                len(results) // 64,
                bytes(16),
                block.request_digest,
                bytes(32),
            )
        )
        + results
    )
    reply = member.make_reply(header, body)
    assert entry.session == session
    assert header.aux >= entry.request
    entry.request = header.aux
    entry.reply = reply
    entry.body = body
    entry.faulty = False
    entry.dirty = True
    if member.normal_primary or (member.is_primary and member.dvc_quorum):
        member.send_client(block.client, reply, body)


def write_segments(member: Member) -> None:
    """Start the writes of full leaves and sealed footers; the checkpoint waits for them."""
    geometry = member.geometry
    assert member.superblock is not None
    for write in member.state_machine.take_writes():
        extent = write.number % member.superblock.segments_max
        address = geometry.data_size + extent * geometry.extent_size + write.offset
        assert member.segments_writing >= 0
        assert write.offset >= 0
        member.segments_writing += 1
        write_order.write(member, address, wal.padded([write.data]), _on_segment_written, write)


def _on_segment_written(member: Member, write: object) -> None:
    assert member.segments_writing > 0
    member.segments_writing -= 1
    member.state_machine.on_segment_written(write)
    write_segments(member)  # what waited for a tail that it overlaps
