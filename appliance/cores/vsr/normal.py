"""The normal protocol: prepares become durable, a quorum of acknowledgements commits. Where they
come from: `requests`.

Nothing here waits: a prepare goes to the backups and to the disk in the same step.
"""

from appliance.cores.vsr import divergence, heartbeat, start_view, tail, wal, wants
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats import checkpoint as ck
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Message

# --- prepares -----------------------------------------------------------------------------------


def ignores_prepare(member: Member, message: Message) -> str | None:
    """Why a new prepare of this view is not appended; None: it is."""
    if member.installing or message.header.op > member.geometry.prepare_max(member.checkpoint_op):
        return "prepare_beyond_ring"
    if ses.decode(message.body) is None:
        return "prepare_invalid"
    return None


def on_prepare(member: Member, message: Message) -> None:
    """As backup: a new prepare of this view. What is older or lower is a repair (see `repair`)."""
    ignored = ignores_prepare(member, message)
    header = message.header
    head = member.head
    assert header.viewstamp == member.viewstamp == member.log_viewstamp
    assert header.op > member.op
    member.learn_commit(header.commit_num)  # a sign of life in any case
    start_view.heard(member)
    if ignored is not None:
        return member.drop(ignored)
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
        assert member.log_view == member.view
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


def acknowledge_tail(member: Member) -> None:
    """After a new view, checkpoint or sync: acknowledge the whole tail again."""
    assert member.acknowledge_tail
    wants.take_acknowledgements(member)
    member.clean_ops.clear()
    for op in range(member.commit_max + 1, member.op + 1):
        acknowledge(member, op)


def acknowledge_clean(member: Member) -> None:
    """Acknowledge what became clean."""
    assert member.clean_ops
    ops = sorted(member.clean_ops)
    member.clean_ops.clear()
    for op in ops:
        acknowledge(member, op)


def ignores_prepare_ok(member: Member, message: Message) -> str | None:
    """Why an acknowledgement does not count; None: it may."""
    if not member.normal_primary or message.header.view != member.view:
        return "prepare_ok_not_primary"
    if message.sender >= member.replica_count:
        return "prepare_ok_of_standby"
    return None


def on_prepare_ok(member: Member, message: Message) -> None:
    ignored = ignores_prepare_ok(member, message)
    header = message.header
    peer = member.peers[message.sender]
    peer.commit_min = max(peer.commit_min, header.commit_num)  # said to whomever
    if ignored is not None:
        return member.drop(ignored)
    assert message.sender != member.index
    return _count(member, message.sender, header.op, cmd.PrepareOk.digest(header.area))


def _count(member: Member, replica: int, op: int, digest: bytes) -> None:
    """Count an acknowledgement; late ones are of no use."""
    if not member.pipeline or not member.normal_primary:
        return None
    first = member.pipeline[0].header.op
    assert first == member.commit_max + 1
    if not first <= op < first + len(member.pipeline):
        return None
    entry = member.pipeline[op - first]
    assert entry.header.op == op
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
    if not member.normal_primary:
        return
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
    assert member.commit_max <= member.op
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
    assert member.is_primary
    member.heartbeat_due = False
    if not member.abdicating:
        heartbeat.send(member, member.others)


def ignores_commit(member: Member, message: Message) -> str | None:
    """Why a heartbeat says nothing to us; None: it does."""
    other = message.header.view != member.view
    if member.status != Status.NORMAL or other or member.is_primary:
        return "commit_not_mine"
    return None


def on_commit(member: Member, message: Message) -> None:
    ignored = ignores_commit(member, message)
    if ignored is not None:
        return member.drop(ignored)
    header = message.header
    assert header.commit_num >= header.op
    assert message.sender == member.primary != member.index
    moment = cmd.Commit.monotonic_ns(header.area)
    if heartbeat.is_newer(member, moment):
        start_view.heard(member)
    digest = cmd.Commit.digest(header.area)
    assert len(digest) == 16
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
    assert member.normal_primary
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
    assert member.normal_primary
    assert member.pipeline
    entry = member.pipeline[0]
    assert entry.header.op == member.commit_max + 1
    message = member.prepare_in_memory(entry.header)
    missing = member.other_replicas & ~entry.acks
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
