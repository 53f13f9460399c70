"""Replicas as processes on machines: start, crash, pause; and the driver's beat between core and
world.

The cores are those of the product. A machine keeps what outlives a process (disk, clock), gives a
process its memory (ring), hands it events and performs its effects in order. Nothing here decides
anything for it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.rooms.rooms import Rooms
from appliance.cores.vsr import effects as fx
from appliance.cores.vsr.open import Loaded, NewReplica, VolumeUnusable, format_writes, load
from appliance.cores.vsr.replica import Replica
from appliance.formats.command import client_of
from appliance.formats.envelope import SENDER_CLIENT, Message
from appliance.formats.geometry import HEADER_SIZE, Geometry
from appliance.formats.group import Configuration
from appliance.formats.segment import ring_size
from appliance.simulation import trace as kinds
from appliance.simulation.all_checkers import Checkers
from appliance.simulation.atlas import Atlas
from appliance.simulation.clock import Clock
from appliance.simulation.failure import violated
from appliance.simulation.machine import Machine, Observed
from appliance.simulation.network import Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import Schedule
from appliance.simulation.storage import Disk
from appliance.simulation.telling import Telling
from appliance.simulation.trace import Trace

INBOX_MAX = 4_000  # messages kept for a paused process; more are lost
EFFECTS_MAX = 2_000  # effects of one event
READ_BYTES_MAX = 256 << 10  # what one read of a connection gives at most


class Cluster:
    """All machines of one shard, those of standbys last.

    The world is told by `on_life(replica, up)`, by `on_write(replica, address)`, and by
    `on_failed(replica)` when a failed write has ended a process.
    """

    # what a machine is made of, where somebody else than time moves it
    kind_of_disk: type[Disk] = Disk
    kind_of_machine: type[Machine] = Machine

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
        checkers: Checkers,
    ) -> None:
        self.options, self.geometry, self.cluster, self.shard = options, geometry, cluster, shard
        self.schedule, self.network, self.prng, self.trace = schedule, network, prng, trace
        self.checkers = checkers
        self.on_life: Callable[[int, bool], None] = lambda replica, up: None
        self.on_publish: Callable[[int, int], None] = lambda replica, log_seq: None
        self.on_write: Callable[[int, int], None] = lambda replica, address: None
        self.on_failed: Callable[[int], None] = lambda replica: None
        # whether a halt is what the operator has asked for
        self.on_halt: Callable[[int, str], bool] = lambda replica, code: False
        self.on_disk_fault: Callable[[int], None] = lambda replica: None
        self.atlas = Atlas(
            geometry=geometry,
            replica_count=options.replica_count,
            member_count=options.member_count,
            voters_max=options.voters_max,
            segments_max=options.segments_max,
            spread=options.slot_faults_spread,
            overload=options.overload,
            prng=prng.fork(),
        )
        self.members = [prng.bytes(16) for _ in range(options.member_count)]
        self.marks: dict[str, int] = {}
        self.halts: dict[str, int] = {}
        self.machines = [self._machine(i) for i in range(options.member_count)]
        self._perform_by_kind = {
            fx.SEND: self._send,
            fx.SEND_CLIENT: self._send_client,
            fx.WRITE: self._write,
            fx.READ: self._read,
            fx.PUBLISH: self._publish,
            fx.HALT: self._halt,
            fx.MARK: self._mark,
        }

    def _machine(self, index: int) -> Machine:
        options, prng = self.options, self.prng

        def done(token: int, data: bytes | None, address: int) -> None:
            self._storage_done(self.machines[index], token, data, address)

        def failed(reason: str) -> None:
            self._write_failed(self.machines[index], reason)

        disk = self.kind_of_disk(
            replica=index,
            geometry=self.geometry,
            options=options,
            atlas=self.atlas,
            schedule=self.schedule,
            prng=prng.fork(),
            trace=self.trace,
            done=done,
            failed=failed,
            faulty=lambda: self.on_disk_fault(index),
        )
        offset_max, drift_max = options.clock_offset_us_max, options.clock_drift_ppm_max
        clock = Clock(
            offset_us=prng.between(-offset_max, offset_max),
            drift_ppm=prng.between(-drift_max, drift_max),
            boot_ns=prng.below(1 << 30),
        )
        machine = self.kind_of_machine(index, disk, clock, prng.fork())
        if index == options.clock_liar:
            clock.lie()
        self.format(machine, view=options.view_first)
        return machine

    def format(
        self,
        machine: Machine,
        *,
        view: int,
        log_view: int | None = None,
        configuration: Configuration | None = None,
        vouched: bool = True,
    ) -> None:
        """Make an empty volume on the machine's disk, of a group as it began, or as it is now."""
        options = self.options
        group = configuration or Configuration(0, 0, options.replica_count, tuple(self.members))
        new = NewReplica(
            cluster=self.cluster,
            shard=self.shard,
            replica_id=self.members[machine.index],
            members=list(group.members),
            replica_count=group.replica_count,
            segments_max=options.segments_max,
            view=view,
            log_view=log_view,
            epoch=group.epoch,
            members_op=group.op,
            incarnation=self._life_above(machine.index) if log_view == 0 or group.op else 0,
            vouched=vouched,
        )
        for address, data in format_writes(self.geometry, new):
            machine.disk.poke(address, data)
        self.checkers.on_format(machine)

    def restore(self, index: int, image: tuple[bytes, dict[int, bytes]]) -> None:
        """Put an older copy of its volume on a machine's disk."""
        machine = self.machines[index]
        assert machine.replica is None
        machine.disk.restore(image)
        self.checkers.on_format(machine)

    def _life_above(self, index: int) -> int:
        """A number above all that any other member remembers of a machine, in memory or durably; 0:
        nobody has heard of it.
        """
        replica_id, newest = self.members[index], self.life_remembered(index)
        for other, machine in enumerate(self.machines):
            block = self.checkers.superblocks.durable[other]
            if other == index or block is None:
                continue
            if block.told and replica_id in block.members:
                newest = max(newest, block.told[block.members.index(replica_id)].incarnation)
            if machine.replica is not None and replica_id in machine.replica.told:
                newest = max(newest, machine.replica.told[replica_id].incarnation)
        return newest + 1 if newest else 0

    def life_remembered(self, index: int, *, by: int = 1) -> int:
        """The newest life of a machine that so many of the others hold durably."""
        replica_id = self.members[index]
        lives = sorted(
            (
                block.told[block.members.index(replica_id)].incarnation
                for other, block in enumerate(self.checkers.superblocks.durable)
                if other != index and block is not None and block.told
                if self.members[other] in block.members[: block.replica_count]
                if replica_id in block.members
            ),
            reverse=True,
        )
        return lives[by - 1] if len(lives) >= by else 0

    # --- life of a process

    def start(self, index: int) -> None:
        """Start the process of a machine: new memory, everything else from its disk."""
        machine = self.machines[index]
        assert machine.replica is None
        machine.ring = memoryview(bytearray(ring_size(self.geometry)))
        rooms = Rooms(
            geometry=self.geometry,
            cluster=self.cluster,
            shard=self.shard,
            segments_max=self.options.segments_max,
            ring=machine.ring,
        )
        machine.rooms = Observed(rooms)
        machine.replica = self._kind(machine)(
            geometry=self.geometry,
            cluster=self.cluster,
            shard=self.shard,
            replica_id=self.members[index],
            prng=machine.prng.fork(),
            state_machine=machine.rooms,
        )
        machine.connections, machine.paused, machine.inbox = {}, False, []
        machine.published = 0
        machine.started_us = self.schedule.now_us
        self._trace(machine, kinds.START, machine.disk.life)
        try:
            loaded = self._load(machine)
        except VolumeUnusable as unusable:
            if not self.options.overload:
                machine.replica = None
                raise
            self._halted(machine, unusable.halt, str(unusable))
            return
        machine.replica.open(loaded, *self._times(machine))
        self.checkers.on_start(machine)
        self._settle(machine)
        machine.beat += 1
        self.schedule.after(
            1 + machine.prng.below(self.options.tick_us), self._tick, machine, machine.beat
        )
        self.on_life(index, True)

    def _load(self, machine: Machine) -> Loaded:
        """What lies on its disk."""
        return load(self.geometry, machine.disk.flush_all, machine.disk.read_many)

    def _kind(self, machine: Machine) -> Callable[..., Replica]:
        """What is made of a machine's volume: a replica; where all is told, one that tells."""
        if not self.trace.verbose:
            return Replica
        return partial(
            Telling, lambda step: self.trace.note(self.schedule.now_us, machine.index, step)
        )

    def crash(self, index: int, *, halfway: bool = False, power: bool = False) -> None:
        """The process is gone at once, and what it had in flight to the disk is torn; with `power`
        what the disk had in its cache is gone as well."""
        machine = self.machines[index]
        assert machine.replica is not None
        self._trace(machine, kinds.CRASH, len(machine.disk.writes))
        self._end(machine, halfway=halfway, power=power)

    def _write_failed(self, machine: Machine, reason: str) -> None:
        """The driver cannot know what is on the disk now: it ends the process."""
        self._trace(machine, kinds.HALT, 0, 0, reason)
        self._end(machine)
        self.on_failed(machine.index)

    def _end(self, machine: Machine, *, halfway: bool = False, power: bool = False) -> None:
        machine.replica, machine.rooms, machine.inbox, machine.paused = None, None, [], False
        machine.arrived = {}
        machine.beat += 1
        machine.disk.crash(halfway=halfway, power=power)
        self.on_life(machine.index, False)

    def pause(self, index: int) -> None:
        """The process stands still; what comes for it waits."""
        machine = self.machines[index]
        assert machine.running
        self._trace(machine, kinds.PAUSE)
        machine.paused = True
        machine.beat += 1

    def resume(self, index: int) -> None:
        """The process goes on, in another time, with all that has waited."""
        machine = self.machines[index]
        assert machine.paused
        self._trace(machine, kinds.RESUME, len(machine.inbox))
        machine.paused = False
        waiting, machine.inbox = machine.inbox, []
        for callback, arguments in waiting:
            if machine.running:
                callback(*arguments)
        self._tick(machine, machine.beat)

    def running(self) -> list[int]:
        return [machine.index for machine in self.machines if machine.running]

    # --- events

    def segment_broken(self, index: int, number: int) -> None:
        """A reader on a machine has found a sealed segment broken; a paused process never hears."""
        machine = self.machines[index]
        if machine.replica is not None and machine.running:
            machine.replica.on_segment_broken(number)
            self._settle(machine)

    def deliver(self, index: int, source: int, message: Message) -> None:
        """A message has arrived at a machine; as a `source`, edges are numbered after replicas."""
        machine = self.machines[index]
        gap_us = self.options.read_gap_us
        if not gap_us or source >= self.options.member_count:
            self._hand_over(machine, source, [message])
            return
        connection = machine.arrived.setdefault(source, [])
        connection.append(message)
        if len(connection) == 1:
            delay_us = self.prng.below(gap_us) + 1
            self.schedule.after(delay_us, self._read_frames, machine, source, machine.arrived)

    def _read_frames(
        self, machine: Machine, source: int, arrived: dict[int, list[Message]]
    ) -> None:
        """The driver comes to a connection: all that has arrived on it meanwhile, in reads of
        bounded size.
        """
        if arrived is not machine.arrived:
            return  # of a process that is gone
        frames: list[Message] = []
        size = 0
        for message in arrived.pop(source):
            size += HEADER_SIZE + len(message.body)
            if frames and size > READ_BYTES_MAX:
                self._hand_over(machine, source, frames)
                frames, size = [], HEADER_SIZE + len(message.body)
            frames.append(message)
        self._hand_over(machine, source, frames)

    def _hand_over(self, machine: Machine, source: int, frames: list[Message]) -> None:
        """The frames of one read, one after the other; what they lead to is done after the last."""
        if machine.paused:
            if len(machine.inbox) < INBOX_MAX:
                machine.inbox.append((self._hand_over, (machine, source, frames)))
            return
        if machine.replica is None or machine.halted:
            return
        for message in frames:
            self._take(machine, source, message)
        if len(machine.replica.effects) > EFFECTS_MAX * len(frames):
            violated("bounds", f"replica {machine.index}: {len(machine.replica.effects)} effects")
        self._perform(machine)

    def _take(self, machine: Machine, source: int, message: Message) -> None:
        """Let the core take one message, and the checkers look."""
        assert machine.replica is not None
        if message.sender == SENDER_CLIENT:
            machine.connections[client_of(message)] = source - self.options.member_count
            sender = b""
        else:  # who sent it is known by its connection, not by what it says of itself
            sender = self.members[source]
            if sender not in machine.replica.members:
                return
        self._trace(machine, kinds.DELIVER, source, message.header.op, message.header)
        self.checkers.on_deliver(machine, sender, message)
        machine.replica.on_message(message, sender)
        self.checkers.on_step(machine)

    def _tick(self, machine: Machine, beat: int) -> None:
        if beat != machine.beat or machine.halted:
            return  # of a process that crashed or was paused meanwhile
        assert machine.replica is not None
        machine.replica.on_tick(*self._times(machine))
        if machine.replica.effects:  # else nothing has happened
            self._settle(machine)
        self.schedule.after(self.options.tick_us, self._tick, machine, beat)

    def _storage_done(self, machine: Machine, token: int, data: bytes | None, address: int) -> None:
        """A read is over, or a write: then `address` says where it went."""
        if machine.paused:
            machine.inbox.append((self._storage_done, (machine, token, data, address)))
            return
        assert machine.replica is not None
        if machine.halted:
            return
        if address >= 0:
            self._trace(machine, kinds.WRITE_DONE, token)
            self.checkers.on_written(machine, address)
            machine.replica.on_write_done(token)
        else:
            self._trace(machine, kinds.READ_DONE, token, len(data) if data is not None else -1)
            machine.replica.on_read_done(token, data)
        self._settle(machine)

    def _times(self, machine: Machine) -> tuple[int, int]:
        now = self.schedule.now_us
        self.checkers.on_clock(machine.clock, now)
        return machine.clock.monotonic_ns(now), machine.clock.realtime_us(now)

    # --- effects

    def _settle(self, machine: Machine) -> None:
        """After one event: let the checkers look, and perform what the core asked for."""
        replica = machine.replica
        assert replica is not None
        self.checkers.on_step(machine)
        if len(replica.effects) > EFFECTS_MAX:
            count = len(replica.effects)
            violated("bounds", f"replica {machine.index}: {count} effects of one event")
        self._perform(machine)

    def _perform(self, machine: Machine) -> None:
        """What the core asked for, in order."""
        replica = machine.replica
        assert replica is not None
        effects = replica.effects
        if effects:
            replica.effects = []
            for effect in effects:
                self._perform_by_kind[effect[0]](machine, effect)
            assert not replica.effects

    def _send(self, machine: Machine, effect: tuple[Any, ...]) -> None:
        _, members, header, body, route = effect
        body = body if type(body) is bytes else bytes(body)
        replica = machine.replica
        assert replica is not None and members
        targets = [self.members.index(member) for member in members]
        self._trace(machine, kinds.SEND, sum(1 << target for target in targets), header.op, header)
        self.checkers.on_send(machine, members, header, body)
        message = Message(header, body, replica.index, route)
        for target in targets:
            self.network.send(machine.index, target, message)

    def _send_client(self, machine: Machine, effect: tuple[Any, ...]) -> None:
        _, client, header, body = effect
        body = body if type(body) is bytes else bytes(body)
        self._trace(machine, kinds.SEND_CLIENT, header.op, 0, header)
        self.checkers.on_send_client(machine, header, body)
        edge = machine.connections.get(bytes(client))
        if edge is not None:
            assert machine.replica is not None
            message = Message(header, body, machine.replica.index)
            self.network.send(machine.index, self.options.member_count + edge, message)

    def _write(self, machine: Machine, effect: tuple[Any, ...]) -> None:
        _, token, address, buffers = effect
        self._trace(machine, kinds.WRITE, token, address)
        machine.disk.write(token, address, buffers)
        self.on_write(machine.index, address)

    def _read(self, machine: Machine, effect: tuple[Any, ...]) -> None:
        _, token, address, length = effect
        self._trace(machine, kinds.READ, token, address)
        machine.disk.read(token, address, length)

    def _publish(self, machine: Machine, effect: tuple[Any, ...]) -> None:
        self._trace(machine, kinds.PUBLISH, effect[1])
        self.checkers.on_publish(machine, effect[1])
        machine.published = effect[1]
        self.on_publish(machine.index, effect[1])

    def _mark(self, machine: Machine, effect: tuple[Any, ...]) -> None:
        self.marks[effect[1]] = self.marks.get(effect[1], 0) + 1
        self._trace(machine, kinds.MARK, 0, 0, effect[1])

    def _halt(self, machine: Machine, effect: tuple[Any, ...]) -> None:
        _, code, reason = effect
        self._halted(machine, code, reason)

    def _halted(self, machine: Machine, code: str, reason: str) -> None:
        """A replica stops for good: right only where more broke than can be mended."""
        self._trace(machine, kinds.HALT, 0, 0, f"{code}: {reason}")
        if self.on_halt(machine.index, code):
            machine.halted = True
            return
        if not self.options.overload:
            violated("halt", f"replica {machine.index} halted: {code}: {reason}")
        self.halts[code] = self.halts.get(code, 0) + 1
        machine.halted = True

    def _trace(
        self, machine: Machine, kind: int, first: int = 0, second: int = 0, what: Any = None
    ) -> None:
        self.trace.add(self.schedule.now_us, kind, machine.index, first, second, what)
