"""Sessions of a shard, by the product's client core, and the connections of their edges."""

from collections.abc import Callable
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.vsr.client import Client
from appliance.formats.envelope import PING_CLIENT, REPLY, REQUEST, Header, Message
from appliance.formats.geometry import Geometry
from appliance.simulation.network import Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.trace import DELIVER, EDGE, Trace

NAMED = (REQUEST, REPLY)  # commands whose body begins with the client's id


class Session:
    """One session of an edge. `load` is what its owner has given it to do."""

    __slots__ = ("edge", "client_id", "core", "asked_us", "load")

    def __init__(self, edge: int, client_id: bytes, core: Client, now_us: int, load: Any) -> None:
        self.edge, self.client_id, self.core = edge, client_id, core
        self.asked_us = now_us  # when it was opened, asked or answered last
        self.load = load


class Sessions:
    """All sessions of `edges`. Replies, evictions and registrations go to their owners."""

    def __init__(
        self,
        *,
        options: Options,
        geometry: Geometry,
        cluster: bytes,
        shard: int,
        schedule: Schedule,
        network: Network,
        prng: Prng,
        trace: Trace,
        edges: range,
        members: list[bytes],
    ) -> None:
        self.options, self.geometry, self.cluster, self.shard = options, geometry, cluster, shard
        self.schedule, self.network, self.prng, self.trace = schedule, network, prng, trace
        self.all: list[Session] = []
        self.edges = edges
        self.members = members  # by machine
        self.connected = {edge: [False] * options.member_count for edge in edges}
        self.evictions = 0
        self.on_reply: Callable[[Session, bytes, Header], None]
        self.on_evicted: Callable[[Session], None]
        self.on_registered: Callable[[Session], None]

    def open(self, edge: int, load: Any) -> Session:
        """A new session with a new name."""
        client_id = self.prng.bytes(16)
        core = Client(
            client_id=client_id,
            cluster=self.cluster,
            shard=self.shard,
            replica_count=self.options.replica_count,
            geometry=self.geometry,
            prng=self.prng.fork(),
            members=tuple(self.members),
        )
        session = Session(edge, client_id, core, self.schedule.now_us, load)
        self.all.append(session)
        self._connect(session)
        return session

    def _connect(self, session: Session) -> None:
        """Tell a session of all connections of its edge."""
        for machine, up in enumerate(self.connected[session.edge]):
            if up:
                session.core.on_connected(self.members[machine])
        self.settle(session)

    def close(self, session: Session) -> None:
        """Forget a session; what it has in flight may still be committed."""
        self.all.remove(session)

    def on_life(self, replica: int, up: bool) -> None:
        """A replica's process has started, or is gone: each edge learns it a little later."""
        for edge in self.edges:
            delay = 1_000 + self.prng.below(2 * TICK_US)
            self.schedule.after(delay, self._connection, edge, replica, up)

    def _connection(self, edge: int, replica: int, up: bool) -> None:
        self.connected[edge][replica] = up
        for session in list(self.all):
            if session.edge == edge:
                if up:
                    session.core.on_connected(self.members[replica])
                else:
                    session.core.on_disconnected(self.members[replica])
                self.settle(session)

    def deliver(self, edge: int, source: int, message: Message) -> None:
        """A replica's message has arrived at an edge."""
        header = message.header
        self.trace.add(self.schedule.now_us, DELIVER, EDGE + edge, source, header.op, header)
        named = header.command in NAMED
        client_id = bytes(message.body[:16]) if named else header.area[:16]
        for session in self.all:
            if session.client_id == client_id:
                session.core.on_message(message)
                self.settle(session)
                return

    def tick(self) -> None:
        """10 ms have passed at all edges."""
        for session in list(self.all):
            session.core.on_tick()
            self.settle(session)

    def settle(self, session: Session) -> None:
        """Perform what the session's core asked for."""
        effects, session.core.effects = session.core.effects, []
        for effect in effects:
            if effect[0] == "send":
                self._send(session, effect[1], effect[2], effect[3])
            elif effect[0] == "reply":
                session.asked_us = self.schedule.now_us
                self.on_reply(session, bytes(effect[1]), effect[2])
            elif effect[0] == "registered":
                self.on_registered(session)
            else:
                assert effect[0] == "evicted"  # the core registers anew by itself
                self.evictions += 1
                self.on_evicted(session)

    def _send(self, session: Session, replica_id: bytes, header: Header, body: bytes) -> None:
        assert header.command in (REQUEST, PING_CLIENT)
        machine = self.members.index(replica_id)
        if self.connected[session.edge][machine]:
            body = body if type(body) is bytes else bytes(body)
            node = self.options.member_count + session.edge
            self.network.send(node, machine, Message(header, body))
