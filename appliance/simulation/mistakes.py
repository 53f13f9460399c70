"""What an operator in a hurry does against the book: an older copy of a volume is put in its place,
a machine is set up anew while nobody could be asked, or a volume is moved away under its process.

What is moved, `recover` does not replace while the process works on; when that was stopped, it
does. Of the others either replica has forgotten what it promised. It must halt and say so, before
it has cost anybody anything; then the operator does what its sentence says, and has the volume made
anew by `recover`.
A mistake is made only where it can be noticed: where so many remember the last life of the replica
that no quorum which it could be part of lacks them all.
"""

from appliance.base.prng import Prng
from appliance.cores.vsr.quorums import quorums
from appliance.simulation.checkers.superblocks import confirmed
from appliance.simulation.cluster import Cluster
from appliance.simulation.delay import ticks_around
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
        self.active = True
        self.moved = 0  # volumes so far
        machines.on_halt = self._on_halt

    def begin(self) -> None:
        """Draw when the first volume is moved."""
        if self.options.moved_ticks_mean:
            self._later()

    def _later(self) -> None:
        ticks = ticks_around(self.prng, self.options.moved_ticks_mean)
        self.schedule.after(ticks * TICK_US, self._move)

    def _move(self) -> None:
        """A volume is moved away while its process works on it, and `recover` is tried beside."""
        if not self.active:
            return
        index = self.prng.below(self.options.replica_count)
        if self.machines.machines[index].running and self.replacement.idle and self._noticed(index):
            self.moved += 1
            if not self.replacement.recover_moved(index):
                self.schedule.after(OPERATOR_TICKS * TICK_US, self._stop, index)
        self._later()

    def _stop(self, index: int) -> None:
        """What the sentence of `recover` says: the process is stopped, then a volume is made."""
        if not self.active or not self.replacement.idle:
            return
        if self.machines.machines[index].replica is not None:
            self.machines.crash(index)
        self.replacement.begin(index)

    def before_start(self, index: int) -> None:
        """The process of `index` is gone and is about to be started."""
        make = self.replacement.beside.pop(index, None)
        if make is not None:
            self.machines.machines[index].disk.lose()
            make()
        options, prng = self.options, self.prng
        if not options.old_copy and not options.silent_format:
            return
        if index >= options.replica_count or self._wrong >= 0 or not self.replacement.idle:
            return
        if options.old_copy and (index not in self._images or prng.chance(1, 3)):
            image = self.machines.machines[index].disk.image()
            if confirmed(image[0]):
                self._images[index] = image
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
        block = self.machines.checkers.superblocks.durable[index]
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
