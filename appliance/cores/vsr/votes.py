"""Votes to leave the view: who has said so, as far as this replica knows; none outlives its view or
its window. What follows from them, `view_change` says.
"""

from appliance.cores.vsr.member import Member


def add(member: Member, member_index: int) -> None:
    """The replica at `member_index` wants to leave."""
    assert 0 <= member_index < member.replica_count
    member.svc_from |= 1 << member_index


def withdraw(member: Member) -> None:
    """This replica does not want to any more: the primary lives."""
    assert member.index >= 0
    member.svc_from &= ~(1 << member.index)


def expire(member: Member) -> None:
    """The window is over: what others said is too old to count."""
    assert not member.svc_from >> member.replica_count
    member.svc_from &= 1 << member.index


def forget(member: Member) -> None:
    """Another view begins."""
    member.svc_from = 0
