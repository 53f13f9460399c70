"""Changing who belongs to the group, while it works.

    member_change   adds or removes a standby: takes effect where it is committed, quorums stay
    reconfigure     orders the members anew: the last op of its epoch. Whoever applies it enters
                    the next epoch at view 0, whose log is that op and all before it, committed;
                    voting begins with view 1. View 0 has no primary: all who are in it know its
                    log, and may name it to those whom the end of the old epoch left behind

Two configurations are kept. The *agreed* one is that of the log up to commit_min, equal on all
members; the *protocol's* is the newest this member knows, which a start_view may bring before the
log does. (epoch, view) is compared as one number everywhere: see `Header.viewstamp`.
"""

from dataclasses import replace

from appliance.base.layout import struct_of
from appliance.base.limits import MEMBERS_MAX
from appliance.cores.vsr import announce, epochs, heartbeat, tail, views, wants
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import Member, Status
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats.checkpoint import MEMBER_ROW
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE, SESSION_BLOCK_SIZE
from appliance.formats.group import Configuration
from appliance.formats.membership import (
    KIND_ADD,
    MEMBER_CHANGE_SIZE,
    RECONFIGURE_SIZE,
    MemberChange,
    Reconfigure,
    Verdict,
    decode_change,
    decode_reconfigure,
    encode_change,
    encode_change_result,
    encode_reconfigure,
)

OPERATIONS = (env.OPERATION_MEMBER_CHANGE, env.OPERATION_RECONFIGURE)
BODY_SIZES = {
    env.OPERATION_MEMBER_CHANGE: MEMBER_CHANGE_SIZE,
    env.OPERATION_RECONFIGURE: RECONFIGURE_SIZE,
}
_ROW = struct_of(MEMBER_ROW)
END_EPOCH_TICKS = 100  # between two reminders that the epoch has ended
PULL_TICKS = 10  # between two questions to somebody of a newer epoch
READY_SILENCE_TICKS = 200  # a standby to be promoted was heard as lately


def parse(
    operation: int, body: bytes | bytearray | memoryview
) -> MemberChange | Reconfigure | None:
    """The change that a request or prepare carries after its session block."""
    raw = bytes(body[SESSION_BLOCK_SIZE:])
    if operation == env.OPERATION_MEMBER_CHANGE:
        return decode_change(raw)
    return decode_reconfigure(raw)


# --- judging ------------------------------------------------------------------------------------


def judge(agreed: Configuration, change: MemberChange | Reconfigure) -> Verdict:
    """What a change means to the group as the log has left it."""
    if isinstance(change, Reconfigure):
        return _judge_order(agreed, change)
    known = change.replica_id in agreed.members
    if known == (change.kind == KIND_ADD):
        return Verdict.ALREADY_APPLIED
    if change.epoch != agreed.epoch:
        return Verdict.EPOCH_IN_PAST if change.epoch < agreed.epoch else Verdict.EPOCH_IN_FUTURE
    if change.kind == KIND_ADD:
        full = len(agreed.members) == MEMBERS_MAX
        return Verdict.TOO_MANY_MEMBERS if full else Verdict.OK
    if agreed.members.index(change.replica_id) < agreed.replica_count:
        return Verdict.NOT_A_STANDBY
    return Verdict.OK


def _judge_order(agreed: Configuration, change: Reconfigure) -> Verdict:
    if change.epoch == agreed.epoch and agreed.epoch > 0:
        same = change.members == agreed.members
        return Verdict.ALREADY_APPLIED if same else Verdict.CONFLICT
    if change.epoch != agreed.epoch + 1:
        return Verdict.EPOCH_IN_PAST if change.epoch <= agreed.epoch else Verdict.EPOCH_IN_FUTURE
    if len(set(change.members)) != len(change.members):
        return Verdict.DUPLICATE_MEMBER
    if (change.replica_count, len(change.members)) != (agreed.replica_count, len(agreed.members)):
        return Verdict.COUNT_CHANGED
    if set(change.members) != set(agreed.members):
        return Verdict.NOT_A_PERMUTATION
    return Verdict.NO_OP if change.members == agreed.members else Verdict.OK


def stamp(member: Member, operation: int, body: bytearray) -> None:
    """As primary: judge a change and put verdict and outcome into it, before it is prepared. No
    other change is in the log above commit_min then: see `pending`.
    """
    change = parse(operation, body)
    assert change is not None
    agreed = member.agreed
    verdict = judge(agreed, change)
    if verdict == Verdict.OK and member.members_old is not None:
        verdict = Verdict.IN_PROGRESS
    if isinstance(change, Reconfigure):
        if verdict == Verdict.OK and not _ready(member, change):
            verdict = Verdict.STANDBY_NOT_READY
        raw = encode_reconfigure(replace(change, verdict=verdict))
    else:
        members = agreed.members
        if verdict == Verdict.OK and change.kind == KIND_ADD:
            members = (*members, change.replica_id)
        elif verdict == Verdict.OK:
            members = tuple(known for known in members if known != change.replica_id)
        raw = encode_change(
            replace(change, verdict=verdict, replica_count=agreed.replica_count, members=members)
        )
    body[SESSION_BLOCK_SIZE:] = raw


def _ready(member: Member, change: Reconfigure) -> bool:
    """Whether every standby that would vote holds nearly all, and lacks no state."""
    for replica_id in change.members[: change.replica_count]:
        index = member.index_of(replica_id)
        if index < member.replica_count:
            continue
        peer = member.peers[index]
        lag = member.op - peer.commit_min
        silent = member.tick - peer.heard_tick > READY_SILENCE_TICKS or not peer.heard_tick
        if silent or peer.syncing or lag > member.geometry.checkpoint_ops:
            return False
    return True


# --- taking effect ------------------------------------------------------------------------------


def apply(member: Member, header: Header, body: bytes | memoryview) -> bytes:
    """The result of a committed change. `take_effect` follows once the reply is remembered."""
    change = parse(header.operation, body)
    assert change is not None, "a primary prepares what it could parse"
    if change.verdict == Verdict.OK:
        epoch = change.epoch
        epochs.agree(member, Configuration(epoch, header.op, change.replica_count, change.members))
        member.mark("membership_changed")
    else:
        member.mark("membership_refused")
    return encode_change_result(change.verdict, header.timestamp)


def take_effect(member: Member, header: Header) -> None:
    """Let the protocol follow the state, unless it is ahead already."""
    tail.release(member)
    agreed = member.agreed
    if agreed.op != header.op or header.op <= member.configuration.op:
        return
    if agreed.epoch == member.epoch:
        if member.normal_primary:
            gone = [i for i, known in enumerate(member.members) if known not in agreed.members]
            heartbeat.send(member, sum(1 << i for i in gone))  # the last thing they hear
        take(member, agreed)
        member.persist()
        return
    _begin_epoch(member, header)


def take(member: Member, configuration: Configuration) -> None:
    """Make a newer configuration the protocol's."""
    member.configure(configuration)
    if member.index < 0:
        member.mark("removed_from_the_group")
        vc.leave_normal(member, Status.REMOVED)


def _begin_epoch(member: Member, header: Header) -> None:
    """The last op of the old epoch is applied here: stand at view 0 of the new one, vote for
    view 1.
    """
    assert header.op == member.commit_min and member.commit_max == header.op
    for op in range(header.op + 1, member.op + 1):
        if member.journal.at(op) is not None:
            member.journal.remove(op)
    tail.clear_above(member, header.op)
    member.move_head(header.op)
    epochs.leave(member, header)
    take(member, member.agreed)
    assert member.index >= 0, "a reconfiguration is a permutation"
    views.stand_in(member, 0)
    views.advertise(member, [header])
    heartbeat.forget(member)
    vc.leave_normal(member, Status.NORMAL)
    member.mark("epoch_begun")
    member.timeouts["end_epoch"].start(1)
    if member.is_standby:
        member.timeouts["repair_sync"].start()
        member.persist()
    else:
        vc.enter(member, 1)


def pending(member: Member) -> bool:
    """Whether the log ends with a change that is not applied here: nothing may follow it."""
    if member.reconfiguring > member.commit_min:
        return True
    if member.reconfiguring:
        tail.release(member)
    return False


# --- the table in checkpoints -------------------------------------------------------------------


def table(member: Member) -> bytes:
    """One row per member, in order: its id, and whether it votes; addresses are the site's."""
    votes = member.agreed.replica_count
    return b"".join(
        _ROW.pack(replica_id, b"", b"", b"", i < votes, b"")
        for i, replica_id in enumerate(member.agreed.members)
    )


def load_table(member: Member, rows: bytes, epoch: int) -> None:
    """The configuration that a checkpoint holds."""
    found = list(_ROW.iter_unpack(rows))
    members = tuple(row[0] for row in found)
    epochs.agree(member, Configuration(epoch, 0, sum(row[4] for row in found), members))


# --- the end of an epoch ------------------------------------------------------------------------


def on_tick_due(member: Member) -> None:
    """While not everybody is known to have come along: say again how the old epoch ended."""
    timeout = member.timeouts["end_epoch"]
    if member.members_old is None:
        timeout.stop()
        return
    timeout.start(END_EPOCH_TICKS)
    if _settled(member):
        member.mark("epoch_settled")
        epochs.forget(member)
        member.persist()
        timeout.stop()
        return
    old = member.members_old
    if member.epoch_end is not None and member.replica_id in old.members[: old.replica_count]:
        send_end(member, member.others)


def _settled(member: Member) -> bool:
    """Whether a replication quorum of the new epoch stands on its beginning."""
    begun = member.configuration.op
    if member.commit_max > begun + member.geometry.slot_count:
        return True
    there = sum(
        member.commit_min >= begun if i == member.index else peer.commit_min >= begun
        for i, peer in enumerate(member.peers[: member.replica_count])
    )
    return there >= member.quorum_replication


def send_end(member: Member, mask: int) -> None:
    """Name the last op of the epoch before, in that epoch's own words."""
    last = member.epoch_end
    assert last is not None
    header = env.make(
        env.END_EPOCH,
        cluster=member.cluster,
        shard=member.shard,
        epoch=last.epoch,
        view=last.view,
        op=last.op,
        commit_num=last.op,
        area=cmd.EndEpoch.pack(last.digest),
        body=last.raw,
    )
    member.send(mask, header, last.raw)


def on_end_epoch(member: Member, message: Message) -> None:
    """Whoever is still in the epoch that has ended: its log is complete, and ends here."""
    header = message.header
    assert len(message.body) == HEADER_SIZE
    last = env.decode_stored(message.body)
    if last is None or last.op != header.op or last.operation != env.OPERATION_RECONFIGURE:
        return member.drop("end_epoch_invalid")
    if last.epoch != member.epoch or last.op <= member.commit_min or member.installing:
        return member.drop("end_epoch_not_mine")
    if last.op > member.geometry.prepare_max(member.checkpoint_op):
        return member.drop("end_epoch_beyond_ring")
    known = member.journal.at(last.op)
    if known is not None and known.digest == last.digest and member.commit_max >= last.op:
        wants.ask_repair(member)
        if member.status == Status.NORMAL:
            return None
    member.mark("end_epoch_taken")
    for op in range(last.op + 1, member.op + 1):
        if member.journal.at(op) is not None:
            member.journal.remove(op)
    tail.clear_above(member, last.op)
    tail.install_header(member, last)
    member.move_head(last.op)
    member.learn_commit(last.op)
    heartbeat.anchor(member, last.op, last.digest)
    vc.leave_normal(member, Status.NORMAL)
    view = max(member.view, last.view)  # what it lists must not be newer than its log
    if member.primary_of(view) == member.index and not member.alone:
        member.mark("end_epoch_steps_down")  # nobody leads what has ended
        view += 1
    views.stand_in(member, view)
    views.advertise(member, [last])
    heartbeat.forget(member)
    member.timeouts["repair"].start()
    member.timeouts["repair_sync"].start()
    wants.ask_repair(member)
    member.persist()
    return None


def on_other_epoch(member: Member, message: Message) -> None:
    """A message that names another epoch: bring whoever is behind forward."""
    header = message.header
    if header.epoch > member.epoch:
        member.drop("newer_epoch")
        if member.tick >= member.pull_tick:
            member.pull_tick = member.tick + PULL_TICKS
            question = member.make(
                env.REQUEST_START_VIEW,
                view=max(0, member.durable_view),
                op=member.op,
                commit_num=member.commit_min,
                area=cmd.RequestStartView.pack(member.nonce),
            )
            member.send(1 << message.sender, question)
        return
    member.drop("older_epoch")
    if header.command != env.REQUEST_START_VIEW or cmd.invalid(header) is not None:
        return
    mask, nonce = 1 << message.sender, cmd.RequestStartView.nonce(header.area)
    if member.epoch_end is not None and member.epoch_end.epoch == header.epoch:
        send_end(member, mask)
    if member.normal_primary:
        announce.send_start_view(member, mask, nonce)
    elif _misses_primary(member) and _out_of_reach(member, header):
        head = _committed_head(member)
        if head is not None:
            view = head.view if head.epoch == member.epoch else 0
            announce.name_log(member, mask, nonce, view, head)


def _misses_primary(member: Member) -> bool:
    """Whether nobody leads, as far as this replica knows: it votes for another view, or is in one
    that has not begun.
    """
    if member.is_standby:
        return False
    voted = bool(member.svc_from >> member.index & 1)
    return member.status == Status.VIEW_CHANGE or member.status == Status.NORMAL and voted


def _committed_head(member: Member) -> Header | None:
    """An op of this epoch's log, or its beginning, that is committed for certain. The log of the
    view in which it was prepared holds it, with all that is committed of the views before; so any
    replica may name that log up to there.
    """
    assert member.checkpoint is not None
    begun = member.configuration.op
    if member.installing:
        return None
    if member.checkpoint_op > begun:
        return member.checkpoint.header
    if member.commit_min >= begun or member.chained_from(begun):
        return member.journal.at(begun)
    return None


def _out_of_reach(member: Member, question: Header) -> bool:
    """Whether the end of the epoch that the question is from is forgotten, or is not the one that
    is known here, or lies beyond the ring of who asks: then its name alone helps nobody, and those
    who know more may be too few to elect a primary.
    """
    ended, geometry = member.epoch_end, member.geometry
    applied = question.commit_num
    checkpoint = applied // geometry.checkpoint_ops * geometry.checkpoint_ops
    return (
        ended is None
        or ended.epoch != question.epoch
        or ended.op > geometry.prepare_max(checkpoint)
    )
