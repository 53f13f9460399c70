"""Sessions of a shard, by the product's client core, and the connections of their edges."""

from collections.abc import Callable
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.vsr import log_sessions as logs
from appliance.cores.vsr.client import Client
from appliance.cores.vsr.log_sessions import LogSession, LogSessions
from appliance.formats.envelope import PING_CLIENT, REQUEST, Header, Message
from appliance.formats.geometry import Geometry
from appliance.simulation.network import Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.trace import DELIVER, EDGE, Trace


class Session:
    """One session of an edge. `load` is what its owner has given it to do."""

    __slots__ = ("edge", "client_id", "core", "log", "asked_us", "load")

    log: LogSession

    def __init__(self, edge: int, core: Client, now_us: int, load: Any) -> None:
        self.edge, self.client_id, self.core = edge, core.client_id, core
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
        self._logs = LogSessions()
        self.evictions = 0
        self.on_reply: Callable[[Session, bytes, Header], None]
        self.on_evicted: Callable[[Session], None]
        self.on_registered: Callable[[Session], None]

    def open(self, edge: int, load: Any) -> Session:
        """A new session with a new name."""
        core = Client(
            client_id=self.prng.bytes(16),
            cluster=self.cluster,
            shard=self.shard,
            replica_count=self.options.replica_count,
            geometry=self.geometry,
            prng=self.prng.fork(),
            members=tuple(self.members),
        )
        session = Session(edge, core, self.schedule.now_us, load)
        self.all.append(session)
        session.log = self._logs.open(core, group=edge, owner=session)
        self._perform()
        return session

    def close(self, session: Session) -> None:
        """Forget a session; what it has in flight may still be committed."""
        self.all.remove(session)
        self._logs.close(session.log)

    def request(self, session: Session, operation: int, body: bytes, count: int) -> None:
        """Ask the group, under a session that is ready."""
        self._logs.request(session.log, operation, body, count)
        self._perform()

    def on_life(self, replica: int, up: bool) -> None:
        """A replica's process has started, or is gone: each edge learns it a little later."""
        for edge in self.edges:
            delay = 1_000 + self.prng.below(2 * TICK_US)
            self.schedule.after(delay, self._connection, edge, replica, up)

    def _connection(self, edge: int, replica: int, up: bool) -> None:
        if up:
            link = (self.options.member_count + edge, replica)
            self._logs.on_connected(edge, self.members[replica], link)
        else:
            self._logs.on_gone(edge, self.members[replica])
        self._perform()

    def deliver(self, edge: int, source: int, message: Message) -> None:
        """A replica's message has arrived at an edge."""
        header = message.header
        self.trace.add(self.schedule.now_us, DELIVER, EDGE + edge, source, header.op, header)
        self._logs.on_message(edge, message)
        self._perform()

    def tick(self) -> None:
        """10 ms have passed at all edges."""
        self._logs.on_ticks(1)
        self._perform()

    def _perform(self) -> None:
        """Do what sessions want, in their order."""
        for effect in self._logs.take_effects():
            if effect[0] == logs.SEND:
                self._send(effect[1], effect[2], effect[3])
                continue
            session: Session = effect[1].owner
            if effect[0] == logs.REPLY:
                session.asked_us = self.schedule.now_us
                self.on_reply(session, bytes(effect[2]), effect[3])
            elif effect[0] == logs.REGISTERED:
                self.on_registered(session)
            else:
                assert effect[0] == logs.EVICTED  # it registers anew by itself
                self.evictions += 1
                self.on_evicted(session)

    def _send(self, link: tuple[int, int], header: Header, body: bytes) -> None:
        assert header.command in (REQUEST, PING_CLIENT)
        body = body if type(body) is bytes else bytes(body)
        self.network.send(*link, Message(header, body))
