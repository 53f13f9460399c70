"""The log sessions of all shards, as they run: they carry what the core has collected in them.

    core ──records──▶ ┌──────────┐ ──requests──▶ the replica that a session takes for the primary
    core ◀──results── │ sessions │ ◀──replies─── the same
    core ◀──ready──── │          │ ◀──connected, gone── each replica
                      └──────────┘

A replica is named by its id: a session addresses it so, and a link knows the one at its other end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from appliance.base.limits import TICK_MS, VSR_SESSIONS_PER_EDGE
from appliance.base.prng import Prng
from appliance.cores.edge.edge import Edge
from appliance.cores.vsr.client import new_client
from appliance.cores.vsr.log_sessions import (
    EVICTED,
    READY,
    REPLY,
    SEND,
    WAIT,
    LogSession,
    LogSessions,
)
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.nvme.latency import Latency
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats.envelope import OPERATION_APPEND, Header, Message
from appliance.formats.geometry import PRODUCTION, Geometry
from appliance.formats.site import Site

Send = Callable[[Header, bytes], None]  # to one replica, now or never


def geometry_of(node: NodeFolder) -> Geometry:
    """The sizes of this site's shards: all are formatted alike."""
    for path in (node.volume(shard.number) for shard in node.shards):
        if (path / "volume.json").exists():  # a disk may be lost: the others serve meanwhile
            return GEOMETRIES[read_facts(path)["geometry"]]
    return PRODUCTION


def log_sessions_per_shard(node: NodeFolder, geometry: Geometry) -> int:
    """Sessions of the log for each shard: all edges together use half of what a shard remembers."""
    edges = len(node.site.nodes) * node.settings.edge_processes
    return max(1, min(VSR_SESSIONS_PER_EDGE, geometry.clients_max // (2 * edges)))


class EdgeLogSessions:
    """All log sessions of one edge. `wake` asks for a beat, which begins with `go_on`."""

    def __init__(
        self, site: Site, *, edge: Edge, prng: Prng, wake: Callable[[], None], drops: Counter[str]
    ) -> None:
        self.latency = Latency()  # of requests, from leaving to their reply
        self.catch_up: Callable[[], None] = lambda: None  # before patience begins: count ticks
        self.has_answered = False  # since the last flush: the core was given results
        self.sessions = LogSessions(ticks_each=site.tick_ms // TICK_MS)
        self._edge, self._wake, self._drops = edge, wake, drops
        for shard in site.shards:
            for log_session in edge.log_sessions[shard.number]:
                client = new_client(site, shard, edge.geometry, prng)
                self.sessions.open(
                    client, group=shard.number, owner=log_session.index, queue=log_session
                )

    def go_on(self) -> None:
        """Let log sessions ask again for which enough has collected."""
        self.has_answered = False
        self.sessions.go_on(clock.monotonic_ns())
        if self.sessions.effects:
            self._perform()

    def request(self, shard: int, index: int, body: memoryview, count: int) -> None:
        """Ask the log to append the `count` records of a batch; the core hears of the reply."""
        session, now_ns = self.sessions.groups[shard][index], clock.monotonic_ns()
        self.sessions.request_paced(session, OPERATION_APPEND, body, count, now_ns)
        self._perform()

    def on_ticks(self, ticks: int) -> None:
        """So many times 10 ms."""
        self.sessions.on_ticks(ticks)
        self._perform()

    def on_connected(self, shard: int, replica_id: bytes, send: Send) -> None:
        """This replica can be reached by `send`, until it is gone."""
        self.catch_up()
        self.sessions.on_connected(shard, replica_id, send)
        asyncio.get_running_loop().call_soon(self._perform_and_wake)  # it is still opening

    def on_gone(self, shard: int, replica_id: bytes) -> None:
        """A connection to this replica has ended, or failed before it was open."""
        self.catch_up()
        self.sessions.on_gone(shard, replica_id)
        self._perform_and_wake()

    def on_message(self, shard: int, message: Message) -> None:
        """A replica of `shard` answers one of our sessions."""
        self.catch_up()
        if not self.sessions.on_message(shard, message):
            self._drops["client_unknown"] += 1
        self._perform()

    def _perform(self) -> None:
        """Do what sessions want. None says by itself that it is ready again: `go_on` asks, as a
        beat follows whatever they are told."""
        for effect in self.sessions.take_effects():
            kind, session = effect[0], effect[1]
            if kind == SEND:
                effect[1](effect[2], effect[3])
            elif kind == READY:
                self._edge.on_ready(session.group, session.owner)
            elif kind == REPLY:
                self._edge.on_reply(session.group, session.owner, effect[2])
                self.has_answered = True
                self.latency.add(self.sessions.on_answered(session, clock.monotonic_ns()))
            elif kind == EVICTED:
                self._edge.on_evicted(session.group, session.owner)
            elif kind == WAIT:  # the loop counts whole milliseconds
                wait_s = -(-effect[2] // 1_000_000) / 1000
                asyncio.get_running_loop().call_later(wait_s, self._waited, session)

    def _perform_and_wake(self) -> None:
        self._perform()
        self._wake()

    def _waited(self, session: LogSession) -> None:
        """Records have waited for others, and no longer than that."""
        self.sessions.on_waited(session)
        self._wake()
