"""One edge, wired: its core, the lanes to the logs, the links to replicas, and its chat clients.

The loop has one beat for each wake-up: all that arrived is fed to the core, then its effects are
performed and its output is written, joined by connection. Nothing is decided here.
"""

import asyncio
import dataclasses
import logging
import ssl
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.limits import TICK_MS, VSR_SESSIONS_PER_EDGE
from appliance.base.prng import Prng
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.edge import (
    ASK,
    CLOSE,
    LIST,
    LOOK_UP,
    MEND,
    REQUEST,
    SAY,
    Edge,
)
from appliance.cores.edge.session import Session
from appliance.cores.edge.token import Tokens, parse_jwks
from appliance.cores.edge.websocket import ENCODINGS
from appliance.drivers.host import clock, knobs, resources, service
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.node_folder import (
    FARM_DIRECTORY_FILE,
    JWKS_FILE,
    SOCKETS_FOLDER,
    NodeFolder,
)
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.host.slack import Slack
from appliance.drivers.network import websocket
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.pages import Pages
from appliance.drivers.network.status import StatusServer
from appliance.drivers.network.tls import show_certificate
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats.geometry import PRODUCTION, Geometry
from appliance.formats.site import SITE_FILE, shard_of_room
from appliance.roles.edge.addresses import elsewhere, host_names, places_of
from appliance.roles.edge.directory import DirectoryFile
from appliance.roles.edge.figures import sessions_of
from appliance.roles.edge.lanes import Lanes
from appliance.roles.edge.replicas import Replicas

WEB = resources.web()
_SECOND_TICKS = 1_000 // TICK_MS
_STATUS_TICKS = _SECOND_TICKS // 4
_HELD_TICKS = _SECOND_TICKS // 10
_STUCK_TICKS = 5 * _SECOND_TICKS


def _geometry(node: NodeFolder) -> Geometry:
    """The sizes of this site's shards: all are formatted alike."""
    for shard in node.shards:
        place = node.volume(shard.number)
        if (place / "volume.json").exists():  # a disk may be lost: the others serve meanwhile
            return GEOMETRIES[read_facts(place)["geometry"]]
    return PRODUCTION


def _lanes_per_shard(node: NodeFolder, geometry: Geometry) -> int:
    """Sessions of the log for each shard: all edges together use half of what a shard remembers."""
    edges = len(node.site.nodes) * node.settings.edge_processes
    return max(1, min(VSR_SESSIONS_PER_EDGE, geometry.clients_max // (2 * edges)))


class EdgeRole:
    """Wires one edge. Made before the loop runs; `serve` runs it until it is told to stop."""

    def __init__(self, node: NodeFolder, number: int, log: logging.Logger) -> None:
        self._node, self._number, self._log = node, number, log
        site, settings = node.site, node.settings
        geometry = _geometry(node)
        self._tokens = Tokens(
            issuer=site.token_issuer,
            audience=site.token_audience,
            keys={},
            life_s_max=settings.token_life_s_max,
        )
        self._jwks = node.path / JWKS_FILE
        self._jwks_seen: tuple[int, int] | None = None
        self._read_keys(at_start=True)
        self._unread: dict[websocket.Connection, None] = {}  # not read from, until the core listens
        prng = Prng(clock.seed())
        self._edge = Edge(
            geometry=geometry,
            node=settings.index,
            epoch=int.from_bytes(site.cluster[:4], "little") >> 1,
            shard_count=len(site.shards),
            shard_of=lambda room_id: shard_of_room(site, room_id),
            tokens=self._tokens,
            admission=Admission(
                device_rate=settings.device_rate,
                user_rate=settings.user_rate,
                room_rate=settings.room_rate,
                address_rate=settings.address_rate,
            ),
            prng=prng.fork(),
            lanes_per_shard=_lanes_per_shard(node, geometry),
            site=site.number,
            name=f"{site.number}.{settings.index}.{number}",
        )
        self._counters: Counter[str] = Counter()
        self._drops: Counter[str] = Counter()
        self._watch = SiteWatch(node.path / SITE_FILE, site)
        self._lanes = Lanes(site, edge=self._edge, prng=prng, wake=self.wake, drops=self._drops)
        self._replicas = Replicas(
            node,
            edge=self._edge,
            sessions=self._lanes,
            wake=self.wake,
            prng=prng,
            counters=self._counters,
            drops=self._drops,
        )
        self._directory = DirectoryFile(node.path / FARM_DIRECTORY_FILE, site.farm_key)
        self._directory.look()
        self._pages, self._server = self._new_server()
        self._status_server = StatusServer(
            Path(SOCKETS_FOLDER) / f"edge-{number}",
            cluster=site.cluster,
            number=number,
            status=self.status,
        )
        self._figures = Figures()
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._awake = False
        self._ticks = 0
        self._knobs: dict[str, str] = {}

    def _new_server(self) -> tuple[Pages, websocket.WebSocketServer]:
        """The client port: pages, and WebSockets."""
        settings, hosts = self._node.settings, Hosts(host_names(self._node))
        pages = Pages(
            WEB,
            nodes=lambda: places_of(self._node),
            hosts=hosts,
            secure=settings.client_tls,
            health=self.health,
            directory=lambda: self._directory.data,
        )
        server = websocket.WebSocketServer(
            self,
            make_http=pages.protocol,
            hosts=hosts,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            address_connect_rate=settings.address_connect_rate,
            counters=self._counters,
        )
        return pages, server

    def _read_site(self) -> None:
        """Learn of nodes that were added to the site file."""
        site = self._watch.changed()
        if site is not None:
            self._node = dataclasses.replace(self._node, site=site)
            self._replicas.on_site(self._node)

    # --- life

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_exception)
        on_stop_signal(self._stopped.set)
        self._edge.on_tick(clock.monotonic_ns(), clock.realtime_us())
        node, settings = self._node.node, self._node.settings
        await self._server.start(
            node.host, node.client_port, tls=self._tls(), shared=settings.edge_processes > 1
        )
        await self._status_server.start()
        self._replicas.start()
        if node.objects_port:
            self._replicas.objects.start()
        self._knobs = {
            "timers": knobs.fine_timers(),
            "malloc": knobs.keep_memory(),
            "memory": knobs.settle_memory(),
        }
        self._slack = Slack()
        self._tick_at = loop.time()
        self._tick()
        service.notify("READY=1", f"STATUS=edge {self._number} on port {self._server.port}")
        await self._stopped.wait()
        service.notify("STOPPING=1")
        await self._close()
        return self._exit_code

    def _tls(self) -> ssl.SSLContext | None:
        if not self._node.settings.client_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        show_certificate(context, *self._node.client_certificate)
        context.num_tickets = 0  # a handshake is cheap; nothing secret is kept to resume
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def _close(self) -> None:
        self._edge.shut_down(elsewhere(self._node))
        self._beat()
        await self._server.close()
        await self._status_server.close()
        await self._pages.close()
        await self._replicas.close()
        await self._replicas.objects.close()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Nobody caught it: an operating system's error is weather, anything else is a bug."""
        error = context.get("exception")
        if error is None or isinstance(error, OSError | asyncio.CancelledError):
            self._log.debug("%s: %s", context.get("message"), error)
            return
        traceback.print_exception(error)
        print(
            f"tigerchat: edge {self._number} stops: {type(error).__name__} {error}",
            file=sys.stderr,
            flush=True,
        )
        self._exit_code = 1
        self._stopped.set()

    def _read_keys(self, *, at_start: bool = False) -> bool:
        """Take the public keys of the token issuer anew when their file has changed: whether it
        has."""
        try:
            stat = self._jwks.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
            if seen != self._jwks_seen:
                self._tokens.keys = parse_jwks(self._jwks.read_bytes())
                self._jwks_seen = seen
                return True
        except (OSError, ValueError) as error:
            if at_start:
                raise ConfigurationError(
                    f"{self._jwks}: {error}; allowed: a JSON Web Key Set of Ed25519 public keys"
                ) from error
            self._log.error("%s: %s; the keys read before stay", self._jwks, error)
        return False

    # --- the beat

    def wake(self) -> None:
        """Something arrived: one beat after all that is being read now."""
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._beat)

    def _beat(self) -> None:
        self._awake = False
        self._lanes.go_on()
        more = self._edge.beat()
        closing = []
        for effect in self._edge.take_effects():
            kind = effect[0]
            if kind == REQUEST:
                self._lanes.request(*effect[1:])
            elif kind == CLOSE:
                closing.append(effect)
            elif kind == LOOK_UP:
                self._replicas.local(effect[1]).look_up(effect[2])
            elif kind == ASK:
                self._replicas.objects.ask(effect[1], effect[2])
            elif kind == SAY:
                self._replicas.objects.say(effect[1])
            elif kind == MEND:
                self._replicas.local(effect[1]).mend(effect[2])
            else:
                assert kind == LIST
                self._replicas.local(effect[1]).list(effect[2], effect[3])
        for session, frames in self._edge.take_output():
            connection = session.connection
            if connection is not None:
                connection.write(frames)
        for _, session, error in closing:
            if session.connection is not None:
                session.connection.end(error)
        if more or self._edge.is_unfinished:
            self.wake()

    def _tick(self) -> None:
        """Every 10 ms; what a stall swallowed is not caught up."""
        loop = asyncio.get_running_loop()
        self._tick_at = max(self._tick_at + TICK_MS / 1000, loop.time())
        self._edge.on_tick(clock.monotonic_ns(), clock.realtime_us())
        self._lanes.on_tick()
        for connection in list(self._unread):
            self._listen(connection, connection.user)
        self._ticks += 1
        if self._ticks % _STATUS_TICKS == 0:
            self._replicas.ask_status()
        if self._ticks % _SECOND_TICKS == 0:
            service.notify("WATCHDOG=1")
            self._slack.give_back()
            if self._read_keys():
                self._edge.on_keys()
            self._read_site()
            self._directory.look()
        if self._ticks % _HELD_TICKS == 0:
            self._weigh()
        if self._ticks % _STUCK_TICKS == 0:
            self._edge.close_stuck()
        self.wake()
        loop.call_at(self._tick_at + TICK_MS / 1000, self._tick)

    # --- chat clients

    def on_open(self, connection: websocket.Connection) -> None:
        session = self._edge.on_open(connection.address, ENCODINGS[connection.subprotocol])
        session.connection = connection
        connection.user = session

    def on_client_message(
        self, connection: websocket.Connection, data: bytes, is_text: bool
    ) -> None:
        session: Session = connection.user
        self._edge.on_frame(session, data, is_text)
        if session.state == "ready":
            connection.welcome()
        self._listen(connection, session)
        self.wake()

    def on_fragment(self, connection: websocket.Connection) -> None:
        self._edge.on_fragment(connection.user)
        self._listen(connection, connection.user)
        self.wake()

    def on_control(self, connection: websocket.Connection) -> None:
        self._edge.on_control(connection.user)
        self._listen(connection, connection.user)
        self.wake()

    def _weigh(self) -> None:
        """Tell the core what is held for connections that hold much."""
        held = [
            (connection.user, size + connection.user.held)
            for connection, size in self._server.held()
        ]
        if held:
            self._edge.on_held(held)

    def _listen(self, connection: websocket.Connection, session: Session) -> None:
        """Read from the client as long as the core takes more."""
        listens = session.listens(self._edge.now_ns)
        if listens:
            self._unread.pop(connection, None)
        else:
            self._unread[connection] = None
        connection.read_on(listens)

    def on_oversize(self, connection: websocket.Connection) -> None:
        self._edge.on_oversize(connection.user)
        self._beat()

    def on_blocked(self, connection: websocket.Connection) -> None:
        self._edge.on_blocked(connection.user)
        self._listen(connection, connection.user)

    def on_writable(self, connection: websocket.Connection) -> None:
        self._edge.on_writable(connection.user)
        self._listen(connection, connection.user)
        self.wake()

    def on_closed(self, connection: websocket.Connection) -> None:
        session: Session = connection.user
        session.connection = None
        self._unread.pop(connection, None)
        self._edge.on_close(session)

    # --- figures

    def health(self) -> str:
        """Why this node does not serve; empty while it does."""
        for shard in self._node.shards:
            if shard.number not in self._edge.logs:
                return f"the replica of shard {shard.number} is not attached"
            if shard.number in self._edge.behind:
                why = self._edge.behind[shard.number]
                return f"the replica of shard {shard.number} is {why}"
            if shard.number in self._edge.stale:
                since_us = self._edge.stale[shard.number]
                return (
                    f"the replica of shard {shard.number} hears no quorum; "
                    f"stale_since {since_us // 1_000_000}"
                )
        for shard in self._node.site.shards:
            if not self._lanes.has_session(shard.number):
                return f"shard {shard.number} has no primary that answers"
        return ""

    def status(self) -> dict[str, Any]:
        """Everything an operator may want to know, as plain values."""
        return {
            "node": self._node.settings.index,
            "edge": self._number,
            "health": self.health(),
            "directory": self._directory.told(),
            "connections": self._server.count(),
            **sessions_of(self._edge),
            "ack": self._lanes.latency.figures(),
            "process": self._figures.read(),
            "knobs": self._knobs,
            "counters": dict(self._edge.counters),
            "dropped": dict(self._drops),
            "connection_events": dict(self._counters),
        }


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> EdgeRole:
    """Edge `number` of a node."""
    return EdgeRole(node, number, log)
