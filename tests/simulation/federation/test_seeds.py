"""Worlds of federated sites: every promise holds, and equal seeds give equal traces."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from appliance.simulation.federation.options import draw
from appliance.simulation.federation.report import failure_report, run

ROOT = Path(__file__).parents[3]
FIXED, FRESH = 100, 60
FIXED_SOAK = 250
PROCESSES = 2


def verdict(seed: int) -> tuple[int, str, dict[str, Any]]:
    outcome = run(seed)
    failure = "\n".join(failure_report(outcome)) if outcome.failure else ""
    return seed, failure, outcome.counts


def run_all(seeds: range) -> dict[str, int]:
    """Every seed in two processes; fails with all reports at once. The sum of all counts."""
    total: dict[str, int] = {}
    failures = []
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for _, failure, counts in pool.imap_unordered(verdict, seeds, chunksize=4):
            if failure:
                failures.append(failure)
            for name, number in counts.items():
                total[name] = total.get(name, 0) + number
    assert not failures, f"{len(failures)} seeds fail\n" + "\n\n".join(failures)
    return total


@pytest.mark.parametrize("number", [FIXED, pytest.param(FIXED_SOAK, marks=pytest.mark.soak)])
def test_fixed_worlds_keep_every_promise_and_reach_every_fault(number: int) -> None:
    total = run_all(range(number))
    drawn = [draw(seed) for seed in range(number)]
    assert {options.sites for options in drawn} == {2, 3, 4, 5, 8}
    assert any(options.quorum_lost_ms >= 3_600_000 for options in drawn)
    for fault in ("lost", "copied", "cut", "spoilt", "crashes", "takeovers", "disks_lost"):
        assert total[fault] > 20, fault
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
    seeds = [str(seed) for seed in range(12)]
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
