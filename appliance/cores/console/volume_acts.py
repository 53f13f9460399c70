"""An act on the volumes of a node: those that were lost are made anew, and filled by the others."""

from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import REPLICAS, Act, memberships, name_of
from appliance.cores.console.cells import count
from appliance.cores.console.model import Member, ShardLine, SiteSnapshot
from appliance.cores.console.stakes import behind, lacks_quorum, processes, votes

REPLICAS_MIN = 3  # in a smaller group nothing can be committed without the lost one
RECOVER_S = 4 * 3600.0  # for volumes to be written, and for all that they are to hold to come


def no_voucher(shard: int, replicas: int) -> str:
    """Why a lost voter of a small group cannot come back with a new volume; empty: it can."""
    if replicas >= REPLICAS_MIN:
        return ""
    return (
        f"shard {shard} has {replicas} replicas: nobody else can vouch for what the lost one "
        "acknowledged; only a copy of its folder can bring it back that was made after it had "
        "stopped for the last time"
    )


def vouching_refusal(snapshot: SiteSnapshot, node: int) -> str:
    """Why the others cannot say now what the node's replicas may have acknowledged."""
    for shard, member in memberships(snapshot, node):
        voters = sum(map(votes, shard.members))
        if votes(member) and (why := no_voucher(shard.number, voters)):
            return why
        if why := lacks_quorum(shard):
            return why
    return ""


def _halted(snapshot: SiteSnapshot, node: int) -> list[tuple[ShardLine, Member]]:
    """The replicas that its supervisor cannot bring up."""
    return [
        (shard, member)
        for shard, member in memberships(snapshot, node)
        if member.process is not None and member.process.halt and not member.normal
    ]


def _shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    known = row.node != NOBODY and _halted(snapshot, row.node)
    return [About(row.node)] if known else []


def _refusal(snapshot: SiteSnapshot, about: About) -> str:
    name, there = name_of(snapshot, about.node), "there `tigerchat recover --node-folder F`"
    if about.node not in snapshot.here:
        return f"{name} is on another machine: {there}"
    if not processes(snapshot, about.node):
        return f"nobody keeps the processes of {name}, its supervisor does not answer: {there}"
    if not _halted(snapshot, about.node):
        return f"no replica of {name} has halted: there is nothing to make anew"
    return vouching_refusal(snapshot, about.node)


def _waits(snapshot: SiteSnapshot, about: About) -> str:
    """With how far each is that is to run."""
    far = [
        f"shard {shard.number}: {_how_far(shard, member)}"
        for shard, member in memberships(snapshot, about.node)
        if member.process is not None and member.process.wanted and _lacks(snapshot, shard, member)
    ]
    return f"{name_of(snapshot, about.node)} to be level ({'; '.join(far) or 'all is there'})"


def _lacks(snapshot: SiteSnapshot, shard: ShardLine, member: Member) -> bool:
    """Whether it is not level: also where it is the only one that could be asked, and is silent."""
    return not member.normal or bool(behind(snapshot, shard, member))


def _how_far(shard: ShardLine, member: Member) -> str:
    if member.own is None:
        return "the volume is made"
    lag = shard.lag(member)
    if member.own.syncing or lag is None:
        return f"the state comes, {count(member.own.log_seq)} of {count(shard.records)} records"
    return f"{count(lag)} operations behind"


def _seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    """Those that had halted are level; one that an operator has stopped is not waited for."""
    halted = {shard.number for shard, _ in _halted(before, about.node)}
    found = [pair for pair in memberships(snapshot, about.node) if pair[0].number in halted]
    return bool(found) and not any(_lacks(snapshot, shard, member) for shard, member in found)


VOLUME_ACTS: tuple[Act, ...] = (
    Act(
        "recover",
        ("node",),
        (REPLICAS,),
        lambda snapshot, about: f"Make the lost volumes of {name_of(snapshot, about.node)} anew…",
        _shown,
        lambda snapshot, about: (
            f"Volumes that are missing in the folder of {name_of(snapshot, about.node)} are made "
            "anew, and its replicas get all from the others before they vote again. A broken one "
            "that still lies there stays as it is: move it away first."
        ),
        _refusal,
        _waits,
        _seen,
        lambda snapshot, about: "tigerchat recover --node-folder F",
        typed=lambda snapshot, about: name_of(snapshot, about.node),
        patience_s=RECOVER_S,
    ),
)
