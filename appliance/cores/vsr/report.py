"""What a member tells of itself: for its status, and for a failure report."""

from typing import Any

from appliance.base.limits import QUORUM_SILENT_MS_MAX, REPLICA_BEHIND_OPS, TICK_MS
from appliance.cores.vsr import space
from appliance.cores.vsr.member import Member
from appliance.formats.status.replica import (
    BACKUP,
    PRIMARY,
    REMOVED,
    STANDBY,
    GroupClock,
    GroupSpace,
    MemberState,
    PeerState,
)


def state(member: Member) -> MemberState:
    """Where the member stands."""
    assert len(member.peers) == len(member.members)
    role = STANDBY if member.is_standby else PRIMARY if member.is_primary else BACKUP
    if member.index < 0:
        role = REMOVED
    old = member.members_old
    clock = member.clock
    return MemberState(
        status=member.status.name.lower(),
        role=role,
        replica=member.index,
        epoch=member.epoch,
        members=[replica_id.hex() for replica_id in member.members],
        replica_count=member.replica_count,
        members_op=member.configuration.op,
        members_old=[replica_id.hex() for replica_id in old.members] if old else [],
        view=member.view,
        log_view=member.log_view,
        op=member.op,
        commit_min=member.commit_min,
        commit_max=member.commit_max,
        checkpoint=member.checkpoint_op if member.checkpoint is not None else 0,
        dirty=member.journal.dirty_count,
        faulty=member.journal.faulty_count,
        log_seq=member.state_machine.log_seq,
        state_ready=member.state_ready,
        synced=_synced(member),
        sync=(member.sync_op_min, member.sync_op_max, member.sync_log_seq),
        quorum_silent_ticks=_quorum_silent(member),
        scrub=(0, 0) if member.tour is None else (member.tour.rounds, member.tour.hurried),
        clients=len(member.sessions.entries),
        halted=member.halted,
        refused={replica_id.hex(): why.reason for replica_id, why in member.refused.items()},
        suspicions={replica_id.hex(): dict(why) for replica_id, why in member.suspicions.items()},
        space=GroupSpace(
            short=member.index >= 0 and member.peers[member.index].space_short,
            short_replicas=[i for i, peer in enumerate(member.peers) if peer.space_short],
            sparing=member.replica_count > 0 and space.is_scarce(member),
        ),
        clock=GroupClock(
            agreed=clock.disagreement is None,
            round_trips_us=dict(clock.round_trips_us),
            errors_us=clock.errors(member.monotonic_ns, member.timestamp_last),
            log_us=_log_us(member),
            corrected_us=member.state_machine.ahead_us,
            log_ahead_us=max(
                0, _log_us(member) - member.state_machine.ahead_us - _clock_us(member)
            ),
        ),
        told={replica_id.hex(): list(told) for replica_id, told in member.told.items()},
        peers={
            i: PeerState(
                view=peer.view,
                commit_min=peer.commit_min,
                checkpoint=peer.checkpoint,
                silent_ticks=member.tick - peer.heard_tick,
            )
            for i, peer in enumerate(member.peers)
            if i != member.index
        },
        counters=dict(member.counters),
    )


def stale_ms(state: MemberState, tick_ms: int) -> int:
    """For how long the member has heard no quorum, once that means something; else 0."""
    return _stale_ms(state.quorum_silent_ticks, tick_ms)


def member_stale_ms(member: Member, tick_ms: int) -> int:
    """The same, of the member itself."""
    return _stale_ms(_quorum_silent(member), tick_ms)


def _stale_ms(ticks: int, tick_ms: int) -> int:
    assert tick_ms > 0
    assert ticks >= 0
    return ticks * tick_ms if ticks * TICK_MS > QUORUM_SILENT_MS_MAX else 0


def condition(member: Member) -> tuple[Any, ...]:
    """What whoever reads here must hear of when it changes: who belongs and leads, and whether what
    this member has is whole and recent.
    """
    return (
        member.status,
        member.epoch,
        member.view,
        member.configuration.op,
        member.state_ready,
        member.commit_max - member.commit_min > REPLICA_BEHIND_OPS,
        _quorum_silent(member) * TICK_MS > QUORUM_SILENT_MS_MAX,
    )


def _log_us(member: Member) -> int:
    """The log's time now; its newest one while it is not ahead of the clock. Also a member that
    does not lead knows what has passed."""
    return member.clock.log_us(member.monotonic_ns, _clock_us(member), member.timestamp_last)


def _clock_us(member: Member) -> int:
    """This node's clock, or what a quorum of clocks agreed on. Without such an agreement the group
    may go by the very clock that was ahead."""
    now_us = member.now_us() if member.clock.epoch is not None else None
    return member.realtime_us if now_us is None else now_us


def _quorum_silent(member: Member) -> int:
    """Ticks since the member last had heard, counting itself, of as many voters as a quorum has;
    what the group has committed since then it may not know."""
    assert member.tick >= 0
    if member.index < 0:
        return 0
    voters = range(member.replica_count)
    heard = sorted(
        (member.tick if i == member.index else member.peers[i].heard_tick for i in voters),
        reverse=True,
    )
    assert len(heard) == member.replica_count
    return member.tick - heard[member.replica_count // 2]


def _synced(member: Member) -> tuple[int, int]:
    """(records that are here, records that a state sync has to bring); equal when it is over."""
    if not member.sync_log_seq or member.checkpoint is None:
        return 0, 0
    total = member.checkpoint.log_seq - member.sync_log_seq + 1
    if not member.state_ready:
        return 0, total
    if member.backfill is None:
        return total, total
    left = (member.backfill.number - member.backfill.low + 1) * member.geometry.segment_records
    assert left >= 0
    return max(0, total - left), total
