"""A chat: devices connected to edges, edges beside replicas, all by the product's session core.

Each edge is a process of its own on some replica's machine: it reads that replica's ring and
sealed segments, keeps sessions of the shard for what its clients say, and may end at any time.
Clients' frames travel in order, as on a connection, but connections end with either side.
"""

import struct
from typing import Any

from appliance.base.errors import FormatError
from appliance.base.limits import RATE_UNLIMITED
from appliance.base.prng import Prng
from appliance.cores.edge import edge as core
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.session import Session as Connection
from appliance.cores.edge.token import Claims
from appliance.formats import record
from appliance.formats.author import author_id_of
from appliance.formats.client.rights import ADMIN
from appliance.formats.envelope import OPERATION_APPEND, Header
from appliance.formats.geometry import (
    RECORD_SIZE,
    ROOM_ROW_SIZE,
    SESSION_BLOCK_SIZE,
    Geometry,
)
from appliance.formats.record import CLIENT_ID, CLIENT_SEQ, TIMESTAMP
from appliance.formats.room_name import room_id_of
from appliance.formats.segment import SegmentView
from appliance.simulation import trace as kinds
from appliance.simulation.all_checkers import Checkers
from appliance.simulation.clock import EPOCH_US
from appliance.simulation.cluster import Cluster
from appliance.simulation.delay import exponential, ticks_around
from appliance.simulation.device import Device
from appliance.simulation.machine import Machine
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Session, Sessions
from appliance.simulation.storage import Disk
from appliance.simulation.talker import EntryPoint, Talker
from appliance.simulation.trace import EDGE, Trace

LOCAL_US_MEAN = 200  # between processes of one machine
CLIENT_US_MEAN = 2_000  # between a client and its edge
RESTART_TICKS_MEAN = 50
BLOCKED = 500  # per million of ticks: a client stops reading for a while
BLOCKED_TICKS_MEAN = 100
# by which talkers' clocks are ahead of all others: no message of theirs passes for one that may
# have been stored long ago, and edges, whose clocks may lie, take it for one of about now
AHEAD_US = 86_400_000_000
ROUNDS_MAX = 10_000  # beats of one event
FOREVER_US = 1 << 60
_SIZE = struct.Struct("<I")


class Trust:
    """Whoever names itself is believed: signatures are not simulated."""

    def verify(self, token: str, now_us: int) -> Claims:
        return Claims(
            author=token,
            author_id=author_id_of(token),
            expires_us=FOREVER_US,
            kid="",
            key=b"",
            rights=(("*", ADMIN),),
        )


class MappedView(SegmentView):
    """A segment that is mapped: its pages come from the disk again, who knows when."""

    def __init__(self, disk: Disk, data: bytes, geometry: Geometry) -> None:
        super().__init__(data, geometry)
        self._disk = disk

    def records(self, slot: int, count: int) -> bytes:
        """Copies of records; a bit of what a client would see may come wrong from the disk."""
        data = bytearray(super().records(slot, count))
        if self._disk.misreads():
            prng = self._disk.prng
            at = prng.below(count) * RECORD_SIZE + prng.choice((TIMESTAMP, CLIENT_ID, CLIENT_SEQ))
            data[at] ^= 1 << prng.below(8)
        return bytes(data)


class Extents:
    """Sealed segments of one machine, as its disk has them now."""

    def __init__(self, machine: Machine, geometry: Geometry, segments_max: int) -> None:
        self.machine, self.geometry, self.segments_max = machine, geometry, segments_max
        self.oldest = 0

    def view(self, number: int) -> SegmentView | None:
        """Segment `number`; None when that is not what lies there."""
        size = self.geometry.extent_size
        address = self.geometry.data_size + number % self.segments_max * size
        disk = self.machine.disk
        try:
            view = MappedView(disk, disk.peek(address, size), self.geometry)
        except FormatError:
            return None
        return view if view.number == number else None


class Load:
    """What a session of the shard is for: a log session of an edge's process."""

    __slots__ = ("edge", "life", "index", "floor")

    def __init__(self, edge: "Edge", index: int) -> None:
        self.edge, self.life, self.index = edge, edge.life, index
        self.floor = 0


class Edge:
    """One edge. `core` is None while its process does not run."""

    def __init__(self, number: int, machine: Machine, chat: "Chat") -> None:
        self.number, self.machine, self.chat = number, machine, chat
        self.life = 0
        self.core: core.Edge | None = None
        self.log_sessions: list[Session] = []
        self.talkers: dict[int, tuple[Talker, int]] = {}  # connection -> talker, its link

    # --- life

    def start(self) -> None:
        """A new process: nothing is left of the old one."""
        chat = self.chat
        rates = dict.fromkeys(
            ("device_rate", "user_rate", "room_rate", "address_rate"), RATE_UNLIMITED
        )
        self.life += 1
        self.core = core.Edge(
            geometry=chat.geometry,
            node=self.machine.index,
            epoch=1,
            shard_count=1,
            shard_of=lambda room_id: 0,
            tokens=Trust(),  # type: ignore[arg-type]
            admission=Admission(**rates),
            prng=chat.prng.fork(),
            log_sessions_per_shard=chat.options.sessions_per_edge,
        )
        self.core.on_tick(*self._times())
        self.log_sessions = [
            chat.sessions.open(self.number, Load(self, index))
            for index in range(chat.options.sessions_per_edge)
        ]
        if self.machine.replica is not None:
            self._attach(self.machine.disk.life, self.life)

    def crash(self) -> None:
        """The process is gone: its sessions, and every connection."""
        self.life += 1
        self.core = None
        for session in self.log_sessions:
            self.chat.sessions.close(session)
        self.log_sessions = []
        talkers, self.talkers = self.talkers, {}
        for talker, link in talkers.values():
            self.chat.to_client(talker, self._end, talker, link)

    def _end(self, talker: Talker, link: int) -> None:
        talker.on_closed(link, self.chat.schedule.now_us)

    def on_machine(self, up: bool) -> None:
        """The replica's process of this machine has started, or is gone."""
        if up:
            self.chat.locally(self._attach, self.machine.disk.life, self.life)
        else:
            self.chat.locally(self._detach, self.life)

    def _attach(self, machine_life: int, life: int) -> None:
        if life == self.life and machine_life == self.machine.disk.life and self.core is not None:
            chat = self.chat
            segments = Extents(self.machine, chat.geometry, chat.options.segments_max)
            self.core.on_attached(0, self.machine.ring, segments, self.machine.published)
            self.beat()

    def _detach(self, life: int) -> None:
        if life == self.life and self.core is not None and self.machine.replica is None:
            self.core.on_detached(0)
            self.beat()

    def on_publish(self, log_seq: int) -> None:
        """The replica says that records up to `log_seq` can be read."""
        self.chat.locally(self._committed, self.machine.disk.life, self.life, log_seq)

    def _committed(self, machine_life: int, life: int, log_seq: int) -> None:
        if life == self.life and machine_life == self.machine.disk.life and self.core is not None:
            self.core.on_committed(0, log_seq)
            self.beat()

    # --- clients

    def open(self, talker: Talker) -> Connection:
        """A client connects."""
        assert self.core is not None
        connection = self.core.on_open(f"client {talker.device.index}", ENCODINGS[talker.binary])
        self.talkers[connection.number] = (talker, talker.link)
        return connection

    def send(self, talker: Talker, data: bytes) -> None:
        """A client sends a frame."""
        assert talker.session is not None
        self.chat.from_client(talker, self._receive, self.life, talker.session, data)

    def _receive(self, life: int, connection: Connection, data: bytes) -> None:
        if life == self.life and self.core is not None and connection.number in self.talkers:
            self.core.on_frame(
                connection, data if connection.binary else data.decode(), not connection.binary
            )
            self.beat()

    def on_left(self, talker: Talker) -> None:
        """A client hangs up."""
        assert talker.session is not None
        if self.core is not None and self.talkers.pop(talker.session.number, None) is not None:
            self.core.on_close(talker.session)
            self.beat()

    # --- the shard

    def on_reply(self, session: Session, load: Load, results: bytes, header: Header) -> None:
        assert self.core is not None
        self.chat.checkers.answers.on_reply(self.number, load.floor, header.op)
        self.core.on_reply(0, load.index, results)
        self.on_registered(session, load)

    def on_registered(self, session: Session, load: Load) -> None:
        assert self.core is not None
        if session.core.ready:
            self.core.on_ready(0, load.index)
            self.beat()

    def on_evicted(self, load: Load) -> None:
        assert self.core is not None
        self.core.on_evicted(0, load.index)

    # --- the beat

    def on_tick(self) -> None:
        """10 ms have passed, and some client may have stopped to read."""
        if self.core is None:
            return
        self.core.on_tick(*self._times())
        self.beat()
        prng = self.chat.prng
        if self.talkers and prng.chance(BLOCKED, 1_000_000) and not self.chat.closing:
            connection = self.core.sessions[prng.choice(sorted(self.talkers))]
            self.chat.blocked += 1
            self.core.on_blocked(connection)
            ticks = ticks_around(prng, BLOCKED_TICKS_MEAN)
            self.chat.schedule.after(ticks * TICK_US, self._writable, self.life, connection)

    def _writable(self, life: int, connection: Connection) -> None:
        if life == self.life and self.core is not None and connection.number in self.talkers:
            self.core.on_writable(connection)
            self.beat()

    def _times(self) -> tuple[int, int]:
        now = self.chat.schedule.now_us
        return self.machine.clock.monotonic_ns(now), self.machine.clock.realtime_us(now)

    def beat(self) -> None:
        """Let the core turn what it has collected into effects and output."""
        for _ in range(ROUNDS_MAX):
            if self.core is None:
                return
            more = self.core.beat()
            effects = self.core.take_effects()
            output = self.core.take_output()
            for connection, frames in output:
                self._output(connection, frames)
            for effect in effects:
                self._perform(effect)
            if not more and not effects and not (self.core and self.core.is_unfinished):
                return
        raise AssertionError("the edge never comes to rest")

    def _output(self, connection: Connection, frames: list[bytes]) -> None:
        talker, link = self.talkers.get(connection.number, (None, 0))
        if talker is not None:
            payloads = _unframed(b"".join(frames))
            self.chat.to_client(talker, self._arrive, talker, link, payloads)

    def _arrive(self, talker: Talker, link: int, payloads: list[bytes]) -> None:
        talker.on_frames(link, payloads, self.chat.schedule.now_us)

    def _perform(self, effect: tuple[Any, ...]) -> None:
        if effect[0] == core.REQUEST:
            _, _, index, body, count = effect
            self._request(self.log_sessions[index], bytes(body[SESSION_BLOCK_SIZE:]), count)
        elif effect[0] == core.LOOKUP:
            self.chat.locally(self._lookup, self.machine.disk.life, self.life, effect[2])
        elif effect[0] == core.MEND:
            self.chat.locally(self._mend, self.machine.disk.life, effect[2])
        else:
            assert effect[0] == core.CLOSE
            talker, link = self.talkers.pop(effect[1].number, (None, 0))
            if talker is not None:
                self.chat.to_client(talker, self._end, talker, link)

    def _request(self, session: Session, records: bytes, count: int) -> None:
        chat = self.chat
        session.load.floor = chat.checkers.answers.on_request()
        session.asked_us = chat.schedule.now_us
        chat.trace.add(
            session.asked_us,
            kinds.REQUEST,
            EDGE + self.number,
            count,
            session.load.floor,
            session.client_id,
        )
        chat.sessions.request(session, OPERATION_APPEND, records, count)

    def _lookup(self, machine_life: int, life: int, room_ids: list[bytes]) -> None:
        """The replica of this machine answers with the rows of rooms."""
        rooms = self.machine.rooms
        if life != self.life or machine_life != self.machine.disk.life or rooms is None:
            return
        rows = b"".join(rooms.room_row(room_id) or bytes(ROOM_ROW_SIZE) for room_id in room_ids)
        self.chat.locally(self._rooms, machine_life, life, rooms.log_seq, room_ids, rows)

    def _mend(self, machine_life: int, segments: list[int]) -> None:
        """The replica of this machine is told what was found broken."""
        for number in segments if machine_life == self.machine.disk.life else ():
            self.chat.cluster.segment_broken(self.machine.index, number)

    def _rooms(
        self, machine_life: int, life: int, log_seq: int, room_ids: list[bytes], rows: bytes
    ) -> None:
        if life == self.life and machine_life == self.machine.disk.life and self.core is not None:
            self.core.on_rooms(0, log_seq, room_ids, rows)
            self.beat()


class Chat:
    """All edges and all talkers."""

    def __init__(
        self,
        *,
        options: Options,
        geometry: Geometry,
        schedule: Schedule,
        sessions: Sessions,
        cluster: Cluster,
        prng: Prng,
        trace: Trace,
        checkers: Checkers,
    ) -> None:
        self.options, self.geometry, self.schedule = options, geometry, schedule
        self.sessions, self.cluster, self.prng = sessions, cluster, prng
        self.trace, self.checkers = trace, checkers
        self.requests = self.replies = self.events = self.abandoned = self.edge_crashes = 0
        self.blocked = self.retried = self.pages = 0
        self.refusals: dict[str, int] = {}
        self.closing = False
        sessions.on_reply = lambda s, results, header: s.load.edge.on_reply(
            s, s.load, results, header
        )
        sessions.on_registered = lambda s: s.load.edge.on_registered(s, s.load)
        sessions.on_evicted = lambda s: s.load.edge.on_evicted(s.load)
        machines = cluster.machines
        self.edges = [
            Edge(number, machines[number % len(machines)], self)
            for number in range(options.edge_count)
        ]
        self.talkers = self._people()
        self._local_us = 0  # when the last local message arrives: sockets keep order
        for edge in self.edges:
            edge.start()
            self._next_crash(edge)
        self.schedule.after(TICK_US, self._tick)

    def _people(self) -> list[Talker]:
        talkers: list[Talker] = []
        for room in range(self.options.room_count):
            room_name = f"room {room}"
            room_id = room_id_of(room_name)
            self.checkers.rooms.names[room_id] = room_name
            for _ in range(self.options.devices_per_room):
                index = len(talkers)
                name = f"author-{index}"
                device = Device(
                    index,
                    client_id=self.prng.bytes(16),
                    room_id=room_id,
                    author_id=author_id_of(name),
                    kind=record.KIND_MESSAGE,
                    limit=self.options.records_per_device,
                    now_us=self._made_us,
                )
                talkers.append(
                    Talker(
                        device,
                        name=name,
                        room_name=room_name,
                        binary=self.prng.chance(1, 2),
                        chat=self,
                    )
                )
        return talkers

    def _made_us(self) -> int:
        """What the clocks of talkers show, when one names a message."""
        return EPOCH_US + AHEAD_US + self.schedule.now_us

    # --- the world

    def on_life(self, replica: int, up: bool) -> None:
        """A replica's process has started, or is gone."""
        self.sessions.on_life(replica, up)
        for edge in self.edges:
            if edge.machine.index == replica:
                edge.on_machine(up)

    def on_publish(self, replica: int, log_seq: int) -> None:
        """A replica lets its edges read further."""
        for edge in self.edges:
            if edge.machine.index == replica:
                edge.on_publish(log_seq)

    def locally(self, callback: Any, *arguments: Any) -> None:
        """Call in a moment, after all that was said locally before."""
        self._local_us = max(
            self._local_us, self.schedule.now_us + exponential(self.prng, LOCAL_US_MEAN)
        )
        self.schedule.at(self._local_us, callback, *arguments)

    def to_client(self, talker: Talker, callback: Any, *arguments: Any) -> None:
        """Call when it has reached the client, after all that was sent to it before."""
        talker.arrival_us = max(
            talker.arrival_us, self.schedule.now_us + exponential(self.prng, CLIENT_US_MEAN)
        )
        self.schedule.at(talker.arrival_us, callback, *arguments)

    def from_client(self, talker: Talker, callback: Any, *arguments: Any) -> None:
        """Call when it has reached the edge, after all that the client sent before."""
        talker.sending_us = max(
            talker.sending_us, self.schedule.now_us + exponential(self.prng, CLIENT_US_MEAN)
        )
        self.schedule.at(talker.sending_us, callback, *arguments)

    def edge_for(self, talker: Talker) -> EntryPoint | None:
        """Some edge that runs."""
        running = [edge for edge in self.edges if edge.core is not None]
        return self.prng.choice(running) if running else None

    def think(self) -> int:
        """Microseconds until somebody has something to say again."""
        return exponential(self.prng, self.options.think_us)

    def _tick(self) -> None:
        now = self.schedule.now_us
        self.sessions.tick()
        for edge in self.edges:
            edge.on_tick()
        for talker in self.talkers:
            talker.on_tick(now)
        self.schedule.after(TICK_US, self._tick)

    # --- faults

    def _next_crash(self, edge: Edge) -> None:
        if self.options.edge_crash_ticks_mean:
            ticks = ticks_around(self.prng, self.options.edge_crash_ticks_mean)
            self.schedule.after(ticks * TICK_US, self._crash, edge)

    def _crash(self, edge: Edge) -> None:
        if self.closing:
            return
        if edge.core is not None:
            self.edge_crashes += 1
            edge.crash()
            ticks = ticks_around(self.prng, RESTART_TICKS_MEAN)
            self.schedule.after(ticks * TICK_US, self._restart, edge)
        self._next_crash(edge)

    def _restart(self, edge: Edge) -> None:
        if edge.core is None:
            edge.start()

    # --- the end

    @property
    def done(self) -> bool:
        """Every device has all its answers."""
        return all(talker.device.done for talker in self.talkers)

    def close(self, core_machines: list[int]) -> None:
        """Let everybody speak once more; edges of machines that are lost move to others."""
        self.closing = True
        for edge in self.edges:
            if edge.machine.index not in core_machines:
                if edge.core is not None:
                    edge.crash()
                index = core_machines[edge.number % len(core_machines)]
                edge.machine = self.cluster.machines[index]
            if edge.core is None:
                edge.start()

    def waiting(self) -> str:
        """Who still waits for something, in words; empty when all have said and seen all."""
        return next((lack for talker in self.talkers if (lack := talker.lacks())), "")

    def faulted(self) -> dict[str, int]:
        """Faults of clients, by class."""
        return {
            "edge_crash": self.edge_crashes,
            "client_abandoned": self.abandoned,
            "client_blocked": self.blocked,
            "late_retry": self.retried,
        }

    def counts(self) -> dict[str, Any]:
        """Figures for the summary."""
        return {
            "requests": self.requests,
            "replies": self.replies,
            "events": self.events,
            "evictions": self.sessions.evictions,
            "abandoned": self.abandoned,
            "edge_crashes": self.edge_crashes,
            "pages": self.pages,
            "refusals": sum(self.refusals.values()),
        }


def _framed(payload: bytes) -> bytes:
    """A frame as it travels here: its size, then itself."""
    return _SIZE.pack(len(payload)) + payload


# by whether it is binary
ENCODINGS = [Encoding(binary=False, framing=_framed), Encoding(binary=True, framing=_framed)]


def _unframed(data: bytes) -> list[bytes]:
    """The payloads in joined frames."""
    payloads = []
    offset = 0
    while offset < len(data):
        size = _SIZE.unpack_from(data, offset)[0]
        offset += _SIZE.size
        payloads.append(data[offset : offset + size])
        offset += size
    assert offset == len(data)
    return payloads
