"""The edge of a node: its core between chat clients and the replicas of all shards.

    chat clients ◀──frames──▶ ┌──────┐ ──requests──▶ sessions ──▶ replicas of all shards,
    own replicas ──ring─────▶ │ core │ ◀──replies─── of the log ◀── by link or local socket
    clock ──tick, 10 ms─────▶ └──────┘

The loop has one beat for each wake-up: all that arrived is fed to the core, then its effects are
performed and its output is written, joined by connection. Nothing is decided here.
"""

import asyncio
import dataclasses
import json
import logging
import ssl
import sys
import traceback
from collections import Counter, deque
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.limits import (
    REPLICA_BEHIND_OPS,
    REPLICA_SILENT_TICKS,
    TICK_MS,
    VSR_SESSIONS_PER_EDGE,
)
from appliance.base.prng import Prng
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.edge import CLOSE, LIST, LOOK_UP, REQUEST, Edge
from appliance.cores.edge.pace import Pace
from appliance.cores.edge.session import Session
from appliance.cores.edge.token import Tokens, parse_jwks
from appliance.cores.vsr.client import Client
from appliance.drivers.host import clock, knobs, service
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.node_folder import (
    JWKS_FILE,
    SOCKETS_FOLDER,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
)
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.role_process import run_role
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network import link as links
from appliance.drivers.network import websocket
from appliance.drivers.network.checks import COMMANDS_TO_CLIENT, Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.local import LocalLink
from appliance.drivers.network.pages import Pages
from appliance.drivers.network.status import StatusServer
from appliance.drivers.network.tls import client_context
from appliance.drivers.nvme.latency import Latency
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats.client import SUBPROTOCOL_BINARY
from appliance.formats.envelope import (
    LOCAL_COMMITTED,
    LOCAL_READ_ROOMS,
    LOCAL_ROOMS,
    LOCAL_STATUS,
    OPERATION_APPEND,
    REPLY,
    SENDER_CLIENT,
    Message,
)
from appliance.formats.geometry import PRODUCTION, Geometry
from appliance.formats.site import SITE_FILE, shard_of_room

WEB = Path(__file__).parent.parent / "web"
_SECOND_TICKS = 1_000 // TICK_MS
_STATUS_TICKS = _SECOND_TICKS // 4
_STUCK_TICKS = 5 * _SECOND_TICKS


def _geometry(node: NodeFolder) -> Geometry:
    """The sizes of this site's shards: all are formatted alike."""
    for shard in node.shards:
        return GEOMETRIES[read_facts(node.volume(shard.number))["geometry"]]
    return PRODUCTION


def _lanes_per_shard(node: NodeFolder, geometry: Geometry) -> int:
    """Sessions of the log for each shard: all edges together use half of what a shard remembers."""
    edges = len(node.site.nodes) * node.settings.edge_processes
    return max(1, min(VSR_SESSIONS_PER_EDGE, geometry.clients_max // (2 * edges)))


class _Remote:
    """One replica on another node: what its link tells, passed on with its place."""

    def __init__(self, role: "EdgeRole", shard: int, replica: int, node: int) -> None:
        self._role, self._shard, self._replica, self._node = role, shard, replica, node
        self.link: links.Link | None = None

    def send(self, header: Any, body: Any) -> None:
        assert self.link is not None
        if self.link.connected:
            self.link.send(self._role.signer.frame(header, body))

    def on_open(self, connection: links.Connection) -> Checks:
        self._role.on_replica_connected(self._shard, self._replica)
        return self._role.checks(self._shard, self._replica, self._node)

    def on_message(self, connection: links.Connection, message: Message) -> None:
        self._role.on_message(self._shard, message)

    def on_batch(self, connection: links.Connection) -> None:
        self._role.wake()

    def on_closed(self, connection: links.Connection) -> None:
        self._role.on_replica_gone(self._shard, self._replica)


def _behind(status: dict[str, Any]) -> str:
    """Why a replica's tables may lack what the shard has stored; empty when they do not."""
    if status["status"] != "normal":
        return str(status["status"])
    missing = status["commit_max"] - status["commit_min"]
    return f"{missing} ops behind" if missing > REPLICA_BEHIND_OPS else ""


def _cut_off(status: dict[str, Any]) -> bool:
    """Whether a replica cannot know what the others have stored meanwhile: it has heard nothing
    from a primary since it started, or too few others of late."""
    told = status["received"].get("prepare", 0) + status["received"].get("commit", 0)
    if status["role"] != "primary" and not told:
        return True
    silences = [peer["silent_ticks"] for peer in status["peers"].values()]
    heard = sum(ticks <= REPLICA_SILENT_TICKS for ticks in silences)
    return 2 * (heard + 1) <= len(silences) + 1


class _Local:
    """The replica of this node: a client's connection, and beside it ring, rooms and status."""

    def __init__(self, role: "EdgeRole", shard: int, replica: int) -> None:
        self._role, self._shard, self._replica = role, shard, replica
        self.link: LocalLink | None = None
        self._asked: deque[list[bytes] | None] = deque()  # room ids looked up, or None: a list

    def send(self, header: Any, body: Any) -> None:
        assert self.link is not None
        if self.link.connected:
            self.link.send(self.link.signer.frame(header, body))

    def look_up(self, room_ids: list[bytes]) -> None:
        self._ask(room_ids, body=b"".join(room_ids))

    def list(self, first_row: int, count: int) -> None:
        self._ask(None, op=first_row, aux=count)

    def _ask(self, asked: Any, **fields: Any) -> None:
        assert self.link is not None
        if self.link.ask(LOCAL_READ_ROOMS, **fields):
            self._asked.append(asked)

    def ask_status(self) -> None:
        assert self.link is not None
        if self.link.connected:
            self.link.ask(LOCAL_STATUS)

    def on_attached(self, link: LocalLink, facts: dict[str, Any], ring: memoryview | None) -> None:
        assert ring is not None
        self._role.on_attached(self._shard, facts, ring)
        self._role.edge.on_replica_status(self._shard, "", cut_off=True)  # until it says otherwise
        self._role.on_replica_connected(self._shard, self._replica)

    def on_message(self, link: LocalLink, message: Message) -> None:
        header, edge = message.header, self._role.edge
        if header.command == LOCAL_COMMITTED:
            edge.on_committed(self._shard, header.op)
        elif header.command == LOCAL_ROOMS:
            asked = self._asked.popleft()
            if asked is None:
                edge.on_list(self._shard, bytes(message.body))
            else:
                edge.on_rooms(self._shard, header.op, asked, bytes(message.body))
        elif header.command == LOCAL_STATUS:
            status = json.loads(bytes(message.body))
            edge.on_replica_status(self._shard, _behind(status), cut_off=_cut_off(status))
        else:
            self._role.on_message(self._shard, message)

    def on_batch(self, link: LocalLink) -> None:
        self._role.wake()

    def on_detached(self, link: LocalLink) -> None:
        self._asked.clear()
        self._role.edge.on_detached(self._shard)
        self._role.on_replica_gone(self._shard, self._replica)


class EdgeRole:
    """Wires one edge. Made before the loop runs; `serve` runs it until it is told to stop."""

    def __init__(self, node: NodeFolder, number: int, log: logging.Logger) -> None:
        self._node, self._number, self._log = node, number, log
        site, settings = node.site, node.settings
        self._geometry = _geometry(node)
        self._tokens = Tokens(issuer=site.token_issuer, audience=site.token_audience, keys={})
        self._jwks = node.path / JWKS_FILE
        self._jwks_seen: tuple[int, int] | None = None
        self._read_keys(at_start=True)
        self._prng = Prng(clock.seed())
        self.edge = Edge(
            geometry=self._geometry,
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
            prng=self._prng.fork(),
            lanes_per_shard=_lanes_per_shard(node, self._geometry),
        )
        self.signer = Signer(
            sender=SENDER_CLIENT, key=node.signing_key, incarnation=clock.realtime_us() // 1_000_000
        )
        self._counters: Counter[str] = Counter()
        self._drops: Counter[str] = Counter()
        self._clients: dict[bytes, tuple[int, int]] = {}  # client id -> shard, lane
        self._lanes: dict[int, list[Client]] = {}
        self._paces: dict[tuple[int, int], Pace] = {}  # shard, lane
        self._paced: set[tuple[int, int]] = set()  # lanes that could ask and wait for more
        self._replicas: dict[int, list[_Remote | _Local]] = {}
        self._watch = SiteWatch(node.path / SITE_FILE, site)
        self._make_clients()
        self._make_links()
        self._asked_ns: dict[tuple[int, int], int] = {}  # shard, lane: its request in flight
        self._latency = Latency()  # of requests to the logs
        self._pages = Pages(WEB, nodes=self._nodes(), health=self.health, metrics=self.metrics)
        self._status_server = StatusServer(
            Path(SOCKETS_FOLDER) / f"edge-{number}",
            cluster=site.cluster,
            number=number,
            status=self.status,
        )
        self._server = websocket.WebSocketServer(
            self,
            make_http=self._pages.protocol,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            counters=self._counters,
        )
        self._figures = Figures()
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._awake = False
        self._ticks = 0
        self._knobs: dict[str, str] = {}

    def _make_clients(self) -> None:
        for shard in self._node.site.shards:
            lanes = self._lanes[shard.number] = []
            for lane in range(len(self.edge.lanes[shard.number])):
                client_id = self._prng.bytes(16)
                self._clients[client_id] = (shard.number, lane)
                self._paces[shard.number, lane] = Pace(self._geometry.records_max)
                lanes.append(
                    Client(
                        client_id=client_id,
                        cluster=self._node.site.cluster,
                        shard=shard.number,
                        replica_count=shard.replica_count,
                        geometry=self._geometry,
                        prng=self._prng.fork(),
                        members=tuple(shard.replica_ids),
                    )
                )

    def _make_links(self) -> list[Any]:
        """A link to every member that has none yet, by its place in the site file. Standbys too:
        they may come to vote.
        """
        site, path = self._node.site, self._node.path
        made: list[Any] = []
        context = client_context(
            path / TLS_CERTIFICATE_FILE,
            path / TLS_KEY_FILE,
            [node.certificate_pem for node in site.nodes],
        )
        for shard in site.shards:
            replicas = self._replicas.setdefault(shard.number, [])
            for replica, index in enumerate(shard.members):
                if replica < len(replicas):
                    continue
                if index == self._node.settings.index:
                    local = _Local(self, shard.number, replica)
                    local.link = LocalLink(
                        local,
                        Path(SOCKETS_FOLDER) / f"shard-{shard.number}",
                        cluster=site.cluster,
                        shard=shard.number,
                        replica=replica,
                        attach=True,
                        message_size_max=self._geometry.message_size_max,
                        prng=self._prng.fork(),
                        counters=self._counters,
                        drops=self._drops,
                    )
                    replicas.append(local)
                    made.append(local.link)
                    continue
                node = site.nodes[index]
                remote = _Remote(self, shard.number, replica, index)
                remote.link = links.Link(
                    remote,
                    host=node.host,
                    port=node.peer_port + shard.number,
                    secured=links.Secured(context, server_side=False, pins={node.spki: index}),
                    message_size_max=self._geometry.message_size_max,
                    prng=self._prng.fork(),
                    counters=self._counters,
                )
                replicas.append(remote)
                made.append(remote.link)
        return made

    def _read_site(self) -> None:
        """Learn of nodes that were added to the site file."""
        site = self._watch.changed()
        if site is None:
            return
        self._node = dataclasses.replace(self._node, site=site)
        for link in self._make_links():
            link.start()

    def _place(self, shard: int, client: Client, replica: int) -> int:
        """The number under which a session knows a member of the site file; -1: it does not."""
        replica_id = self._node.site.shards[shard].replica_ids[replica]
        return client.members.index(replica_id) if replica_id in client.members else -1

    def _nodes(self) -> list[dict[str, Any]]:
        """Where clients connect: every node of the site, whose settings are taken to be alike."""
        scheme = "wss" if self._node.settings.client_tls else "ws"
        return [
            {
                "index": node.index,
                "name": node.name,
                "url": f"{scheme}://{f'[{node.host}]' if ':' in node.host else node.host}"
                f":{node.client_port}/v1",
            }
            for node in self._node.site.nodes
        ]

    def checks(self, shard: int, replica: int, node: int) -> Checks:
        """For what a replica of another node sends."""
        sender = Sender(COMMANDS_TO_CLIENT, NonceWindow())
        return Checks(
            cluster=self._node.site.cluster,
            shard=shard,
            message_size_max=self._geometry.message_size_max,
            senders={replica: sender},
            public_key=self._node.site.nodes[node].public_key,
            drops=self._drops,
        )

    # --- life

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_exception)
        on_stop_signal(self._stopped.set)
        self.edge.on_tick(clock.monotonic_ns(), clock.realtime_us())
        node, settings = self._node.node, self._node.settings
        await self._server.start(
            node.host, node.client_port, tls=self._tls(), shared=settings.edge_processes > 1
        )
        await self._status_server.start()
        for replicas in self._replicas.values():
            for replica in replicas:
                assert replica.link is not None
                replica.link.start()
        self._knobs = {
            "timers": knobs.fine_timers(),
            "malloc": knobs.keep_memory(),
            "memory": knobs.settle_memory(),
        }
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
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # a handshake is cheap; nothing secret is kept to resume
        context.set_alpn_protocols(["http/1.1"])
        certificate, key = self._node.client_certificate
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{certificate} and {key}: not a certificate and its key, or not "
                f"readable ({error}); restore them"
            ) from error
        return context

    async def _close(self) -> None:
        self.edge.shut_down()
        self._beat()
        await self._server.close()
        await self._status_server.close()
        await self._pages.close()
        await asyncio.gather(
            *(
                replica.link.close()
                for replicas in self._replicas.values()
                for replica in replicas
                if replica.link is not None
            )
        )

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

    def _read_keys(self, *, at_start: bool = False) -> None:
        """Take the public keys of the token issuer anew when their file has changed."""
        try:
            stat = self._jwks.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
            if seen != self._jwks_seen:
                self._tokens.keys = parse_jwks(self._jwks.read_bytes())
                self._jwks_seen = seen
        except (OSError, ValueError) as error:
            if at_start:
                raise ConfigurationError(
                    f"{self._jwks}: {error}; allowed: a JSON Web Key Set of Ed25519 public keys"
                ) from error
            self._log.error("%s: %s; the keys read before stay", self._jwks, error)

    # --- the beat

    def wake(self) -> None:
        """Something arrived: one beat after all that is being read now."""
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._beat)

    def _beat(self) -> None:
        self._awake = False
        if self._paced:
            self._go_on()
        more = self.edge.beat()
        closing = []
        for effect in self.edge.take_effects():
            kind = effect[0]
            if kind == REQUEST:
                self._request(*effect[1:])
            elif kind == CLOSE:
                closing.append(effect)
            elif kind == LOOK_UP:
                self._local(effect[1]).look_up(effect[2])
            else:
                assert kind == LIST
                self._local(effect[1]).list(effect[2], effect[3])
        for session, frames in self.edge.take_output():
            connection = session.transport
            if connection is not None:
                connection.write(frames)
        for _, session, code, reason in closing:
            if session.transport is not None:
                session.transport.close(code, reason)
        if more:
            self.wake()

    def _local(self, shard: int) -> _Local:
        return next(replica for replica in self._replicas[shard] if isinstance(replica, _Local))

    def _tick(self) -> None:
        """Every 10 ms; what a stall swallowed is not caught up."""
        loop = asyncio.get_running_loop()
        self._tick_at = max(self._tick_at + TICK_MS / 1000, loop.time())
        self.edge.on_tick(clock.monotonic_ns(), clock.realtime_us())
        for shard, lanes in self._lanes.items():
            for client in lanes:
                client.on_tick()
                self._perform(shard, client)
        self._ticks += 1
        if self._ticks % _STATUS_TICKS == 0:
            for replicas in self._replicas.values():
                for replica in replicas:
                    if isinstance(replica, _Local):
                        replica.ask_status()
        if self._ticks % _SECOND_TICKS == 0:
            service.notify("WATCHDOG=1")
            self._read_keys()
            self._read_site()
        if self._ticks % _STUCK_TICKS == 0:
            self.edge.close_stuck()
        self.wake()
        loop.call_at(self._tick_at + TICK_MS / 1000, self._tick)

    # --- sessions of the log

    def _request(self, shard: int, lane: int, records: Any, count: int) -> None:
        client = self._lanes[shard][lane]
        client.request(OPERATION_APPEND, records, count)
        now_ns = self._asked_ns[shard, lane] = clock.monotonic_ns()
        self._paces[shard, lane].on_request(now_ns, count)
        self._perform(shard, client)

    def _perform(self, shard: int, client: Client) -> None:
        """Do what a session of the log wants."""
        if not client.effects:
            return
        lane = self._clients[client.client_id][1]
        effects, client.effects = client.effects, []
        for effect in effects:
            kind = effect[0]
            if kind == "send":
                known = self._node.site.shards[shard].replica_ids
                replica_id = client.members[effect[1]]
                if replica_id in known:
                    self._replicas[shard][known.index(replica_id)].send(effect[2], effect[3])
            elif kind == "reply":
                self.edge.on_reply(shard, lane, effect[1])
                self._on_answered(shard, lane)
            elif kind == "evicted":
                self.edge.on_evicted(shard, lane)
            elif kind == "members":
                self._announce(shard, client)
        if client.ready:
            self._paced.add((shard, lane))
            self._go_on()

    def _on_answered(self, shard: int, lane: int) -> None:
        asked_ns = self._asked_ns.pop((shard, lane), None)
        if asked_ns is None:
            return
        now_ns = clock.monotonic_ns()
        self._latency.add(now_ns - asked_ns)
        waiting = self.edge.lanes[shard][lane].depth
        longest_s = self._paces[shard, lane].on_reply(now_ns, waiting)
        asyncio.get_running_loop().call_later(longest_s, self.wake)

    def _go_on(self) -> None:
        """Let lanes ask again for which enough has collected."""
        now_ns = clock.monotonic_ns()
        for shard, lane in list(self._paced):
            waiting = self.edge.lanes[shard][lane].depth
            if not self._lanes[shard][lane].ready:  # its session was lost while it waited
                self._paced.discard((shard, lane))
            elif self._paces[shard, lane].may_ask(now_ns, waiting):
                self._paced.discard((shard, lane))
                self.edge.on_ready(shard, lane)

    def _announce(self, shard: int, client: Client) -> None:
        """The group has other members: tell a session which of them can be reached."""
        for replica, there in enumerate(self._replicas[shard]):
            place = self._place(shard, client, replica)
            if place >= 0 and there.link is not None and there.link.connected:
                client.on_connected(place)
        asyncio.get_running_loop().call_soon(self._perform_all, shard)

    def on_message(self, shard: int, message: Message) -> None:
        """A replica of `shard` answers one of our sessions."""
        header = message.header
        client_id = bytes(message.body[:16]) if header.command == REPLY else header.area[:16]
        place = self._clients.get(client_id)
        if place is None or place[0] != shard:
            self._drops["client_unknown"] += 1
            return
        client = self._lanes[shard][place[1]]
        client.on_message(message)
        self._perform(shard, client)

    def on_replica_connected(self, shard: int, replica: int) -> None:
        for client in self._lanes[shard]:
            place = self._place(shard, client, replica)
            if place >= 0:
                client.on_connected(place)
        asyncio.get_running_loop().call_soon(self._perform_all, shard)

    def on_replica_gone(self, shard: int, replica: int) -> None:
        for client in self._lanes[shard]:
            place = self._place(shard, client, replica)
            if place >= 0:
                client.on_disconnected(place)
        self._perform_all(shard)

    def _perform_all(self, shard: int) -> None:
        for client in self._lanes[shard]:
            self._perform(shard, client)
        self.wake()

    def on_attached(self, shard: int, facts: dict[str, Any], ring: memoryview) -> None:
        """The ring of this node's replica can be read."""
        geometry = GEOMETRIES[facts["geometry"]]
        assert geometry is self._geometry
        segments = MappedSegments(Path(facts["segments_folder"]), geometry, facts["segments_max"])
        self.edge.on_attached(shard, ring, segments, facts["log_seq"])
        self.wake()

    # --- chat clients

    def on_open(self, connection: websocket.Connection) -> None:
        session = self.edge.on_open(
            connection.address, connection.subprotocol == SUBPROTOCOL_BINARY
        )
        session.transport = connection
        connection.user = session

    def on_client_message(
        self, connection: websocket.Connection, data: bytes, is_text: bool
    ) -> None:
        session: Session = connection.user
        self.edge.on_frame(session, data, is_text)
        connection.read_on(not session.is_crowded)
        self.wake()

    def on_oversize(self, connection: websocket.Connection) -> None:
        self.edge.on_oversize(connection.user)
        self._beat()

    def on_blocked(self, connection: websocket.Connection) -> None:
        self.edge.on_blocked(connection.user)
        connection.read_on(False)

    def on_writable(self, connection: websocket.Connection) -> None:
        self.edge.on_writable(connection.user)
        connection.read_on(True)
        self.wake()

    def on_closed(self, connection: websocket.Connection) -> None:
        session: Session = connection.user
        session.transport = None
        self.edge.on_close(session)

    # --- figures

    def health(self) -> str:
        """Why this node does not serve; empty while it does."""
        for shard in self._node.shards:
            if shard.number not in self.edge.logs:
                return f"the replica of shard {shard.number} is not attached"
            if shard.number in self.edge.requests.behind:
                why = self.edge.requests.behind[shard.number]
                return f"the replica of shard {shard.number} is {why}"
        for number, lanes in self._lanes.items():
            if not any(client.session for client in lanes):
                return f"shard {number} has no primary that answers"
        return ""

    def status(self) -> dict[str, Any]:
        """Everything an operator may want to know, as plain values."""
        edge = self.edge
        followed = [
            subscription
            for session in edge.sessions.values()
            for subscription in session.subscriptions.values()
        ]
        return {
            "node": self._node.settings.index,
            "edge": self._number,
            "health": self.health(),
            "connections": self._server.count(),
            "sessions": len(edge.sessions),
            "subscriptions": len(followed),
            "lagging": sum(subscription.state == "lagging" for subscription in followed),
            "acked": edge.counters.get("records_answered", 0),
            "refused": sum(
                count for name, count in edge.counters.items() if name.startswith("error_")
            ),
            "ack": self._latency.figures(),
            "process": self._figures.read(),
            "knobs": self._knobs,
            "counters": dict(edge.counters),
            "dropped": dict(self._drops),
            "connection_events": dict(self._counters),
        }

    def metrics(self) -> str:
        """All figures in Prometheus' text format."""
        edge, process = self.edge, self._figures.read()
        lines = [
            f"tigerchat_edge_connections {self._server.count()}",
            f"tigerchat_edge_sessions {len(edge.sessions)}",
            f"tigerchat_edge_rooms_known {len(edge.lookup.catalogue.rooms)}",
            f"tigerchat_edge_live_events_total {edge.fanout.live_events}",
            f"tigerchat_edge_stored_events_total {edge.fanout.stored_events}",
            f"tigerchat_edge_resident_bytes {process['rss']}",
            f"tigerchat_edge_cpu_seconds_total {process['cpu_seconds']}",
        ]
        for name, counts in (
            ("events", edge.counters),
            ("connection_events", self._counters),
            ("drops", self._drops),
        ):
            lines += [
                f'tigerchat_edge_{name}_total{{name="{key}"}} {value}'
                for key, value in sorted(counts.items())
            ]
        for shard, lanes in edge.lanes.items():
            lines += [
                f'tigerchat_edge_lane_records{{shard="{shard}",lane="{lane.index}"}} {lane.depth}'
                for lane in lanes
            ]
        for shard, log in edge.logs.items():
            lines.append(f'tigerchat_edge_log_seq{{shard="{shard}"}} {log.log_seq}')
        return "\n".join(lines) + "\n"


def run(folder: Path, number: int) -> int:
    """Serve chat clients of the node in `folder` until SIGTERM; the exit code."""
    return run_role(folder, f"edge-{number}", lambda node, log: EdgeRole(node, number, log))
