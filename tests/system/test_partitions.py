"""Nodes that cannot hear each other, that lose packets, stand still or die: with 3 and 5 nodes in
network namespaces, under load. Acknowledgements flow again, and none was a lie."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.patience import HUNG_S
from tests.system import network
from tests.system.faulty_disk_site import failing_calls
from tests.system.local_site import AGAIN_SOON, wait_until
from tests.system.network import Pair, Switch
from tests.system.networked_site import NetworkedSite
from tests.system.trial import Trial

HOLD_S, HOLD_SHORT_S = 2.5, 1.0  # each fault lasts so long; in a short round
FLAPS = 3  # times in a second's rhythm
DROP_PERCENT = 10


class Saboteur:
    """Parts, slows, stops and kills nodes, one fault after the other."""

    def __init__(self, site: NetworkedSite, trial: Trial) -> None:
        self.site, self.trial, self.chance = site, trial, trial.chance
        self.hold_s = HOLD_S
        self.steps: list[Callable[[], None]] = [
            self.full, self.half, self.one_way, self.majority_ring, self.isolated_primary,
            self.isolated_backup, self.flapping, self.random_drop, self.stopped_primary,
            self.stopped_backup, self.killed_primary,
        ]  # fmt: skip
        if len(site.nodes) == 3:
            self.steps.append(self.failing_disk)
        self.short_steps = [
            self.isolated_primary, self.random_drop, self.stopped_primary, self.failing_disk,
        ]  # fmt: skip

    def run(self, *, short: bool = False) -> None:
        """Each once, or of each kind one, in an order of this run's own."""
        self.hold_s = HOLD_SHORT_S if short else HOLD_S
        steps = list(self.short_steps if short else self.steps)
        self.chance.shuffle(steps)
        for step in steps:
            self.trial.settle()
            step()

    def _primary(self) -> int:
        found = self.site.primary()
        return self.chance.choice(self.site.nodes) if found is None else found

    def _backup(self) -> int:
        primary = self._primary()
        return self.chance.choice([node for node in self.site.nodes if node != primary])

    def _order(self) -> list[int]:
        return self.chance.sample(self.site.nodes, len(self.site.nodes))

    def _part(self, name: str, pairs: set[Pair], *, majority: bool = True) -> None:
        """Hold a partition; with a majority that hears each other, messages flow all the while."""
        self.site.switch.cut(pairs)
        if majority:
            self.trial.flows(f"during {name}", count=False)
        time.sleep(self.hold_s)
        dropped = sum(map(self.site.switch.dropped, self.site.nodes))
        self.site.switch.heal()
        self.trial.flows(f"partition {name}")
        assert dropped > 0, f"{name}: no packet met a rule"

    def full(self) -> None:
        self._part("full", network.full(self.site.nodes), majority=False)

    def half(self) -> None:
        self._part("half", network.halves(self._order()))

    def one_way(self) -> None:
        self._part("one-way", network.one_way(self._primary(), self.site.nodes))

    def majority_ring(self) -> None:
        self._part("majority ring", network.majority_ring(self._order()), majority=False)

    def isolated_primary(self) -> None:
        self._part("isolated primary", network.isolated(self._primary(), self.site.nodes))

    def isolated_backup(self) -> None:
        self._part("isolated backup", network.isolated(self._backup(), self.site.nodes))

    def flapping(self) -> None:
        """A primary that is there and gone, each half a second long."""
        pairs = network.isolated(self._primary(), self.site.nodes)
        for _ in range(FLAPS):
            self.site.switch.cut(pairs)
            time.sleep(0.5)
            self.site.switch.heal()
            time.sleep(0.5)
        self.trial.flows("partition flapping")

    def random_drop(self) -> None:
        self.site.switch.drop(DROP_PERCENT)
        self.trial.flows(f"while {DROP_PERCENT} % of packets are lost", count=False)
        time.sleep(self.hold_s)
        self.trial.flows(f"while {DROP_PERCENT} % of packets are lost", count=False)
        dropped = sum(map(self.site.switch.dropped, self.site.nodes))
        self.site.switch.heal()
        self.trial.flows("packets lost")
        assert dropped > 0

    def _stop(self, name: str, node: int) -> None:
        """SIGSTOP to all of a node: its connections stay open and nobody answers there."""
        frozen = self.site.processes(node)
        _signal(frozen, signal.SIGSTOP)
        try:
            self.trial.flows(f"while the {name} stands still", count=False)
            time.sleep(self.hold_s)
        finally:
            _signal(frozen, signal.SIGCONT)
        self.trial.flows(f"stop {name}")

    def stopped_primary(self) -> None:
        self._stop("primary", self._primary())

    def stopped_backup(self) -> None:
        self._stop("backup", self._backup())

    def killed_primary(self) -> None:
        node = self._primary()
        self.site.kill_node(node)
        self.trial.flows("kill primary's node")
        self.site.start(node)

    def failing_disk(self) -> None:
        """A replica halts because its disk fails; its supervisor starts it again later."""
        node = self.chance.choice(self.site.nodes)
        log = Path(self.site.log.name)
        start = log.stat().st_size
        (process,) = self.site.processes(node, "replica")
        with failing_calls(process.pid, log.parent, "fdatasync,io_submit", "EIO", "1"):
            wait_until(
                lambda: b"HALT STORAGE_WRITE" in log.read_bytes()[start:], HUNG_S, "it halts"
            )
        self.trial.flows("EIO under a supervisor")
        wait_until(
            lambda: b"(exit code 3); starting it again in 0.50 s" in log.read_bytes()[start:],
            HUNG_S,
            "the supervisor tells that it starts the replica again",
        )


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        process.send_signal(number)


def hurt_and_check(folder: Path, nodes: int, seed: int, rounds: int) -> None:
    """So many whole rounds; 0 is a short one."""
    with Switch(nodes) as switch:
        site = NetworkedSite(folder / "site", switch, log_level="warning", constants=AGAIN_SOON)
        with site, Trial(site, folder, seed, switch.in_load) as trial:
            for _ in range(rounds or 1):
                Saboteur(site, trial).run(short=rounds == 0)
            trial.settle()
            trial.finish()
        trial.check(halts_expected=True)


@pytest.mark.parametrize(
    ("nodes", "rounds"), [(3, 0), *(pytest.param(n, 1, marks=pytest.mark.soak) for n in (3, 5))]
)
def test_partitions_losses_and_stops_lose_nothing(
    tmp_path: Path, seed: int, nodes: int, rounds: int
) -> None:
    hurt_and_check(tmp_path, nodes, seed, rounds)


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [3, 5])
def test_partitions_losses_and_stops_again_and_again_lose_nothing(
    tmp_path: Path, seed: int, nodes
) -> None:
    hurt_and_check(tmp_path, nodes, seed, rounds=10)
