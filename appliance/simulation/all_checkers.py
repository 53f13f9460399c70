"""All checkers of a world, and who of them hears of what."""

from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.status import Status
from appliance.formats import envelope
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE, SUPERBLOCK_ZONE_SIZE, Geometry
from appliance.formats.record import record_hash
from appliance.formats.segment import RingView, number_of, slot_of
from appliance.simulation.atlas import WITNESS, Area
from appliance.simulation.checkers import invariants
from appliance.simulation.checkers.acknowledgements import Acknowledgements, headers_of
from appliance.simulation.checkers.answers import Answers
from appliance.simulation.checkers.checkpoints import Checkpoints
from appliance.simulation.checkers.log import CommittedLog
from appliance.simulation.checkers.membership import Membership
from appliance.simulation.checkers.questions import Questions
from appliance.simulation.checkers.rooms import RoomsModel
from appliance.simulation.checkers.superblocks import Superblocks
from appliance.simulation.checkers.views import Views
from appliance.simulation.checkers.votes import Votes
from appliance.simulation.clock import Clock
from appliance.simulation.failure import violated
from appliance.simulation.machine import Machine
from appliance.simulation.options import Options

CLOCK_TOLERANCE_US = 12_000_000  # a clock's first interval may be 10 s wide on each side


class Checkers:
    """Told of everything; raises a Violation when something does not hold."""

    def __init__(self, *, options: Options, geometry: Geometry, cluster: bytes, shard: int) -> None:
        count = options.member_count
        self.geometry = geometry
        self.log = CommittedLog(cluster, shard)
        self.rooms = RoomsModel(
            segment_records=geometry.segment_records,
            windows_max=geometry.windows_max if options.newcomers else 0,
        )
        self.answers = Answers(self.rooms)
        self.acknowledgements = Acknowledgements(geometry, count, options.replica_count)
        self.views = Views()
        self.votes = Votes(count)
        self.questions = Questions(count)
        self.membership = Membership()
        self.superblocks = Superblocks(count)
        self.checkpoints = Checkpoints(
            geometry=geometry,
            segments_max=options.segments_max,
            replica_count=count,
            log=self.log,
            rooms=self.rooms,
        )
        self.formats = 0  # volumes made so far
        self.now_us = 0  # when a replica was told the time last
        self.ahead_us_max = 0  # most that a wall clock was ahead of virtual time, ever

    def on_format(self, machine: Machine) -> None:
        """A volume was made: the first, or a new one for a disk that was lost."""
        self.formats += 1
        self.superblocks.on_format(machine.index, machine.disk)
        self.checkpoints.forget(machine.index)
        self.acknowledgements.on_format(machine.index)
        self.views.on_format(machine.index)

    def on_start(self, machine: Machine) -> None:
        """A process has opened its disk."""
        assert machine.replica is not None
        machine.commit_seen = machine.replica.commit_min
        self.superblocks.on_start(machine.index)
        self.votes.on_start(machine.index, machine.replica)
        self.questions.on_start(machine.index)

    def on_step(self, machine: Machine) -> None:
        """A core has taken an event; its effects are not performed yet."""
        replica, rooms = machine.replica, machine.rooms
        assert replica is not None and rooms is not None
        if replica.status == Status.HALTED or replica.checkpoint is None:
            return  # its effects say why; or it was removed before it started
        if replica.commit_min != machine.commit_seen:
            self._commits(machine)
        self.acknowledgements.on_step(machine.index, replica)
        self.votes.on_step(machine.index, replica)
        self.membership.on_step(machine.index, replica)
        invariants.check(machine.index, replica, self.geometry)

    def on_deliver(self, machine: Machine, sender: bytes, message: Message) -> None:
        """A replica is handed a message of the member with this id; none: of a client."""
        assert machine.replica is not None
        command, header = message.header.command, message.header
        self.questions.on_deliver(machine.index, sender, header, message.body)
        if command == envelope.START_VIEW_CHANGE:
            self.votes.on_vote(machine.index, sender, header, machine.replica.tick)
        elif command == envelope.DO_VIEW_CHANGE:
            self.votes.on_list(machine.index, sender, header)

    def on_clock(self, clock: Clock, now_us: int) -> None:
        """A replica is told what its wall clock shows."""
        self.now_us = now_us
        if not clock.lying:
            self.ahead_us_max = max(self.ahead_us_max, clock.realtime_us(now_us) - now_us)

    def _commits(self, machine: Machine) -> None:
        replica, rooms = machine.replica, machine.rooms
        assert replica is not None and rooms is not None
        index, seen = machine.index, machine.commit_seen
        if replica.commit_min < seen:
            violated("log", f"replica {index} goes back from commit {seen} to {replica.commit_min}")
        applied = rooms.commits
        rooms.commits = []
        for op in range(seen + 1, replica.commit_min + 1):
            header = replica.journal.at(op)
            if header is None:
                continue  # skipped by a state sync: the checkpoint's id vouches for it
            if self.log.on_commit(index, replica.viewstamp, header):
                self._time(index, header)
                self._held_by_quorum(op)
        machine.commit_seen = replica.commit_min
        for op, timestamp, body, results in applied:
            self.rooms.on_commit(index, op, timestamp, body, results)

    def _held_by_quorum(self, op: int) -> None:
        """An op this far above a checkpoint says that a quorum holds it: slots of the ring that
        only others need may be used again from here on.
        """
        geometry = self.geometry
        checkpoint = (
            (op - geometry.pipeline_max - 1) // geometry.checkpoint_ops * (geometry.checkpoint_ops)
        )
        if checkpoint <= 0 or self.formats > len(self.superblocks.durable):
            return  # a lost disk takes its checkpoint with it
        holders = sum(
            block is not None and block.checkpoint.header.op >= checkpoint
            for block in self.superblocks.durable
        )
        if holders < self.acknowledgements.quorum:
            violated(
                "checkpoints",
                f"op {op} is committed, but only {holders} replicas hold checkpoint {checkpoint}",
            )

    def _time(self, index: int, header: Header) -> None:
        """A log that a clock was ahead of once goes on by what passes."""
        if header.timestamp > self.now_us + self.ahead_us_max + CLOCK_TOLERANCE_US:
            violated(
                "log",
                f"replica {index} commits {header} at {header.timestamp}, later than "
                "any clock would show that was right since",
            )

    def on_send(
        self, machine: Machine, targets: tuple[bytes, ...], header: Header, body: bytes
    ) -> None:
        """A replica sends to its peers."""
        index, command, replica = machine.index, header.command, machine.replica
        self.questions.on_send(index, targets, header, body)
        assert replica is not None
        own = (
            command == envelope.PREPARE
            and header.viewstamp == replica.viewstamp
            and header.view % replica.replica_count == replica.index
        )
        self.superblocks.on_say(index, replica.incarnation_durable, header, body, own_prepare=own)
        if command == envelope.PREPARE_OK:
            if replica.is_standby and header.epoch == replica.epoch:
                violated("acknowledgements", f"replica {index} is a standby and says {header}")
            block = self.superblocks.durable[index]
            assert block is not None
            self.acknowledgements.on_prepare_ok(
                index, header, machine.disk, block.checkpoint.header.op
            )
            self.views.on_prepare_ok(index)
            self._vouches(machine, replica, header)
        elif command == envelope.DO_VIEW_CHANGE:
            listed = headers_of(header, body, blanks=True)
            self.acknowledgements.on_do_view_change(index, header, listed)
            self.views.on_do_view_change(index, header, listed)
        elif command == envelope.START_VIEW:
            headers = headers_of(header, body)
            self.log.on_start_view(index, header, headers)
            self.acknowledgements.on_start_view(index, header, headers)
            self.views.on_start_view(index, header, headers)

    def _vouches(self, machine: Machine, replica: Replica, header: Header) -> None:
        """Whoever still fetches its checkpoint must not help to make it the only one."""
        block = self.superblocks.durable[machine.index]
        assert block is not None
        op = block.checkpoint.header.op
        lacks = not replica.state_ready or replica.backfill is not None
        known = max(self.log.op, replica.commit_max)
        limit = op + self.geometry.pipeline_max
        if (
            block.sync_op_max
            and lacks
            and header.op > limit
            and not (self.geometry.durable(op, known))
        ):
            violated(
                "acknowledgements",
                f"replica {machine.index} acknowledges op {header.op} and "
                f"has not fetched checkpoint {op} yet",
            )

    def on_send_client(self, machine: Machine, header: Header, body: bytes) -> None:
        """A replica answers a client."""
        assert machine.replica is not None
        self.superblocks.on_say(
            machine.index,
            machine.replica.incarnation_durable,
            header,
            body,
            own_prepare=False,
        )
        if header.command == envelope.REPLY:
            self.log.on_reply(machine.index, header)

    def on_publish(self, machine: Machine, log_seq: int) -> None:
        """Readers may see records up to `log_seq`: those of the open segment are in the ring."""
        if log_seq > self.rooms.log_seq:
            violated(
                "rooms",
                f"replica {machine.index} publishes record {log_seq} of {self.rooms.log_seq}",
            )
        if log_seq == 0:
            return
        ring = RingView(machine.ring, self.geometry)
        segment, last = number_of(self.geometry, log_seq), slot_of(self.geometry, log_seq)
        if last == self.geometry.segment_records - 1 and not ring.record_count(segment):
            return  # it has started, or synced, behind a segment that is sealed
        fresh = min(log_seq - machine.published, self.geometry.records_max)
        for slot in range(max(0, last - fresh + 1), last + 1):
            number = log_seq - last + slot
            found = ring.records(segment, slot, 1)
            if found is None or record_hash(found) != self.rooms.hashes[number - 1]:
                violated(
                    "rooms",
                    f"replica {machine.index} publishes record {log_seq}, but record "
                    f"{number} is not in its ring",
                )

    def on_written(self, machine: Machine, address: int) -> None:
        """A write is on the medium; the core does not know yet."""
        if address >= SUPERBLOCK_ZONE_SIZE:
            return
        index = machine.index
        if self.superblocks.on_written(index, machine.disk, address):
            block = self.superblocks.durable[index]
            assert block is not None
            self.checkpoints.on_durable(index, block, machine.disk)

    def final(self, machine: Machine) -> None:
        """At the end: clean slots and every record below the checkpoint, on the medium."""
        self._rings(machine)
        block = self.superblocks.durable[machine.index]
        assert block is not None
        if not block.sync_op_max and not block.sync_log_seq:
            self.checkpoints.forget(machine.index)
            self.checkpoints.verify_records(machine.index, block.checkpoint.log_seq, machine.disk)

    def _rings(self, machine: Machine) -> None:
        """What memory calls clean lies in both rings, where the atlas lets nothing break."""
        replica, geometry = machine.replica, self.geometry
        assert replica is not None
        for slot, header in enumerate(replica.journal.headers):
            if header is None or replica.journal.dirty[slot]:
                continue
            if machine.disk.atlas.allows(machine.index, Area(WITNESS, slot)):
                continue
            for address in (
                geometry.wal_headers_offset + slot * SECTOR_SIZE,
                geometry.wal_prepares_offset + slot * geometry.message_size_max,
            ):
                if machine.disk.peek(address, HEADER_SIZE) != header.raw:
                    violated(
                        "journal",
                        f"replica {machine.index}: slot {slot} is clean, but "
                        f"{header} does not lie at {address}",
                    )
