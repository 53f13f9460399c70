"""What the processes of this machine say of themselves, asked at their sockets and told the core.

Without the page: `tigerchat status` and `tigerchat node` ask in the same way.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.drivers.host.neighbours import Neighbour
from appliance.drivers.network.ask import ask_status
from appliance.formats.site import Site

POLL_S = 1.0
ANSWER_S = 1.0  # for a process to say how it is


class Watch:
    """Asks the processes of this machine, and tells the core what they said."""

    def __init__(self, site: Site, nodes: list[Neighbour], *, patience_s: float = ANSWER_S) -> None:
        self.console = Console(site)
        self._patience_s = patience_s
        self._cluster = site.cluster
        self._folders = {node.index: node.sockets for node in nodes}
        self._sources = []
        for node in nodes:
            shards = site.shards_of(node.index)
            self._sources += [Source("replica", node.index, shard.number) for shard in shards]
        self._sources += [
            Source("edge", node.index, number)
            for node in nodes
            for number in range(node.edge_processes)
        ]
        self._sources += [
            Source(kind, node.index, 0) for node in nodes for kind in ("supervisor", "shipper")
        ]
        for node in nodes:
            ports = site.nodes[node.index]
            served = (
                ("farm", ports.farm_port),
                ("metadata", ports.objects_port),
                ("federation", node.federates),
            )
            self._sources += [Source(kind, node.index, 0) for kind, there in served if there]
        self.answers: dict[Source, dict[str, Any] | None] = {}
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
            told = ask_status(folder, cluster=self._cluster, shard=0, kind="console")
            if told is not None:
                self.console.remember(map(tuple, told.get("since", ())))

    def poll(self) -> None:
        """One look, from a program that does nothing else."""
        self._look([self.ask(source) for source in self._sources])

    async def poll_beside(self) -> None:
        """One look, from within a loop: a process that hangs delays no other."""
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
