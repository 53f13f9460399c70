"""How long a member has nothing to do of itself: then nobody need wake it."""

from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status


def idle_ticks(member: Member, *, exact: bool = False) -> int:
    """With how many of the next ticks nothing will be due, if no event comes before. While its
    clock agrees with nobody, each tick may change that. Where nothing is to be repaired, it may be
    asked later whether anything is; with `exact`, not even that.
    """
    assert member.tick >= 0
    if member.heartbeat_due or member.clock.epoch is None:
        return 0
    timeouts = member.timeouts
    waits = not exact and _is_whole(member)
    left = [
        timeout.after - timeout.elapsed
        for name, timeout in timeouts.items()
        if timeout.running and not (waits and name == "repair")
    ]
    return max(0, min(left, default=1) - 1)


def _is_whole(member: Member) -> bool:
    """Whether nothing would go on with repair's timer, as far as that is quickly told."""
    journal = member.journal
    assert 0 <= journal.faulty_count <= journal.dirty_count
    return (
        member.status == Status.NORMAL
        and member.backfill is None
        and member.fetch is None
        and not member.mending
        and not member.reports.numbers
        and not journal.dirty_count
        and not journal.faulty_count
        and not member.replies_wanted
        and member.commit_max <= member.op
        and member.chain.holds(member.head, journal)
        and member.chain.low <= max(1, member.repair_min)
    )
