"""The primary's sign of life, which also says how far the log is committed; and what its absence
lets a backup believe.
"""

from appliance.cores.vsr.member import Member
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats.envelope import Message

HANDS_OVER = 1  # in a primary's vote: it leaves its view because it stops
DOUBT_TICKS = 6  # three heartbeats missed: enough to agree with somebody's vote


def send(member: Member, mask: int) -> None:
    """Tell these members how far the log is committed, and that this primary lives."""
    assert member.normal_primary
    assert member.checkpoint is not None
    known = member.journal.at(member.commit_max)
    digest = known.digest if known is not None else bytes(16)
    assert not mask >> member.index & 1
    assert len(digest) == 16
    member.send(
        mask,
        member.make(
            env.COMMIT,
            view=member.view,
            op=member.checkpoint_op,
            commit_num=member.commit_max,
            area=cmd.Commit.pack(digest, member.monotonic_ns),
            body=member.checkpoint.checkpoint_id,
        ),
        member.checkpoint.checkpoint_id,
    )


def is_newer(member: Member, moment: int) -> bool:
    """Whether a heartbeat is newer than all that were heard, by its primary's clock."""
    if moment <= member.heartbeat_ns:
        return False
    member.heartbeat_ns = moment
    return True


def forget(member: Member) -> None:
    """Another primary has another clock."""
    member.heartbeat_ns = 0


def anchor(member: Member, op: int, digest: bytes) -> None:
    """This very prepare is committed."""
    assert len(digest) == 16
    member.commit_anchor = (op, digest)


def agrees(member: Member, vote: Message) -> bool:
    """Whether this replica, too, would leave the view that another one wants to leave: it heard
    nothing for a while either, so that two timers need not both run out; or the primary itself says
    that it stops.
    """
    assert vote.header.view == member.view
    if vote.sender == member.primary and vote.header.aux == HANDS_OVER:
        return True
    silence = member.timeouts["heartbeat_lost"]
    return silence.running and silence.elapsed >= DOUBT_TICKS
