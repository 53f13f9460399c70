"""Bugs that were put in on purpose are found by ordinary seeds, and the same seeds pass without
them.

`tests/simulation/plants.py` has the bugs, `planted.json` the seeds that the search found.
"""

import re

import pytest

from tests.simulation import planted, traces
from tests.simulation.plants import PLANTS
from tests.simulation.seeds import PROCESSES

# Bugs without a recorded seed on this state: what members say of their lives moved what every world
# does. Each was found on the state before; the table says how many seeds were tried since, and
# `make soak` goes on. None may join them.
UNRECORDED = {
    "foreign_prepares_kept",
    "highest_op_wins",
    "sync_without_suffix",
    "writes_overlap",
}
TABLE = planted.load()
RECORDED = [name for name in PLANTS if TABLE[name]["finds"]]

TRAPS = range(1, 21)  # T1 to T20: mistakes that such systems are known to have made


@pytest.mark.parametrize("name", RECORDED)
def test_a_planted_bug_is_found_by_a_recorded_seed_that_passes_when_whole(name):
    for find in TABLE[name]["finds"]:
        if not planted.fails(name, find):
            continue
        outcome = planted.whole(find)
        recorded = traces.Recorded(find["seed"], planted.SWARM, planted.until(find))
        assert not traces.moved(recorded, outcome.digest)
        if not outcome.failure:
            return
    pytest.fail(
        f"no recorded seed finds {name} any more: python -m tests.simulation.planted --missing"
    )


def test_the_table_says_how_soon_the_swarm_finds_each_bug():
    assert set(TABLE) == set(PLANTS)
    for name in RECORDED:
        assert 1 <= TABLE[name]["seeds"] <= planted.SEEDS_MAX, name
    assert set(PLANTS) - set(RECORDED) <= UNRECORDED


def test_every_trap_has_a_planted_bug():
    named = [
        int(number) for known in PLANTS.values() for number in re.findall(r"\bT(\d+):", known.trap)
    ]
    assert sorted(named) == list(TRAPS)


@pytest.mark.soak
def test_the_search_finds_every_planted_bug_anew(soak_seconds):
    assert planted.main(["--processes", str(PROCESSES), "--seconds", str(soak_seconds)]) == 0
