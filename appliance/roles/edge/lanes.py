"""The lanes of all shards: each a session of the log that carries what the core has collected.

    core ──records──▶ ┌─────────────────────────────────┐ ──requests──▶ the replica that the client
    core ◀──results── │ client: one request at a time   │ ◀──replies─── takes for the primary
    core ◀──ready──── │ pace: when the next one leaves  │ ◀──connected, gone── each replica
                      └─────────────────────────────────┘

A replica is named by its id: a client addresses it so, and a link knows the one at its other end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from appliance.base.limits import TICK_MS, VSR_SESSIONS_PER_EDGE
from appliance.base.prng import Prng
from appliance.cores.edge import publish
from appliance.cores.edge.edge import Edge
from appliance.cores.vsr.client import Client
from appliance.cores.vsr.pace import Pace
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.nvme.latency import Latency
from appliance.formats.envelope import OPERATION_APPEND, REPLY, Header, Message
from appliance.formats.geometry import Geometry
from appliance.formats.group import Configuration
from appliance.formats.site import Shard, Site

Send = Callable[[Header, bytes], None]  # to one replica, now or never


def lanes_per_shard(node: NodeFolder, geometry: Geometry) -> int:
    """Sessions of the log for each shard: all edges together use half of what a shard remembers."""
    edges = len(node.site.nodes) * node.settings.edge_processes
    return max(1, min(VSR_SESSIONS_PER_EDGE, geometry.clients_max // (2 * edges)))


@dataclass(slots=True)
class _Lane:
    """One lane: its session of the log, and what collects for it in the core."""

    client: Client
    pace: Pace
    queue: publish.Lane
    is_timed: bool = False  # the edge will wake for what has collected

    @property
    def is_paced(self) -> bool:
        """Its session could take a request, but the core was not told so yet."""
        return not self.queue.ready and self.client.ready


class Lanes:
    """All lanes of one edge. `wake` asks for a beat, which begins with `go_on`."""

    def __init__(
        self, site: Site, *, edge: Edge, prng: Prng, wake: Callable[[], None], drops: Counter[str]
    ) -> None:
        self.latency = Latency()  # of requests, from leaving to their reply
        self.catch_up: Callable[[], None] = lambda: None  # before patience begins: count ticks
        self.has_answered = False  # since the last flush: the core was given results
        self._edge, self._wake, self._drops = edge, wake, drops
        self._ticks, self._client_ticks = 0, site.tick_ms // TICK_MS
        self._lanes = {
            shard.number: [
                _Lane(_new_client(site, shard, edge, prng), Pace(edge.geometry.records_max), queue)
                for queue in edge.lanes[shard.number]
            ]
            for shard in site.shards
        }
        self._by_client = {
            lane.client.client_id: lane for lanes in self._lanes.values() for lane in lanes
        }
        # shard -> replica id -> how to send to it, while it is connected
        self._senders: dict[int, dict[bytes, Send]] = {shard: {} for shard in self._lanes}

    def has_session(self, shard: int) -> bool:
        """Whether the group of `shard` has answered: a lane is registered with it."""
        return any(lane.client.session for lane in self._lanes[shard])

    def configurations(self) -> Iterator[tuple[int, Configuration | None]]:
        """What groups have told our sessions of themselves, each with the shard."""
        for shard, lanes in self._lanes.items():
            for lane in lanes:
                yield shard, lane.client.configuration

    # --- the beat and the tick

    def go_on(self) -> None:
        """Let lanes ask again for which enough has collected."""
        self.has_answered = False
        now_ns = clock.monotonic_ns()
        for shard, lanes in self._lanes.items():
            for lane in lanes:
                if not lane.is_paced:
                    continue
                waiting = lane.queue.depth
                if lane.pace.may_ask(now_ns, waiting):
                    self._edge.on_ready(shard, lane.queue.index)
                elif waiting and not lane.is_timed:
                    self._wake_for(lane, lane.pace.until_ns - now_ns)

    def request(self, shard: int, index: int, records: Any, count: int) -> None:
        """Ask the log to append `count` records; the core hears of the reply."""
        lane = self._lanes[shard][index]
        lane.client.request(OPERATION_APPEND, records, count)
        lane.pace.on_request(clock.monotonic_ns(), count)
        self._perform(lane)

    @property
    def are_busy(self) -> bool:
        """Whether any has a request out, or something to ask."""
        return any(
            lane.client.in_flight is not None or lane.queue.depth
            for lane in self._by_client.values()
        )

    def on_ticks(self, ticks: int) -> None:
        """So many times 10 ms; the clients' ticks are as long as those of the replicas."""
        before, self._ticks = self._ticks // self._client_ticks, self._ticks + ticks
        for lane in self._by_client.values():
            for _ in range(self._ticks // self._client_ticks - before):
                lane.client.on_tick()
            self._perform(lane)

    # --- replicas

    def on_connected(self, shard: int, replica_id: bytes, send: Send) -> None:
        """This replica can be reached by `send`, until it is gone."""
        self.catch_up()
        self._senders[shard][replica_id] = send
        for lane in self._lanes[shard]:
            lane.client.on_connected(replica_id)
        asyncio.get_running_loop().call_soon(self._perform_all, shard)  # it is still opening

    def on_gone(self, shard: int, replica_id: bytes) -> None:
        """A connection to this replica has ended, or failed before it was open."""
        self.catch_up()
        self._senders[shard].pop(replica_id, None)
        for lane in self._lanes[shard]:
            lane.client.on_disconnected(replica_id)
        self._perform_all(shard)

    def on_message(self, shard: int, message: Message) -> None:
        """A replica of `shard` answers one of our sessions."""
        header = message.header
        client_id = bytes(message.body[:16]) if header.command == REPLY else header.area[:16]
        lane = self._by_client.get(client_id)
        if lane is None or lane.client.shard != shard:
            self._drops["client_unknown"] += 1
            return
        self.catch_up()
        lane.client.on_message(message)
        self._perform(lane)

    # --- what a session of the log wants

    def _perform(self, lane: _Lane) -> None:
        """Do what a client wants. It does not say that it is ready again: `go_on` looks, as a beat
        follows whatever a client is told."""
        client, index = lane.client, lane.queue.index
        if not client.effects:
            return
        effects, client.effects = client.effects, []
        for effect in effects:
            kind = effect[0]
            if kind == "send":
                send = self._senders[client.shard].get(effect[1])
                if send is not None:
                    send(effect[2], effect[3])
            elif kind == "reply":
                self._edge.on_reply(client.shard, index, effect[1])
                self.has_answered = True
                self._on_answered(lane)
            elif kind == "evicted":
                self._edge.on_evicted(client.shard, index)

    def _perform_all(self, shard: int) -> None:
        for lane in self._lanes[shard]:
            self._perform(lane)
        self._wake()

    def _on_answered(self, lane: _Lane) -> None:
        self.latency.add(lane.pace.on_reply(clock.monotonic_ns(), lane.queue.depth))

    def _wake_for(self, lane: _Lane, left_ns: int) -> None:
        """Records wait in a lane, for others and no longer than that: the loop counts whole
        milliseconds."""

        def due() -> None:
            lane.is_timed = False
            self._wake()

        lane.is_timed = True
        asyncio.get_running_loop().call_later(-(-left_ns // 1_000_000) / 1000, due)


def _new_client(site: Site, shard: Shard, edge: Edge, prng: Prng) -> Client:
    """A session of the log of `shard` under an id of its own."""
    return Client(
        client_id=prng.bytes(16),
        cluster=site.cluster,
        shard=shard.number,
        replica_count=shard.replica_count,
        geometry=edge.geometry,
        prng=prng.fork(),
        members=tuple(shard.replica_ids),
    )
