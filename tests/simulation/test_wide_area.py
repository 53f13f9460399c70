"""Nodes far from each other: with ticks of half a round trip nothing is taken for lost."""

from dataclasses import replace

import pytest

from appliance.formats.site import Site
from appliance.simulation.options import LITE, Options, draw
from appliance.simulation.schedule import TICK_US
from appliance.simulation.world import Outcome, World

AWAY_US = 80_000
WIDE_US = Site(b"", [], [], "", "", round_trip_ms=2 * AWAY_US // 1000).tick_ms * 1000
FAR = {"delay_us_min": AWAY_US - 2_000, "delay_us_mean": AWAY_US, "session_patience_ticks": 6_000}


def run(seed: int, tick_us: int) -> Outcome:
    options = Options(seed=seed, mode=LITE, records_per_device=20, tick_us=tick_us, **FAR)
    return World(options).run()


@pytest.mark.parametrize("seed", range(5))
def test_80_ms_away_the_first_primary_stays_and_little_is_sent_again(seed: int) -> None:
    outcome = run(seed, WIDE_US)
    assert outcome.failure == "" and outcome.records > 0
    assert outcome.marks["primary_started_view"] == 1
    assert outcome.marks.get("prepare_resent", 0) < 10


def test_the_same_way_with_the_ticks_of_one_place_is_full_of_alarms() -> None:
    outcome = run(8, TICK_US)
    assert outcome.failure == ""  # slower, and yet nothing is lost
    assert outcome.marks["primary_started_view"] > 1 and outcome.marks["prepare_resent"] > 50


@pytest.mark.parametrize("seed", range(8))
def test_crashes_far_away_are_survived_as_they_are_near(seed: int) -> None:
    options = replace(draw(seed, LITE), tick_us=WIDE_US, **FAR)
    outcome = World(options).run()
    assert outcome.failure == "", outcome.report
