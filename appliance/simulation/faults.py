"""When things go wrong, and when they are mended: crashes, power cuts, pauses, partitions, clock
steps.

Nothing is rolled each tick: when a fault is over, the time of the next one is drawn. All of it
stops with the safety phase.
"""

from appliance.base.prng import Prng
from appliance.formats.geometry import SUPERBLOCK_ZONE_SIZE
from appliance.simulation import trace as kinds
from appliance.simulation.cluster import Cluster
from appliance.simulation.delay import exponential, ticks_around
from appliance.simulation.mistakes import Mistakes
from appliance.simulation.network import MILLION, Network
from appliance.simulation.operator import Operator
from appliance.simulation.options import Options
from appliance.simulation.replacement import Replacement
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.storage import Disk
from appliance.simulation.trace import WORLD, Trace

CLOCK_STEP_US_MAX = 1_000_000
POWER_OFF_TICKS_MEAN = 50
OPERATOR_TICKS_MEAN = 500  # until somebody starts a process again that a disk has ended
DISK_FULL_TICKS_MEAN = 500
CRASH_AFTER_TICKS_MEANS = (1, 50)  # while what broke is still the head, or later
SUPERBLOCK_WEIGHT = 10  # there a crash in a write is so much more likely


class Faults:
    """Draws and performs the faults of processes, links and clocks while `active`."""

    def __init__(
        self,
        *,
        options: Options,
        schedule: Schedule,
        network: Network,
        cluster: Cluster,
        prng: Prng,
        trace: Trace,
    ) -> None:
        self.options, self.schedule, self.network = options, schedule, network
        self.cluster, self.prng, self.trace = cluster, prng, trace
        self.active = True
        self.operator: Operator
        self.replacement: Replacement
        self.mistakes: Mistakes
        self._cut_armed = 0  # power cuts that wait for a moment in which much is written
        self._victim = prng.below(options.replica_count)  # the one whose disk may be lost
        self.done: dict[str, int] = {}  # faults so far, by kind
        cluster.on_write = self._on_write
        cluster.on_failed = self._on_failed
        cluster.on_disk_fault = self._on_disk_fault

    def begin(self) -> None:
        """Draw the first fault of each kind."""
        options = self.options
        for index in range(options.member_count):
            if options.crash_ticks_mean:
                self._in_ticks(options.crash_ticks_mean, self._crash_in_turn, index)
            if options.pause_ticks_mean:
                self._in_ticks(options.pause_ticks_mean, self._pause, index)
            if options.clock_step_ticks_mean:
                self._in_ticks(options.clock_step_ticks_mean, self._step_clock, index)
        if options.disk_full_ticks_mean:
            self._in_ticks(options.disk_full_ticks_mean, self._fill_disk)
        for _ in range(options.power_cuts):
            # A third of them early, inside the first turn of the ring.
            span = options.safety_ticks // (10 if self.prng.chance(1, 3) else 1)
            wanted = self._power_cut if self.prng.chance(1, 2) else self._arm_power_cut
            self.schedule.after(self.prng.between(1, span) * TICK_US, wanted)
        if options.partition != "none":
            self._in_ticks(options.partition_pause_ticks_mean, self._partition)

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def _in_ticks(self, mean: int, callback, *arguments) -> None:  # type: ignore[no-untyped-def]
        delay = ticks_around(self.prng, mean) * TICK_US + self.prng.below(TICK_US)
        self.schedule.after(delay, callback, *arguments)

    # --- processes

    def _crash_in_turn(self, index: int) -> None:
        if self.active:
            self._crash(index, "crash")
            self._in_ticks(self.options.crash_ticks_mean, self._crash_in_turn, index)

    def _on_write(self, index: int, address: int) -> None:
        """A write has been started: it may be the last."""
        if self._cut_armed and self._much_is_written():
            self._cut_armed -= 1
            self.schedule.after(
                self.prng.below(self.options.write_us_min + 1), self._power_cut, True
            )
        chance = self.options.crash_in_write
        if address < SUPERBLOCK_ZONE_SIZE:
            chance *= SUPERBLOCK_WEIGHT
        if self.active and chance and self.prng.chance(chance, MILLION):
            delay = exponential(self.prng, self.options.write_us_mean)
            life = self.cluster.machines[index].disk.life
            self.schedule.after(delay, self._crash_in_write, index, life)

    def _crash_in_write(self, index: int, life: int) -> None:
        if self.active and life == self.cluster.machines[index].disk.life:
            self._crash(index, "crash_in_write")

    def _crash(self, index: int, why: str) -> None:
        machine = self.cluster.machines[index]
        stable_until = machine.started_us + self.options.stable_ticks * TICK_US
        if machine.replica is None or self.schedule.now_us < stable_until:
            return
        self._count(why)
        self.cluster.crash(index)
        self._in_ticks(self.options.restart_ticks_mean, self._restart, index, machine.disk.life)

    def _restart(self, index: int, life: int) -> None:
        if not self.active or not self._is_down(index, life):
            return
        if (
            self.options.reformat
            and self._may_lose_disk(index)
            and self.prng.chance(self.options.reformat, MILLION)
        ):
            self.replacement.begin(index)
        else:
            self.mistakes.before_start(index)
            self.cluster.start(index)

    def _may_lose_disk(self, index: int) -> bool:
        """One machine again and again; or one after the other, each when the last one is whole."""
        if self.options.reformat_in_turn:
            voters = self.cluster.checkers.membership.voters()
            return self.cluster.members[index] in voters and self.replacement.idle
        return index == self._victim

    def _on_failed(self, index: int) -> None:
        """A failed write has ended the process: somebody looks after it and starts it again."""
        life = self.cluster.machines[index].disk.life
        again = self._restart if self.active else self._start_whole
        self._in_ticks(OPERATOR_TICKS_MEAN, again, index, life)

    def _start_whole(self, index: int, life: int) -> None:
        """A flush had failed before all was healed, and the process heard of it afterwards."""
        if self._is_down(index, life):
            self.cluster.start(index)

    def _is_down(self, index: int, life: int) -> bool:
        """Whether what ran in this life has ended, and its machine could run again."""
        machine = self.cluster.machines[index]
        has_disk = index not in self.operator.without_disk
        return machine.replica is None and machine.disk.life == life and has_disk

    def _on_disk_fault(self, index: int) -> None:
        """What is broken on a disk shows when a process has to start from it."""
        if self.active and self.prng.chance(self.options.crash_after_disk_fault, MILLION):
            life = self.cluster.machines[index].disk.life
            mean = self.prng.choice(CRASH_AFTER_TICKS_MEANS)
            self._in_ticks(mean, self._crash_in_write, index, life)

    def _arm_power_cut(self) -> None:
        self._cut_armed += 1

    def _much_is_written(self) -> bool:
        """Whether several writes of most machines would be torn now."""
        machines = self.cluster.machines
        return sum(machine.disk.tearable > 1 for machine in machines) * 2 > len(machines)

    def _fill_disk(self) -> None:
        """One disk takes no new extent for a while."""
        if not self.active:
            return
        disk = self.prng.choice(self.cluster.machines).disk
        disk.full = True
        self._in_ticks(DISK_FULL_TICKS_MEAN, self._free_disk, disk)

    def _free_disk(self, disk: Disk) -> None:
        disk.full = False
        if self.active:
            self._in_ticks(self.options.disk_full_ticks_mean, self._fill_disk)

    def _power_cut(self, halfway: bool = False) -> None:
        """All machines stop at once; each comes back when it comes back."""
        if not self.active:
            return
        self._count("power_cut")
        for machine in self.cluster.machines:
            if machine.replica is not None:
                self.cluster.crash(machine.index, halfway=halfway, power=True)
            else:
                machine.disk.lose_power()
            self._in_ticks(POWER_OFF_TICKS_MEAN, self._restart, machine.index, machine.disk.life)

    def _pause(self, index: int) -> None:
        if not self.active:
            return
        if self.cluster.machines[index].running:
            self._count("pause")
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
        self._count("partition_" + ("both_ways" if one_way < 0 else "one_way"))
        mask = sum(group << 2 * node for node, group in enumerate(groups))
        self.trace.add(self.schedule.now_us, kinds.PARTITION, WORLD, mask, one_way)
        self.network.block(groups, one_way)
        self._in_ticks(self.options.partition_ticks_mean, self._heal)

    def _groups(self) -> list[int]:
        """A group for each node; edges fall to any side."""
        nodes = list(range(self.network.node_count))
        replicas = nodes[: self.options.member_count]
        groups = [0] * len(nodes)
        if self.options.partition == "isolate_one":
            groups[self.prng.choice(replicas)] = 1
            return groups
        if self.options.partition == "uniform_size":
            self.prng.shuffle(replicas)
            for node in replicas[: self.prng.between(1, len(replicas) - 1)]:
                groups[node] = 1
        else:
            for node in replicas:
                groups[node] = self.prng.below(2)
        for node in nodes[self.options.member_count :]:
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
        self._count("clock_step")
        self.trace.add(self.schedule.now_us, kinds.CLOCK_STEP, index, delta)
        self.cluster.machines[index].clock.step(delta)
        self._in_ticks(self.options.clock_step_ticks_mean, self._step_clock, index)
