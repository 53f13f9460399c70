"""The normal protocol: requests become prepares, prepares become durable, a quorum of
acknowledgements commits.

Nothing here waits: a prepare goes to the backups and to the disk in the same step.
"""

from appliance.cores.vsr import (
    announce,
    appending,
    correction,
    divergence,
    heartbeat,
    membership,
    start_view,
    tail,
    wal,
    wants,
)
from appliance.cores.vsr.evictions import (
    EVICT_BODY,
    EVICT_NO_SESSION,
    EVICT_OPERATION,
    EVICT_SESSION,
    EVICT_SIZE,
    EVICTION_REASONS,
)
from appliance.cores.vsr.member import Entry, Member, Status
from appliance.cores.vsr.sessions import Session
from appliance.formats import checkpoint as ck
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RECORD_SIZE, SESSION_BLOCK_SIZE

_OPERATIONS = (*env.OPERATIONS_REQUESTED, *membership.OPERATIONS)


# --- requests -----------------------------------------------------------------------------------


def on_request(member: Member, message: Message) -> None:
    header = message.header
    block = ses.decode(message.body)
    if block is None:
        return member.drop("request_invalid")
    if member.status != Status.NORMAL or member.is_standby:
        return member.drop("request_not_normal")
    if header.viewstamp > member.viewstamp:
        return member.drop("request_newer_view")
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
    if entry.body is not None and entry.reply is not None:
        member.send_client(entry.client, entry.reply, entry.body)
        return
    member.replies_wanted.add(entry.row)  # `repair` reads the slot, or asks a peer for it
    wants.ask_repair(member)


def _preparing(member: Member, client: bytes) -> bool:
    return any(entry.client == client for entry in member.pipeline)


def evict(member: Member, client: bytes, session: int, reason: int, told: int = 0) -> None:
    """Tell a client that its session has ended, and `told` by the reason; only the primary may."""
    member.count("evicted_" + EVICTION_REASONS[reason])
    area = cmd.Eviction.pack(client, session)
    header = member.make(env.EVICTION, view=member.view, aux=reason, op=told, area=area)
    member.send_client(client, header)


def _forward(member: Member, message: Message, block: ses.SessionBlock) -> None:
    """As a backup: what is new goes to the primary, what was answered is answered again."""
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
    assert member.normal_primary and len(member.pipeline) < member.geometry.pipeline_max
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
    for mask, route in member.route.plan(member.tick):
        member.send(mask, header, made.body, route)
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


# --- prepares -----------------------------------------------------------------------------------


def on_prepare(member: Member, message: Message) -> None:
    """As backup: a new prepare of this view. What is older or lower is a repair (see `repair`)."""
    header = message.header
    head = member.head
    assert header.viewstamp == member.viewstamp == member.log_viewstamp
    assert header.op > member.op
    member.learn_commit(header.commit_num)
    start_view.heard(member)
    if member.installing or header.op > member.geometry.prepare_max(member.checkpoint_op):
        return member.drop("prepare_beyond_ring")
    block = ses.decode(message.body)
    if block is None:
        return member.drop("prepare_invalid")
    follows = header.op == member.op + 1 and header.viewstamp == head.viewstamp
    if follows and header.parent != head.digest:
        return member.halt(
            "CHAIN_BROKEN", f"op {header.op} of view {header.view} does not continue op {head.op}"
        )
    if header.op > member.op + 1:
        member.mark("prepare_left_a_gap")
        wants.ask_repair(member)
    member.journal.install(header)
    member.extend_head(header)
    wal.append(member, message)
    return None


def forward(member: Member, message: Message) -> None:
    """Hand a prepare seen for the first time to the next hop, before writing it."""
    header = message.header
    if header.op <= member.commit_min or member.journal.clean(header):
        return
    hops = message.route & ~(1 << member.index) & ((1 << len(member.members)) - 1)
    following = member.route.first(hops, member.primary_of(message.header.view))
    if following >= 0:
        member.mark("prepare_forwarded")
        member.send(1 << following, message.header, message.body, hops & ~(1 << following))


def acknowledge(member: Member, op: int) -> None:
    """Tell the primary of the current view that this prepare is durable here, if that may be
    said.
    """
    header = member.journal.at(op)
    if header is None or member.status != Status.NORMAL or member.is_standby or op > member.op:
        return
    if member.installing:
        return
    if not member.journal.clean(header) or op > acknowledge_max(member):
        return
    if member.is_primary:
        _count(member, member.index, op, header.digest)
        return
    member.send(
        1 << member.primary,
        member.make(
            env.PREPARE_OK,
            view=member.view,
            op=op,
            commit_num=member.commit_min,
            area=cmd.PrepareOk.pack(header.digest),
        ),
    )


def acknowledge_max(member: Member) -> int:
    """The highest op this member may acknowledge: nobody vouches for a checkpoint it does not
    hold.
    """
    geometry = member.geometry
    checkpoint = member.checkpoint_op
    if member.sync_op_max and not geometry.durable(checkpoint, member.commit_max):
        if not member.state_ready or member.backfill is not None:
            return checkpoint + geometry.pipeline_max
    return geometry.prepare_ok_max(checkpoint)


def acknowledge_all(member: Member) -> None:
    """Acknowledge what became clean; after a new view, checkpoint or sync the whole tail again."""
    if member.acknowledge_tail:
        wants.take_acknowledgements(member)
        member.clean_ops.clear()
        for op in range(member.commit_max + 1, member.op + 1):
            acknowledge(member, op)
    elif member.clean_ops:
        ops = sorted(member.clean_ops)
        member.clean_ops.clear()
        for op in ops:
            acknowledge(member, op)


def on_prepare_ok(member: Member, message: Message) -> None:
    header = message.header
    peer = member.peers[message.sender]
    peer.commit_min = max(peer.commit_min, header.commit_num)
    if not member.normal_primary or header.view != member.view:
        return member.drop("prepare_ok_not_primary")
    if message.sender >= member.replica_count:
        return member.drop("prepare_ok_of_standby")
    return _count(member, message.sender, header.op, cmd.PrepareOk.digest(header.area))


def _count(member: Member, replica: int, op: int, digest: bytes) -> None:
    """Count an acknowledgement; late ones are of no use."""
    if not member.pipeline or not member.normal_primary:
        return None
    first = member.pipeline[0].header.op
    if not first <= op < first + len(member.pipeline):
        return None
    entry = member.pipeline[op - first]
    if entry.header.digest != digest:
        return member.drop("prepare_ok_of_another_prepare")
    if not entry.acks >> replica & 1:
        entry.acks |= 1 << replica
        if replica != member.index:
            member.abdicating = False
            if member.timeouts["abdicate"].running:
                member.timeouts["abdicate"].start()
    return None


def advance_commit_max(member: Member) -> None:
    """As primary: what reached its quorum, or is known to have done so in an older view, is
    committed, in op order.
    """
    pipeline = member.pipeline
    quorum, told = member.quorum_replication, member.commit_told
    committed = member.commit_max
    while pipeline and (pipeline[0].acks.bit_count() >= quorum or pipeline[0].header.op <= told):
        entry = pipeline.popleft()
        assert entry.header.op == committed + 1
        committed = entry.header.op
    if committed == member.commit_max:
        return
    member.learn_commit(committed)
    member.abdicating = False  # whoever's word was the last that lacked
    member.route.on_quorum()
    prepare_timeout = member.timeouts["prepare"]
    if pipeline:
        prepare_timeout.start(5)
        member.timeouts["abdicate"].start()
    else:
        prepare_timeout.stop()
        member.timeouts["abdicate"].stop()
        member.heartbeat_due = True


# --- heartbeats ---------------------------------------------------------------------------------


def send_heartbeat(member: Member) -> None:
    """To everybody, unless others shall lead."""
    member.heartbeat_due = False
    if not member.abdicating:
        heartbeat.send(member, member.others)


def on_commit(member: Member, message: Message) -> None:
    header = message.header
    if member.status != Status.NORMAL or header.view != member.view or member.is_primary:
        return member.drop("commit_not_mine")
    assert header.commit_num >= header.op
    moment = cmd.Commit.monotonic_ns(header.area)
    if heartbeat.is_newer(member, moment):
        start_view.heard(member)
    digest = cmd.Commit.digest(header.area)
    known = member.journal.at(header.commit_num)
    if (
        known is not None
        and known.digest != digest
        and any(digest)
        and header.commit_num <= member.op
    ):
        if member.chained_from(header.commit_num) and member.log_view == member.view:
            return member.halt(
                "CHAIN_BROKEN", f"op {header.commit_num} differs from what the primary committed"
            )
    if any(digest) and header.commit_num >= member.commit_anchor[0]:
        heartbeat.anchor(member, header.commit_num, digest)
    divergence.compare(member, message.sender, header.op, bytes(ck.short_id(message.body)))
    if member.status != Status.NORMAL or member.diverged:
        return None  # nobody follows a primary whose state may be wrong
    member.learn_commit(header.commit_num)
    return None


def on_abdicate_timeout(member: Member) -> None:
    """Nothing was acknowledged for too long, or nobody tells the time here: let others lead.

    A time that was told meanwhile, with nothing in the pipeline, is no reason any more.
    """
    if not member.pipeline and member.now_us() is not None:
        member.timeouts["abdicate"].stop()
        return
    member.timeouts["abdicate"].start()
    member.abdicating = True
    member.mark("primary_abdicates")


def on_prepare_timeout(member: Member) -> None:
    """The oldest prepare waits too long: send it again to those who are silent, or finish our own
    write.
    """
    entry = member.pipeline[0]
    message = member.prepare_in_memory(entry.header)
    missing = member.other_replicas & ~entry.acks
    member.route.on_timeout(missing, member.tick)
    if message is not None and missing:
        member.mark("prepare_resent")
        member.send(missing, entry.header, message.body)
    elif message is None:
        wal.read_prepare(member, entry.header, tail.on_tail_read)
    if message is not None and not entry.acks >> member.index & 1:
        if member.journal.clean(entry.header):
            acknowledge(member, entry.header.op)
        elif not wal.writing(member, entry.header):
            wal.append(member, message)


def on_ping_client(member: Member, message: Message) -> None:
    if member.is_standby:
        return member.drop("ping_client_standby")
    client, echo_ns = cmd.PingClient.unpack(message.header.area)
    announce.tell_client(member, client, echo_ns)
    if member.normal_primary and member.commit_min >= message.header.op and message.header.op > 0:
        if member.sessions.get(client) is None and member.state_ready:
            evict(member, client, message.header.op, EVICT_NO_SESSION)
    return None
