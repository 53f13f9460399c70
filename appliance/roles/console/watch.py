"""What the processes of this machine say of themselves, asked at their sockets and told the core.

Without the page: `tigerchat status` and `tigerchat node` ask in the same way.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.drivers.host.neighbours import Neighbour
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network.ask import ask_status, status_of
from appliance.formats.site import Site
from appliance.formats.site_view import SiteView
from appliance.formats.status.console import ConsoleStatus

POLL_S = 1.0
ANSWER_S = 1.0  # for a process to say how it is


class Watch:
    """Asks the processes of nodes on this machine, and tells the core what they said.

    `path` is the site file as of which `site` is; `nodes` finds the nodes that are to be asked, at
    first and whenever that file is another one.
    """

    def __init__(
        self,
        path: Path,
        site: Site,
        nodes: Callable[[Site], list[Neighbour]],
        *,
        patience_s: float = ANSWER_S,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._site = SiteWatch(path, SiteView(site), self._on_view, tell)
        self.console = Console(self._site.view)
        self._patience_s, self._nodes = patience_s, nodes
        self._cluster = site.cluster
        self.answers: dict[Source, dict[str, Any] | None] = {}
        self._ask_of(site)

    def _on_view(self, view: SiteView) -> None:
        self._pool.shutdown(wait=False)
        self._ask_of(view.site)
        self.console.on_site(view.site)

    def _ask_of(self, site: Site) -> None:
        nodes = self._nodes(site)
        self._folders = {node.index: node.sockets for node in nodes}
        self._sources = list(sources_of(site, nodes))
        self._pool = ThreadPoolExecutor(len(self._sources), "ask")  # threads come with need

    def ask(self, source: Source) -> dict[str, Any] | None:
        kind = "shard" if source.kind == "replica" else source.kind
        return ask_status(
            self._folders[source.node],
            cluster=self._cluster,
            shard=source.number,
            kind=kind,
            timeout_s=self._patience_s,
        )

    def remember(self) -> None:
        """Take from the consoles of these nodes since when alarms hold: they saw them first."""
        for folder in self._folders.values():
            told = status_of(ConsoleStatus, folder, cluster=self._cluster)
            if told is not None:
                self.console.remember(told.since)

    def poll(self) -> None:
        """One look, from a program that does nothing else."""
        self._site.poll()
        self._look([self.ask(source) for source in self._sources])

    async def poll_beside(self) -> None:
        """One look, from within a loop: a process that hangs delays no other."""
        self._site.poll()
        loop = asyncio.get_running_loop()
        asked = (loop.run_in_executor(self._pool, self.ask, source) for source in self._sources)
        self._look(await asyncio.gather(*asked))

    def _look(self, said: list[dict[str, Any] | None]) -> None:
        self.answers = dict(zip(self._sources, said, strict=True))
        self.console.on_poll(
            self.answers,
            now_ms=time.monotonic_ns() // 1_000_000,
            wall_ms=time.time_ns() // 1_000_000,
        )


def sources_of(site: Site, nodes: list[Neighbour]) -> Iterator[Source]:
    """The processes that these nodes have, whoever of them runs."""
    for node in nodes:
        for shard in site.shards_of(node.index):
            yield Source("replica", node.index, shard.number)
        for number in range(node.edge_processes):
            yield Source("edge", node.index, number)
        described = site.nodes[node.index]
        for kind, there in (
            ("supervisor", True),
            ("shipper", node.has_shipper),
            ("farm", described.farm_port),
            ("metadata", described.objects_port),
            ("federation", node.federates),
        ):
            if there:
                yield Source(kind, node.index, 0)
