"""The end of an epoch: whoever has entered the next one brings along those who have not.

The last op of an epoch is named to whoever is still in it, in that epoch's own words, until a
quorum of the next one stands on its beginning.
"""

from appliance.cores.vsr import announce, epochs, heartbeat, log_list, tail, views, wants
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Event, Status
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE

END_EPOCH_TICKS = 100  # between two reminders that the epoch has ended
PULL_TICKS = 10  # between two questions to somebody of a newer epoch


def on_tick_due(member: Member) -> None:
    """While not everybody is known to have come along: say again how the old epoch ended."""
    assert member.timeouts["end_epoch"].running
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
    assert old.epoch < member.epoch
    if member.epoch_end is not None and member.replica_id in old.members[: old.replica_count]:
        send_end(member, member.others)


def _settled(member: Member) -> bool:
    """Whether a replication quorum of the new epoch stands on its beginning."""
    assert member.members_old is not None
    begun = member.configuration.op
    if member.commit_max > begun + member.geometry.slot_count:
        return True
    there = sum(
        member.commit_min >= begun if i == member.index else peer.commit_min >= begun
        for i, peer in enumerate(member.peers[: member.replica_count])
    )
    assert there <= member.replica_count
    return there >= member.quorum_replication


def send_end(member: Member, mask: int) -> None:
    """Name the last op of the epoch before, in that epoch's own words."""
    last = member.epoch_end
    assert not mask >> member.index & 1
    assert last is not None
    assert last.operation == env.OPERATION_RECONFIGURE
    assert last.epoch < member.epoch
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


def ignores_end_epoch(member: Member, message: Message, last: Header | None) -> str | None:
    """Why the end of an epoch, with `last`, is not taken; None: it is that of ours, and news."""
    if last is None or last.op != message.header.op or not log_list.is_of_log(member, last):
        return "end_epoch_invalid"
    if last.operation != env.OPERATION_RECONFIGURE:
        return "end_epoch_invalid"
    if last.epoch != member.epoch or last.op <= member.commit_min or member.installing:
        return "end_epoch_not_mine"
    if last.op > member.geometry.prepare_max(member.checkpoint_op):
        return "end_epoch_beyond_ring"
    return None


def on_end_epoch(member: Member, message: Message) -> None:
    """Whoever is still in the epoch that has ended: its log is complete, and ends here."""
    last = env.decode_stored(message.body)
    ignored = ignores_end_epoch(member, message, last)
    if ignored is not None:
        return member.drop(ignored)
    assert last is not None
    assert len(message.body) == HEADER_SIZE
    assert member.commit_min < last.op
    known = member.journal.at(last.op)
    assert last.operation == env.OPERATION_RECONFIGURE
    assert last.epoch == member.epoch
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
    vc.leave_normal(member, Event.EPOCH_ENDED)
    view = max(member.view, last.view)  # what it lists must not be newer than its log
    if member.primary_of(view) == member.index and not member.alone:
        member.mark("end_epoch_steps_down")  # nobody leads what has ended
        view += 1
    views.stand_in(member, view)
    assert member.status == Status.NORMAL
    assert member.op == last.op <= member.commit_max
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
    assert header.epoch != member.epoch
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
        assert head is None or head.op <= member.op
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
    assert begun >= 0
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
    assert question.command == env.REQUEST_START_VIEW
    assert question.epoch < member.epoch
    ended, geometry = member.epoch_end, member.geometry
    applied = question.commit_num
    checkpoint = applied // geometry.checkpoint_ops * geometry.checkpoint_ops
    return (
        ended is None
        or ended.epoch != question.epoch
        or ended.op > geometry.prepare_max(checkpoint)
    )
