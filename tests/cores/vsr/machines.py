"""The simulator's cluster in which nothing happens by itself: a test moves its ticks and disks."""

from collections.abc import Callable
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.vsr.open import Loaded
from appliance.cores.vsr.replica import Replica
from appliance.formats.geometry import Geometry
from appliance.formats.volume_file import NOT_KNOWN
from appliance.simulation.clock import EPOCH_US
from appliance.simulation.cluster import Cluster
from appliance.simulation.machine import Machine
from appliance.simulation.options import Options
from appliance.simulation.schedule import Schedule
from appliance.simulation.trace import Trace
from tests.cores.vsr.disk import Disk, Write
from tests.cores.vsr.eyes import Eyes
from tests.cores.vsr.links import Links

CLUSTER = b"a group of tests"
SHARD = 5
START_US = 1_750_000_000_000_000  # what a wall clock that is right shows when a story begins


class Standing(Schedule):
    """A clock that a test sets, and no events."""

    def at(self, time_us: int, callback: Callable[..., None], *arguments: Any) -> None:
        pass


class Node(Machine):
    """A machine: `hold` says which writes stay in flight, `halted` is (code, reason)."""

    disk: Disk

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.hold: Callable[[Write], bool] = lambda write: False
        self.marks: list[str] = []
        self.halted: Any = None
        self.clock_error_us = 0
        self.file, self.moved = NOT_KNOWN, False  # which one the disk is, what its operator says

    @property
    def clock_error_us(self) -> int:
        """Of its wall clock."""
        return self.clock.offset_us + EPOCH_US - START_US

    @clock_error_us.setter
    def clock_error_us(self, error_us: int) -> None:
        self.clock.offset_us = START_US - EPOCH_US + error_us

    @property
    def core(self) -> Replica:
        assert self.replica is not None, f"replica {self.index} is not running"
        return self.replica


class Machines(Cluster):
    """The simulator's cluster, of nodes."""

    kind_of_disk = Disk
    kind_of_machine = Node

    def __init__(
        self,
        options: Options,
        geometry: Geometry,
        links: Links,
        eyes: Eyes,
        process: Callable[..., Replica],
    ) -> None:
        self._process = process
        self.life_first = 0  # number that a new volume begins with
        super().__init__(
            options=options,
            geometry=geometry,
            cluster=CLUSTER,
            shard=SHARD,
            schedule=Standing(),
            network=links,
            prng=Prng(options.seed),
            trace=Trace(),
            checkers=eyes,
        )

    def _life_above(self, index: int) -> int:
        return self.life_first

    def _load(self, machine: Node) -> Loaded:
        loaded = super()._load(machine)
        loaded.file, loaded.moved = machine.file, machine.moved
        return loaded

    def _kind(self, machine: Node) -> Callable[..., Replica]:
        return self._process

    def _mark(self, machine: Node, effect: tuple[Any, ...]) -> None:
        super()._mark(machine, effect)
        machine.marks.append(effect[1])

    def _halted(self, machine: Node, code: str, reason: str) -> None:
        machine.halted = (code, reason)
