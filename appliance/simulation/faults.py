"""When things go wrong, and when they are mended: crashes, power cuts, pauses, partitions, clock
steps.

Nothing is rolled each tick: when a fault is over, the time of the next one is drawn. All of it
stops with the safety phase.
"""

from appliance.base.prng import Prng
from appliance.simulation import trace as kinds
from appliance.simulation.cluster import Cluster
from appliance.simulation.delay import exponential, ticks_around
from appliance.simulation.network import MILLION, Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.trace import WORLD, Trace

CLOCK_STEP_US_MAX = 1_000_000
POWER_OFF_TICKS_MEAN = 50


class Faults:
    """Draws and performs the faults of processes, links and clocks while `active`."""

    def __init__(self, *, options: Options, schedule: Schedule, network: Network, cluster: Cluster,
                 prng: Prng, trace: Trace) -> None:
        self.options, self.schedule, self.network = options, schedule, network
        self.cluster, self.prng, self.trace = cluster, prng, trace
        self.active = True
        self.crashes = self.power_cuts = self.pauses = self.partitions = 0
        cluster.on_write = self._on_write

    def begin(self) -> None:
        """Draw the first fault of each kind."""
        options = self.options
        for index in range(options.replica_count):
            if options.crash_ticks_mean:
                self._in_ticks(options.crash_ticks_mean, self._crash_in_turn, index)
            if options.pause_ticks_mean:
                self._in_ticks(options.pause_ticks_mean, self._pause, index)
            if options.clock_step_ticks_mean:
                self._in_ticks(options.clock_step_ticks_mean, self._step_clock, index)
        for _ in range(options.power_cuts):
            # A third of them early, inside the first turn of the ring.
            span = options.safety_ticks // (10 if self.prng.chance(1, 3) else 1)
            self.schedule.after(self.prng.between(1, span) * TICK_US, self._power_cut)
        if options.partition != "none":
            self._in_ticks(options.partition_pause_ticks_mean, self._partition)

    def _in_ticks(self, mean: int, callback, *arguments) -> None:  # type: ignore[no-untyped-def]
        delay = ticks_around(self.prng, mean) * TICK_US + self.prng.below(TICK_US)
        self.schedule.after(delay, callback, *arguments)

    # --- processes

    def _crash_in_turn(self, index: int) -> None:
        if self.active:
            self._crash(index)
            self._in_ticks(self.options.crash_ticks_mean, self._crash_in_turn, index)

    def _on_write(self, index: int) -> None:
        """A write has been started: it may be the last."""
        if self.active and self.options.crash_in_write and self.prng.chance(
                self.options.crash_in_write, MILLION):
            delay = exponential(self.prng, self.options.write_us_mean)
            life = self.cluster.machines[index].disk.life
            self.schedule.after(delay, self._crash_in_write, index, life)

    def _crash_in_write(self, index: int, life: int) -> None:
        if self.active and life == self.cluster.machines[index].disk.life:
            self._crash(index)

    def _crash(self, index: int) -> None:
        machine = self.cluster.machines[index]
        stable_until = machine.started_us + self.options.stable_ticks * TICK_US
        if machine.replica is None or self.schedule.now_us < stable_until:
            return
        self.crashes += 1
        self.cluster.crash(index)
        self._in_ticks(self.options.restart_ticks_mean, self._restart, index, machine.disk.life)

    def _restart(self, index: int, life: int) -> None:
        machine = self.cluster.machines[index]
        if self.active and machine.replica is None and machine.disk.life == life:
            self.cluster.start(index)

    def _power_cut(self) -> None:
        """All machines stop at once; each comes back when it comes back."""
        if not self.active:
            return
        self.power_cuts += 1
        for machine in self.cluster.machines:
            if machine.replica is not None:
                self.cluster.crash(machine.index)
            self._in_ticks(POWER_OFF_TICKS_MEAN, self._restart, machine.index, machine.disk.life)

    def _pause(self, index: int) -> None:
        if not self.active:
            return
        if self.cluster.machines[index].running:
            self.pauses += 1
            self.cluster.pause(index)
            life = self.cluster.machines[index].disk.life
            self._in_ticks(self.options.paused_ticks_mean, self._resume, index, life)
        self._in_ticks(self.options.pause_ticks_mean, self._pause, index)

    def _resume(self, index: int, life: int) -> None:
        machine = self.cluster.machines[index]
        if self.active and machine.paused and machine.disk.life == life:
            self.cluster.resume(index)

    # --- links

    def _partition(self) -> None:
        if not self.active:
            return
        groups = self._groups()
        one_way = self.prng.choice(groups) if self.options.partition_one_way else -1
        self.partitions += 1
        mask = sum(group << 2 * node for node, group in enumerate(groups))
        self.trace.add(self.schedule.now_us, kinds.PARTITION, WORLD, mask, one_way)
        self.network.block(groups, one_way)
        self._in_ticks(self.options.partition_ticks_mean, self._heal)

    def _groups(self) -> list[int]:
        """A group for each node; edges fall to any side."""
        nodes = list(range(self.network.node_count))
        replicas = nodes[:self.options.replica_count]
        groups = [0] * len(nodes)
        if self.options.partition == "isolate_one":
            groups[self.prng.choice(replicas)] = 1
            return groups
        if self.options.partition == "uniform_size":
            self.prng.shuffle(replicas)
            for node in replicas[:self.prng.between(1, len(replicas) - 1)]:
                groups[node] = 1
        else:
            for node in replicas:
                groups[node] = self.prng.below(2)
        for node in nodes[self.options.replica_count:]:
            groups[node] = self.prng.below(2)
        return groups

    def _heal(self) -> None:
        if not self.active:
            return
        self.trace.add(self.schedule.now_us, kinds.HEAL, WORLD)
        self.network.heal()
        self._in_ticks(self.options.partition_pause_ticks_mean, self._partition)

    # --- clocks

    def _step_clock(self, index: int) -> None:
        if not self.active:
            return
        delta = self.prng.between(0, 2 * CLOCK_STEP_US_MAX) - CLOCK_STEP_US_MAX
        self.trace.add(self.schedule.now_us, kinds.CLOCK_STEP, index, delta)
        self.cluster.machines[index].clock.step(delta)
        self._in_ticks(self.options.clock_step_ticks_mean, self._step_clock, index)
