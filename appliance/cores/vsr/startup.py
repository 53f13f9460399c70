"""The first steps of a life: what the data file said becomes the state of a member, and the first
status follows from it.

    resume   superblock -> group, view, checkpoint -> journal and head from the two rings
    begin    the first status, and the state machine on its way to the checkpoint
"""

from appliance.cores.vsr import (
    checkpoint,
    commit,
    epochs,
    lives,
    origin,
    recovery,
    reported,
    scrub,
    skipped,
    state_sync,
    superblock,
    views,
    wal,
    wants,
)
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.open import Loaded
from appliance.cores.vsr.recovery import Found, Slot
from appliance.cores.vsr.status import Event, Status
from appliance.formats.lives import FLAG_UNVOUCHED


def resume(member: Member, loaded: Loaded) -> bool:
    """Take over what the data file said; False: this life ends here, halted or of no member."""
    block = loaded.superblock
    assert len(loaded.slots) == member.geometry.slot_count
    whose = (member.cluster, member.shard, member.replica_id)
    foreign = origin.foreign(block, whose, loaded.file, moved=loaded.moved)
    if foreign is not None:
        member.halt(*foreign)
        return False
    superblock.recall(member, block)
    member.origin = origin.Origin(block.flags, loaded.file.completed(by=block.file))
    epochs.recall(member, block)
    if member.index < 0:
        member.enter(Event.REMOVED)
        member.mark("removed_from_the_group")
        return False
    views.recall(member, block)
    checkpoint.recall(member, block.checkpoint)
    skipped.recall(member, block)
    lives.begin(member, block)
    assert member.incarnation > block.incarnation
    if not _recover(member, loaded):
        return False
    member.superblock_repairs = list(loaded.repairs)
    superblock.repair(member)
    if block.flags & FLAG_UNVOUCHED:
        member.enter(Event.OPENED_UNVOUCHED)
        member.mark("opened_unvouched")
        member.timeouts["ping"].start(1)
    else:
        begin(member)
    return True


def _recover(member: Member, loaded: Loaded) -> bool:
    """Journal and head from the rings; False after a halt."""
    geometry = member.geometry
    solo = member.alone
    found = recovery.recover(
        loaded.slots,
        geometry=geometry,
        checkpoint=member.checkpoint_op,
        view_headers=member.view_headers,
        log_viewstamp=member.log_viewstamp,
        solo=solo,
    )
    if found.invalid:
        member.halt("WAL_INVALID", "not one slot of the write-ahead ring can be read")
        return False
    if found.halted:
        member.halt("WAL_CORRUPT", "a slot of a lone replica's write-ahead ring cannot be read")
        return False
    member.journal = found.journal
    assert member.journal.slot_count == geometry.slot_count
    member.held = _held(loaded.slots, geometry.prepare_max(member.checkpoint_op))
    assert member.checkpoint is not None
    assert member.superblock is not None
    head = recovery.head(
        member.journal,
        view=member.view,
        log_view=member.log_view,
        view_headers=member.view_headers,
        checkpoint_header=member.checkpoint.header,
        geometry=geometry,
    )
    member.move_head(_without_lone_tail(member, head) if solo else head)
    commit.jump(member, member.checkpoint_op)
    member.learn_commit(
        max(member.superblock.commit_max, member.op - geometry.pipeline_max, member.commit_min)
    )
    member.learn_timestamp(member.head.timestamp if member.op else 0)
    assert member.checkpoint_op == member.commit_min <= member.op
    epochs.recall_end(member)
    for slot in found.rewrite:
        member.mark("witness_rewritten")
        wal.rewrite_witness(member, slot)
    if member.journal.faulty_count:
        member.mark("recovered_with_faults")
    return True


def _without_lone_tail(member: Member, head: int) -> int:
    """The head without the tail that never was. A superblock may name a head whose prepare was
    still on its way to the disk. Nobody else can have it, and it was never acknowledged.
    """
    assert member.alone
    while head > member.checkpoint_op:
        header = member.journal.at(head)
        if header is not None and member.journal.readable(header):
            break
        member.mark("lone_tail_cut")
        if header is not None:
            member.journal.remove(head)
        head -= 1
    return head


def _held(slots: list[Slot], most: int) -> int:
    """The newest op that the rings may have held: what cannot be read may be of any."""
    assert slots
    assert most >= 0
    if any(Found.BAD in (slot.witness, slot.prepare) for slot in slots):
        return most
    found = (h.op for s in slots for h in (s.witness_header, s.prepare_header) if h is not None)
    return max(found, default=0)


def begin(member: Member) -> None:
    """Choose the first status, and bring the state machine to the checkpoint."""
    assert member.status in (Status.RECOVERING, Status.UNVOUCHED)
    assert 0 <= member.index < len(member.members)
    geometry, timeouts = member.geometry, member.timeouts
    certain = recovery.head_certain(member.journal, member.op, member.checkpoint_op, geometry)
    timeouts["ping"].start(1)
    timeouts["repair"].start()
    timeouts["scrub"].start()
    member.tour = scrub.Tour()
    member.reports = reported.Reports()
    wants.ask_repair(member)
    if member.is_standby:
        member.enter(Event.OPENED_WITH_HEAD)
        timeouts["repair_sync"].start()
    elif member.alone:
        vc.lead_alone(member)
        # alone, durable is committed; but no op may tell of a checkpoint that is not there yet
        vouched = geometry.prepare_ok_max(member.checkpoint_op)
        member.learn_commit(min(member.op, vouched))
        member.enter(Event.VIEW_JOINED)
    elif member.log_view < member.view:
        vc.leave_normal(member, Event.VIEW_JOINED)
        timeouts["view_change_status"].start(vc.patience(member))
        timeouts["dvc_message"].start()
        if not member.is_primary:
            timeouts["request_start_view"].start()
    elif not certain:
        member.mark("recovering_head")
        member.enter(Event.OPENED_WITHOUT_HEAD)
        timeouts["request_start_view"].start()
    elif member.is_primary:
        vc.enter(member, member.view + 1)
    else:
        member.enter(Event.OPENED_WITH_HEAD)
        timeouts["heartbeat_lost"].start(10 + member.prng.below(4))
        timeouts["repair_sync"].start()
    state_sync.begin(member, local=True)
