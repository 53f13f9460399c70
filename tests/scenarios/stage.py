"""What a story is played on: the simulator's cluster, links, disks and clocks, under exact control.

The replicas are the product's, wired as in every simulated world, and all checkers of the
simulator look on. What a world draws from its seed is decided here by the story: nothing is lost,
late or broken that the story does not say.

Names in a story never change their meaning while it lasts:

    A0          the replica that is primary when the story begins
    B1, B2 ..   the ones after it in the ring; B_ = all of these
    S0, S1 ..   standbys; S_ = all of them
    C1, C2 ..   clients; C_ = all of them
    R_          all replicas
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from appliance.base.limits import SECTOR_SIZE
from appliance.base.prng import Prng
from appliance.cores.vsr import report
from appliance.cores.vsr.open import VolumeUnusable
from appliance.cores.vsr.replica import Replica
from appliance.formats import envelope as env
from appliance.formats import record
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RESULT_SIZE, SMALL, Geometry
from appliance.formats.group import Configuration
from appliance.formats.membership import Verdict
from appliance.simulation import atlas, liveness
from appliance.simulation.all_checkers import Checkers
from appliance.simulation.checkers.rooms import Key
from appliance.simulation.cluster import Cluster
from appliance.simulation.device import Device
from appliance.simulation.failure import Violation
from appliance.simulation.machine import Machine
from appliance.simulation.network import Network
from appliance.simulation.operator import Operator
from appliance.simulation.options import SWARM, Options
from appliance.simulation.replacement import Replacement
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Session, Sessions
from appliance.simulation.storage import Disk
from appliance.simulation.trace import Trace
from tests.scenarios.frames import Frames

SHARD = 0
STEP_US = 1_000  # how often a story looks whether what it waits for has come
WAIT_TICKS = 600  # for anything that a story waits for, unless it says otherwise
CLIENTS_MAX = 9
ROOM = b"room of a story."
HALTED = re.compile(r"replica (?P<index>\d+) halted: (?P<code>\w+)")
Rule = Callable[[int, int, Header], bool]  # (source, target, header): whether it is lost


class StoryFailed(AssertionError):
    """What the story expects is not so."""


class Wire(Network):
    """The simulator's links, with rules on top, and a memory of all that was sent."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rules: list[tuple[str, Rule]] = []
        self.sent_log: list[tuple[int, int, Message]] = []
        self.again_us = 0  # each message comes a second time, so much later
        self.late: dict[int, int] = {}  # node -> microseconds that what it sends takes longer
        self.frames: Frames | None = None

    def send(self, source: int, target: int, message: Message) -> None:
        """Send, unless a rule of the story loses it."""
        self.sent_log.append((source, target, message))
        if any(rule(source, target, message.header) for _, rule in self.rules):
            return
        passed = [message]
        if self.frames is not None and (source, target) in self.frames.drops:
            passed = self.frames.carry(source, target, message)
        for whole in passed:
            if source in self.late:
                self.schedule.after(self.late[source], super().send, source, target, whole)
            else:
                super().send(source, target, whole)
            if self.again_us:
                self.schedule.after(self.again_us, super().send, source, target, whole)


class Chronicle(Device):
    """The device that writes to the shard's own room: records of whatever kind and body."""

    def __init__(self, client_id: bytes) -> None:
        super().__init__(
            1_000,
            client_id=client_id,
            room_id=record.SHARD_ROOM_ID,
            author_id=0,
            kind=record.KIND_AUDIT,
            limit=100_000,
        )
        self.said: list[tuple[int, bytes]] = []

    def record(self, client_seq: int) -> bytes:
        """Record `client_seq`, as it was said."""
        self.kind = self.said[client_seq - 1][0]
        return super().record(client_seq)

    def body(self, client_seq: int) -> bytes:
        return self.said[client_seq - 1][1]


class Speaker:
    """A client: one session, and one device that speaks in the room of the story."""

    def __init__(self, number: int, session: Session, prng: Prng) -> None:
        self.number, self.session = number, session
        self.device = Device(
            number,
            client_id=prng.bytes(16),
            room_id=ROOM,
            author_id=1,
            kind=record.KIND_MESSAGE,
            limit=100_000,
        )
        self.in_flight: list[tuple[Device, int]] = []
        self.last: list[tuple[Device, int]] = []  # of the newest request
        self.floor = 0
        self.request: tuple[Header, bytes] | None = None  # the newest one, as it was sent
        self.answers: list[tuple[Header, bytes]] = []
        self.evictions = 0
        self.more: list[Device] = []  # further devices of this session
        self.codes: list[str] = []  # of the newest answer
        self.changes = False  # a request that changes the group is on its way


class Stage:
    """One telling of a story."""

    def __init__(
        self,
        *,
        replica_count: int = 3,
        clients: int = 1,
        geometry: Geometry = SMALL,
        standby_count: int = 0,
        segments_max: int = 64,
        newcomers: int = 0,
    ) -> None:
        self.geometry = geometry
        self.replica_count, self.standby_count = replica_count, standby_count
        self.options = Options(
            seed=1,
            mode=SWARM,
            replica_count=replica_count,
            standby_count=standby_count,
            edge_count=CLIENTS_MAX,
            delay_us_min=300,
            delay_us_mean=0,
            read_us_min=50,
            read_us_mean=0,
            write_us_min=200,
            write_us_mean=0,
            torn_percent=100,
            segments_max=segments_max,
        )
        self._begin_machines(Prng(1))
        self.first = 0  # number of the machine called A0
        self.speakers: list[Speaker] = []
        self.clients_wanted = clients
        self._begin_notes()
        for machine in self.cluster.machines:
            machine.disk.faults = False
            self._control(machine)
        self.absent = range(self.member_count - newcomers, self.member_count)
        if newcomers:
            self._format_without_newcomers()

    def _begin_machines(self, prng: Prng) -> None:
        """Machines, links and sessions; what is drawn for them is the same in every story."""
        geometry = self.geometry
        cluster = prng.bytes(16)
        self.schedule, self.trace = Schedule(), Trace()
        self.checkers = Checkers(
            options=self.options, geometry=geometry, cluster=cluster, shard=SHARD
        )
        self.wire = Wire(
            options=self.options,
            node_count=self.member_count + CLIENTS_MAX + 1,
            frame_max=geometry.message_size_max,
            schedule=self.schedule,
            prng=prng.fork(),
            trace=self.trace,
            deliver=self._deliver,
        )
        self.cluster = Cluster(
            options=self.options,
            geometry=geometry,
            cluster=cluster,
            shard=SHARD,
            schedule=self.schedule,
            network=self.wire,
            prng=prng.fork(),
            trace=self.trace,
            checkers=self.checkers,
        )
        self.sessions = Sessions(
            options=self.options,
            geometry=geometry,
            cluster=cluster,
            shard=SHARD,
            schedule=self.schedule,
            network=self.wire,
            prng=prng.fork(),
            trace=self.trace,
            edges=range(CLIENTS_MAX),
            members=self.cluster.members,
        )
        self.operator = Operator(
            options=self.options,
            geometry=geometry,
            cluster=cluster,
            shard=SHARD,
            schedule=self.schedule,
            network=self.wire,
            machines=self.cluster,
            prng=prng.fork(),
            trace=self.trace,
        )
        self.replacement = Replacement(
            geometry=geometry, machines=self.cluster, operator=self.operator
        )
        self.cluster.on_life = self._on_life
        self.sessions.on_reply, self.sessions.on_evicted = self._answered, self._evicted
        self.sessions.on_registered = lambda session: None
        self.prng = prng

    def _begin_notes(self) -> None:
        """What the telling remembers of what was seen."""
        self.halts: dict[int, str] = {}
        self.notes: dict[str, Any] = {}
        self.write_ticks: dict[tuple[int, int], int] = {}  # (machine, zone) -> how long it takes
        self.superblock_sectors: dict[int, int] = {}  # machine -> sectors left until it crashes
        self.damage: list[tuple[int, int, bytes, bytes]] = []  # machine, address, before, after
        self.mark_from: dict[str, int] = {}
        self.sent_from = 0
        self.devices_made = 0
        self.chronicle = Chronicle(b"writes of itself")
        self.wrote: set[int] = set()  # machines that began a write
        self.rows_met: set[int] = set()  # of the table of recovery

    # --- who is who

    @property
    def member_count(self) -> int:
        return self.replica_count + self.standby_count

    def nodes(self, names: str) -> list[int]:
        """Numbers of the nodes named: machines first, then clients."""
        out: list[int] = []
        count = self.replica_count
        for name in names.replace(" and ", " ").split():
            kind, number = name[0], name[1]
            if name == "R_":
                out += [(self.first + i) % count for i in range(count)]
            elif name == "B_":
                out += [(self.first + i) % count for i in range(1, count)]
            elif name == "S_":
                out += range(count, self.member_count)
            elif name == "C_":
                out += [self.member_count + s.session.edge for s in self.speakers]
            elif kind in "AB":
                assert int(number) < count, f"there is no {name}"
                out.append((self.first + int(number)) % count)
            elif kind == "S":
                assert int(number) < self.standby_count, f"there is no {name}"
                out.append(count + int(number))
            else:
                out.append(self.member_count + self.speaker(name).session.edge)
        return out

    def machines(self, names: str) -> list[Machine]:
        return [self.cluster.machines[i] for i in self.nodes(names)]

    def replica(self, index: int) -> Replica:
        """The process of a machine."""
        found = self.cluster.machines[index].replica
        if found is None:
            raise StoryFailed(f"{self.name(index)} does not run")
        return found

    def speaker(self, name: str) -> Speaker:
        return self.speakers[int(name[1:]) - 1]

    def talkers(self, names: str) -> list[Speaker]:
        edges = self.nodes(names)
        return [s for s in self.speakers if self.member_count + s.session.edge in edges]

    def name(self, index: int) -> str:
        if index >= self.replica_count:
            return f"S{index - self.replica_count}"
        number = (index - self.first) % self.replica_count
        return f"B{number}" if number else "A0"

    def span(self, ops: str) -> range:
        """`7`, or `5..9`."""
        first, _, last = ops.partition("..")
        return range(self.number(first), self.number(last or first) + 1)

    def number(self, text: str) -> int:
        """A number: digits, K, P, S of the geometry, `head`, a note, and sums of such."""
        geometry = self.geometry
        known = {
            "K": geometry.checkpoint_ops,
            "P": geometry.pipeline_max,
            "S": geometry.slot_count,
            "head": self.checkers.log.op,
        }
        total, sign = 0, 1
        word = ""
        for char in text + "+":
            if char not in "+-":
                word += char
                continue
            digits = word[: len(word) - len(word.lstrip("0123456789"))]
            name = word[len(digits) :]
            value = int(digits or 1)
            if name:
                value *= self.notes[name] if name in self.notes else known[name]
            total += sign * value
            sign, word = (1 if char == "+" else -1), ""
        return total

    # --- beginning

    def begin(self) -> None:
        """Start everybody; clients register, the room is made, all agree."""
        for machine in self.cluster.machines:
            if machine.index not in self.absent:
                self.start(machine.index)
        self.schedule.after(TICK_US, self._tick)
        self.until(lambda: self.primary() is not None, "a primary", 200)
        for _ in range(self.clients_wanted):
            self.join()
        self.until(lambda: all(s.session.core.ready for s in self.speakers), "clients", 200)
        first = self.speakers[0] if self.speakers else None
        if first is not None:
            maker = Device(
                0,
                client_id=b"makes the room..",
                room_id=ROOM,
                author_id=1,
                kind=record.KIND_ROOM_CREATE,
                limit=1,
            )
            self.ask(first, [(maker, 1)])
            self.until(lambda: not first.in_flight, "the room", 200)
        self.until(lambda: not self.disagreement(self.running()), "agreement", 400)
        self.first = self.primary() or 0
        self.sent_from = len(self.wire.sent_log)
        self.mark_from = dict(self.cluster.marks)

    def end(self) -> None:
        """Whoever is at rest holds all that it calls clean, and every record, on its medium."""
        if self.chronicle.said:
            return  # segments were given up: not every record is anywhere
        for index in self.running():
            if not self.disagreement([index]):
                self.checkers.final(self.cluster.machines[index])

    def _format_without_newcomers(self) -> None:
        """Everybody else knows nothing of these machines yet."""
        known = [m for i, m in enumerate(self.cluster.members) if i not in self.absent]
        first = Configuration(0, 0, self.replica_count, tuple(known))
        for index in range(len(known)):
            self.cluster.format(self.cluster.machines[index], view=0, configuration=first)

    def join(self) -> Speaker:
        """One more client."""
        number = len(self.speakers) + 1
        session = self.sessions.open(number - 1, None)
        session.load = speaker = Speaker(number, session, self.prng)
        self.speakers.append(speaker)
        return speaker

    def primary(self) -> int | None:
        """The machine of the normal primary of the newest view."""
        found = [
            (m.replica.epoch, m.replica.view, m.index)
            for m in self.cluster.machines
            if m.running and m.replica is not None and m.replica.normal_primary
        ]
        return max(found)[2] if found else None

    # --- time

    def run_us(self, duration_us: int) -> None:
        """Let time pass; a replica that halts is noted, and its process ends."""
        end = self.schedule.now_us + duration_us
        while self.schedule.now_us < end:
            try:
                self.schedule.run_until(end)
            except Violation as violation:
                if violation.checker != "halt":
                    raise
                self._ended(violation)

    def _ended(self, violation: Violation) -> None:
        """Note why a replica stopped for good, and end its process."""
        match = HALTED.match(violation.sentence)
        assert match is not None, violation.sentence
        index = int(match["index"])
        self.halts[index] = match["code"]
        if self.cluster.machines[index].replica is not None:
            self.cluster.crash(index)

    def until(self, condition: Callable[[], bool], what: str, ticks: int = 600) -> None:
        """Let time pass until `condition` holds."""
        for _ in range(ticks * TICK_US // STEP_US):
            if condition():
                return
            self.run_us(STEP_US)
        if not condition():
            raise StoryFailed(f"within {ticks} ticks it did not happen: {what}")

    def _tick(self) -> None:
        self.sessions.tick()
        self.schedule.after(TICK_US, self._tick)

    # --- processes

    def start(self, index: int) -> None:
        """Start a process; a volume that cannot be opened, and a halt, are noted."""
        self.halts.pop(index, None)
        try:
            self.cluster.start(index)
        except VolumeUnusable as unusable:
            self.halts[index] = unusable.halt
            self.cluster.machines[index].replica = None
        except Violation as violation:
            if violation.checker != "halt":
                raise
            self._ended(violation)

    def crash(self, index: int, kept: Callable[[int], range]) -> None:
        """End a process; of each write in flight the sectors `kept(sectors)` are on the disk."""
        disk = self.cluster.machines[index].disk
        for write in disk.writes.values():
            for sector in kept(len(write.data) // SECTOR_SIZE):
                start = sector * SECTOR_SIZE
                disk.poke(write.address + start, write.data[start : start + SECTOR_SIZE])
        disk.writes.clear()
        self.superblock_sectors.pop(index, None)
        self.cluster.crash(index)

    def running(self) -> list[int]:
        return [m.index for m in self.cluster.machines if m.running]

    # --- disks

    def _control(self, machine: Machine) -> None:
        """Put the story between a replica and its disk: slow zones, and crashes in an update."""
        disk, write, quick = machine.disk, machine.disk.write, machine.disk.options

        def controlled(token: int, address: int, buffers: list[bytes | memoryview]) -> None:
            ticks = self.write_ticks.get((machine.index, disk.atlas.area(address).zone), 0)
            if ticks:
                disk.options = replace(quick, write_us_min=ticks * TICK_US)
            write(token, address, buffers)
            disk.options = quick
            self.wrote.add(machine.index)
            if machine.index in self.superblock_sectors:
                self._count_sectors(machine, disk, token)

        disk.write = controlled  # type: ignore[method-assign]

    def _count_sectors(self, machine: Machine, disk: Disk, token: int) -> None:
        """Crash in the middle of a superblock's update, after so many sectors of it."""
        begun = disk.writes[token]
        if disk.atlas.area(begun.address).zone != atlas.SUPERBLOCK:
            return
        left = self.superblock_sectors[machine.index]
        sectors = len(begun.data) // SECTOR_SIZE
        if left >= sectors:
            self.superblock_sectors[machine.index] = left - sectors
            return
        life = disk.life

        def gone() -> None:
            if disk.life == life:
                self.crash(machine.index, lambda count: range(min(left, count)))

        self.schedule.after(0, gone)

    def damaged(self, index: int, address: int, data: bytes) -> None:
        """Put wrong bytes on a disk, and remember the right ones."""
        disk = self.cluster.machines[index].disk
        before = disk.peek(address, len(data))
        assert before != data
        self.damage.append((index, address, before, data))
        disk.poke(address, data)

    def rot(self, index: int, address: int) -> None:
        """Flip one bit."""
        byte = self.cluster.machines[index].disk.peek(address, 1)
        self.damaged(index, address, bytes([byte[0] ^ 1]))

    def mended(self, index: int) -> None:
        """The damage done to a disk by the story is undone, where nothing was written since."""
        disk = self.cluster.machines[index].disk
        for machine, address, before, after in reversed(self.damage):
            if machine == index and disk.peek(address, len(after)) == after:
                disk.poke(address, before)
        self.damage = [item for item in self.damage if item[0] != index]

    def prepare_at(self, op: int) -> int:
        geometry = self.geometry
        return geometry.wal_prepares_offset + op % geometry.slot_count * geometry.message_size_max

    def witness_at(self, op: int) -> int:
        geometry = self.geometry
        return geometry.wal_headers_offset + op % geometry.slot_count * SECTOR_SIZE

    def zone_at(self, checkpoint: int) -> int:
        geometry = self.geometry
        return (
            geometry.checkpoints_offset
            + geometry.checkpoint_zone(checkpoint) * geometry.checkpoint_zone_size
        )

    # --- links

    def lose(self, name: str, rule: Rule) -> None:
        self.wire.rules.append((name, rule))

    def _deliver(self, target: int, source: int, message: Message) -> None:
        if target < self.member_count:
            self.cluster.deliver(target, source, message)
        elif target == self.member_count + CLIENTS_MAX:
            self.operator.sessions.deliver(CLIENTS_MAX, source, message)
        else:
            self.sessions.deliver(target - self.member_count, source, message)

    def _on_life(self, replica: int, up: bool) -> None:
        self.sessions.on_life(replica, up)
        self.operator.sessions.on_life(replica, up)

    def sent(self, index: int, command: int) -> list[tuple[int, Header]]:
        """(target, header) of what a node sent since the story last began to watch."""
        log = self.wire.sent_log
        return [
            (log[i][1], log[i][2].header)
            for i in range(self.sent_from, len(log))
            if log[i][0] == index and log[i][2].header.command == command
        ]

    # --- clients

    def ask(self, speaker: Speaker, wanted: list[tuple[Device, int]]) -> None:
        """Send one request made of these records."""
        core = speaker.session.core
        assert core.ready, f"C{speaker.number} still waits for an answer"
        records = [device.record(number) for device, number in wanted]
        for made in records:
            self.checkers.rooms.on_ask(made)
        speaker.floor = self.checkers.answers.on_request()
        speaker.in_flight, speaker.last, speaker.codes = wanted, wanted, []
        self.sessions.request(
            speaker.session, env.OPERATION_APPEND, b"".join(records), len(records)
        )
        speaker.request = core.in_flight

    def device(self) -> Device:
        """A device of nobody yet."""
        self.devices_made += 1
        return Device(
            1_000 + self.devices_made,
            client_id=self.prng.bytes(16),
            room_id=ROOM,
            author_id=1,
            kind=record.KIND_MESSAGE,
            limit=100_000,
        )

    def change(self, speaker: Speaker, operation: int, body: bytes) -> None:
        """Send a request to change the group."""
        core = speaker.session.core
        assert core.ready, f"C{speaker.number} still waits for an answer"
        speaker.floor, speaker.changes = self.checkers.answers.on_request(), True
        speaker.codes = []
        self.sessions.request(speaker.session, operation, body, 0)
        speaker.request = core.in_flight

    def speak(self, speaker: Speaker, count: int) -> None:
        """Send the next records of the speaker's device."""
        device = speaker.device
        first = device.asked + 1
        device.asked += count
        self.ask(speaker, [(device, number) for number in range(first, first + count)])

    def _answered(self, session: Session, results: bytes, header: Header) -> None:
        speaker: Speaker = session.load
        self.checkers.answers.on_reply(session.edge, speaker.floor, header.op)
        speaker.codes = []
        if speaker.changes:
            code = ses.RESULT_STRUCT.unpack(results)[3]
            speaker.codes, speaker.changes = [Verdict(code).name.lower()], False
        for i, (device, number) in enumerate(speaker.in_flight):
            result = results[i * RESULT_SIZE : (i + 1) * RESULT_SIZE]
            key = Key(device.client_id, device.room_id, number)
            self.checkers.answers.on_result(session.edge, key, result)
            code = ses.RESULT_STRUCT.unpack(result)[3]
            speaker.codes.append(ses.RESULT_NAMES[code])
            if code in (ses.OK, ses.DUPLICATE):
                device.acknowledged = max(device.acknowledged, number)
        speaker.in_flight = []
        speaker.answers.append((header, results))

    def _evicted(self, session: Session) -> None:
        speaker: Speaker = session.load
        speaker.evictions += 1
        speaker.in_flight = []

    def from_client(self, speaker: Speaker, target: int, header: Header, body: bytes) -> None:
        """A message that a client's own core would not send."""
        self.wire.send(self.member_count + speaker.session.edge, target, Message(header, body))

    # --- looking

    def disagreement(self, indexes: list[int]) -> str:
        """Why these do not agree yet, in words; empty when they do."""
        busy = [i for i in indexes if self.cluster.machines[i].disk.writes]
        if busy:
            return f"{self.name(busy[0])} is writing"
        return liveness.shortcoming(self.cluster, indexes)

    def report(self) -> list[str]:
        """A line for each machine and each client."""
        out = [f"tick {self.schedule.now_us // TICK_US}, {self.checkers.log.op} ops committed"]
        for machine in self.cluster.machines:
            replica, name = machine.replica, self.name(machine.index)
            if replica is None:
                out.append(f"  {name}: down {self.halts.get(machine.index, '')}")
                continue
            line = report.state(replica)
            drops = {k: v for k, v in replica.counters.items() if k.startswith("dropped")}
            out.append(
                f"  {name}: "
                + ", ".join(
                    f"{key} {getattr(line, key)}"
                    for key in (
                        "status",
                        "role",
                        "view",
                        "log_view",
                        "op",
                        "commit_min",
                        "commit_max",
                        "checkpoint",
                        "dirty",
                        "faulty",
                        "sync",
                    )
                )
                + f" {drops}"
            )
        for speaker in self.speakers:
            waits = "waits" if speaker.in_flight else "ready"
            out.append(
                f"  C{speaker.number}: {waits}, {len(speaker.answers)} answers, "
                f"{speaker.evictions} evictions, told {' '.join(speaker.codes)}"
            )
        out.append(f"  marks: {dict(sorted(self.cluster.marks.items()))}")
        return out
