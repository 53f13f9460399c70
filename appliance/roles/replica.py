"""One replica of one shard: the vsr core and its rooms, over a volume and the links between nodes.

    links, local socket ──messages──▶ ┌──────┐ ──effects──▶ volume, links, local socket
    volume ──completions────────────▶ │ core │
    clock ──ticks that matter───────▶ └──────┘

This is the loop of `cores/vsr`, whose duties stand there, turned into callbacks: `Ticks.catch_up`
counts what has passed, events of one reading are fed to the core, `_go_on` performs and plans the
next tick that matters. Nothing is decided here: the core knows the protocol, the drivers know the
machine, this file knows which is connected to which.

A replica dials every other member and sends there; it receives on connections that others opened.
Clients (edges) are answered on the connection on which they were last heard.
"""

import asyncio
import dataclasses
import json
import logging
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from appliance.base.errors import ApplianceError, StorageError
from appliance.base.limits import CLIENT_ROUTES_MAX, LOCAL_ROOMS_MAX, MEMBERS_MAX
from appliance.base.prng import Prng
from appliance.cores.rooms.rooms import Rooms
from appliance.cores.shipping.lateness import shipping_figures
from appliance.cores.vsr import effects as fx
from appliance.cores.vsr import hand_over, scrub
from appliance.cores.vsr.idle import idle_ticks
from appliance.cores.vsr.open import VolumeUnusable, load
from appliance.cores.vsr.remedies import remedy_of
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.report import condition, stale_ms
from appliance.cores.vsr.route import Routing
from appliance.drivers.host import clock, knobs, service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.moved import is_said_moved
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
    check_volume,
    lock_replica,
)
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network.checks import COMMANDS_MEMBER, Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.link import Connection, Link, Listener, Secured
from appliance.drivers.network.local import LocalServer, make_ring
from appliance.drivers.network.suspicions import Suspicions
from appliance.drivers.network.tls import client_context, server_context
from appliance.drivers.nvme.room import Room
from appliance.drivers.nvme.volume import Volume
from appliance.formats import local
from appliance.formats.envelope import (
    COMMANDS_CLIENT,
    REQUEST,
    SENDER_CLIENT,
    Header,
    Message,
    by_command,
)
from appliance.formats.geometry import ROOM_ROW_SIZE
from appliance.formats.local import LOCAL_BROKEN, LOCAL_READ_ROOMS, LOCAL_ROOMS, LOCAL_STATUS
from appliance.formats.segment import ring_size
from appliance.formats.site import SITE_FILE
from appliance.formats.site_view import SiteView
from appliance.formats.status.part import plain
from appliance.formats.status.replica import Attachment, CarryingFigures, ReplicaStatus

EXIT_HALTED = 3
HAND_OVER_TRIES, HAND_OVER_S = 20, 0.05  # of a primary that stops, and between two of them
HALT_SAID_MAX = 1000  # characters of a halt's reason that the supervisor is told
_NONCES_LEFT_MIN = 1 << 20  # a process that used up its nonces starts again, with fresh ones


class ReplicaRole:
    """Wires one replica. Made before the loop runs; `serve` runs it until it is told to stop."""

    def __init__(self, node: NodeFolder, number: int, log: logging.Logger) -> None:
        self._node, self._shard, self._log = node, node.site.shards[number], log
        index = self._shard.replica_index(node.settings.index)
        assert index is not None
        self._index = index
        check_volume(node, number)
        lock_replica(node.path, number)  # held until this process ends
        self._volume = Volume(node.volume(number), flush_slow_ms=node.settings.flush_slow_ms)
        self._geometry = self._volume.geometry
        ring_bytes = ring_size(self._geometry)
        ring_fd, ring = make_ring(ring_bytes)
        cluster = node.site.cluster
        self._rooms = Rooms(
            geometry=self._geometry,
            cluster=cluster,
            shard=number,
            segments_max=self._shard.segments_max,
            ring=ring,
        )
        self._core = Replica(
            geometry=self._geometry,
            cluster=cluster,
            shard=number,
            replica_id=self._shard.replica_ids[index],
            prng=Prng(clock.seed()),
            state_machine=self._rooms,
            scrub_ticks=max(1, node.settings.scrub_interval_ms // node.site.tick_ms),
            routing=Routing(node.settings.routing),
        )
        self._counters: Counter[str] = Counter()  # of connections with other nodes
        self._counters_local: Counter[str] = Counter()  # and within this one
        self._drops: Counter[str] = Counter()  # of messages, by the check that failed
        self._suspicions = Suspicions(log)
        self._received = [0] * 256  # messages, by command
        self._sent = [0] * 256
        self._marks: Counter[str] = Counter()
        self._windows = [NonceWindow() for _ in range(MEMBERS_MAX)]
        self._watch = SiteWatch(node.path / SITE_FILE, node.view, self._on_view, log.error)
        self._clients: dict[bytes, Connection] = {}  # newest last
        self._signer: Signer | None = None  # once the core knows its incarnation
        self._published = self._announced = 0
        self._figures = Figures()
        self._knobs: dict[str, str] = {}
        self._exit_code = 0
        self._life = Lifetime()
        second, on_bug = self._each_second, self._on_bug
        self._beat = Beat(f"shard {number}", log, self._life, second=second, on_bug=on_bug)
        self._ticks = self._beat.ticks(
            node.site.tick_ms / 1000,
            idle=lambda: idle_ticks(self._core),
            count=self._count_ticks,
            woke=self._woke,
        )
        self._told: tuple[Any, ...] = ()  # the condition that this node's readers know
        self._local = LocalServer(
            self,
            cluster=cluster,
            shard=number,
            sender=index,
            message_size_max=self._geometry.message_size_max,
            ring_fd=ring_fd,
            attachment=self._attachment,
            counters=self._counters_local,
            drops=self._drops,
        )
        self._room = Room(self._volume, volumes=len(node.shards))
        # Frames name members by their place in the site file, the core by their ids.
        self._links: list[Link | None] = []  # by the place in the site file; None: this replica
        self._link_of: dict[bytes, Link] = {}  # the same by id
        self._listener = self._make_network()

    def _make_network(self) -> Listener:
        """The listener; and a link to each other member."""
        view, size_max = self._node.view, self._geometry.message_size_max
        certificate, key = self._node.path / TLS_CERTIFICATE_FILE, self._node.path / TLS_KEY_FILE
        anchors = view.anchors
        self._pins = dict(view.pins)
        self._server_context = server_context(certificate, key, anchors)
        self._client_context = client_context(certificate, key, anchors)
        self._make_links()
        return Listener(
            self,
            secured=Secured(self._server_context, server_side=True, pins=self._pins),
            message_size_max=size_max,
            counters=self._counters,
            expected=[node.host for node in view.site.nodes],
        )

    def _make_links(self) -> list[Link]:
        """Those to members that have none yet."""
        made = []
        for member in range(len(self._links), len(self._shard.members)):
            if member == self._index:
                self._links.append(None)
                continue
            node = self._node.site.nodes[self._shard.members[member]]
            link = Link(
                self,
                host=node.host,
                port=node.peer_port + self._shard.number,
                secured=Secured(
                    self._client_context, server_side=False, pins={node.spki: node.index}
                ),
                message_size_max=self._geometry.message_size_max,
                prng=Prng(clock.seed()),
                counters=self._counters,
            )
            self._links.append(link)
            self._link_of[self._shard.replica_ids[member]] = link
            made.append(link)
        return made

    def _on_view(self, view: SiteView) -> None:
        """Learn of nodes added to the site file; the core says whether they are members."""
        anchors = "\n".join(view.anchors)
        for context in (self._server_context, self._client_context):
            context.load_verify_locations(cadata=anchors)
        self._pins.update(view.pins)
        self._node = dataclasses.replace(self._node, view=view)
        self._shard = view.site.shards[self._shard.number]
        for link in self._make_links():
            link.start()
        self._log.info("site file read anew: %d members described", len(self._shard.members))

    # --- life

    async def serve(self) -> int:
        """Until SIGTERM or a halt; the exit code."""
        try:
            return await self._serve()
        except ApplianceError:
            raise
        except Exception as error:
            self._on_bug(error)
            return EXIT_HALTED

    async def _serve(self) -> int:
        loop = asyncio.get_running_loop()
        self._beat.lead()
        threading.excepthook = lambda args: loop.call_soon_threadsafe(self._on_bug, args.exc_value)
        on_stop_signal(self._life.asked.set)
        try:
            loaded = load(self._geometry, self._volume.flush_all, self._volume.read_many)
        except VolumeUnusable as error:
            self._halt(error.halt, str(error))
        except StorageError as error:  # what was written before cannot be made durable
            self._halt("STORAGE_WRITE", str(error))
        else:
            loaded.file = self._volume.file
            loaded.moved = is_said_moved(self._node.path, loaded.superblock, loaded.file)
            self._volume.start(
                loop,
                on_writes_done=self._on_writes_done,
                on_reads_done=self._on_reads_done,
                on_failed=self._halt,
            )
            self._core.open(loaded, clock.monotonic_ns(), clock.realtime_us())
            del loaded
            self._perform()
        if self._exit_code:
            self._volume.close()
            return self._exit_code
        node = self._node.node
        await self._listener.start(node.host, node.peer_port + self._shard.number)
        await self._local.start(Path(SOCKETS_FOLDER) / f"shard-{self._shard.number}")
        for link in self._links:
            if link is not None:
                link.start()
        self._life.opened(
            self._volume.close, self._close_links, self._listener.close, self._local.close
        )
        self._knobs = {
            "timers": knobs.fine_timers(),
            "threads": knobs.quick_threads(),
            "malloc": knobs.keep_memory(),
            "memory": knobs.settle_memory(),
        }
        self._ticks.start()
        service.notify("READY=1", f"STATUS=shard {self._shard.number}, replica {self._index}")
        await self._life.asked.wait()
        service.notify("STOPPING=1")
        if self._exit_code == 0:
            await self._close()
        return self._exit_code

    async def _close(self) -> None:
        """Let another lead, and finish what was begun; what peers were not told they ask for."""
        await self._step_down()
        self._perform()
        await self._life.close()

    async def _step_down(self) -> None:
        for _ in range(HAND_OVER_TRIES):
            if not hand_over.ask(self._core):
                break
            self._perform()
            await asyncio.sleep(HAND_OVER_S)
        self._go_on()

    async def _close_links(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links if link is not None))

    def _halt(self, code: str, reason: str) -> None:
        """Say in one line what happened, where and what to do, and stop. The first one counts."""
        if self._exit_code:
            return
        self._exit_code = EXIT_HALTED
        place = self._node.volume(self._shard.number)
        remedy = remedy_of(code)
        line = f"tigerchat: HALT {code} at {place}, replica {self._index}: {reason}; {remedy}"
        print(line, file=sys.stderr, flush=True)
        said = f"HALT {code}: {reason}; {remedy}".replace("\n", " ")[:HALT_SAID_MAX]
        service.notify(f"STATUS={said}", f"{service.REASON}{said}")
        self._life.still()
        self._life.asked.set()

    def _on_bug(self, error: BaseException | None) -> None:
        """What should be impossible happened, in the loop or in an I/O thread."""
        traceback.print_exception(error)
        self._halt("ASSERTION", f"{type(error).__name__} {error}".strip())

    # --- the beat

    def _count_ticks(self, ticks: int) -> None:
        for _ in range(ticks):
            self._core.on_tick(clock.monotonic_ns(), clock.realtime_us())

    def _woke(self) -> None:
        """Because something of the core was due, and several times a second in any case."""
        self._perform()
        self._core.on_space(short=self._room.is_short(self._rooms.log_seq, self._oldest()))
        if self._told != (told := condition(self._core)):
            self._told = told
            self._local.tell(self.status())

    def _oldest(self) -> int | None:
        return self._rooms.oldest_segment_needed if self._core.state_ready else None

    def _each_second(self) -> None:
        self._watch.poll()
        self._look_for_suspicions()
        if self._volume.displaced():
            self._halt("VOLUME_MOVED", "its folder no longer leads to the files that are open")
        if self._signer is not None and self._signer.left() < _NONCES_LEFT_MIN:
            self._log.warning("nonces used up: starting again with fresh ones")
            self._life.asked.set()

    def _look_for_suspicions(self) -> None:
        names = self._node.site.nodes
        for replica_id, reasons in self._core.suspicions.items():
            node = self._shard.node_of(replica_id)
            if node is not None:
                self._suspicions.of_messages(names[node].name, reasons)
        self._suspicions.look(clock.monotonic_ns())

    def _on_writes_done(self, tokens: list[int]) -> None:
        self._ticks.catch_up()
        for token in tokens:
            self._core.on_write_done(token)
        self._go_on()

    def _on_reads_done(self, reads: list[tuple[int, bytes | None]]) -> None:
        self._ticks.catch_up()
        for token, data in reads:
            self._core.on_read_done(token, data)
        self._go_on()

    def _go_on(self) -> None:
        """After events: do what the core wants, and wait for what comes next."""
        self._perform()
        self._ticks.plan()

    def _perform(self) -> None:
        """Do what the core wants, in its order."""
        core = self._core
        effects = core.effects
        if not effects or self._exit_code:
            return
        core.effects = []
        for effect in effects:
            kind = effect[0]
            if kind == fx.WRITE:
                self._volume.write(effect[1], effect[2], effect[3])
            elif kind == fx.SEND:
                self._send(effect[1], effect[2], effect[3], effect[4])
            elif kind == fx.SEND_CLIENT:
                self._send_client(effect[1], effect[2], effect[3])
            elif kind == fx.PUBLISH:
                self._published = effect[1]
            elif kind == fx.READ:
                self._volume.read(effect[1], effect[2], effect[3])
            elif kind == fx.MARK:
                self._marks[effect[1]] += 1
            else:
                assert kind == fx.HALT
                self._halt(effect[1], effect[2])
                return
        if self._published != self._announced:
            self._announced = self._published
            self._local.committed(self._published, self._rooms.crossing_log_seq)

    def _frame(self, header: Any, body: Any, route: int = 0) -> bytes | memoryview:
        signer = self._signer
        incarnation = self._core.incarnation_durable
        if signer is None:
            signer = self._signer = Signer(
                sender=self._index, key=self._node.signing_key, incarnation=incarnation
            )
        elif signer.nonce >> 32 != incarnation:
            signer.renew(incarnation)  # peers remembered a later one than this
        return signer.frame(header, body, route)

    def _send(self, members: tuple[bytes, ...], header: Any, body: Any, route: int) -> None:
        """Framed and signed once, whoever gets it; nobody there, nothing signed."""
        frame = None
        for replica_id in members:
            link = self._link_of.get(replica_id)  # None: not described in the site file yet
            if link is not None and link.connected:
                if frame is None:
                    frame = self._frame(header, body, route)
                if link.send(frame):
                    self._sent[header.command] += 1

    def _send_client(self, client: bytes, header: Any, body: Any) -> None:
        connection = self._clients.get(client)
        if connection is None:
            self._counters["client_unknown"] += 1
            return
        if connection.node is None:
            frame = self._local.signer.frame(header, body)
        else:
            frame = self._frame(header, body)
        if connection.send(frame):
            self._sent[header.command] += 1
        else:
            del self._clients[client]

    # --- connections, of other nodes and of this one

    def on_open(self, connection: Connection) -> Checks:
        """Who may speak on a connection with `connection.node`: its members, and clients."""
        assert connection.node is not None
        senders = {
            member: Sender(COMMANDS_MEMBER, self._windows[member])
            for member, node in enumerate(self._shard.members)
            if node == connection.node
        }
        senders[SENDER_CLIENT] = Sender(COMMANDS_CLIENT, NonceWindow())
        return Checks(
            cluster=self._node.site.cluster,
            shard=self._shard.number,
            message_size_max=self._geometry.message_size_max,
            senders=senders,
            public_key=self._node.site.nodes[connection.node].public_key,
            drops=self._drops,
            suspicions=self._suspicions.of_frames(self._node.site.nodes[connection.node].name),
        )

    def on_message(self, connection: Connection, message: Message) -> None:
        header, source = message.header, b""
        self._ticks.catch_up()
        self._received[header.command] += 1
        if message.sender == SENDER_CLIENT:
            if header.command in COMMANDS_CLIENT:
                client = message.body if header.command == REQUEST else header.area
                self._remember(bytes(client[:16]), connection)
            else:
                self._answer(connection, message)
                return
        else:
            source = self._shard.replica_ids[message.sender]
        self._core.on_message(message, source)

    def on_batch(self, connection: Connection) -> None:
        self._go_on()

    def on_closed(self, connection: Connection) -> None:
        """Clients of a lost connection are forgotten when they are answered in vain."""
        if connection.version is not None and connection.node is not None:
            name = self._node.site.nodes[connection.node].name
            self._suspicions.of_version(name, connection.version, clock.monotonic_ns())

    def _remember(self, client: bytes, connection: Connection) -> None:
        clients = self._clients
        if clients.get(client) is connection:
            return
        clients.pop(client, None)
        clients[client] = connection
        if len(clients) > CLIENT_ROUTES_MAX:
            del clients[next(iter(clients))]

    # --- what processes of this node ask

    def _answer(self, connection: Connection, message: Message) -> None:
        header = message.header
        if header.command == LOCAL_STATUS:
            if message.body == local.STEP_DOWN:
                self._beat.task(asyncio.create_task(self._step_down()))
            scrub.hurry(self._core, message.body)
            body = json.dumps(plain(self.status())).encode()
            self._reply(connection, local.answer(header, LOCAL_STATUS, body=body), body)
            return
        if header.command == LOCAL_BROKEN:
            self._core.on_segment_broken(header.op)
            return
        assert header.command == LOCAL_READ_ROOMS
        if message.body:
            row, missing = self._rooms.room_row, bytes(ROOM_ROW_SIZE)
            ids = [message.body[at : at + 16] for at in range(0, len(message.body), 16)]
            body = b"".join(row(bytes(room)) or missing for room in ids[:LOCAL_ROOMS_MAX])
        else:
            body = self._rooms.room_rows(header.op, min(header.aux, LOCAL_ROOMS_MAX))
        answer = local.answer(header, LOCAL_ROOMS, op=self._rooms.log_seq, body=body)
        self._reply(connection, answer, body)

    def _reply(self, connection: Connection, header: Header, body: bytes) -> None:
        connection.send(self._local.signer.frame(header, body))

    def _attachment(self) -> Attachment:
        """What an edge must know to read ring and segments, and whether it may yet."""
        state = self._core.status_report()
        return Attachment(
            status=state.status,
            state_ready=state.state_ready,
            commit_min=state.commit_min,
            commit_max=state.commit_max,
            stale_ms=stale_ms(state, self._node.site.tick_ms),
            oldest_segment=self._rooms.oldest_segment,
            ring_size=ring_size(self._geometry),
            log_seq=self._published,
            shard=self._shard.number,
            epoch=self._core.epoch,
            replica=self._index,
            geometry=self._volume.facts["geometry"],
            segments_max=self._shard.segments_max,
            segments_folder=str(self._node.volume(self._shard.number) / "segments"),
        )

    def status(self) -> ReplicaStatus:
        """Everything an operator may want to know."""
        state, tick_ms = self._core.status_report(), self._node.site.tick_ms
        carrying = self._rooms.carrying
        return ReplicaStatus(
            **asdict(state) | {"process": self._figures.read(), "beat": self._beat.told()},
            stale_ms=stale_ms(state, tick_ms),
            oldest_segment=self._rooms.oldest_segment,
            shard=self._shard.number,
            node=self._node.settings.index,
            time=time.time(),
            tick_ms=tick_ms,
            published=self._published,
            incarnation=self._core.incarnation,
            nonce=0 if self._signer is None else self._signer.nonce,
            volume=self._room.statistics(self._rooms.log_seq, self._oldest()),
            links={
                member: link.connected
                for member, link in enumerate(self._links)
                if link is not None
            },
            connections=self._listener.count(),
            edges=self._local.attached_count(),
            received=by_command(self._received),
            sent=by_command(self._sent),
            dropped=dict(self._drops),
            suspicious=self._suspicions.recent(),
            other_versions=self._suspicions.versions(),
            connection_events=dict(self._counters),
            local_events=dict(self._counters_local),
            marks=dict(self._marks),
            shipping=shipping_figures(
                self._rooms.shipping,
                self._node.settings,
                state.clock.log_us,
                cursor=self._rooms.shipper_cursor,
                log_seq=self._rooms.log_seq,
            ),
            carrying=CarryingFigures(generation=carrying.generation, node=carrying.node),
            ticks_late=self._ticks.late,
            knobs=self._knobs,
        )


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> ReplicaRole:
    """The replica of shard `number`."""
    return ReplicaRole(node, number, log)
