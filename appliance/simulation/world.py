"""One seed, from its options to its verdict."""

import traceback
from collections import Counter
from dataclasses import dataclass

from appliance.base.prng import Prng
from appliance.cores.vsr.member import TIMEOUT_TICKS
from appliance.cores.vsr.open import VolumeUnusable
from appliance.cores.vsr.quorums import quorums
from appliance.formats.envelope import Message
from appliance.formats.geometry import SMALL, Geometry
from appliance.simulation import liveness
from appliance.simulation import trace as kinds
from appliance.simulation.all_checkers import Checkers
from appliance.simulation.chat import Chat
from appliance.simulation.client import Clients
from appliance.simulation.cluster import Cluster
from appliance.simulation.failure import Violation, violated
from appliance.simulation.faults import Faults
from appliance.simulation.keeper import Keeper
from appliance.simulation.membership import MemberChanges
from appliance.simulation.mistakes import Mistakes
from appliance.simulation.network import Network
from appliance.simulation.operator import Operator
from appliance.simulation.options import Options
from appliance.simulation.replacement import Replacement
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Sessions
from appliance.simulation.trace import WORLD, Trace

SHARD = 0

QUIET_TICKS = 100  # watched after everything has converged
POLL_TICKS = 20  # how often the end of a phase is looked for
TOURS_FACTOR = 4  # so much longer at most while scrubbers have not seen everything


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed. `failure` is empty when everything held."""

    options: Options
    failure: str
    checker: str
    ticks: int
    digest: str
    events: int
    ops: int
    records: int
    counts: dict[str, int]
    faults: dict[str, int]  # by class
    marks: dict[str, int]
    excuse: str
    report: list[str]  # status lines and last events, of a failure


class _Stopped(Exception):
    """The tick at which a run was to stop is reached."""


class World:
    """Everything of one seed. `run` goes from start to verdict; tests may drive the parts."""

    def __init__(
        self, options: Options, *, geometry: Geometry = SMALL, wanted: range = range(0)
    ) -> None:
        self.options, self.geometry = options, geometry
        self.schedule = Schedule()
        self.trace = Trace(wanted)
        self.prng = Prng(options.seed)
        cluster = self.prng.bytes(16)
        self.checkers = Checkers(options=options, geometry=geometry, cluster=cluster, shard=SHARD)
        self.network = Network(
            options=options,
            node_count=options.member_count + options.edge_count + 1,
            schedule=self.schedule,
            prng=self.prng.fork(),
            trace=self.trace,
            frame_max=geometry.message_size_max,
            deliver=self._deliver,
        )
        self.cluster = Cluster(
            options=options,
            geometry=geometry,
            cluster=cluster,
            shard=SHARD,
            schedule=self.schedule,
            network=self.network,
            prng=self.prng.fork(),
            trace=self.trace,
            checkers=self.checkers,
        )
        self.sessions = Sessions(
            options=options,
            geometry=geometry,
            cluster=cluster,
            shard=SHARD,
            schedule=self.schedule,
            network=self.network,
            prng=self.prng.fork(),
            trace=self.trace,
            edges=range(options.edge_count),
            members=self.cluster.members,
        )
        self.clients = self._clients()
        self._begin_acts(cluster)
        self.excuse = ""
        self._stop_us: int | None = None

    def _begin_acts(self, cluster: bytes) -> None:
        """Who hurts the group, and who looks after it."""
        options = self.options
        self.cluster.on_life = self._on_life
        self.cluster.on_publish = self.clients.on_publish
        self.faults = Faults(
            options=options,
            schedule=self.schedule,
            network=self.network,
            cluster=self.cluster,
            prng=self.prng.fork(),
            trace=self.trace,
        )
        self.operator = Operator(
            options=options,
            geometry=self.geometry,
            cluster=cluster,
            shard=SHARD,
            schedule=self.schedule,
            network=self.network,
            machines=self.cluster,
            prng=self.prng.fork(),
            trace=self.trace,
        )
        self.replacement = Replacement(
            geometry=self.geometry, machines=self.cluster, operator=self.operator
        )
        self.changes = MemberChanges(
            options=options,
            schedule=self.schedule,
            machines=self.cluster,
            operator=self.operator,
            # What worlds without changes draw stays as it is.
            prng=self.prng.fork() if options.member_changes else Prng(options.seed),
        )
        self.keeper = Keeper(
            options=options,
            geometry=self.geometry,
            schedule=self.schedule,
            operator=self.operator,
            rooms=self.checkers.rooms,
        )
        self.faults.operator, self.faults.replacement = self.operator, self.replacement
        self.faults.mistakes = Mistakes(
            options=options,
            schedule=self.schedule,
            machines=self.cluster,
            replacement=self.replacement,
            prng=Prng(options.seed + 1),  # what other worlds draw stays as it is
        )

    def _clients(self) -> Clients | Chat:
        """Devices straight on sessions, or a whole chat through edges."""
        prng = self.prng.fork()
        if self.options.chat:
            return Chat(
                options=self.options,
                geometry=self.geometry,
                schedule=self.schedule,
                sessions=self.sessions,
                cluster=self.cluster,
                prng=prng,
                trace=self.trace,
                checkers=self.checkers,
            )
        return Clients(
            options=self.options,
            schedule=self.schedule,
            sessions=self.sessions,
            prng=prng,
            trace=self.trace,
            checkers=self.checkers,
        )

    def _deliver(self, target: int, source: int, message: Message) -> None:
        if target < self.options.member_count:
            self.cluster.deliver(target, source, message)
            return
        edge = target - self.options.member_count
        chat = edge < self.options.edge_count  # the operator's node comes behind the edges
        (self.sessions if chat else self.operator.sessions).deliver(edge, source, message)

    def _on_life(self, replica: int, up: bool) -> None:
        if up:
            self.network.replay(replica)
        self.clients.on_life(replica, up)
        self.operator.sessions.on_life(replica, up)

    # --- phases

    def run(self, until_tick: int = -1) -> Outcome:
        """Both phases, or all that happens before `until_tick`; never raises a Violation."""
        failure = checker = ""
        report: list[str] = []
        self._stop_us = until_tick * TICK_US if until_tick >= 0 else None
        try:
            self.start()
            self.safety()
            self.liveness()
        except _Stopped:
            pass
        except Violation as violation:
            failure, checker = violation.sentence, violation.checker
        except VolumeUnusable as unusable:
            failure, checker = str(unusable), "halt"
        except Exception as error:  # a bug of the product, and only its seed explains it
            failure = traceback.format_exc()
            checker = "assertion" if isinstance(error, AssertionError) else "exception"
        if failure:
            report = [*self.status(), "", *self.trace.last()]
        return self._outcome(failure, checker, report)

    def start(self) -> None:
        """Start every process; faults begin."""
        for machine in self.cluster.machines:
            self.cluster.start(machine.index)
        self.faults.begin()
        self.changes.begin()
        self.keeper.begin()
        self.faults.mistakes.begin()

    def run_ticks(self, ticks: int) -> None:
        """Let `ticks` ticks pass, or what is left of them until the run has to stop."""
        end_us = self.schedule.now_us + ticks * TICK_US
        if self._stop_us is None or end_us <= self._stop_us:
            self.schedule.run_until(end_us)
        else:
            self.schedule.run_until(self._stop_us)
            raise _Stopped

    def safety(self) -> None:
        """All faults on, until every device is done or the time is up."""
        for _ in range(self.options.safety_ticks // POLL_TICKS):
            self.run_ticks(POLL_TICKS)
            if self.clients.done:
                break

    def liveness(self) -> None:
        """Heal a core, leave the rest broken for ever, and see whether the core converges."""
        core = self._choose_core()
        core += range(self.options.replica_count, self.options.member_count)
        mask = sum(1 << index for index in core)
        self.trace.add(self.schedule.now_us, kinds.PHASE, WORLD, mask)
        self._heal(core)
        closed, reason = False, ""
        polls = self.options.liveness_ticks // POLL_TICKS
        tours = liveness.tours(self.cluster, core)
        for poll in range(TOURS_FACTOR * polls):
            if poll >= polls and not liveness.on_tour(self.cluster, core, tours):
                break
            if not closed and not self.changes.waiting():
                closed = True  # from here on nobody's machine is taken away
                members = liveness.members(self.cluster, core)
                self.clients.close([machine.index for machine in members])
            self.run_ticks(POLL_TICKS)
            reason = (
                self.changes.waiting()
                or self.keeper.waiting()
                or liveness.shortcoming(self.cluster, core)
                or self.clients.waiting()
            )
            if not reason:
                break
        if self.options.overload:
            return  # whether it goes on is a matter of luck
        if reason:
            self.excuse = liveness.excuse(self.cluster, core)
            if not self.excuse:
                violated(
                    "liveness",
                    f"the core {core} has not converged in "
                    f"{self.options.liveness_ticks} ticks: {reason}",
                )
        if not reason:
            self._quiet(core)
        for machine in liveness.members(self.cluster, core):
            self.checkers.final(machine)

    def _quiet(self, core: list[int]) -> None:
        """Nobody asks for anything: heartbeats, pings and the scrubber are all that is left."""
        core = [machine.index for machine in liveness.members(self.cluster, core)]
        views = [_view(self.cluster, index) for index in core]
        sent = self._spoken(core)
        self.run_ticks(QUIET_TICKS)
        sent = self._spoken(core) - sent
        others = self.options.member_count - 1  # those that are cut off are called as well
        beats = QUIET_TICKS // 2 * others
        pings = (QUIET_TICKS // TIMEOUT_TICKS["ping"] + 1) * 2 * len(core) * others
        asking = len(self.sessions.all) * len(core) * 2 * (1 + QUIET_TICKS // 10)
        if sent > beats + 2 * (pings + asking):
            violated(
                "quiet",
                f"{sent} messages in {QUIET_TICKS} ticks in which nobody asked for anything",
            )
        for index, before in zip(core, views, strict=True):
            if self.network.prompt and _view(self.cluster, index) != before:
                violated("quiet", f"replica {index} leaves view {before} without a reason")

    def _spoken(self, core: list[int]) -> int:
        """Messages so far. A replica that is cut off has not converged and goes on calling."""
        cut_off = set(range(self.options.member_count)) - set(core)
        return sum(n for i, n in enumerate(self.network.sent_by) if i not in cut_off)

    def _choose_core(self) -> list[int]:
        """All replicas in half of the worlds and in starved ones; else a view quorum or more."""
        count = self.options.replica_count
        everybody = list(range(count))
        if self.replacement.ever or self.options.member_changes:
            return everybody  # what is new here may be too new to do without another
        starved = self.checkers.log.op < self.geometry.pipeline_max
        if starved or self.prng.chance(1, 2):
            return everybody
        self.prng.shuffle(everybody)
        return sorted(everybody[: self.prng.between(quorums(count).view_change, count)])

    def _heal(self, core: list[int]) -> None:
        self.faults.active = self.changes.active = self.keeper.active = False
        self.faults.mistakes.active = False
        count = self.options.member_count
        for machine in self.cluster.machines:
            machine.disk.faults = machine.disk.full = False
            if machine.index in core:
                if machine.paused:
                    self.cluster.resume(machine.index)
                lost = machine.index in self.operator.without_disk
                if machine.replica is None and not machine.halted and not lost:
                    self.cluster.start(machine.index)
            else:
                self.network.isolate(machine.index)
        nodes = core + list(range(count, count + self.options.edge_count + 1))
        self.network.calm(nodes)

    # --- telling

    def status(self) -> list[str]:
        """A line for each replica."""
        return [_status_line(self.cluster, machine.index) for machine in self.cluster.machines]

    def _outcome(self, failure: str, checker: str, report: list[str]) -> Outcome:
        counts = self.clients.counts() | {
            "acknowledged": len(self.checkers.answers.acknowledged),
            "sent": sum(self.network.sent_by),
            "halts": sum(self.cluster.halts.values()),
            "view": max(entry.observed_view & 0xFFFF_FFFF for entry in self.checkers.log.entries),
        }
        return Outcome(
            options=self.options,
            failure=failure,
            checker=checker,
            ticks=self.schedule.now_us // TICK_US,
            digest=self.trace.digest(),
            events=self.trace.count,
            ops=self.checkers.log.op,
            records=self.checkers.rooms.log_seq,
            counts=counts,
            faults=self._faults(),
            marks=dict(sorted(self.cluster.marks.items())),
            excuse=self.excuse,
            report=report,
        )

    def _faults(self) -> dict[str, int]:
        """How often each class of fault has struck."""
        found = Counter(self.network.faulted)
        found.update(self.faults.done)
        for machine in self.cluster.machines:
            found.update(machine.disk.faulted)
        found.update(self.clients.faulted())
        found.update(self.changes.done)
        found.update({"segments_dropped": self.keeper.dropped})
        found.update({"volume_moved": self.faults.mistakes.moved})
        found["eviction"] = self.sessions.evictions
        for name, value in (
            ("slow_disk", self.options.slow_replica + 1),
            ("clock_offset", self.options.clock_offset_us_max),
            ("clock_drift", self.options.clock_drift_ppm_max),
            ("clock_liar", self.options.clock_liar + 1),
            ("overload", self.options.overload),
        ):
            found[name] = int(value > 0)
        return {name: found[name] for name in sorted(found) if found[name]}


def _view(cluster: Cluster, index: int) -> tuple[int, int]:
    replica = cluster.machines[index].replica
    assert replica is not None
    return replica.epoch, replica.view


def _status_line(cluster: Cluster, index: int) -> str:
    machine = cluster.machines[index]
    replica = machine.replica
    if replica is None:
        return f"replica {index}: down, life {machine.disk.life}"
    if replica.checkpoint is None:
        return f"replica {index}: {replica.status.name.lower()}, life {machine.disk.life}"
    paused = ", paused" if machine.paused else ""
    return (
        f"replica {index}: {replica.status.name.lower()}"
        f" {'primary' if replica.is_primary else 'backup'}{paused}, life {machine.disk.life},"
        f" view {replica.view}/{replica.log_view}, checkpoint {replica.checkpoint_op},"
        f" commit {replica.commit_min}/{replica.commit_max}, head {replica.op},"
        f" dirty {replica.journal.dirty_count}, faulty {replica.journal.faulty_count},"
        f" sync {replica.sync_op_min}..{replica.sync_op_max} from {replica.sync_log_seq},"
        f" ready {replica.state_ready}, reads {len(machine.disk.reads)},"
        f" writes {len(machine.disk.writes)}"
    )
