"""The product, in clear text to its clients, by the generator of `tigerchat benchmark`.

Signatures, mutual TLS between nodes, two ordered durable writes and assertions are on.
"""

import dataclasses
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from appliance.commands import benchmark
from appliance.drivers.chat.access import Access, local_access
from appliance.simulation.workloads.audience import Audience
from appliance.simulation.workloads.chatter import Chatter
from tests.bench.peers.loop import BODY_SIZE, ROOMS, SENDERS, WINDOW, PeerFailed, Round
from tests.system.local_site import LocalSite, run

TRIES = 3  # of a round, when something that passes came between


class TigerChat:
    """A site of three nodes with one shard."""

    name, note = "TigerChat", ""

    def __init__(self, folder: Path, first_port: int) -> None:
        self.folder = folder
        self.site = LocalSite(
            folder, first_port, brief=False, client_tls=False, log_level="warning"
        )
        self._nodes: benchmark.Nodes | None = None

    def start(self) -> None:
        if self.folder.exists():
            self.site.start()
            self.site.wait_serving()
        else:
            self.site.__enter__()
        self._nodes = benchmark.Nodes(self.folder)

    def stop(self) -> None:
        """End every process at once: what was acknowledged outlives it."""
        for node in list(self.site.supervisors):
            self.site.kill_node(node)

    def cpu_s(self) -> float:
        assert self._nodes is not None
        return self._nodes.cpu_s()

    def pids(self) -> list[int]:
        assert self._nodes is not None
        return [process.pid for process in self._nodes.processes]

    def _access(self, *, primary: bool) -> Access:
        access = local_access(self.folder, "bench")
        if not primary:
            return access
        leader = self.site.primary()
        if leader is None:
            raise PeerFailed("TigerChat has no primary")
        return dataclasses.replace(access, endpoints=[access.endpoints[leader]])

    async def _round(
        self, measure: Callable[[], Coroutine[Any, Any, dict[str, Any]]]
    ) -> dict[str, Any]:
        for _ in range(TRIES):
            try:
                return await measure()
            except benchmark.Disturbed:
                continue
        raise PeerFailed("TigerChat: each try was disturbed")

    async def acknowledge(self, in_flight: int, seconds: float) -> Round:
        assert self._nodes is not None
        nodes, access = self._nodes, self._access(primary=True)
        chatter = Chatter(
            rooms=ROOMS,
            devices=min(SENDERS, in_flight),
            in_flight=in_flight,
            body_size=BODY_SIZE,
        )
        row = await self._round(
            lambda: benchmark.acknowledge(access, nodes, chatter, "binary", seconds)
        )
        count = row["messages"]
        return Round(count, count / row["per_s"], row["p50_ms"], row["p99_ms"])

    async def fan_out(self, listeners: int, messages: int) -> float:
        assert self._nodes is not None
        nodes, access = self._nodes, self._access(primary=False)
        audience = Audience(
            listeners=listeners, messages=messages, window=WINDOW, body_size=BODY_SIZE
        )
        row = await self._round(lambda: benchmark.fan_out(access, nodes, audience))
        return float(row["per_s"])

    async def stored(self) -> int:
        """Messages of all rooms, as the site counts them."""
        told = run("room", "list", "--json", "--local", str(self.folder))
        return sum(json.loads(line)["message_count"] for line in told.stdout.splitlines())
