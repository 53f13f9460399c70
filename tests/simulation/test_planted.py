"""Bugs that were put in on purpose are found by ordinary seeds, and the same seeds pass without
them.

`tests/simulation/plants.py` has the bugs, `planted.json` the seeds that the search found.
"""

import re

import pytest

from tests.simulation import planted
from tests.simulation.plants import PLANTS
from tests.simulation.seeds import PROCESSES

TRAPS = range(1, 21)  # T1 to T20: mistakes that such systems are known to have made


@pytest.mark.parametrize("name", PLANTS)
def test_every_planted_bug_is_found_by_a_recorded_seed_that_passes_when_whole(name):
    assert any(planted.replays(name, find) for find in planted.load()[name]["finds"]), (
        f"no recorded seed finds {name} any more: python -m tests.simulation.planted --missing"
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
