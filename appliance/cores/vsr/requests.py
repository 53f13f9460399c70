"""Requests: which of them are new, and how one becomes a prepare.

A prepare goes to the backups and to the disk in the same step; what became of it, `normal` counts.
"""

from appliance.cores.vsr import announce, appending, correction, membership, tail, wal, wants
from appliance.cores.vsr.evictions import (
    EVICT_BODY,
    EVICT_NO_SESSION,
    EVICT_OPERATION,
    EVICT_SESSION,
    EVICT_SIZE,
    EVICTION_REASONS,
)
from appliance.cores.vsr.member import Entry, Member
from appliance.cores.vsr.sessions import Session
from appliance.cores.vsr.status import Status
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RECORD_SIZE, SESSION_BLOCK_SIZE

_OPERATIONS = (*env.OPERATIONS_REQUESTED, *membership.OPERATIONS)


def ignores_request(member: Member, message: Message, block: ses.SessionBlock | None) -> str | None:
    """Why a request, whose body begins with `block`, is none of ours; None: it is handled."""
    if block is None:
        return "request_invalid"
    if member.status != Status.NORMAL or member.is_standby:
        return "request_not_normal"
    if message.header.viewstamp > member.viewstamp:
        return "request_newer_view"
    return None


def on_request(member: Member, message: Message) -> None:
    block = ses.decode(message.body)
    ignored = ignores_request(member, message, block)
    if ignored is not None:
        return member.drop(ignored)
    assert block is not None
    assert member.log_view == member.view
    header = message.header
    if not member.is_primary:
        return _forward(member, message, block)
    reason = _malformed(member, header, message.body, block)
    if reason:
        return evict(member, block.client, block.session, reason)
    if member.durable_view < member.view or member.durable_log_view < member.view:
        return member.drop("request_persisting")
    if not _is_new(member, header, block):
        return None
    if any(ses.client_of(q.body) == block.client for q in member.request_queue) or _preparing(
        member, block.client
    ):
        return member.drop("request_in_flight")
    if member.now_us() is None:
        if not member.timeouts["abdicate"].running and member.clock.disagreement is None:
            member.timeouts["abdicate"].start()
        return member.drop("request_clock_unsynchronised")
    if not _room(member):
        if len(member.request_queue) >= member.geometry.clients_max:
            return member.drop("request_queue_full")
        member.request_queue.append(message)
        return None
    return _prepare_unless_refused(member, message, block)


def _room(member: Member) -> bool:
    """Whether one more prepare may be made now."""
    return (
        len(member.pipeline) < member.geometry.pipeline_max
        and member.op < member.geometry.prepare_max(member.checkpoint_op)
        and not member.request_queue
        and member.op - member.commit_min < 4 * member.geometry.pipeline_max
        and not membership.pending(member)
    )


def _malformed(
    member: Member, header: Header, body: bytes | memoryview, block: ses.SessionBlock
) -> int:
    """The eviction reason of a request that no retry can mend; 0 when it is well formed."""
    if header.operation not in _OPERATIONS:
        return EVICT_OPERATION
    assert len(body) >= SESSION_BLOCK_SIZE
    records = len(body) - SESSION_BLOCK_SIZE
    if header.operation in membership.OPERATIONS:
        if records != membership.BODY_SIZES[header.operation] or block.record_count:
            return EVICT_SIZE
        return 0 if membership.parse(header.operation, body) is not None else EVICT_BODY
    if header.operation not in env.OPERATIONS_APPEND:
        return EVICT_SIZE if records or block.record_count else 0
    if (
        records != block.record_count * RECORD_SIZE
        or not 1 <= block.record_count <= member.geometry.records_max
    ):
        return EVICT_SIZE
    if not member.state_machine.input_valid(
        header.operation, memoryview(body)[SESSION_BLOCK_SIZE:]
    ):
        return EVICT_BODY
    return 0


def _is_new(member: Member, header: Header, block: ses.SessionBlock) -> bool:
    """Judge a request by the table of sessions; what is not new is answered or dropped here."""
    entry = member.sessions.get(block.client)
    register = header.operation == env.OPERATION_REGISTER
    if entry is None:
        if register or _preparing(member, block.client):
            return register
        evict(member, block.client, block.session, EVICT_NO_SESSION)
        return False
    if register:
        if entry.request == 0:
            resend_reply(member, entry)
        else:
            member.drop("register_of_a_used_session")
        return False
    if block.session < entry.session:
        evict(member, block.client, block.session, EVICT_SESSION)
    elif (
        block.session > entry.session
        or header.aux < entry.request
        or header.aux > entry.request + 1
    ):
        member.drop("request_out_of_order")
    elif header.aux == entry.request:
        if entry.body is not None and ses.request_digest_of(entry.body) != header.digest:
            member.drop("request_collision")
        else:
            resend_reply(member, entry)
    elif entry.reply is None or block.reply_parent != entry.reply.digest:
        member.drop("request_wrong_parent")
    else:
        return True
    return False


def resend_reply(member: Member, entry: Session) -> None:
    """The stored reply, from memory or from its slot."""
    assert member.sessions.rows[entry.row] is entry
    if entry.body is not None and entry.reply is not None:
        member.send_client(entry.client, entry.reply, entry.body)
        return
    member.replies_wanted.add(entry.row)  # `repair` reads the slot, or asks a peer for it
    wants.ask_repair(member)


def _preparing(member: Member, client: bytes) -> bool:
    return any(entry.client == client for entry in member.pipeline)


def evict(member: Member, client: bytes, session: int, reason: int, told: int = 0) -> None:
    """Tell a client that its session has ended, and `told` by the reason; only the primary may."""
    assert len(client) == 16
    member.count("evicted_" + EVICTION_REASONS[reason])
    area = cmd.Eviction.pack(client, session)
    header = member.make(env.EVICTION, view=member.view, aux=reason, op=told, area=area)
    member.send_client(client, header)


def _forward(member: Member, message: Message, block: ses.SessionBlock) -> None:
    """As a backup: what is new goes to the primary, what was answered is answered again."""
    assert member.status == Status.NORMAL
    assert not member.is_primary
    entry = member.sessions.get(block.client)
    header = message.header
    if message.sender != env.SENDER_CLIENT:
        return member.drop("request_forwarded_twice")
    if entry is not None and header.aux == entry.request and entry.body is not None:
        if ses.request_digest_of(entry.body) == header.digest:
            return resend_reply(member, entry)
    if header.operation == env.OPERATION_REGISTER or (
        entry is not None and header.aux > entry.request
    ):
        member.count("requests_forwarded")
        return member.send(1 << member.primary, header, message.body)
    return member.drop("request_not_forwarded")


def _prepare_unless_refused(member: Member, message: Message, block: ses.SessionBlock) -> None:
    why = correction.refusal(member, message)
    if why is not None:
        return evict(member, block.client, block.session, *why)
    return prepare(member, message, block)


def prepare(member: Member, message: Message, block: ses.SessionBlock) -> None:
    """Give a request its op, its time and its place in the chain; send and write it in the same
    step.
    """
    assert member.normal_primary
    assert len(member.pipeline) < member.geometry.pipeline_max
    request = message.header
    checkpoint = member.checkpoint
    assert checkpoint is not None
    count = max(1, block.record_count)
    log_us = member.clock.log_us(member.monotonic_ns, member.now_us(), member.timestamp_last)
    timestamp = max(member.timestamp_last + count, log_us)
    member.learn_timestamp(timestamp)
    body = bytearray(message.body)
    ses.stamp(body, request.digest, checkpoint.checkpoint_id)
    operation = request.operation
    if operation in env.OPERATIONS_APPEND:
        operation = appending.operation_of(member, operation)
        member.state_machine.prepare(operation, timestamp, memoryview(body)[SESSION_BLOCK_SIZE:])
    elif operation in membership.OPERATIONS:
        membership.stamp(member, operation, body)
    if operation in env.OPERATIONS_ALONE:
        tail.hold(member, member.op + 1)
    head = member.head
    assert head.op == member.op
    header = member.make(
        env.PREPARE,
        operation=operation,
        view=member.view,
        aux=request.aux,
        op=member.op + 1,
        commit_num=member.commit_max,
        area=cmd.Prepare.pack(head.digest, timestamp),
        body=body,
    )
    made = Message(header, bytes(body), member.index)
    member.journal.install(header)
    member.extend_head(header)
    member.keep_prepare(made)
    member.pipeline.append(Entry(header, block.client))
    member.send(member.others, header, made.body)
    wal.append(member, made)
    if not member.timeouts["prepare"].running:
        member.timeouts["prepare"].start(5)
        member.timeouts["abdicate"].start()


def advance_queue(member: Member) -> None:
    """As primary: prepare what waited for room in the pipeline."""
    while member.request_queue and member.normal_primary:
        waiting = member.request_queue
        geometry = member.geometry
        if (
            len(member.pipeline) >= geometry.pipeline_max
            or member.op >= geometry.prepare_max(member.checkpoint_op)
            or member.op - member.commit_min >= 4 * geometry.pipeline_max
            or membership.pending(member)
        ):
            return
        message = waiting.popleft()
        block = ses.decode(message.body)
        assert block is not None
        if _is_new(member, message.header, block) and not _preparing(member, block.client):
            _prepare_unless_refused(member, message, block)


def ignores_ping_client(member: Member, _message: Message) -> str | None:
    """Why a client is not told who serves; None: it is."""
    return "ping_client_standby" if member.is_standby else None


def on_ping_client(member: Member, message: Message) -> None:
    ignored = ignores_ping_client(member, message)
    if ignored is not None:
        return member.drop(ignored)
    assert 0 <= member.index < member.replica_count
    client, echo_ns = cmd.PingClient.unpack(message.header.area)
    announce.tell_client(member, client, echo_ns)
    if member.normal_primary and member.commit_min >= message.header.op and message.header.op > 0:
        if member.sessions.get(client) is None and member.state_ready:
            evict(member, client, message.header.op, EVICT_NO_SESSION)
    return None
