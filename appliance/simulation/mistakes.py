"""What an operator in a hurry does against the book: an older copy of a volume is put in its place,
or a machine is set up anew while nobody could be asked.

Either replica has forgotten what it promised. It must halt and say so, before it has cost anybody
anything; then the operator does what its sentence says, and has the volume made anew by `recover`.
A mistake is made only where it can be noticed: where so many remember the last life of the replica
that no quorum which it could be part of lacks them all.
"""

from appliance.base.prng import Prng
from appliance.cores.vsr.quorums import quorums
from appliance.simulation.cluster import Cluster
from appliance.simulation.network import MILLION
from appliance.simulation.options import Options
from appliance.simulation.replacement import Replacement
from appliance.simulation.schedule import TICK_US, Schedule

HALTS = ("VOLUME_OUTDATED", "VOLUME_NOT_NEW")
OPERATOR_TICKS = 100  # until somebody has read what a halted replica says


class Mistakes:
    """Asked whenever a machine is about to be started; one mistake at a time."""

    def __init__(
        self,
        *,
        options: Options,
        schedule: Schedule,
        machines: Cluster,
        replacement: Replacement,
        prng: Prng,
    ) -> None:
        self.options, self.schedule, self.machines = options, schedule, machines
        self.replacement, self.prng = replacement, prng
        self._images: dict[int, tuple[bytes, dict[int, bytes]]] = {}  # copies, by machine
        self._wrong = -1  # the machine that runs on a volume that has forgotten
        machines.on_halt = self._on_halt

    def before_start(self, index: int) -> None:
        """The process of `index` is gone and is about to be started."""
        options, prng = self.options, self.prng
        if not options.old_copy and not options.silent_format:
            return
        if index >= options.replica_count or self._wrong >= 0 or not self.replacement.idle:
            return
        if options.old_copy and (index not in self._images or prng.chance(1, 3)):
            self._images[index] = self.machines.machines[index].disk.image()
        elif options.old_copy and prng.chance(options.old_copy, MILLION) and self._noticed(index):
            self._begin(index)
            self.machines.restore(index, self._images[index])
        elif options.silent_format and self._noticed(index):
            if prng.chance(options.silent_format, MILLION):
                self._begin(index)
                machine = self.machines.machines[index]
                machine.disk.lose()
                machine.disk.faulted["silent_format"] = 1
                self.machines.format(machine, view=options.view_first, vouched=False)

    def _begin(self, index: int) -> None:
        self._wrong, self.replacement.ever = index, True

    def _noticed(self, index: int) -> bool:
        """Whether the newest life of this replica is remembered by enough."""
        row = quorums(self.options.replica_count)
        needed = self.options.replica_count - min(row.replication, row.view_change) + 1
        block = self.machines.judge.superblocks.durable[index]
        by = min(needed, self.options.replica_count - 1)
        return block is not None and block.incarnation == self.machines.life_remembered(
            index, by=by
        )

    def _on_halt(self, index: int, code: str) -> bool:
        """A replica halts; True when that is what it should do."""
        if index != self._wrong or code not in HALTS:
            return False
        self.schedule.after(OPERATOR_TICKS * TICK_US, self._recover, index)
        return True

    def _recover(self, index: int) -> None:
        """What the sentence of the halt says."""
        machine = self.machines.machines[index]
        if machine.replica is not None:
            self.machines.crash(index)
        machine.halted = False
        self._images.pop(index, None)
        self._wrong = -1
        self.replacement.begin(index)
