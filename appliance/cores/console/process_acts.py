"""Acts on the processes of a node: its edges send their clients away, one is stopped or started."""

import shlex

from appliance.base.printable import counted
from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import (
    EDGES,
    PROCESSES,
    REPLICAS,
    Act,
    Words,
    member_of,
    name_of,
    quoted,
    unkept,
    verb_of,
)
from appliance.cores.console.model import Member, ShardLine, SiteSnapshot
from appliance.cores.console.stakes import (
    EDGE,
    clients,
    farm_loss,
    in_mid_file,
    last_edge,
    left_without,
    loss,
    loss_by_others,
    processes,
    replica_shard,
    votes,
)

# --- edges ----------------------------------------------------------------------------------------


def _edges(snapshot: SiteSnapshot, about: About, *, wanted: bool) -> list[str]:
    return [
        name for name, kept in processes(snapshot, about.node, EDGE) if kept.wanted is wanted
    ]  # fmt: skip


def _drain_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    return [About(row.node)] if _edges(snapshot, row, wanted=True) else []


def _drain_words(snapshot: SiteSnapshot, about: About) -> str:
    name, count = name_of(snapshot, about.node), clients(snapshot, about.node) or 0
    return (
        f"{name} sends its {counted(count, 'chat client')} to other nodes and takes none any more; "
        "its replicas go on."
    )


def _drain_refusal(snapshot: SiteSnapshot, about: About) -> str:
    if why := unkept(snapshot, about.node, f"node drain {quoted(snapshot, about.node)}"):
        return why
    if not _edges(snapshot, about, wanted=True):
        return f"{name_of(snapshot, about.node)} is drained already"
    return last_edge(snapshot, about.node)


def _drain_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    edges = processes(snapshot, about.node, EDGE)
    return bool(edges) and all(kept.ended and not kept.wanted for _, kept in edges)


def _undrain_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    return [About(row.node)] if _edges(snapshot, row, wanted=False) else []


def _undrain_refusal(snapshot: SiteSnapshot, about: About) -> str:
    if why := unkept(snapshot, about.node, f"node undrain {quoted(snapshot, about.node)}"):
        return why
    if not _edges(snapshot, about, wanted=False):
        return f"{name_of(snapshot, about.node)} takes chat clients already"
    return ""


def _undrain_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    edges = processes(snapshot, about.node, EDGE)
    return bool(edges) and all(kept.wanted and kept.ready for _, kept in edges)


# --- processes ------------------------------------------------------------------------------------

# What does not happen while a process of this name is stopped.
_WITHOUT = {
    "keeper": "what is older than the site keeps stays on the disk",
    "shipper": "other nodes ship what is committed",
    "metadata": "topics, reactions and read markers do not reach its clients",
    "federation": "other nodes carry the shared rooms",
    "farm": "the farm has one member less",
}


def _process_words(snapshot: SiteSnapshot, about: About) -> str:
    return f"{about.process} of {name_of(snapshot, about.node)}"


def _process_refusal(snapshot: SiteSnapshot, about: About, verb: str) -> str:
    """Why it cannot be told anything."""
    words = f"node {verb} {quoted(snapshot, about.node)} --process {shlex.quote(about.process)}"
    if why := unkept(snapshot, about.node, words):
        return why
    names = [name for name, _ in processes(snapshot, about.node)]
    if about.process not in names:
        return f"{name_of(snapshot, about.node)} has no process {about.process}: {', '.join(names)}"
    return ""


def _is_wanted(snapshot: SiteSnapshot, about: About) -> bool | None:
    return {n: kept.wanted for n, kept in processes(snapshot, about.node)}.get(about.process)


def _stop_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    here = row.node in snapshot.here
    return [About(row.node, row.process)] if _is_wanted(snapshot, row) or not here else []


def _stop_words(snapshot: SiteSnapshot, about: About) -> str:
    begin = f"{_process_words(snapshot, about)} stops until it is started again"
    if about.process.startswith(EDGE):
        count = clients(snapshot, about.node, about.process) or 0
        return f"{begin}; its {counted(count, 'chat client')} go to other edges."
    number = replica_shard(about.process)
    if number in range(len(snapshot.shards)):
        shard = snapshot.shards[number]
        if _votes_in(shard, about.node):
            left = left_without(shard, about.node)
            leads = shard.primary is not None and shard.primary.node == about.node
            other = "; another replica leads" if leads else ""
            spare = f"{left - shard.quorum} more" if left > shard.quorum else "no other one"
            return (
                f"{begin}{other}. Then {counted(left, 'replica')} of shard {number} serve, "
                f"{shard.quorum} are needed: {spare} may fail."
            )
        return f"{begin}; meanwhile the standby falls behind."
    without = _WITHOUT.get(about.process, "nobody else does its work")
    return f"{begin}; meanwhile {without}."


def _votes_in(shard: ShardLine, node: int) -> bool:
    member = member_of(shard, node)
    return member is not None and votes(member)


def _stop_refusal(snapshot: SiteSnapshot, about: About) -> str:
    if why := _process_refusal(snapshot, about, "stop"):
        return why
    name = name_of(snapshot, about.node)
    if not _is_wanted(snapshot, about):
        return f"{_process_words(snapshot, about)} is stopped already"
    if about.process == "console":
        return (
            f"the console of {name} is not stopped alone, as operators see and act by it: "
            f"`tigerchat node stop {quoted(snapshot, about.node)}` stops the whole node"
        )
    if about.process == "farm":
        return farm_loss(snapshot, about.node)
    if about.process == "shipper":
        return in_mid_file(snapshot, about.node)
    if about.process.startswith(EDGE):
        return last_edge(snapshot, about.node, about.process)
    number = replica_shard(about.process)
    return loss(snapshot, about.node, number) if number != NOBODY else ""


def _stop_typed(snapshot: SiteSnapshot, about: About) -> str:
    """A replica that votes is one less of a quorum."""
    number = replica_shard(about.process)
    stake = number in range(len(snapshot.shards)) and _votes_in(snapshot.shards[number], about.node)
    return name_of(snapshot, about.node) if stake else ""


def _stop_regret(snapshot: SiteSnapshot, about: About) -> str:
    """The replica was asked to end, and now it is missed."""
    number = replica_shard(about.process)
    return loss_by_others(snapshot, about.node, number) if number != NOBODY else ""


def _stop_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    kept = dict(processes(snapshot, about.node)).get(about.process)
    return kept is not None and kept.ended and not kept.wanted


def _start_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    return [About(row.node, row.process)] if _is_wanted(snapshot, row) is False else []


def _start_refusal(snapshot: SiteSnapshot, about: About) -> str:
    if why := _process_refusal(snapshot, about, "start"):
        return why
    return f"{_process_words(snapshot, about)} runs already" if _is_wanted(snapshot, about) else ""


def _start_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    kept = dict(processes(snapshot, about.node)).get(about.process)
    return kept is not None and kept.wanted and kept.ready and kept.answers is not False


def _process_verb(word: str) -> Words:
    return lambda snapshot, about: (
        f"tigerchat node {word} {quoted(snapshot, about.node)} "
        f"--process {shlex.quote(about.process)}"
    )


# --- reading all ----------------------------------------------------------------------------------

SCRUB_S = 3600.0  # for all that a replica holds to be read


def _replica_of(snapshot: SiteSnapshot, about: About) -> Member | None:
    number = replica_shard(about.process)
    known = number in range(len(snapshot.shards))
    return member_of(snapshot.shards[number], about.node) if known else None


def _scrub_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    member = _replica_of(snapshot, row)
    return [About(row.node, row.process)] if member is not None and member.asked else []


def _scrub_refusal(snapshot: SiteSnapshot, about: About) -> str:
    name, member = name_of(snapshot, about.node), _replica_of(snapshot, about)
    if about.node not in snapshot.here:
        return unkept(snapshot, about.node, f"node scrub {quoted(snapshot, about.node)}")
    if member is None:
        return f"{_process_words(snapshot, about)} is no replica of it"
    if member.own is None or not member.normal:
        return f"{_process_words(snapshot, about)} does not serve: bring it up first"
    if member.own.disk.scrubs:
        return f"{name} reads all that its {about.process} holds already"
    return ""


def _scrub_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    was, now = _replica_of(before, about), _replica_of(snapshot, about)
    if was is None or was.own is None or now is None or now.own is None:
        return False
    # the round that was under way, and a whole one
    return not now.own.disk.scrubs and now.own.disk.scrubbed >= was.own.disk.scrubbed + 2


def _scrub_verb(snapshot: SiteSnapshot, about: About) -> str:
    shard = replica_shard(about.process)
    return f"tigerchat node scrub {quoted(snapshot, about.node)} --shard {shard}"


PROCESS_ACTS: tuple[Act, ...] = (
    Act(
        "scrub",
        ("node", "process"),
        (REPLICAS,),
        lambda snapshot, about: f"Read all that {_process_words(snapshot, about)} holds…",
        _scrub_shown,
        lambda snapshot, about: (
            f"{_process_words(snapshot, about)} reads its volume from end to end, now and quicker "
            "than by itself; what is broken is mended from peers, and writes go on."
        ),
        _scrub_refusal,
        lambda snapshot, about: f"{_process_words(snapshot, about)} to have read all",
        _scrub_seen,
        _scrub_verb,
        patience_s=SCRUB_S,
        alone=False,
    ),
    Act(
        "drain",
        ("node",),
        (EDGES,),
        lambda snapshot, about: f"Drain {name_of(snapshot, about.node)}…",
        _drain_shown,
        _drain_words,
        _drain_refusal,
        lambda snapshot, about: f"the edges of {name_of(snapshot, about.node)} to end",
        _drain_seen,
        verb_of("node drain"),
    ),
    Act(
        "undrain",
        ("node",),
        (EDGES,),
        lambda snapshot, about: f"Let {name_of(snapshot, about.node)} take clients again…",
        _undrain_shown,
        lambda snapshot, about: f"{name_of(snapshot, about.node)} takes chat clients again.",
        _undrain_refusal,
        lambda snapshot, about: f"the edges of {name_of(snapshot, about.node)} to serve",
        _undrain_seen,
        verb_of("node undrain"),
    ),
    Act(
        "stop",
        ("node", "process"),
        (REPLICAS, EDGES, PROCESSES),
        lambda snapshot, about: f"Stop {_process_words(snapshot, about)}…",
        _stop_shown,
        _stop_words,
        _stop_refusal,
        lambda snapshot, about: f"{_process_words(snapshot, about)} to end",
        _stop_seen,
        _process_verb("stop"),
        typed=_stop_typed,
        regret=_stop_regret,
        undo="start",
    ),
    Act(
        "start",
        ("node", "process"),
        (REPLICAS, EDGES, PROCESSES),
        lambda snapshot, about: f"Start {_process_words(snapshot, about)}…",
        _start_shown,
        lambda snapshot, about: f"{_process_words(snapshot, about)} is started again.",
        _start_refusal,
        lambda snapshot, about: f"{_process_words(snapshot, about)} to serve",
        _start_seen,
        _process_verb("start"),
    ),
)
