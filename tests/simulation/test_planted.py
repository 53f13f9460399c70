"""Bugs that were put in on purpose are found by ordinary seeds, and the same seeds pass without
them.

`tests/simulation/plants.py` has the bugs, `planted.json` the seeds that the search found.
For the few bugs that no seed finds a story of a group is told.
"""

import re
import sys
from collections.abc import Callable

import pytest

from appliance.simulation.failure import Violation
from tests.cores.vsr import (
    test_lives,
    test_recovery,
    test_sync,
    test_view_change,
    test_write_order,
)
from tests.simulation import planted, traces
from tests.simulation.plants import PLANTS
from tests.simulation.seeds import ALWAYS_RUN, PROCESSES

# Bugs that few worlds show, and late: what members say of their lives keeps ordinary worlds from
# where they hurt, or another rule catches it there. A story is told for each of them.
DIRECTED: dict[str, Callable[[], None]] = {
    "foreign_prepares_kept": test_recovery.test_a_dropped_slot_is_empty_and_not_rewritten,
    "highest_op_wins": (
        test_view_change.test_a_longer_log_of_an_older_view_loses_to_what_was_committed_since
    ),
    "silence_vouches": test_lives.test_a_volume_made_in_silence_says_nothing_while_too_few_answer,
    "sync_without_suffix": (
        test_sync.test_a_fetched_checkpoint_is_installed_with_the_log_that_follows_it
    ),
    "writes_overlap": lambda: test_write_order.test_a_write_waits_for_all_that_it_overlaps(
        test_write_order.still()
    ),
}
TABLE = planted.load()
EVENTS_MAX = 60_000  # of a world that is run although a story is told: two or three seconds
EVENTS_HERE_MAX = 30_000  # of a world in a normal run; longer ones are run in a soak
RECORDED = [
    name
    for name in PLANTS
    if (finds := TABLE[name]["finds"])
    and (name not in DIRECTED or finds[0]["events"] <= EVENTS_MAX)
]

SHARED = [
    name
    if TABLE[name]["finds"][0]["events"] <= EVENTS_HERE_MAX
    else pytest.param(name, marks=pytest.mark.soak)
    for name in RECORDED
]

EVENTS_CHEAP_MAX = 12_000  # of a world that takes a fraction of a second
# Recorded seeds that find their bug no more since the product moved on; it may not rise:
# `python -m tests.simulation.planted --only NAME` looks for others.
ROTTEN = 0

TRAPS = range(1, 21)  # T1 to T20: mistakes that such systems are known to have made


@pytest.mark.parametrize("name", SHARED)
def test_a_planted_bug_is_found_by_a_recorded_seed_that_passes_when_whole(name: str) -> None:
    for find in TABLE[name]["finds"]:
        if not planted.fails(name, find):
            continue
        if (find["seed"], planted.SWARM) in ALWAYS_RUN:
            return  # by `test_seeds`, to its end, and there it passes when whole
        outcome = planted.whole(find)
        recorded = traces.Recorded(find["seed"], planted.SWARM, planted.until(find))
        assert not traces.moved(recorded, outcome.digest)
        if not outcome.failure:
            return
    pytest.fail(
        f"no recorded seed finds {name} any more: python -m tests.simulation.planted --missing"
    )


def rotten(name: str, events_max: int) -> list[int]:
    """Recorded seeds, of worlds up to so large, that do not find the bug of this name."""
    return [
        find["seed"]
        for find in TABLE[name]["finds"]
        if find["events"] <= events_max and not planted.fails(name, find)
    ]


def test_seeds_that_find_their_bug_no_more_grow_fewer() -> None:
    """Of the cheap ones, each; what has several finds may have lost some unnoticed."""
    found = [(name, seed) for name in RECORDED for seed in rotten(name, EVENTS_CHEAP_MAX)]
    assert len(found) == ROTTEN, f"{len(found)} of them, not {ROTTEN}: {found}"


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_seed_finds_its_bug(name: str) -> None:
    assert rotten(name, sys.maxsize) == []


def test_the_table_says_how_soon_the_swarm_finds_each_bug() -> None:
    assert set(TABLE) == set(PLANTS)
    for name in RECORDED:
        assert 1 <= TABLE[name]["seeds"] <= planted.SEEDS_MAX, name
    assert set(PLANTS) - set(RECORDED) <= set(DIRECTED)


@pytest.mark.parametrize("name", DIRECTED)
def test_a_planted_bug_that_no_seed_finds_is_found_by_a_story_that_ends_well_when_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    DIRECTED[name]()
    PLANTS[name].sow(monkeypatch)
    with pytest.raises((AssertionError, Violation)):  # of the story itself, or of its disks
        DIRECTED[name]()


def test_every_trap_has_a_planted_bug() -> None:
    named = [
        int(number) for known in PLANTS.values() for number in re.findall(r"\bT(\d+):", known.trap)
    ]
    assert sorted(named) == list(TRAPS)


@pytest.mark.soak
def test_the_search_finds_every_planted_bug_anew(soak_seconds: int) -> None:
    assert planted.main(["--processes", str(PROCESSES), "--seconds", str(soak_seconds)]) == 0
