"""What a member does when a timeout is due: it says again what may have been lost, asks again, or
loses patience.
"""

from appliance.cores.vsr import (
    announce,
    chunks,
    epoch_end,
    lives,
    normal,
    scrub,
    start_view,
    votes,
    wants,
)
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import SILENT, Status


def on_due(member: Member) -> None:
    """Do what each timeout that is due asks for, in a fixed order."""
    assert member.status not in SILENT
    timeouts, prng = member.timeouts, member.prng
    if timeouts["ping"].due:
        timeouts["ping"].start(50 if member.clock.epoch is not None else 5)
        lives.ping(member)
    if timeouts["prepare"].due:
        normal.on_prepare_timeout(member)
        timeouts["prepare"].backoff(base=5, most=50, prng=prng)
    if timeouts["abdicate"].due:
        normal.on_abdicate_timeout(member)
    if timeouts["heartbeat"].due or member.heartbeat_due:
        tell_commit(member)
    if timeouts["heartbeat_lost"].due:
        timeouts["heartbeat_lost"].start(10 + prng.below(4))
        member.mark("heartbeat_lost")
        vc.vote(member)
        if not timeouts["svc_message"].running:
            timeouts["svc_message"].start()
    _view_change_timeouts(member)
    if timeouts["repair"].due:
        timeouts["repair"].start(prng.between(3, 7))
        wants.ask_repair(member)
    if timeouts["repair_sync"].due:
        timeouts["repair_sync"].start()
        _on_repair_sync(member)
    if timeouts["chunks"].due:
        timeouts["chunks"].start(prng.between(3, 7))
        chunks.request(member)
        if member.fetch is None and member.backfill is None and not member.mending:
            timeouts["chunks"].stop()
    if timeouts["end_epoch"].due:
        epoch_end.on_tick_due(member)
    if timeouts["scrub"].due:
        timeouts["scrub"].reset()
        scrub.on_timeout(member)


def tell_commit(member: Member) -> None:
    """A heartbeat now; the next one a whole period later."""
    assert member.normal_primary
    member.timeouts["heartbeat"].reset()
    normal.send_heartbeat(member)


def _view_change_timeouts(member: Member) -> None:
    timeouts, prng = member.timeouts, member.prng
    if timeouts["svc_message"].due:
        timeouts["svc_message"].reset()
        if member.svc_from >> member.index & 1:
            vc.send_vote(member)
        elif member.status == Status.NORMAL:
            timeouts["svc_message"].stop()
        if (
            member.status == Status.VIEW_CHANGE
            and member.sv_sent_view == member.view
            and member.dvc_quorum
        ):
            announce.send_start_view(member, member.others, bytes(16))
    if timeouts["svc_window"].due:
        timeouts["svc_window"].stop()
        votes.expire(member)
    if timeouts["view_change_status"].due:
        vc.on_status_timeout(member)
    if timeouts["dvc_message"].due:
        timeouts["dvc_message"].reset()
        if (
            member.status == Status.VIEW_CHANGE
            and not member.dvc_quorum
            and member.durable_view == member.view
        ):
            vc.send_do_view_change(member)
    if timeouts["request_start_view"].due:
        timeouts["request_start_view"].start(10 + prng.below(4))
        if member.status in (Status.VIEW_CHANGE, Status.RECOVERING_HEAD):
            start_view.request_start_view(member, member.view)


def _on_repair_sync(member: Member) -> None:
    """No progress for a whole period although the group is ahead: the log here cannot be mended,
    so replace it.
    """
    assert member.commit_before <= member.commit_min
    stuck = (
        member.status == Status.NORMAL
        and not member.is_primary
        and member.commit_min == member.commit_before
        and member.commit_max > member.commit_min
    )
    member.commit_before = member.commit_min
    if stuck:
        member.mark("repair_stuck")
        wants.ask_sync(member)
        start_view.request_start_view(member, member.view)
