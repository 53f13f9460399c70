"""What is committed, and is denied all the same: a volume has forgotten, and nobody was told.

None of this can be where each volume holds what its replica has acknowledged. Whoever sees it halts
with a name: who goes on would serve what others deny, or lose what was acknowledged.
"""

from appliance.cores.vsr.evaluate import Evaluation, Verdict
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats.envelope import Header


def known_committed(member: Member) -> int:
    """The newest op that is certainly committed, by all that this member holds: a prepare tells how
    far its primary had committed.
    """
    assert member.commit_min <= member.commit_max
    return max(member.commit_max, member.head.commit_num)


def by_lists(member: Member, result: Evaluation) -> bool:
    """Halt if the lists of a view change cannot all be true; whether they cannot."""
    if result.verdict != Verdict.CONTRADICTED:
        return False
    assert result.reason
    own = result.denied_by == 1 << member.index  # where both deny, nobody can tell who forgot
    member.halt("VOLUME_OUTDATED" if own else "DIVERGED", f"view {member.view}: {result.reason}")
    return True


def by_start_view(member: Member, header: Header) -> bool:
    """Halt if the log of a newer view ends below what is committed here; whether it does."""
    known = known_committed(member)
    assert known >= member.commit_max
    if header.epoch != member.epoch or header.viewstamp <= member.log_viewstamp:
        return False
    if header.op >= known or member.status == Status.RECOVERING_HEAD:
        return False
    member.halt(
        "DIVERGED",
        f"the log of view {header.view} ends at op {header.op}, and op {known} is committed here: "
        "a replica that had acknowledged it has forgotten it, as with an older copy of its volume",
    )
    return True
