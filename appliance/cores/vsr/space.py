"""Disks that are about to be full: who is short of space, and what the group does about it.

Segments are the only thing that grows. A replica that finds no room for the next one halts; of
replicas with equal disks all would, at the same record. So each says in its pings that it is
short, while there is still a reserve, and the primary looks whether every quorum could go on
without those that are:

    enough are not short   the others go on, whatever becomes of the one that is
    too few                the log goes on, and takes nothing from users: their records are
                           answered `storage_full`. View changes, checkpoints and changes of
                           members need no segment, retain records free some.

The refusal is an operation of the log, judged alike by everybody: what is a duplicate is still
answered as one. Who was short and fell silent counts as short until it says otherwise.
"""

from appliance.cores.vsr.member import Member
from appliance.formats.lives import FLAG_SHORT


def on_measured(member: Member, *, short: bool) -> None:
    """What the driver found of this replica's disk; news are told at once."""
    if member.index >= 0 and short != member.peers[member.index].space_short:
        member.peers[member.index].space_short = short
        member.mark("space_short" if short else "space_enough")
        member.timeouts["ping"].start(1)


def flag(member: Member) -> int:
    """What a ping says of it."""
    assert member.index >= 0
    own = member.peers[member.index]
    return FLAG_SHORT if own.space_short else 0


def is_scarce(member: Member) -> bool:
    """Whether a quorum, to commit or to change views, would need a replica that is short."""
    short = sum(peer.space_short for peer in member.peers[: member.replica_count])
    needed = max(member.quorum_replication, member.quorum_view_change)
    assert 0 < needed <= member.replica_count
    return short > member.replica_count - needed
