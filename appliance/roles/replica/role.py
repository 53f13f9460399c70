"""The process of a replica: makes the core and its drivers, and runs them until it is to stop."""

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
from appliance.drivers.host import clock, knobs, service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.moved import is_said_moved
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    NodeFolder,
    check_volume,
    lock_replica,
)
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network.checks import Checks
from appliance.drivers.network.link import Connection
from appliance.drivers.network.local import LocalServer, make_ring
from appliance.drivers.nvme.room import Room
from appliance.drivers.nvme.volume import Volume
from appliance.formats import local
from appliance.formats.command import client_of
from appliance.formats.envelope import COMMANDS_CLIENT, SENDER_CLIENT, Message, by_command
from appliance.formats.local import LOCAL_BROKEN, LOCAL_READ_ROOMS, LOCAL_ROOMS, LOCAL_STATUS
from appliance.formats.remote import QUESTIONS
from appliance.formats.segment import ring_size
from appliance.formats.site import SITE_FILE
from appliance.formats.site_view import SiteView
from appliance.formats.status.part import plain
from appliance.formats.status.replica import CarryingFigures, ReplicaStatus
from appliance.roles.replica.answers import Answers
from appliance.roles.replica.frames import Frames
from appliance.roles.replica.member_links import MemberLinks
from appliance.roles.replica.pauses import Pauses

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
        geometry = self._volume.geometry
        ring_fd, ring = make_ring(ring_size(geometry))
        cluster = node.site.cluster
        self._rooms = Rooms(
            geometry=geometry,
            cluster=cluster,
            shard=number,
            segments_max=self._shard.segments_max,
            ring=ring,
        )
        self._core = Replica(
            geometry=geometry,
            cluster=cluster,
            shard=number,
            replica_id=self._shard.replica_ids[index],
            prng=Prng(clock.seed()),
            state_machine=self._rooms,
            scrub_ticks=max(1, node.settings.scrub_interval_ms // node.site.tick_ms),
        )
        size_max = geometry.message_size_max
        self._members = MemberLinks(self, node, self._shard, message_size_max=size_max, log=log)
        self._counters_local: Counter[str] = Counter()  # of connections within this node
        self._received = [0] * 256  # messages, by command
        self._marks: Counter[str] = Counter()
        self._watch = SiteWatch(node.path / SITE_FILE, node.view, self._on_view, log.error)
        self._published = self._announced = 0
        self._knobs: dict[str, str] = {}
        self._figures, self._life, self._exit_code = Figures(), Lifetime(), 0
        second, on_bug = self._each_second, self._on_bug
        self._beat = Beat(f"shard {number}", log, self._life, second=second, on_bug=on_bug)
        ticks = self._beat.ticks(
            node.site.tick_ms / 1000,
            idle=lambda: idle_ticks(self._core),
            count=self._count_ticks,
            woke=self._woke,
        )
        self._ticks = Pauses(ticks, self._life, self._core, self._perform)
        self._told: tuple[Any, ...] = ()  # the condition that this node's readers know
        self._local = LocalServer(
            self,
            cluster=cluster,
            shard=number,
            sender=index,
            message_size_max=size_max,
            ring_fd=ring_fd,
            attachment=lambda: self._answers.attachment(self._published),
            counters=self._counters_local,
            drops=self._members.drops,
        )
        self._room = Room(self._volume, volumes=len(node.shards))
        self._frames = Frames(
            self._members.link_of,
            self._local.signer,
            sender=index,
            key=node.signing_key,
            counters=self._members.counters,
        )
        self._answers = Answers(
            node, self._shard, self._core, self._rooms, self._volume,
            ring=ring, frames=self._frames, drops=self._members.drops,
        )  # fmt: skip

    def _on_view(self, view: SiteView) -> None:
        """The site file names more nodes."""
        self._node = dataclasses.replace(self._node, view=view)
        self._shard = view.site.shards[self._shard.number]
        self._members.grow(self._node, self._shard)
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
            loaded = load(self._volume.geometry, self._volume.flush_all, self._volume.read_many)
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
        await self._members.listen()
        await self._local.start(Path(SOCKETS_FOLDER) / f"shard-{self._shard.number}")
        self._members.dial()
        members = self._members.close, self._members.close_listener
        self._life.opened(self._volume.close, *members, self._local.close)
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

    def _halt(self, code: str, reason: str) -> None:
        """Say in one line what happened, where and what to do, and stop. The first one counts."""
        if self._exit_code:
            return
        self._exit_code = EXIT_HALTED
        path = self._node.volume(self._shard.number)
        remedy = remedy_of(code)
        line = f"tigerchat: HALT {code} at {path}, replica {self._index}: {reason}; {remedy}"
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
        self._answers.remote.on_time()
        self._core.on_space(short=self._room.is_short(self._rooms.log_seq, self._oldest()))
        if self._told != (told := condition(self._core)):
            self._told = told
            self._local.tell(self.status())

    def _oldest(self) -> int | None:
        return self._rooms.oldest_segment_needed if self._core.state_ready else None

    def _each_second(self) -> None:
        self._watch.poll()
        self._members.scan_suspicions(self._core.suspicions)
        if self._volume.displaced():
            self._halt("VOLUME_MOVED", "its folder no longer leads to the files that are open")
        left = self._frames.nonces_left
        if left is not None and left < _NONCES_LEFT_MIN:
            self._log.warning("nonces used up: starting again with fresh ones")
            self._life.asked.set()

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
        core, frames = self._core, self._frames
        effects = core.effects
        if not effects or self._exit_code:
            return
        core.effects = []
        for effect in effects:
            kind = effect[0]
            if kind == fx.WRITE:
                self._volume.write(effect[1], effect[2], effect[3])
            elif kind == fx.SEND:
                frames.send(core.incarnation_durable, *effect[1:])
            elif kind == fx.SEND_CLIENT:
                frames.send_client(core.incarnation_durable, *effect[1:])
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
            self._answers.remote.on_published(self._published)

    # --- connections, of other nodes and of this one

    def on_open(self, connection: Connection) -> Checks:
        """Another node is there."""
        return self._members.checks(connection)

    def on_message(self, connection: Connection, message: Message) -> None:
        header, source = message.header, b""
        self._ticks.catch_up()
        self._received[header.command] += 1
        if message.sender == SENDER_CLIENT:
            if header.command in COMMANDS_CLIENT:
                self._frames.remember(client_of(message), connection)
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
        self._members.on_closed(connection)
        self._answers.remote.on_closed(connection)

    # --- what processes of this node ask

    def _answer(self, connection: Connection, message: Message) -> None:
        header = message.header
        if header.command in QUESTIONS:
            return self._answers.remote.on_question(connection, message)
        if header.command == LOCAL_STATUS:
            if message.body == local.STEP_DOWN:
                self._beat.task(asyncio.create_task(self._step_down()))
            scrub.hurry(self._core, message.body)
            body = json.dumps(plain(self.status())).encode()
            answer = local.answer(header, LOCAL_STATUS, body=body)
        elif header.command == LOCAL_BROKEN:
            return self._core.on_segment_broken(header.op)
        else:
            assert header.command == LOCAL_READ_ROOMS
            body = self._answers.rooms(message)
            answer = local.answer(header, LOCAL_ROOMS, op=self._rooms.log_seq, body=body)
        connection.send(self._local.signer.frame(answer, body))
        return None

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
            volume=self._room.statistics(self._rooms.log_seq, self._oldest()),
            edges=self._local.attached_count(),
            received=by_command(self._received),
            **self._members.figures(),
            **self._frames.figures(),
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
