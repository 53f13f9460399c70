"""Acts on the group of a shard: who leads it, who votes, who belongs to it."""

from collections.abc import Callable

from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import (
    REPLICAS,
    SHARDS,
    Act,
    member_of,
    memberships,
    name_of,
    quoted,
    unkept,
    verb_of,
)
from appliance.cores.console.model import Member, ShardLine, SiteSnapshot
from appliance.cores.console.stakes import (
    behind,
    lacks_quorum,
    replica_shard,
    votes,
)

MEMBERS_S = 120.0  # for a shard to have changed its members

# --- who leads ------------------------------------------------------------------------------------


def _step_down_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    number = row.shard if row.node == NOBODY else replica_shard(row.process)
    if number not in range(len(snapshot.shards)):
        return []
    primary = snapshot.shards[number].primary
    leads = primary is not None and row.node in (NOBODY, primary.node)
    return [About(primary.node, shard=number)] if primary is not None and leads else []


def _step_down_words(snapshot: SiteSnapshot, about: About) -> str:
    heir = snapshot.shards[about.shard].heir
    who = name_of(snapshot, heir.node) if heir is not None else "the next replica"
    return (
        f"{name_of(snapshot, about.node)} lets {who} lead shard {about.shard}; messages on their "
        "way are sent again, clients see a pause of some milliseconds."
    )


def _step_down_refusal(snapshot: SiteSnapshot, about: About) -> str:
    shard, name = snapshot.shards[about.shard], name_of(snapshot, about.node)
    words = f"node step-down {quoted(snapshot, about.node)} --shard {about.shard}"
    if about.node not in snapshot.here:
        return unkept(snapshot, about.node, words)
    if shard.primary is None:
        return f"shard {about.shard} has no primary now: wait until one of its replicas leads"
    if shard.primary.node != about.node:
        return (
            f"{name} does not lead shard {about.shard}: "
            f"{name_of(snapshot, shard.primary.node)} does"
        )  # fmt: skip
    if sum(map(votes, shard.members)) == 1:
        return f"{name} is the only replica of shard {about.shard} that votes: nobody else can lead"
    if why := lacks_quorum(shard):
        return why
    if shard.heir is None:
        return f"the replica of shard {about.shard} that leads next is not in the site file yet"
    return behind(snapshot, shard, shard.heir)


def _step_down_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    now = snapshot.shards[about.shard]
    changed = now.view > before.shards[about.shard].view
    return changed and now.primary is not None and now.primary.node != about.node


# --- who votes ------------------------------------------------------------------------------------


def _shared(snapshot: SiteSnapshot, up: int, down: int) -> list[tuple[ShardLine, Member, Member]]:
    """The shards to which both belong, with their members of each."""
    found = ((shard, member_of(shard, up), member_of(shard, down)) for shard in snapshot.shards)
    return [(s, a, b) for s, a, b in found if a is not None and b is not None]


def _standby_of(snapshot: SiteSnapshot, node: int) -> bool:
    found = memberships(snapshot, node)
    return bool(found) and all(member.standby for _, member in found)


def _voter_of(snapshot: SiteSnapshot, node: int) -> bool:
    found = memberships(snapshot, node)
    return bool(found) and all(not member.standby for _, member in found)


def _promote_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    if not _standby_of(snapshot, row.node):
        return []
    voters = [n.index for n in snapshot.site.nodes if _voter_of(snapshot, n.index)]
    return [About(row.node, other=voter) for voter in voters]


def _retire_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    if not _voter_of(snapshot, row.node):
        return []
    standbys = [n.index for n in snapshot.site.nodes if _standby_of(snapshot, n.index)]
    return [About(row.node, other=standby) for standby in standbys]


def _exchange_words(snapshot: SiteSnapshot, up: int, down: int) -> str:
    counts = ", ".join(
        f"{sum(map(votes, shard.members))} vote in shard {shard.number}, as before"
        for shard, _, _ in _shared(snapshot, up, down)
    )
    sentence = f"{name_of(snapshot, up)} votes in the place of {name_of(snapshot, down)}"
    return f"{sentence}, which becomes a standby; {counts}."


def _exchange_refusal(snapshot: SiteSnapshot, up: int, down: int) -> str:
    """Why two nodes cannot change places; each shard is asked before any is changed."""
    standby, voter = name_of(snapshot, up), name_of(snapshot, down)
    shared = _shared(snapshot, up, down)
    if not shared:
        return f"{standby} and {voter} share no shard"
    if _exchange_seen(snapshot, up, down):
        return f"{standby} votes in the place of {voter} already"
    for shard, rises, falls in shared:
        if not rises.standby and falls.standby:
            continue  # done, before the act was broken off
        if not rises.standby or falls.standby:
            both = "both vote" if not rises.standby else "neither of them votes"
            return (
                f"{standby} and {voter} in shard {shard.number}: {both}; name a standby to promote "
                "and a replica to retire, as `tigerchat member list` shows them"
            )
        # One who serves takes the place of another: as many serve then as now.
        if why := behind(snapshot, shard, rises) or lacks_quorum(shard):
            return why
    return ""


def _exchange_seen(snapshot: SiteSnapshot, up: int, down: int) -> bool:
    shared = _shared(snapshot, up, down)
    return bool(shared) and all(not a.standby and b.standby for _, a, b in shared)


def _remove_words(snapshot: SiteSnapshot, about: About) -> str:
    numbers = ", ".join(str(shard.number) for shard, _ in memberships(snapshot, about.node))
    return (
        f"{name_of(snapshot, about.node)} belongs to no shard any more (shard {numbers}); what it "
        "holds stays on its disk and is kept up no more."
    )


def _remove_refusal(snapshot: SiteSnapshot, about: About) -> str:
    name, found = name_of(snapshot, about.node), memberships(snapshot, about.node)
    if not found:
        return f"{name} is a member of no shard"
    for shard, member in found:
        if votes(member):
            only = sum(map(votes, shard.members)) == 1
            what = "is the last replica that votes" if only else "votes"
            return (
                f"{name} {what} in shard {shard.number}: let a standby take its place first, with "
                f"`tigerchat member retire {quoted(snapshot, about.node)} --promote STANDBY`"
            )
        if why := lacks_quorum(shard):
            return why
    return ""


def _remove_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    return not memberships(snapshot, about.node)


def _exchange_act(
    name: str,
    option: str,
    label: str,
    shown: Callable[[SiteSnapshot, About], list[About]],
    pair: Callable[[About], tuple[int, int]],
) -> Act:
    """An act by which a standby and a voter change places; `pair` says which is which. `label`
    names both, as it stands on the small screen beside no row; `option` of the verb is the other's.
    """
    return Act(
        name,
        ("node", "other"),
        (REPLICAS,),
        lambda snapshot, about: label.format(
            name_of(snapshot, about.node), name_of(snapshot, about.other)
        ),
        shown,
        lambda snapshot, about: _exchange_words(snapshot, *pair(about)),
        lambda snapshot, about: _exchange_refusal(snapshot, *pair(about)),
        lambda snapshot, about: f"{name_of(snapshot, pair(about)[0])} to vote",
        lambda snapshot, about, before: _exchange_seen(snapshot, *pair(about)),
        lambda snapshot, about: (
            f"tigerchat member {name} {quoted(snapshot, about.node)} "
            f"{option} {quoted(snapshot, about.other)}"
        ),
        typed=lambda snapshot, about: name_of(snapshot, about.node),
        patience_s=MEMBERS_S,
        of_group=True,
    )


GROUP_ACTS: tuple[Act, ...] = (
    Act(
        "step-down",
        ("node", "shard"),
        (SHARDS, REPLICAS),
        lambda snapshot, about: f"Let another replica lead shard {about.shard}…",
        _step_down_shown,
        _step_down_words,
        _step_down_refusal,
        lambda snapshot, about: f"another replica to lead shard {about.shard}",
        _step_down_seen,
        lambda snapshot, about: (
            f"tigerchat node step-down {quoted(snapshot, about.node)} --shard {about.shard}"
        ),
        patience_s=30.0,
        of_group=True,
    ),
    _exchange_act(
        "promote",
        "--retire",
        "Let {} vote in the place of {}…",
        _promote_shown,
        lambda about: (about.node, about.other),
    ),
    _exchange_act(
        "retire",
        "--promote",
        "Retire {}: {} votes in its place…",
        _retire_shown,
        lambda about: (about.other, about.node),
    ),
    Act(
        "remove",
        ("node",),
        (REPLICAS,),
        lambda snapshot, about: f"Remove {name_of(snapshot, about.node)} from its shards…",
        lambda snapshot, row: [About(row.node)] if _standby_of(snapshot, row.node) else [],
        _remove_words,
        _remove_refusal,
        lambda snapshot, about: f"{name_of(snapshot, about.node)} to be no member",
        _remove_seen,
        verb_of("member remove"),
        typed=lambda snapshot, about: name_of(snapshot, about.node),
        patience_s=MEMBERS_S,
        of_group=True,
    ),
)
