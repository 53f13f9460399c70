"""Which view a member stands in, whose log it has, and what it tells of that log. All of this is
durable before others hear of it: see `Member.may_speak`.
"""

from appliance.cores.vsr.member import Member
from appliance.formats import superblock as sb
from appliance.formats.envelope import Header
from appliance.formats.superblock import Superblock


def recall(member: Member, block: Superblock) -> None:
    """At open: what the superblock holds."""
    member.view, member.log_view = block.view, block.log_view
    advertise(member, list(block.view_headers), block.view_headers_kind)


def join(member: Member, view: int) -> None:
    """Be in `view` without having its log yet."""
    assert member.log_view <= view
    member.view = view


def install(member: Member) -> None:
    """The log of the view that this member is in is ours."""
    assert member.log_view < member.view
    member.log_view = member.view


def stand_in(member: Member, view: int) -> None:
    """Be in `view`, and have its log."""
    assert view >= 0
    member.view = member.log_view = view


def advertise(member: Member, headers: list[Header], kind: int = sb.KIND_SV) -> None:
    """The list that tells of our log, descending."""
    assert kind in (sb.KIND_SV, sb.KIND_DVC)
    assert len(headers) <= sb.VIEW_HEADERS_MAX
    member.view_headers = headers
    member.view_headers_kind = kind


def list_sent(member: Member) -> None:
    """Others were told our list, for this view."""
    assert member.durable_view == member.view
    assert member.dvc_sent_view <= member.view
    member.dvc_sent_view = member.view


def repeat_list(member: Member) -> None:
    """Others shall be told our list, again if they were."""
    member.dvc_sent_view = -1
