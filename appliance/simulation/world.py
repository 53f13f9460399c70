"""One seed, from its options to its verdict."""

import traceback
from dataclasses import dataclass

from appliance.base.prng import Prng
from appliance.cores.vsr.quorums import quorums
from appliance.formats.envelope import Message
from appliance.formats.geometry import SMALL, Geometry
from appliance.simulation import liveness
from appliance.simulation import trace as kinds
from appliance.simulation.chat import Chat
from appliance.simulation.client import Clients
from appliance.simulation.cluster import Cluster
from appliance.simulation.failure import Violation, violated
from appliance.simulation.faults import Faults
from appliance.simulation.judge import Judge
from appliance.simulation.network import Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Sessions
from appliance.simulation.trace import WORLD, Trace

SHARD = 0
LOOK_TICKS = 20                   # how often the end of a phase is looked for


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
    marks: dict[str, int]
    excuse: str
    report: list[str]                 # status lines and last events, of a failure


class World:
    """Everything of one seed. `run` goes from start to verdict; tests may drive the parts."""

    def __init__(self, options: Options, *, geometry: Geometry = SMALL,
                 wanted: range = range(0)) -> None:
        self.options, self.geometry = options, geometry
        self.schedule = Schedule()
        self.trace = Trace(wanted)
        self.prng = Prng(options.seed)
        cluster = self.prng.bytes(16)
        self.judge = Judge(options=options, geometry=geometry, cluster=cluster, shard=SHARD)
        self.network = Network(
            options=options, node_count=options.replica_count + options.edge_count,
            schedule=self.schedule, prng=self.prng.fork(), trace=self.trace, deliver=self._deliver)
        self.cluster = Cluster(
            options=options, geometry=geometry, cluster=cluster, shard=SHARD,
            schedule=self.schedule, network=self.network, prng=self.prng.fork(), trace=self.trace,
            judge=self.judge)
        self.sessions = Sessions(
            options=options, geometry=geometry, cluster=cluster, shard=SHARD,
            schedule=self.schedule, network=self.network, prng=self.prng.fork(), trace=self.trace)
        self.clients = self._clients()
        self.cluster.on_life = self.clients.on_life
        self.cluster.on_publish = self.clients.on_publish
        self.faults = Faults(
            options=options, schedule=self.schedule, network=self.network, cluster=self.cluster,
            prng=self.prng.fork(), trace=self.trace)
        self.excuse = ""

    def _clients(self) -> Clients | Chat:
        """Devices straight on sessions, or a whole chat through edges."""
        prng = self.prng.fork()
        if self.options.chat:
            return Chat(options=self.options, geometry=self.geometry, schedule=self.schedule,
                        sessions=self.sessions, cluster=self.cluster, prng=prng, trace=self.trace,
                        judge=self.judge)
        return Clients(options=self.options, schedule=self.schedule, sessions=self.sessions,
                       prng=prng, trace=self.trace, judge=self.judge)

    def _deliver(self, target: int, source: int, message: Message) -> None:
        if target < self.options.replica_count:
            self.cluster.deliver(target, source, message)
        else:
            self.sessions.deliver(target - self.options.replica_count, source, message)

    # --- phases

    def run(self, until_tick: int = -1) -> Outcome:
        """Both phases, or all that happens before `until_tick`; never raises a Violation."""
        failure = checker = ""
        report: list[str] = []
        try:
            self.start()
            if until_tick >= 0:
                self.run_ticks(until_tick)
            else:
                self.safety()
                self.liveness()
        except Violation as violation:
            failure, checker = violation.sentence, violation.checker
        except AssertionError:
            failure, checker = traceback.format_exc(), "assertion"
        if failure:
            report = [*self.status(), "", *self.trace.last()]
        return self._outcome(failure, checker, report)

    def start(self) -> None:
        """Start every process; faults begin."""
        for machine in self.cluster.machines:
            self.cluster.start(machine.index)
        self.faults.begin()

    def run_ticks(self, ticks: int) -> None:
        """Let `ticks` ticks pass."""
        self.schedule.run_until(self.schedule.now_us + ticks * TICK_US)

    def safety(self) -> None:
        """All faults on, until every device is done or the time is up."""
        for _ in range(self.options.safety_ticks // LOOK_TICKS):
            self.run_ticks(LOOK_TICKS)
            if self.clients.done:
                break

    def liveness(self) -> None:
        """Heal a core, leave the rest broken for ever, and see whether the core converges."""
        core = self._choose_core()
        mask = sum(1 << index for index in core)
        self.trace.add(self.schedule.now_us, kinds.PHASE, WORLD, mask)
        self._heal(core)
        self.clients.close(core)
        reason = ""
        for _ in range(self.options.liveness_ticks // LOOK_TICKS):
            self.run_ticks(LOOK_TICKS)
            reason = liveness.shortcoming(self.cluster, core) or self.clients.waiting()
            if not reason:
                break
        if reason:
            self.excuse = liveness.excuse(self.cluster, core)
            if not self.excuse:
                violated("liveness", f"the core {core} has not converged in "
                                     f"{self.options.liveness_ticks} ticks: {reason}")
        for index in core:
            self.judge.final(self.cluster.machines[index])

    def _choose_core(self) -> list[int]:
        """All replicas in half of the worlds and in starved ones; else a view quorum or more."""
        count = self.options.replica_count
        everybody = list(range(count))
        starved = self.judge.log.op < self.geometry.pipeline_max
        if starved or self.prng.chance(1, 2):
            return everybody
        self.prng.shuffle(everybody)
        return sorted(everybody[:self.prng.between(quorums(count).view_change, count)])

    def _heal(self, core: list[int]) -> None:
        self.faults.active = False
        count = self.options.replica_count
        for machine in self.cluster.machines:
            machine.disk.faults = False
            if machine.index in core:
                if machine.paused:
                    self.cluster.resume(machine.index)
                if machine.replica is None:
                    self.cluster.start(machine.index)
            else:
                self.network.isolate(machine.index)
        nodes = core + list(range(count, count + self.options.edge_count))
        self.network.calm(nodes)

    # --- telling

    def status(self) -> list[str]:
        """A line for each replica."""
        return [_status_line(self.cluster, machine.index) for machine in self.cluster.machines]

    def _outcome(self, failure: str, checker: str, report: list[str]) -> Outcome:
        counts = self.clients.counts() | {
            "acknowledged": len(self.judge.answers.acknowledged),
            "sent": self.network.sent, "dropped": self.network.dropped,
            "crashes": self.faults.crashes, "power_cuts": self.faults.power_cuts,
            "pauses": self.faults.pauses, "partitions": self.faults.partitions,
            "disk_faults": sum(m.disk.corrupted for m in self.cluster.machines),
            "view": max(entry.observed_view for entry in self.judge.log.entries)}
        return Outcome(
            options=self.options, failure=failure, checker=checker,
            ticks=self.schedule.now_us // TICK_US, digest=self.trace.digest(),
            events=self.trace.count, ops=self.judge.log.op, records=self.judge.rooms.log_seq,
            counts=counts, marks=dict(sorted(self.cluster.marks.items())), excuse=self.excuse,
            report=report)


def _status_line(cluster: Cluster, index: int) -> str:
    machine = cluster.machines[index]
    replica = machine.replica
    if replica is None:
        return f"replica {index}: down, life {machine.disk.life}"
    paused = ", paused" if machine.paused else ""
    return (f"replica {index}: {replica.status.name.lower()}"
            f" {'primary' if replica.is_primary else 'backup'}{paused}, life {machine.disk.life},"
            f" view {replica.view}/{replica.log_view}, checkpoint {replica.checkpoint_op},"
            f" commit {replica.commit_min}/{replica.commit_max}, head {replica.op},"
            f" dirty {replica.journal.dirty_count}, faulty {replica.journal.faulty_count},"
            f" sync {replica.sync_op_min}..{replica.sync_op_max} from {replica.sync_log_seq},"
            f" ready {replica.state_ready}, reads {len(machine.disk.reads)},"
            f" writes {len(machine.disk.writes)}")
