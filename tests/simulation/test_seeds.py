"""Seeds that every change must survive: a fixed list, and fresh ones that are printed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.simulation.options import LITE, MODES, SWARM, draw
from appliance.simulation.world import Outcome, World

LITE_FIXED, LITE_FRESH = range(80), 20
SWARM_FIXED, SWARM_FRESH = range(12), 4
GROUP = 10                        # seeds of one test

ROOT = Path(__file__).parents[2]


def run(seed: int, mode: str) -> Outcome:
    outcome = World(draw(seed, mode)).run()
    if outcome.failure:
        pytest.fail(f"tigerchat simulate --{mode} --seed {seed}\n{outcome.checker}: "
                    f"{outcome.failure}\n" + "\n".join(outcome.report))
    return outcome


def groups(seeds: range) -> list[range]:
    return [seeds[i:i + GROUP] for i in range(0, len(seeds), GROUP)]


@pytest.mark.parametrize("seeds", groups(LITE_FIXED), ids=str)
def test_lite_worlds_keep_every_promise(seeds):
    outcomes = [run(seed, LITE) for seed in seeds]
    assert all(outcome.counts["acknowledged"] for outcome in outcomes)
    assert sum(outcome.counts["crashes"] for outcome in outcomes) > 10


@pytest.mark.parametrize("seeds", groups(SWARM_FIXED), ids=str)
def test_swarm_worlds_keep_every_promise(seeds):
    outcomes = [run(seed, SWARM) for seed in seeds]
    assert sum(outcome.ops for outcome in outcomes) > 100


@pytest.mark.parametrize(("mode", "count"), [(LITE, LITE_FRESH), (SWARM, SWARM_FRESH)])
def test_fresh_worlds_keep_every_promise(mode, count, seed):
    first = 1_000_000 + seed % 1_000_000_000
    print(f"fresh seeds: tigerchat simulate --{mode} --seed {first} --seeds {count}")
    for number in range(first, first + count):
        run(number, mode)


@pytest.mark.parametrize(("mode", "number"), [(LITE, 3), (SWARM, 2)])
def test_an_equal_seed_has_an_equal_trace_in_another_process(mode, number):
    here = run(number, mode)
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "appliance", "simulate", "--json", f"--{mode}", "--seed",
             str(number)], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True)
        there = json.loads(done.stdout)
        assert (there["digest"], there["events"]) == (here.digest, here.events)


@pytest.mark.parametrize("mode", MODES)
def test_another_seed_has_another_trace(mode):
    digests = {World(draw(seed, mode)).run(until_tick=50).digest for seed in range(5)}
    assert len(digests) == 5


def test_the_command_reports_a_whole_seed_and_that_another_process_agrees():
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "simulate", "--lite", "--seed", "5",
         "--check-determinism"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "safety_ticks = 2500" in done.stdout
    assert "seed 5 lite ok" in done.stdout
    assert "the same trace in another process" in done.stdout


def test_the_command_prints_every_event_up_to_a_tick():
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "simulate", "--lite", "--seed", "5", "--until", "20",
         "--log", "full"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "replica 0  start" in done.stdout
    assert "start_view" in done.stdout


@pytest.mark.soak
def test_fresh_worlds_keep_every_promise_for_a_long_time(seed, soak_seconds):
    end = time.monotonic() + soak_seconds
    number = 2_000_000_000 + seed % 1_000_000_000
    print(f"fresh seeds from {number} on")
    while time.monotonic() < end:
        run(number, SWARM if number % 4 == 0 else LITE)
        number += 1
