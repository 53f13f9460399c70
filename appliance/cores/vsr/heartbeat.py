"""The primary's sign of life, which also says how far the log is committed."""

from appliance.cores.vsr.member import Member
from appliance.formats import envelope as env


def send(member: Member, mask: int) -> None:
    """Tell these members how far the log is committed, and that this primary lives."""
    assert member.normal_primary and member.checkpoint is not None
    known = member.journal.at(member.commit_max)
    digest = known.digest if known is not None else bytes(16)
    member.send(
        mask,
        member.make(
            env.COMMIT,
            view=member.view,
            op=member.checkpoint_op,
            commit_num=member.commit_max,
            area=digest + member.monotonic_ns.to_bytes(8, "little"),
            body=member.checkpoint.checkpoint_id,
        ),
        member.checkpoint.checkpoint_id,
    )
