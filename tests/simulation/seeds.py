"""Many seeds in two processes: what `make test`, `make soak` and the campaign have in common."""

import multiprocessing
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from multiprocessing.pool import AsyncResult
from typing import Any, NamedTuple

from appliance.commands.simulate import failure_report
from appliance.commands.simulate import run as run_world
from appliance.simulation.options import LITE, SWARM, UNKIND_FROM, UNKIND_LITE_FROM, draw
from appliance.simulation.world import World

PROCESSES = 2
AHEAD = 12  # seeds in hand for each process: one may be long

FIXED = {SWARM: 90, LITE: 110}  # a hundred of the whole swarm in all; `make soak` runs more
UNKIND = [(UNKIND_FROM + i, SWARM) for i in range(10)]  # of the youngest classes of faults too
UNKIND_LITE = [(UNKIND_LITE_FROM + i, LITE) for i in range(200)]
# Beyond the fixed ones, what found bugs that are mended: tests/simulation/bugs.json tells of each.
MENDED = [
    *(
        (seed, SWARM)
        for seed in (
            99,
            108,
            120,
            129,
            161,
            199,
            223,
            238,
            271,
            312,
            346,
            393,
            576,
            584,
            614,
            1030,
            1069,
            1134,
            1185,
            1332,
            1548,
            2450,
            3848,
            700034,
            700041,
            700204,
            800086,
            1000025,
            1000101,
            1000197,
            3033115067,
        )
    ),
    *(
        (seed, LITE)
        for seed in (
            800043,
            1328189174,
            3283277945,
            3283277951,
            8589935025,
            8589935066,
            8589935193,
        )
    ),
]


class Result(NamedTuple):
    """What is kept of a seed."""

    seed: int
    mode: str
    failure: str  # the whole report; empty when everything held
    excuse: str
    ticks: int
    ops: int
    records: int
    acknowledged: int
    faults: dict[str, int]
    marks: dict[str, int]
    halts: int
    cpu_s: float
    digest: str


def run(job: tuple[int, str]) -> Result:
    """One seed to its verdict."""
    seed, mode = job
    started = time.process_time()
    outcome = run_world(World(draw(seed, mode)))
    report = "\n".join(failure_report(outcome)) if outcome.failure else ""
    return Result(
        seed,
        mode,
        report,
        outcome.excuse,
        outcome.ticks,
        outcome.ops,
        outcome.records,
        outcome.counts["acknowledged"],
        outcome.faults,
        outcome.marks,
        outcome.counts["halts"],
        time.process_time() - started,
        outcome.digest,
    )


def jobs_from(first: int, counts: dict[str, int]) -> list[tuple[int, str]]:
    """The long ones first, so that all parts take about the same time."""
    return [(first + i, mode) for mode in (SWARM, LITE) for i in range(counts[mode])]


# Those of them that take more than three seconds and are not the only world of their bug: a soak
# has them. What found a bug alone is run each time, whatever it takes.
MENDED_DEAR = [(seed, SWARM) for seed in (238, 312, 346)]

# The worlds that the tests take to their end, in a soak if not in every run.
ALWAYS_RUN = frozenset([*jobs_from(0, FIXED), *UNKIND, *UNKIND_LITE, *MENDED])


def run_all(jobs: Iterable[tuple[int, str]], processes: int = PROCESSES) -> Iterator[Result]:
    """All seeds, in order, by as many processes as there are cores for. Jobs are taken as they are
    needed, so that an iterator may end them by the clock."""
    processes = max(1, min(processes, os.cpu_count() or 1))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        running: deque[AsyncResult[Result]] = deque()
        for job in jobs:
            running.append(pool.apply_async(run, (job,)))
            if len(running) == AHEAD * processes:
                yield running.popleft().get()
        while running:
            yield running.popleft().get()


class Tally:
    """Sums over seeds, for one line of text."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.seeds = self.ticks = self.ops = self.acknowledged = self.excused = 0
        self.cpu_s = 0.0
        self.faults: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.ticks += result.ticks
        self.ops += result.ops
        self.acknowledged += result.acknowledged
        self.excused += bool(result.excuse)
        self.cpu_s += result.cpu_s
        self.faults.update(result.faults)
        self.marks.update(result.marks)

    def line(self) -> str:
        cpu = max(self.cpu_s, 0.001)
        wall = time.monotonic() - self.started
        return (
            f"{self.seeds} seeds, {self.ops} ops, {self.acknowledged} records acknowledged, "
            f"{sum(self.faults.values())} faults, {self.ticks} ticks in {wall:.0f} s; "
            f"{self.ticks / wall:.0f} ticks per second, {self.ticks / cpu:.0f} per CPU second, "
            f"{60 * self.seeds / cpu:.1f} seeds per CPU minute"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "ticks": self.ticks,
            "ops": self.ops,
            "acknowledged": self.acknowledged,
            "excused": self.excused,
            "cpu_s": round(self.cpu_s, 1),
            "faults": dict(sorted(self.faults.items())),
            "marks": dict(sorted(self.marks.items())),
        }
