"""One edge, wired: its core, its log sessions, the links to replicas, and its chat clients.

The loop has one flush for each wake-up: all that arrived is fed to the core, then its effects are
performed and its output is written, joined by connection. Only what the log has answered is told
with the reading that brought it. Nothing is decided here.
"""

import asyncio
import dataclasses
import logging
from collections import Counter
from pathlib import Path

from appliance.base.limits import TICK_MS
from appliance.base.prng import Prng
from appliance.cores.edge import lines, stream, websocket
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.edge import ASK, CLOSE, LIST, LOOKUP, MEND, REQUEST, SAY, Edge
from appliance.cores.edge.readers import Readers
from appliance.cores.edge.revocations import Revocations
from appliance.cores.edge.room_names import RoomNames
from appliance.cores.edge.session import Session
from appliance.cores.edge.token import Claims, Tokens
from appliance.drivers.host import clock, knobs, service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.node_folder import JWKS_FILE, SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.host.slack import Slack
from appliance.drivers.network.owner import LINES, STREAM, WEBSOCKET, ChatConnection
from appliance.drivers.network.status import StatusServer
from appliance.formats.site import SITE_FILE, shard_of_room
from appliance.formats.site_view import SiteView
from appliance.formats.status.edge import EdgeStatus
from appliance.roles.attached.directory_file import DirectoryFile
from appliance.roles.edge.addresses import elsewhere, elsewhere_listed
from appliance.roles.edge.figures import answered, edge_status, why_unhealthy
from appliance.roles.edge.key_file import KeyFile
from appliance.roles.edge.listeners import Listeners
from appliance.roles.edge.log_sessions import EdgeLogSessions, geometry_of, log_sessions_per_shard
from appliance.roles.edge.replicas import Replicas
from appliance.roles.edge.site_growth import SiteGrowth
from appliance.roles.edge.traffic import Traffic
from appliance.roles.edge.waking import DESERTED_TICKS, QUIET_TICKS, Waking

ENCODINGS = {WEBSOCKET: websocket.ENCODINGS, STREAM: stream.ENCODINGS, LINES: lines.ENCODINGS}
_SECOND_TICKS = 1_000 // TICK_MS
_HELD_TICKS = _SECOND_TICKS // 10
_STUCK_TICKS = 5 * _SECOND_TICKS


def _new_tokens(node: NodeFolder, revocations: Revocations) -> Tokens:
    """Of this site; keys are read later."""
    issuer, audience = node.site.token_issuer, node.site.token_audience
    life_s_max = node.settings.token_life_s_max
    tokens = Tokens(issuer=issuer, audience=audience, keys={}, life_s_max=life_s_max)
    tokens.is_revoked = revocations.is_revoked
    return tokens


class EdgeRole:
    """Wires one edge. Made before the loop runs; `serve` runs it until it is told to stop."""

    def __init__(self, node: NodeFolder, number: int, log: logging.Logger) -> None:
        self._node, self._number, self._log = node, number, log
        site, settings, geometry = node.site, node.settings, geometry_of(node)
        revocations = Revocations(settings.token_life_s_max)
        tokens = _new_tokens(node, revocations)
        self._keys = KeyFile(node.path / JWKS_FILE, tokens, log)
        self._growth = SiteGrowth(node.path / SITE_FILE, node.view, log)
        self._unread: dict[ChatConnection, None] = {}  # not read from, until the core listens
        prng = Prng(clock.seed())
        self._edge = Edge(
            geometry=geometry,
            node=settings.index,
            epoch=site.epoch,
            shard_count=len(site.shards),
            shard_of=lambda room_id: shard_of_room(site, room_id),
            tokens=tokens,
            admission=Admission(
                device_rate=settings.device_rate,
                user_rate=settings.user_rate,
                room_rate=settings.room_rate,
                address_rate=settings.address_rate,
            ),
            prng=prng.fork(),
            log_sessions_per_shard=log_sessions_per_shard(node, geometry),
            site=site.number,
            name=f"{site.number}.{settings.index}.{number}",
            revocations=revocations,
            joining=self._growth.joining if number == 0 else None,
        )
        self._edge.lookup.read_names(RoomNames())
        self._counters, self._drops, self._traffic = Counter[str](), Counter[str](), Traffic()
        self._watch = SiteWatch(node.path / SITE_FILE, node.view, self._on_view, log.error)
        self._log_sessions = EdgeLogSessions(
            site, edge=self._edge, prng=prng, wake=self.wake, drops=self._drops
        )
        self._replicas = Replicas(
            node,
            edge=self._edge,
            sessions=self._log_sessions,
            wake=self._heard,
            prng=prng,
            counters=self._counters,
            drops=self._drops,
            on_status=self._watch.on_status,
        )
        self._directory = DirectoryFile(node)
        self._poll_directory()
        self._listeners = Listeners(
            self,
            lambda: self._node,
            number,
            health=self.health,
            directory=lambda: self._directory.data,
            open_room=lambda *asked: self._readers().export(*asked),
            open_search=lambda *asked: self._readers().search(*asked),
            on_body=self._traffic.on_body,
            counters=self._counters,
        )
        door = Path(SOCKETS_FOLDER) / f"edge-{number}"
        self._status_server = StatusServer(
            door, cluster=site.cluster, number=number, status=self.status
        )
        self._figures, self._life = Figures(), Lifetime()
        self._beat = Beat(f"edge {number}", log, self._life, second=self._each_second)
        self._waking = Waking(
            self._beat, rest_ticks=self._rest_ticks, count=self._count_ticks, woke=self._woke
        )
        self._slack, self._awake, self._is_draining = Slack(), False, False
        self._knobs: dict[str, str] = {}

    def _on_view(self, view: SiteView) -> None:
        """Nodes were added, or belong to the site no more."""
        self._node = dataclasses.replace(self._node, view=view)
        self._replicas.on_site(self._node)
        self._listeners.on_site()

    def _poll_directory(self) -> None:
        if self._directory.poll():
            urls = elsewhere_listed(self._directory.content, self._node)
            self._edge.on_directory(self._directory.data, self._directory.version, urls)

    # --- life

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        self._beat.lead()
        on_stop_signal(self._life.asked.set)
        self._edge.on_tick(clock.monotonic_ns(), clock.realtime_us())
        await self._listeners.start()
        await self._status_server.start()
        self._log_sessions.catch_up = self._waking.catch_up
        self._replicas.start()
        if self._node.node.objects_port:
            self._edge.objects.exists = True
            self._replicas.objects.start()
        self._knobs = {
            "timers": knobs.fine_timers(),
            "malloc": knobs.return_memory(),
            "memory": knobs.settle_memory(),
        }
        self._life.opened(
            self._replicas.objects.close,
            self._replicas.close,
            self._status_server.close,
            self._listeners.close,
        )
        self._waking.start()
        service.notify("READY=1", f"STATUS=edge {self._number} on port {self._listeners.port}")
        await self._life.asked.wait()
        service.notify("STOPPING=1")
        await self._close()
        return self._beat.exit_code

    async def _close(self) -> None:
        """Nothing new is taken, what was taken is answered, then everybody is told to go."""
        self._is_draining = True
        self._listeners.drain()
        for connection in self._listeners.server.conversations():
            self._listen(connection, connection.user)
        await answered(self._edge)
        self._edge.shut_down(elsewhere(self._node, self._directory.content))
        self._flush()
        await self._life.close()
        self._awake = True  # whatever is said yet wakes nobody

    # --- the flush

    def wake(self) -> None:
        """Something arrived: one flush after all that is being read now."""
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        if self._awake:  # else what arrived left with an answer of the log
            self._flush()

    def _heard(self) -> None:
        """All that came from a replica in one reading was fed. Whom the log has answered, waits for
        nothing else. Where nobody is connected, the next tick is soon enough for all of it."""
        if self._log_sessions.has_answered:
            self._flush()
        elif self._edge.sessions or self._is_busy():
            self.wake()

    def _flush(self) -> None:
        self._awake = False
        self._log_sessions.go_on()
        more = self._edge.beat()
        closing = []
        for effect in self._edge.take_effects():
            kind = effect[0]
            if kind == REQUEST:
                self._log_sessions.request(*effect[1:])
            elif kind == CLOSE:
                closing.append(effect)
            elif kind == LOOKUP:
                self._replicas.reader(effect[1]).lookup(effect[2])
            elif kind == ASK:
                self._replicas.objects.ask(effect[1], effect[2])
            elif kind == SAY:
                self._replicas.objects.say(effect[1])
            elif kind == MEND:
                self._replicas.reader(effect[1]).repair(effect[2])
            else:
                assert kind == LIST
                self._replicas.reader(effect[1]).list(effect[2], effect[3])
        for session, frames in self._edge.take_output():
            connection = session.connection
            if connection is not None:
                self._traffic.write(connection, frames)
        for _, session, error in closing:
            if session.connection is not None:
                self._traffic.end(session.connection, error)
        if more or self._edge.is_unfinished:
            self.wake()
        self._waking.plan()

    def _is_busy(self) -> bool:
        """Whether something waits that ticks move on."""
        return bool(self._unread) or self._log_sessions.sessions.are_busy

    def _rest_ticks(self) -> int:
        """After how many ticks to look again, if nothing comes before: soon while there is somebody
        for whom that matters, or something left to learn for who may come."""
        if self._is_busy():
            return 1
        known = self._edge.lookup.shard_room
        is_deserted = not self._edge.sessions and (known is None or known.is_read)
        return DESERTED_TICKS if is_deserted else QUIET_TICKS

    def _count_ticks(self, ticks: int) -> None:
        self._edge.on_tick(clock.monotonic_ns(), clock.realtime_us())
        self._log_sessions.on_ticks(ticks)

    def _woke(self) -> None:
        for connection in list(self._unread):
            self._listen(connection, connection.user)
        if self._waking.is_each(_HELD_TICKS):
            self._weigh()
        if self._waking.is_each(_STUCK_TICKS):
            self._edge.close_stuck()
        self._flush()

    def _each_second(self) -> None:
        self._replicas.ask_status()  # of what changes meanwhile they tell
        self._slack.give_back()
        self._listeners.on_second(clock.realtime_us())
        if self._keys.poll():
            self._edge.on_keys()
        self._watch.poll()
        # by others, where our replica is away
        for reported in self._log_sessions.sessions.configurations():
            self._watch.learn(*reported)
        if self._number == 0:
            self._growth.go_on(self._watch.view, self._edge.lookup.shard_room)
        self._poll_directory()

    # --- chat clients

    def admit(self, address: str, token: str) -> Claims:
        self._waking.stir()
        return self._edge.admit(address, token)

    def _readers(self) -> Readers:
        """For somebody who asks without a conversation."""
        self._waking.stir()
        return self._edge.readers

    def on_open(self, connection: ChatConnection) -> None:
        self._waking.stir()
        session = self._edge.on_open(
            connection.address,
            ENCODINGS[connection.framing][connection.subprotocol],
            connection.admitted,
        )
        session.connection = connection
        connection.user = session

    def on_client_message(self, connection: ChatConnection, data: bytes, is_text: bool) -> None:
        self._waking.stir()
        session: Session = connection.user
        self._traffic.on_received(connection, data)
        self._edge.on_frame(session, data, is_text)
        if session.state == "ready":
            connection.welcome()
        self._listen(connection, session)
        self.wake()

    def on_fragment(self, connection: ChatConnection) -> None:
        self._waking.stir()
        self._edge.on_fragment(connection.user)
        self._listen(connection, connection.user)
        self.wake()

    def on_control(self, connection: ChatConnection) -> None:
        self._waking.stir()
        self._edge.on_control(connection.user)
        self._listen(connection, connection.user)
        self.wake()

    def _weigh(self) -> None:
        """Tell the core what is held for connections that hold much."""
        held = [
            (connection.user, size + connection.user.held)
            for connection, size in self._listeners.server.held()
        ]
        if held:
            self._edge.on_held(held)

    def _listen(self, connection: ChatConnection, session: Session) -> None:
        """Read from the client as long as the core takes more."""
        listens = session.listens(self._edge.now_ns) and not self._is_draining
        if listens:
            self._unread.pop(connection, None)
        else:
            self._unread[connection] = None
        connection.read_on(listens)

    def on_oversize(self, connection: ChatConnection) -> None:
        self._waking.stir()
        self._edge.on_oversize(connection.user)
        self._flush()

    def on_blocked(self, connection: ChatConnection) -> None:
        self._waking.stir()
        self._edge.on_blocked(connection.user)
        self._listen(connection, connection.user)

    def on_writable(self, connection: ChatConnection) -> None:
        self._waking.stir()
        self._edge.on_writable(connection.user)
        self._listen(connection, connection.user)
        self.wake()

    def on_closed(self, connection: ChatConnection) -> None:
        self._waking.stir()
        session: Session = connection.user
        session.connection = None
        self._unread.pop(connection, None)
        self._edge.on_close(session)

    # --- figures

    def health(self) -> str:
        """Why this node does not serve; empty while it does."""
        remote = self._replicas.remote()
        return why_unhealthy(self._node, self._edge, self._log_sessions, remote)

    def status(self) -> EdgeStatus:
        return edge_status(
            self._edge,
            self._listeners,
            self._traffic,
            node=self._node.settings.index,
            number=self._number,
            health=self.health(),
            directory=self._directory.told(),
            remote=self._replicas.remote(),
            ack=self._log_sessions.latency.figures(),
            process=self._figures.read(),
            beat=self._beat.told(),
            knobs=self._knobs,
            memory=self._slack.told(),
            dropped=dict(self._drops),
            connection_events=dict(self._counters),
        )


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> EdgeRole:
    """Edge `number` of a node."""
    return EdgeRole(node, number, log)
