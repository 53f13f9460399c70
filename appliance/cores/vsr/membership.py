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

from collections.abc import Sequence
from dataclasses import replace

from appliance.base.layout import struct_of
from appliance.base.limits import MEMBERS_MAX
from appliance.cores.vsr import epochs, heartbeat, tail, views
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Event
from appliance.formats import envelope as env
from appliance.formats.checkpoint import MEMBER_ROW
from appliance.formats.envelope import Header
from appliance.formats.geometry import SESSION_BLOCK_SIZE
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
READY_SILENCE_TICKS = 200  # a standby to be promoted was heard as lately


def parse(
    operation: int, body: bytes | bytearray | memoryview
) -> MemberChange | Reconfigure | None:
    """The change that a request or prepare carries after its session block."""
    assert operation in OPERATIONS
    raw = bytes(body[SESSION_BLOCK_SIZE:])
    assert len(body) >= SESSION_BLOCK_SIZE
    if operation == env.OPERATION_MEMBER_CHANGE:
        return decode_change(raw)
    return decode_reconfigure(raw)


# --- validating ---------------------------------------------------------------------------------


def validate(agreed: Configuration, change: MemberChange | Reconfigure) -> Verdict:
    """What a change means to the group as the log has left it."""
    if isinstance(change, Reconfigure):
        return _validate_order(agreed, change)
    assert len(agreed.members) <= MEMBERS_MAX
    known = change.replica_id in agreed.members
    if known == (change.kind == KIND_ADD):
        return Verdict.ALREADY_APPLIED
    if change.epoch != agreed.epoch:
        return Verdict.EPOCH_IN_PAST if change.epoch < agreed.epoch else Verdict.EPOCH_IN_FUTURE
    if change.kind == KIND_ADD:
        full = len(agreed.members) == MEMBERS_MAX
        assert not known
        return Verdict.TOO_MANY_MEMBERS if full else Verdict.OK
    if agreed.members.index(change.replica_id) < agreed.replica_count:
        return Verdict.NOT_A_STANDBY
    return Verdict.OK


def _validate_order(agreed: Configuration, change: Reconfigure) -> Verdict:
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
    """As primary: validate a change and put verdict and outcome into it, before it is prepared. No
    other change is in the log above commit_min then: see `pending`.
    """
    assert member.normal_primary
    assert operation in OPERATIONS
    change = parse(operation, body)
    assert change is not None
    agreed = member.agreed
    verdict = validate(agreed, change)
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
    assert len(raw) == BODY_SIZES[operation]
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
    assert header.operation in OPERATIONS
    assert header.op == member.commit_min + 1
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
    assert header.op == member.commit_min
    assert header.operation in OPERATIONS
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
    assert configuration.op > member.configuration.op
    assert configuration.epoch >= member.epoch
    member.configure(configuration)
    if member.index < 0:
        member.mark("removed_from_the_group")
        vc.leave_normal(member, Event.REMOVED)


def _begin_epoch(member: Member, header: Header) -> None:
    """The last op of the old epoch is applied here: stand at view 0 of the new one, vote for
    view 1.
    """
    assert header.op == member.commit_min
    assert member.commit_max == header.op
    for op in range(header.op + 1, member.op + 1):
        if member.journal.at(op) is not None:
            member.journal.remove(op)
    tail.clear_above(member, header.op)
    member.move_head(header.op)
    assert member.op == header.op
    epochs.leave(member, header)
    take(member, member.agreed)
    assert member.index >= 0, "a reconfiguration is a permutation"
    views.stand_in(member, 0)
    views.advertise(member, [header])
    heartbeat.forget(member)
    assert header.epoch < member.epoch
    vc.leave_normal(member, Event.EPOCH_BEGUN)
    member.mark("epoch_begun")
    member.timeouts["end_epoch"].start(1)
    if member.is_standby:
        member.timeouts["repair_sync"].start()
        member.persist()
    else:
        vc.enter(member, 1)


def pending(member: Member) -> bool:
    """Whether the log ends with a change that is not applied here: nothing may follow it."""
    assert member.reconfiguring >= 0
    if member.reconfiguring > member.commit_min:
        return True
    if member.reconfiguring:
        tail.release(member)
    return False


# --- the table in checkpoints -------------------------------------------------------------------


def table(member: Member) -> bytes:
    """One row per member, in order: its id, and whether it votes; addresses are the site's."""
    return rows_of(member.agreed.members, member.agreed.replica_count)


def rows_of(members: Sequence[bytes], votes: int) -> bytes:
    """The rows of a group of which the first `votes` members are replicas."""
    assert 0 < votes <= len(members)
    return b"".join(
        _ROW.pack(replica_id, b"", b"", b"", i < votes, b"") for i, replica_id in enumerate(members)
    )


def load_table(member: Member, rows: bytes, epoch: int) -> None:
    """The configuration that a checkpoint holds."""
    found = list(_ROW.iter_unpack(rows))
    members = tuple(row[0] for row in found)
    assert 0 < len(members) <= MEMBERS_MAX
    assert len(set(members)) == len(members)
    epochs.agree(member, Configuration(epoch, 0, sum(row[4] for row in found), members))
