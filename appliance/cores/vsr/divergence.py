"""Two members that hold different states after the same operation: who of them is wrong.

States are equal or a machine computed, remembered or stored wrongly. The one that stands alone
against a majority of the replicas halts; the others go on without it. Where no majority can be
told, because too few have reached that checkpoint or there are only two, a member that has waited
for long enough halts: going on could lie.
"""

from appliance.cores.vsr.member import Member
from appliance.formats import checkpoint as ck
from appliance.formats.lives import ANSWER_DIVERGED, ANSWER_REFUSED, Refusal

PATIENCE_TICKS = 300  # six pings of everybody


def compare(member: Member, member_index: int, op: int, checkpoint_id: bytes) -> None:
    """A member says that it holds this state; `checkpoint_id` is the first half of its name."""
    assert member_index != member.index
    assert len(checkpoint_id) == 16
    peer, own = member.peers[member_index], member.checkpoint
    peer.checkpoint, peer.checkpoint_id = op, checkpoint_id
    if own is None or member.syncing or op != own.header.op or op == 0:
        return
    peer_id = member.members[member_index]
    assert member.peers[member_index].checkpoint == own.header.op
    if ck.short_id(own.checkpoint_id) == checkpoint_id:
        member.diverged.pop(peer_id, None)
        return
    if peer_id not in member.diverged:
        member.mark("diverged")
        member.diverged[peer_id] = (op, member.tick)
    check(member)


def check(member: Member) -> None:
    """Halt, or go on without those that are wrong, once it can be told."""
    own = member.checkpoint
    assert own is not None
    ours = ck.short_id(own.checkpoint_id)
    assert member.diverged
    held: dict[bytes, int] = {ours: 0 if member.is_standby else 1}
    for member_index, peer in enumerate(member.peers[: member.replica_count]):
        if member_index != member.index and peer.checkpoint == own.header.op:
            held[peer.checkpoint_id] = held.get(peer.checkpoint_id, 0) + 1
    majority = member.replica_count // 2 + 1
    assert sum(held.values()) <= member.replica_count
    assert majority * 2 > member.replica_count
    for checkpoint_id, count in held.items():
        if count < majority:
            continue
        if checkpoint_id != ours:
            member.halt(
                "DIVERGED",
                f"checkpoint {own.header.op} differs from that of {count} of"
                f" {member.replica_count} replicas",
            )
            return
        for peer_id in list(member.diverged):
            member.refused[peer_id] = Refusal(
                f"its checkpoint {own.header.op} differs from {count} others'",
                ANSWER_REFUSED | ANSWER_DIVERGED,
            )
            del member.diverged[peer_id]
            member.mark("diverged_member_refused")
        return
    since = min((tick for _, tick in member.diverged.values()), default=member.tick)
    if member.replica_count < 3 or member.tick - since >= PATIENCE_TICKS:
        member.halt(
            "DIVERGED",
            f"checkpoint {own.header.op} differs from another replica's, and no majority can be"
            " told",
        )
