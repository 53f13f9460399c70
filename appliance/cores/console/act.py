"""What a row of the table of acts is made of, and what all rows say of nodes."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from appliance.cores.console.about import About
from appliance.cores.console.alarm import node_name
from appliance.cores.console.model import Member, ShardLine, SiteSnapshot
from appliance.cores.console.stakes import NONE, clients, lacks_quorum, processes, replica_shard

SHARDS, REPLICAS, EDGES, PROCESSES = "Shards", "Replicas", "Edges", "Processes"  # tables
FARM = "Farm"
SITE = "Site"  # no table: what is about the site as a whole, or a node of this machine
TEXT, FILE = "text", "file"  # what an act gives, once, to whoever began it
Words = Callable[[SiteSnapshot, About], str]
Written = Mapping[str, str]


def _nothing(snapshot: SiteSnapshot, about: About) -> str:
    return ""


def _fit(written: Written) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What whoever acts is to write. `usual` stands there at first."""

    name: str
    label: str
    usual: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """`named` of `About` say what it is about; `shown` gives for the subject of a row what it may
    be about beside that; `seen` compares with the look before it began; `patience_s`: for so long
    its effect is waited for. `unfit`: why what was written to `asks` is refused.

    Whoever else acts at the same moment, on another console, was judged by what was before. So all
    is asked once more when the act was asked for: with a reason of `regret` the act `undo` follows.
    """

    name: str
    named: tuple[str, ...]
    groups: tuple[str, ...]  # the tables under whose rows it stands
    label: Words
    shown: Callable[[SiteSnapshot, About], Iterable[About]]
    sentence: Words
    refusal: Words
    waits: Words
    seen: Callable[[SiteSnapshot, About, SiteSnapshot], bool]
    verb: Words
    typed: Words = _nothing
    patience_s: float = 60.0
    of_group: bool = False
    regret: Words = _nothing
    undo: str = ""
    asks: tuple[Asked, ...] = ()
    unfit: Callable[[Written], str] = _fit
    gives: str = ""
    alone: bool = True  # other acts on what it is about wait until it has ended

    def touches_group(self, about: About) -> bool:
        """Whether it changes who serves a shard, leads it or votes."""
        return self.of_group or replica_shard(about.process) != NONE

    @property
    def kind(self) -> str:
        """Of what it is an act: "site", "node", "process", "shard" or "member"."""
        if not self.named:
            return "site"
        if "process" in self.named or "shard" in self.named:
            return "process" if "process" in self.named else "shard"
        return "member" if self.of_group else "node"


# --- what rows of the site share ------------------------------------------------------------------


def of_site(snapshot: SiteSnapshot, row: About) -> list[About]:
    """Shown where nothing is the subject: beside the site."""
    return [About()] if row == About() else []


def said(words: str) -> Words:
    """The same words whatever is so."""
    return lambda snapshot, about: words


def done(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    """What came about was seen by whoever did it, and is told in its words."""
    return True


def short_of_quorum(snapshot: SiteSnapshot, about: About) -> str:
    """Which shard can commit nothing now."""
    return next((why for shard in snapshot.shards if (why := lacks_quorum(shard))), "")


# --- what is there --------------------------------------------------------------------------------


def name_of(snapshot: SiteSnapshot, node: int) -> str:
    return node_name(snapshot, node)


def quoted(snapshot: SiteSnapshot, node: int) -> str:
    return shlex.quote(name_of(snapshot, node))


def member_of(shard: ShardLine, node: int) -> Member | None:
    for member in shard.members:
        if member.node == node and not member.removed:
            return member
    return None


def memberships(snapshot: SiteSnapshot, node: int) -> list[tuple[ShardLine, Member]]:
    """The shards to which a node belongs, with its member of each."""
    found = ((shard, member_of(shard, node)) for shard in snapshot.shards)
    return [(shard, member) for shard, member in found if member is not None]


def unkept(snapshot: SiteSnapshot, node: int, verb: str) -> str:
    """Why nobody here can tell the processes of a node what to do; `verb` does it there."""
    name = name_of(snapshot, node)
    if node not in snapshot.here:
        return (
            f"{name} is on another machine: do it on the console of that machine, or there with "
            f"`tigerchat {verb} --node-folder F`"
        )
    if processes(snapshot, node):
        return ""
    if _serves(snapshot, node):
        return (
            f"the roles of {name} are one process (`start --one-process`) or units of systemd, and "
            "none can be told anything alone from here: nothing was changed; `tigerchat node stop "
            f"{quoted(snapshot, node)}` stops all of a local node, `systemctl stop` a unit"
        )
    return (
        f"nobody keeps the processes of {name}, its supervisor does not answer: start the node "
        "first, under systemd with `systemctl start tigerchat`"
    )


def _serves(snapshot: SiteSnapshot, node: int) -> bool:
    return clients(snapshot, node) is not None or any(
        member.own is not None for _, member in memberships(snapshot, node)
    )


def verb_of(word: str) -> Words:
    return lambda snapshot, about: f"tigerchat {word} {quoted(snapshot, about.node)}"
