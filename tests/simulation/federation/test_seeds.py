"""Worlds of federated sites: every promise holds, and equal seeds give equal traces."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from appliance.simulation.federation.options import draw
from appliance.simulation.federation.report import failure_report, run

ROOT = Path(__file__).parents[3]
FIXED, FRESH, EQUAL = 20, 12, 3
FIXED_SOAK = 250
PROCESSES = 2  # that go through many


def verdict(seed: int) -> tuple[int, str, dict[str, Any]]:
    outcome = run(seed)
    failure = "\n".join(failure_report(outcome)) if outcome.failure else ""
    return seed, failure, outcome.counts


def run_all(seeds: range) -> Counter[str]:
    """Every seed; fails with all reports at once. The sum of all counts."""
    total: Counter[str] = Counter()
    failures = []
    for _, failure, counts in verdicts(seeds):
        if failure:
            failures.append(failure)
        total.update(counts)
    assert not failures, f"{len(failures)} seeds fail\n" + "\n\n".join(failures)
    return total


def verdicts(seeds: range) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Many are worth processes of their own, which take as long to start as ten worlds."""
    if len(seeds) <= FIXED:
        yield from map(verdict, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        yield from pool.imap_unordered(verdict, seeds, chunksize=4)


@pytest.mark.parametrize("number", [FIXED, pytest.param(FIXED_SOAK, marks=pytest.mark.soak)])
def test_fixed_worlds_keep_every_promise_and_reach_every_fault(number: int) -> None:
    total = run_all(range(number))
    drawn = [draw(seed) for seed in range(number)]
    assert {options.sites for options in drawn} == {2, 3, 4, 5, 8}
    assert any(options.quorum_lost_ms >= 3_600_000 for options in drawn)
    for fault in ("lost", "copied", "cut", "spoilt", "crashes", "takeovers", "disks_lost"):
        assert total[fault] > number // 5, fault
    for seen in ("Delivered", "Acknowledged", "PossiblyAcknowledged", "RepairSent", "Lost"):
        assert total[seen] > 5, seen


def test_fresh_worlds_keep_every_promise(request: pytest.FixtureRequest) -> None:
    first = 1_000_000 + request.config.option.seed % 1_000_000_000
    print(f"seeds from {first}")
    run_all(range(first, first + FRESH))


def test_equal_seeds_give_equal_traces_in_another_process() -> None:
    program = (
        "import json, sys\n"
        "from appliance.simulation.federation.report import run\n"
        "print(json.dumps({seed: run(seed).digest for seed in map(int, sys.argv[1:])}))"
    )
    seeds = [str(seed) for seed in range(EQUAL)]
    done = subprocess.run(
        [sys.executable, "-c", program, *seeds],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert found == {seed: run(int(seed)).digest for seed in seeds}
    assert len(set(found.values())) == len(seeds)


@pytest.mark.soak
def test_fresh_worlds_for_as_long_as_asked(request: pytest.FixtureRequest) -> None:
    end = time.monotonic() + request.config.option.soak_seconds / 4
    first = request.config.option.seed
    for batch in count():
        if time.monotonic() > end:
            return
        start = 2_000_000 + first + batch * 200
        print(f"seeds from {start}")
        run_all(range(start, start + 200))
