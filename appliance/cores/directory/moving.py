"""From the placement that is wanted to the one next step towards it.

    wanted  the nodes of a shard: as many as vote now, who are to vote; behind them, who follow
    group   who votes and who follows, as the shard's own log has it

    not in the group   ──Add──▶ follows, syncs ──Exchange──▶ votes         who is wanted
    out of the group ◀──Remove── follows       ◀──Exchange── votes         who is not

Nothing is remembered: a step follows from what is so, so whoever asks next, after a crash, after
another node was chosen, or after the wanted placement was changed back, goes on from there. Every
step takes the shard nearer by a measure that falls (`distance`), and no step changes how many vote.
Shards take turns: one that has been begun is ended before another one begins.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from appliance.base.limits import MEMBERS_MAX
from appliance.cores.directory.status import Group

LEVEL = 100  # per cent of a shard's state: nothing is missing


@dataclass(slots=True, frozen=True)
class Add:
    """Take `node` into the shard's group, as one that follows."""

    shard: int
    node: int


@dataclass(slots=True, frozen=True)
class Exchange:
    """Let `up`, which follows, vote in the place of `down`, which follows then."""

    shard: int
    up: int
    down: int


@dataclass(slots=True, frozen=True)
class Remove:
    """Take `node`, which follows, out of the shard's group."""

    shard: int
    node: int


@dataclass(slots=True, frozen=True)
class Wait:
    """Nothing can be done now: `node` is not there yet (0: more than one). `synced`: per cent of
    its state, None where it does not serve; `away`: it is not heard of at all."""

    shard: int
    node: int
    synced: int | None = None
    away: bool = False


@dataclass(slots=True, frozen=True)
class Refused:
    """Nothing will be done for this shard, and why, in words without its number."""

    shard: int
    why: str


Act = Add | Exchange | Remove
Step = Act | Wait | Refused


def distance(wanted: tuple[int, ...], group: Group) -> int:
    """How many steps are missing, at most; 0: the group is as wanted."""
    votes, members = set(wanted[: len(group.voters)]), {*group.voters, *group.standbys}
    rising = votes - set(group.voters)
    return 3 * len(rising) + len(set(wanted) - members) + len(members - set(wanted))


def refusal(wanted: tuple[int, ...], group: Group, described: Collection[int]) -> str:
    """Why a shard can never be so; empty: it can. `described`: who the site file names for it."""
    count = len(group.voters)
    if len(set(wanted)) != len(wanted):
        return "a node is named twice"
    if len(wanted) < count:
        return f"{len(wanted)} nodes are named, and {count} vote: their number does not change"
    if len(wanted) > MEMBERS_MAX:
        return f"{len(wanted)} nodes are named; allowed: {MEMBERS_MAX}"
    if strangers := [node for node in wanted if node not in described]:
        return f"member {strangers[0]} is no node that the site file describes for this shard"
    return ""


def next_step(
    wanted: tuple[int, ...],
    group: Group,
    level: Mapping[int, int],
    described: Collection[int],
    present: Collection[int],
) -> Step | None:
    """What is next for one shard; None: it is as wanted. `level`: of the nodes that serve it, per
    cent of the state that they have. `present`: who is heard of, whatever it serves."""
    shard, count = group.shard, len(group.voters)
    if why := refusal(wanted, group, described):
        return Refused(shard, why)
    votes, members = wanted[:count], {*group.voters, *group.standbys}
    for node in group.standbys:
        if node not in wanted:
            return Remove(shard, node)  # first: it makes room
    rising = [node for node in votes if node not in group.voters]
    rising.sort(key=lambda node: node not in group.standbys)  # one that is in already goes first
    if rising:
        up = rising[0]
        if up not in members:
            return _add(shard, up, members, present)
        if level.get(up) != LEVEL:
            return Wait(shard, up, level.get(up))
        falling = [node for node in group.voters if node not in votes]
        down = next((node for node in falling if level.get(node) != LEVEL), falling[0])
        after = [up if node == down else node for node in group.voters]
        serving = sum(level.get(node) == LEVEL for node in after)
        if serving < count // 2 + 1:
            return Wait(shard, 0)
        return Exchange(shard, up, down)
    following = [node for node in wanted[count:] if node not in members]
    return _add(shard, following[0], members, present) if following else None


def _add(shard: int, node: int, members: set[int], present: Collection[int]) -> Step:
    if node not in present:
        return Wait(shard, node, away=True)
    if len(members) >= MEMBERS_MAX:
        return Refused(shard, f"it has {MEMBERS_MAX} members, and no room for one that comes in")
    return Add(shard, node)


def is_begun(wanted: tuple[int, ...], group: Group) -> bool:
    """Whether somebody is half in or half out: that is ended before another shard begins."""
    votes = wanted[: len(group.voters)]
    return any(node in votes or node not in wanted for node in group.standbys)


def steps(
    placement: Mapping[int, tuple[int, ...]],
    groups: Mapping[int, Group],
    levels: Mapping[int, Mapping[int, int]],
    described: Mapping[int, Collection[int]],
    present: Collection[int],
) -> list[Step]:
    """What is next for each shard that is not as wanted, the one whose turn it is before the
    others; of those that are not begun who waits comes behind, and those that are refused come
    last. A shard of which no group was reported is left out."""
    found = []
    for shard, wanted in sorted(placement.items()):
        if shard not in groups:
            continue
        group = groups[shard]
        level, known = levels.get(shard, {}), described.get(shard, ())
        step = next_step(wanted, group, level, known, present)
        if step is not None:
            later = 0 if is_begun(wanted, group) else 1 + isinstance(step, Wait)
            found.append((isinstance(step, Refused), later, shard, step))
    return [step for *_, step in sorted(found, key=lambda row: row[:3])]


def in_words(step: Step, names: Mapping[int, str]) -> str:
    """What an operator reads."""
    shard = f"shard {step.shard}"
    match step:
        case Add(node=node):
            return f"{shard}: {_name(names, node)} is taken in"
        case Exchange(up=up, down=down):
            return f"{shard}: {_name(names, up)} votes in the place of {_name(names, down)}"
        case Remove(node=node):
            return f"{shard}: {_name(names, node)} is taken out"
        case Wait(node=0):
            return f"{shard}: too few who vote would serve: bring replicas back first"
        case Wait(node=node, away=True):
            return f"{shard}: {_name(names, node)} is not heard of"
        case Wait(node=node, synced=None):
            return f"{shard}: {_name(names, node)} does not serve it yet"
        case Wait(node=node, synced=synced):
            return f"{shard}: {_name(names, node)} is synced to {synced} %"
        case Refused(why=why):
            return f"{shard}: stays as it is: {why}"


def _name(names: Mapping[int, str], node: int) -> str:
    return names.get(node, f"member {node}")
