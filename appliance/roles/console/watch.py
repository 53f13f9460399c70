"""What the processes of this machine say of themselves, asked at their sockets and told the core.

Without the page: `tigerchat status` and `tigerchat node` ask in the same way.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from appliance.base.errors import ConfigurationError, FormatError
from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import KnownNode
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network.ask import ask_status, status_of
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.formats.site_view import SiteView
from appliance.formats.status.console import ConsoleStatus
from appliance.formats.status.status import Status, parse
from appliance.formats.status.supervisor import SupervisorStatus

POLL_S = 1.0
ANSWER_S = 1.0  # for a process to say how it is
PROBE_S = 0.4  # ... before an act is judged: whoever does not answer is not counted


class Kind(Protocol):
    """A kind of process, as its row in the catalogue has it."""

    @property
    def status(self) -> type[Status] | None:
        """What its processes say of themselves; None: they are not asked."""

    @property
    def instances(self) -> Callable[[KnownNode], Iterable[int]]:
        """The numbers of those that a node has."""


class Watch:
    """Asks the processes of nodes on this machine, and tells the core what they said.

    `path` is the site file as of which `site` is; `nodes` finds the nodes that are to be asked, at
    first and whenever that file is another one. What cannot be read counts as no answer, and `tell`
    hears why, once.
    """

    def __init__(
        self,
        path: Path,
        site: Site,
        nodes: Callable[[Site], list[KnownNode]],
        kinds: Sequence[Kind],
        *,
        patience_s: float = ANSWER_S,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._site = SiteWatch(path, SiteView(site), self._on_view, tell)
        self.console = Console(self._site.view)
        self._patience_s, self._nodes, self._kinds, self._tell = patience_s, nodes, kinds, tell
        self._cluster = site.cluster
        self.answers: dict[Source, Status | None] = {}
        self._unread: dict[Source, str] = {}  # why what it said cannot be read
        self._ask_of(site)

    def _on_view(self, view: SiteView) -> None:
        self._pool.shutdown(wait=False)
        self._ask_of(view.site)
        self.console.on_site(view.site)

    def _ask_of(self, site: Site) -> None:
        nodes = self._nodes(site)
        self._folders = {node.index: node.sockets for node in nodes}
        self._sources = dict(sources_of(nodes, self._kinds))
        self._pool = ThreadPoolExecutor(len(self._sources), "ask")  # threads come with need

    def _ask(self, source: Source) -> dict[str, Any] | None:
        return ask_status(
            self._folders[source.node],
            cluster=self._cluster,
            shard=source.number,
            kind=self._sources[source].socket_kind(),
            timeout_s=self._patience_s,
        )

    def sockets(self, node: int) -> Path:
        """Where the processes of a node on this machine answer."""
        return self._folders[node]

    def remember(self) -> None:
        """Take from the consoles of these nodes since when alarms hold: they saw them first."""
        for folder in self._folders.values():
            told = status_of(ConsoleStatus, folder, cluster=self._cluster)
            if told is not None:
                self.console.remember(told.since)

    def poll(self) -> None:
        """One look, from a program that does nothing else: a process that hangs delays no other."""
        self._site.poll()
        self._observe(list(self._pool.map(self._ask, self._sources)))

    async def poll_beside(self) -> None:
        """One look, from within a loop: a process that hangs delays no other."""
        self._site.poll()
        loop = asyncio.get_running_loop()
        asked = (loop.run_in_executor(self._pool, self._ask, source) for source in self._sources)
        self._observe(await asyncio.gather(*asked))

    def _observe(self, said: list[dict[str, Any] | None]) -> None:
        self.answers = dict(map(self._read, self._sources, said))
        self.console.on_poll(
            self.answers,
            now_ms=time.monotonic_ns() // 1_000_000,
            wall_ms=time.time_ns() // 1_000_000,
        )

    def _read(self, source: Source, said: dict[str, Any] | None) -> tuple[Source, Status | None]:
        status, why = None, ""
        try:
            status = None if said is None else parse(self._sources[source], said)
        except FormatError as error:
            why = f"node {source.node}: {error}; is it of another version?"
        if why and self._unread.get(source) != why:
            self._tell(why)
        self._unread[source] = why
        return source, status


def sources_of(
    nodes: Iterable[KnownNode], kinds: Iterable[Kind]
) -> Iterator[tuple[Source, type[Status]]]:
    """The processes that these nodes have, whoever of them runs, with what they say."""
    for node in nodes:
        for kind in kinds:
            if kind.status is not None:
                for number in kind.instances(node):
                    yield Source(kind.status.kind, node.index, number), kind.status
        yield Source(SupervisorStatus.kind, node.index, 0), SupervisorStatus


def watch_of_site(
    path: Path,
    node: Path,
    site: Site,
    kinds: Sequence[Kind],
    *,
    patience_s: float = ANSWER_S,
    tell: Callable[[str], None] = lambda line: None,
) -> Watch:
    """Of all nodes whose folders lie beside that of one, `node`, which may be gone; `path`, `site`,
    `kinds` and what follows as for `Watch`."""
    return Watch(
        path, site, lambda site: neighbours(node, site), kinds, patience_s=patience_s, tell=tell
    )


def watch_of_node(folder: Path, kinds: Sequence[Kind], *, tell: Callable[[str], None]) -> Watch:
    """Of the node in `folder`, as it is alone. ConfigurationError where there is none."""

    def own(site: Site) -> list[KnownNode]:
        found = neighbours(folder.absolute(), site)
        return [node for node in found if node.path == folder.absolute()]

    site = load_site(folder / SITE_FILE)
    if not own(site):
        raise ConfigurationError(f"{folder} is not a folder of a node: correct the path")
    return Watch(folder / SITE_FILE, site, own, kinds, tell=tell)
