"""Bugs that were put in on purpose are found by ordinary seeds, and the same seeds pass without
them.

`tests/simulation/plants.py` has the bugs, `planted.json` the seeds that the search found.
"""

import multiprocessing
import os
import re

import pytest

from tests.simulation import planted
from tests.simulation.plants import PLANTS
from tests.simulation.seeds import PROCESSES

TRAPS = range(1, 21)  # T1 to T20: mistakes that such systems are known to have made


def replayed(name: str) -> tuple[str, bool]:
    """Whether one of the recorded seeds still finds the bug, and passes without it."""
    finds = planted.load()[name]["finds"]
    return name, any(planted.replays(name, find) for find in finds)


def test_every_planted_bug_is_found_by_a_recorded_seed_that_passes_when_whole():
    processes = max(1, min(PROCESSES, os.cpu_count() or 1))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        missed = [name for name, found in pool.imap_unordered(replayed, PLANTS) if not found]
    assert not missed, (
        f"no recorded seed finds {', '.join(sorted(missed))} any more: "
        "python -m tests.simulation.planted --missing"
    )


def test_the_table_says_how_soon_the_swarm_finds_each_bug():
    table = planted.load()
    assert set(table) == set(PLANTS)
    for name in PLANTS:
        assert 1 <= table[name]["seeds"] <= planted.SEEDS_MAX, name


def test_every_trap_has_a_planted_bug():
    named = [
        int(number) for known in PLANTS.values() for number in re.findall(r"\bT(\d+):", known.trap)
    ]
    assert sorted(named) == list(TRAPS)


@pytest.mark.soak
def test_the_search_finds_every_planted_bug_anew(soak_seconds):
    assert planted.main(["--processes", str(PROCESSES), "--seconds", str(soak_seconds)]) == 0
