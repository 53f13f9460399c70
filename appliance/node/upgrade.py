"""An upgrade of a site that serves: one node after the other is run by another program.

    for each node, first those that do not serve, last whoever leads most shards:

    others level ──▶ drained ──▶ stopped, by a primary with its word to another one ──▶
    started by the other program ──▶ answers, whole, level ──▶ the next one

Nothing but the nodes is asked: where an upgrade stood stands in what they run, so it can be broken
off anywhere and be begun again. It goes no step further while a node is missing, and the nodes
behind the one that does not come back are as they were.
"""

import asyncio
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from appliance.base.errors import StorageError
from appliance.base.limits import REPLICA_BEHIND_OPS
from appliance.cores.console.model import Member, ShardLine, Source
from appliance.cores.console.stakes import short_of
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.terminal.waiting import Waiting
from appliance.formats.site import SITE_FILE, Site
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.supervisor import SupervisorStatus
from appliance.formats.volume_level import NOT_TOLD
from appliance.node.catalogue import ROLES
from appliance.node.child import Program
from appliance.roles.console.watch import watch_of_site
from appliance.roles.operator.keeping import STOP_S, Keeper, answers_alone, until

PROBE_S = 2.0  # for a process to say how it is: a node that is busy is waited for
PAUSE_S = 0.2  # between two looks at a site
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class KeptNode:
    """A node that is upgraded: its folder, and its number in the site file."""

    folder: Path
    name: str
    index: int


class Restart(Protocol):
    """How a node is stopped, and started again by the program that is to run it."""

    def __call__(self, node: KeptNode) -> None:
        """Returns when it was started, and StorageError if that cannot be."""


class KeptRestart:
    """By the process that keeps the nodes of a local site. `program` None: their own again."""

    def __init__(self, keeper: Keeper, program: Program | None, say: Say) -> None:
        self._keeper, self._say = keeper, say
        self._words = [] if program is None else list(program.words)
        self._source = "" if program is None else program.source

    def __call__(self, node: KeptNode) -> None:
        keeper, name = self._keeper, node.name
        begin = time.monotonic()
        keeper.stop(name)
        until(lambda: keeper.child(name).has_ended, STOP_S, f"{name} has not ended", "upgrade")
        self._say(f"{name}: has stopped after {time.monotonic() - begin:.1f} s")
        keeper.start(name, program=self._words, source=self._source)


class UnitRestart:
    """By a command, as that of a service manager, which returns when the node was restarted."""

    def __init__(self, command: str, say: Say) -> None:
        self._words, self._say = shlex.split(command), say

    def __call__(self, node: KeptNode) -> None:
        told = shlex.join(self._words)
        self._say(f"{node.name}: {told}")
        try:
            done = subprocess.run(self._words, capture_output=True, text=True, check=False)
        except OSError as error:
            raise StorageError(f"{told}: {error.strerror}; name a command by --restart") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            raise StorageError(f"{told} failed with {done.returncode}: {said[-1]}")


class Upgrade:
    """Of the nodes in `nodes`, as far as they lie on this machine. `program`: what they are to
    tell of themselves afterwards; None: what they ran before, whatever it tells."""

    def __init__(
        self,
        site: Site,
        nodes: Iterable[KeptNode],
        *,
        program: str | None,
        restart: Restart,
        patience_s: float,
        force: bool,
        say: Say,
    ) -> None:
        self.site, self.nodes = site, list(nodes)
        self._program, self._restart, self._say = program, restart, say
        self._patience_s, self._force = patience_s, force
        first = self.nodes[0].folder
        self._watch = watch_of_site(
            first / SITE_FILE, first, site, ROLES, patience_s=PROBE_S, tell=say
        )

    def poll(self) -> None:
        """Ask all processes how they are."""
        asyncio.run(self._watch.poll_beside())

    def supervisor(self, node: KeptNode) -> SupervisorStatus | None:
        """What the node's told at the last look."""
        found = self._watch.answers.get(Source(SupervisorStatus.kind, node.index, 0))
        return found if isinstance(found, SupervisorStatus) else None

    def runs(self, node: KeptNode) -> str | None:
        """The program that runs a node, as it tells; None: the node does not answer."""
        said = self.supervisor(node)
        return None if said is None else said.program

    def check_levels(self, level: int, *, no_way_back: bool) -> None:
        """StorageError if the program of now would not take what one that writes as much as `level`
        has written, unless that is accepted, or that one not what is written now."""
        for node in self.nodes:
            said = self.supervisor(node)
            if said is None or said.program == self._program or said.volume_level == NOT_TOLD:
                continue
            if level < said.volume_level:
                raise StorageError(
                    f"this program does not know all that {said.program}, which runs {node.name}, "
                    "writes into volumes: it would halt with VOLUME_NEWER; nothing was changed, "
                    "use a later one"
                )
            if level > said.volume_level and not no_way_back:
                raise StorageError(
                    f"from its first start on this program writes into volumes what {said.program},"
                    f" which runs {node.name}, does not know: there is no way back; nothing was "
                    "changed; upgrade one node with --no-way-back and let it serve for a while, "
                    "then the others"
                )

    def check_supervised(self) -> None:
        """StorageError for a node whose roles are one process: nobody is there to be asked."""
        for node in self.nodes:
            if answers_alone(node.folder / SOCKETS_FOLDER, self.site.cluster):
                raise StorageError(
                    f"the roles of {node.name} are one process (`start --one-process`): nothing "
                    "was changed; stop the site and start it by this program"
                )

    def run(self, nodes: Iterable[KeptNode]) -> None:
        """One after the other; StorageError at the first that cannot be stopped, or does not come
        back."""
        left = list(nodes)
        while left:
            self.poll()
            node = min(left, key=self._order)
            left.remove(node)
            self._one(node)

    def _order(self, node: KeptNode) -> tuple[bool, int, int]:
        leads = sum(
            shard.primary is not None and shard.primary.node == node.index
            for shard in self._watch.console.shards()
        )
        return not self._lacks(node, None), leads, node.index

    def _one(self, node: KeptNode) -> None:
        name, before = node.name, self.supervisor(node)
        if self._program is not None and before is not None and before.program == self._program:
            self._say(f"{name}: runs {self._program} already")
        else:
            if not self._force:
                self._await(
                    lambda: self._others_lack(node),
                    f"{name} is not stopped",
                    "nothing was changed there; bring that about, then begin again",
                )
            self._drain(node)
            self._restart(node)
        begin = time.monotonic()
        old = before.pid if before is not None and before.program != self._program else 0
        self._await(
            lambda: self._lacks(node, self._program, old),
            f"{name} does not come back",
            "look at its output; the nodes behind it were not touched: begin again when it serves, "
            "or go back",
        )
        self._say(
            f"{name}: serves and is level after {time.monotonic() - begin:.1f} s, by "
            f"{self.runs(node) or 'what it ran before'}"
        )

    def _drain(self, node: KeptNode) -> None:
        """Send its clients away; one that does not run has none."""
        keeper = Keeper(node.folder / SOCKETS_FOLDER, self.site.cluster)
        if keeper.status() is not None:
            keeper.stop_edges(node.name)
            self._say(f"{node.name}: its chat clients are on other nodes")

    def _await(self, lacks: Callable[[], str], what: str, remedy: str) -> None:
        """Look until nothing lacks; StorageError says `what` and why when patience is over."""
        deadline = time.monotonic() + self._patience_s
        with Waiting("upgrade") as waiting:
            while why := self._polled(lacks):
                if time.monotonic() > deadline:
                    raise StorageError(f"{what} within {self._patience_s:.0f} s: {why}; {remedy}")
                waiting.on(f"{what} yet: {why}")
                time.sleep(PAUSE_S)

    def _polled(self, lacks: Callable[[], str]) -> str:
        self.poll()
        return lacks()

    # --- what lacks, in words; empty: nothing

    def _others_lack(self, node: KeptNode) -> str:
        """Why a node cannot be missed: of each shard in which it votes and serves, the others must
        be there and level, and enough."""
        for shard in self._watch.console.shards():
            if not any(m.node == node.index and _votes(m) and m.normal for m in shard.members):
                continue
            for member in shard.members:
                if _votes(member) and member.node != node.index:
                    if why := self._behind(shard, member):
                        return why
            if (left := short_of(shard, node.index)) is not None:
                return (
                    f"without it shard {shard.number} has {left} of {shard.quorum} needed replicas:"
                    " nothing could be acknowledged meanwhile; --force says that it may be so"
                )
        return ""

    def _lacks(self, node: KeptNode, program: str | None, old: int = 0) -> str:
        """Why a node is not back, by that program: `old` is the process that kept it before."""
        said = self.supervisor(node)
        if said is None or said.pid == old:
            return "its supervisor does not answer"
        if program is not None and said.program != program:
            return f"it runs {said.program or 'an earlier version'}"
        for child in said.children:
            if child.halt:
                return f"its {child.name} halted: {child.halt}"
            if child.wanted and not child.ready:
                return f"its {child.name} is not ready"
        for shard in self._watch.console.shards():
            for member in shard.members:
                if member.node == node.index and not member.removed:
                    if why := self._behind(shard, member):
                        return why
        for source, edge in self._watch.answers.items():
            if (source.kind, source.node) == (EdgeStatus.kind, node.index):
                if not isinstance(edge, EdgeStatus):
                    return f"its edge {source.number} does not answer"
                if edge.health:
                    return f"its edge {source.number}: {edge.health}"
        return ""

    def _behind(self, shard: ShardLine, member: Member) -> str:
        """Why a member could not take over; empty: it could."""
        who = f"the replica of shard {shard.number} on {self.site.nodes[member.node].name}"
        if not member.normal:
            return f"{who} does not serve"
        lag = shard.lag(member)
        if lag is None or lag > REPLICA_BEHIND_OPS:
            return f"{who} is {lag} ops behind"
        return ""


def _votes(member: Member) -> bool:
    return not member.standby and not member.removed
