"""Seeds that every change must survive: a fixed list, and fresh ones that are printed."""

import json
import os
import re
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from appliance.simulation.options import LITE, MODES, SWARM, UNKIND_FROM, UNKIND_LITE_FROM, draw
from appliance.simulation.world import World
from tests.simulation import traces
from tests.simulation.seeds import (
    FIXED,
    MENDED,
    MENDED_DEAR,
    UNKIND,
    UNKIND_LITE,
    Tally,
    jobs_from,
    run,
    run_all,
)
from tests.speed import fresh, seed_of_commit

FRESH = {SWARM: 10, LITE: 190}
FRESH_FROM = {SWARM: UNKIND_FROM, LITE: UNKIND_LITE_FROM}  # with all classes of faults
PARTS = 10  # of each list, run side by side
HERE = 2  # of them in a normal run, all of them in a soak
HERE_FRESH = HERE_UNKIND = 1  # of fresh ones, and of those of the youngest faults
# The one fault that no world of a part of the fixed ones draws; the other parts do.
LACKING = {2: "read_corruption", 6: "replay", 8: "pause", 9: "replay"}
SOAK_BATCH = 8

ROOT = Path(__file__).parents[2]


def shared(here: int) -> list[Any]:
    """The parts, of which so many belong to a normal run."""
    later = [pytest.param(part, marks=pytest.mark.soak) for part in range(here, PARTS)]
    return [*range(here), *later]


def passed(jobs: list[tuple[int, str]]) -> Tally:
    """Run them all; fail with every report at once, or with every trace that has moved."""
    tally, failures, moved = Tally(), [], []
    for job in jobs:
        result = run(job)
        tally.add(result)
        if result.failure:
            failures.append(result.failure)
        moved.append(traces.moved(traces.Recorded(*job, -1), result.digest))
    assert not failures, f"{len(failures)} of {len(jobs)} seeds fail\n" + "\n\n".join(failures)
    assert not any(moved), "\n".join(filter(None, moved))
    return tally


@pytest.mark.parametrize("part", shared(HERE))
def test_two_hundred_fixed_worlds_keep_every_promise(part: int) -> None:
    jobs = jobs_from(0, FIXED)
    assert len(jobs) == 200
    tally = passed(jobs[part::PARTS])
    assert tally.acknowledged > 10_000 // PARTS, "there is something to lose"
    assert tally.excused < FIXED[SWARM] // PARTS // 2, "and most worlds come to rest in the end"
    for name in ("crash", "torn_write", "loss", "partition", "read_corruption", "pause", "replay"):
        if name != LACKING.get(part):
            assert tally.faults[name] > 0, f"no world has met {name}"


@pytest.mark.parametrize(
    "job",
    [
        *UNKIND[:HERE_UNKIND],
        *(pytest.param(job, marks=pytest.mark.soak) for job in UNKIND[HERE_UNKIND:]),
    ],
)
def test_worlds_of_the_youngest_faults_keep_every_promise(job: tuple[int, str]) -> None:
    assert passed([job]).acknowledged > 0, "there is something to lose"


@pytest.mark.parametrize("part", shared(HERE))
def test_two_hundred_small_worlds_of_the_youngest_faults_keep_every_promise(part: int) -> None:
    tally = passed(UNKIND_LITE[part::PARTS])
    assert tally.acknowledged > 2_000 // PARTS, "there is something to lose"
    assert tally.faults["crash"] > 0


def test_small_worlds_meet_each_of_the_youngest_faults() -> None:
    """What they draw, without running them; with those of the swarm at least four hundred."""
    drawn = [draw(seed, mode) for seed, mode in UNKIND_LITE]
    for name in (
        "read_gap_us",
        "flush_error",
        "link_bytes_per_ms",
        "newcomers",
        "keep_segments",
        "moved_ticks_mean",
        "silent_format",
        "old_copy",
        "reformat_in_turn",
        "member_changes",
    ):
        assert sum(bool(getattr(options, name)) for options in drawn) >= 5, name
    assert len(UNKIND_LITE) + len(UNKIND) + FRESH[SWARM] + FRESH[LITE] >= 400


CHEAP = [job for job in MENDED if job not in MENDED_DEAR]


@pytest.mark.parametrize(
    "jobs",
    [
        *(pytest.param(CHEAP[part::PARTS], id=f"{part}") for part in range(PARTS)),
        pytest.param(MENDED_DEAR, id="dear", marks=pytest.mark.soak),
    ],
)
def test_worlds_that_found_bugs_keep_every_promise_now(jobs: list[tuple[int, str]]) -> None:
    assert passed(jobs).seeds == len(jobs) > 0


def test_each_bug_that_a_mended_world_found_has_a_world_in_every_run() -> None:
    assert set(MENDED_DEAR) < set(MENDED)
    lines = json.loads((Path(__file__).parent / "bugs.json").read_text())
    for line in lines:
        named = [
            (int(number), mode)
            for mode, numbers in re.findall(r"\b(swarm|lite) ([\d, ]+)", line["seed"])
            for number in re.findall(r"\d+", numbers)
        ]
        found = set(named) & set(MENDED)
        assert not found or found - set(MENDED_DEAR), f"{line['seed']}: {line['cause']}"


def fresh_of(part: int, counts: dict[str, int], chance: int) -> dict[str, range]:
    """The seeds of a part, none of them those of another one."""
    firsts = {mode: FRESH_FROM[mode] + chance + part * number for mode, number in counts.items()}
    return {mode: range(first, first + counts[mode]) for mode, first in firsts.items()}


def test_no_two_parts_of_the_fresh_worlds_share_a_seed() -> None:
    for counts in ({SWARM: 1, LITE: 19}, {SWARM: 1, LITE: 2}, {SWARM: 7, LITE: 5}):
        parts = [fresh_of(part, counts, 1 << 31) for part in range(PARTS)]
        for mode, number in counts.items():
            assert len({seed for part in parts for seed in part[mode]}) == PARTS * number


@pytest.mark.parametrize("part", shared(HERE_FRESH))
def test_fresh_worlds_keep_every_promise(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty on a usual machine, fewer on a slower one; two hundred in a soak."""
    counts = {mode: fresh(count // PARTS) for mode, count in FRESH.items()}
    jobs = []
    for mode, seeds in fresh_of(part, counts, seed_of_commit()).items():
        jobs += [(seed, mode) for seed in seeds]
        with capsys.disabled():
            words = f"--{mode} --seed {seeds.start} --seeds {len(seeds)}"
            print(f"\nfresh seeds: tigerchat simulate {words}", end="")
    assert passed(jobs).seeds == sum(counts.values())


@pytest.mark.parametrize(("mode", "number"), [(LITE, 3), (SWARM, 41)])
def test_an_equal_seed_has_an_equal_trace_in_another_process(mode: str, number: int) -> None:
    here = World(draw(number, mode)).run()
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "appliance",
                "simulate",
                "--json",
                f"--{mode}",
                "--seed",
                str(number),
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        there = json.loads(done.stdout)
        assert (there["digest"], there["events"]) == (here.digest, here.events)


def test_the_list_of_traces_names_every_recorded_world() -> None:
    assert set(traces.load()) == {world.key for world in traces.worlds()}


@pytest.mark.parametrize("mode", MODES)
def test_another_seed_has_another_trace(mode: str) -> None:
    digests = {World(draw(seed, mode)).run(until_tick=50).digest for seed in range(5)}
    assert len(digests) == 5


def test_the_command_reports_a_whole_seed_and_that_another_process_agrees() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "appliance",
            "simulate",
            "--lite",
            "--seed",
            "5",
            "--check-determinism",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "safety_ticks = 2500" in done.stdout
    assert "seed 5 lite ok" in done.stdout
    assert "the same trace in another process" in done.stdout


def test_the_command_prints_every_event_up_to_a_tick() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "appliance",
            "simulate",
            "--lite",
            "--seed",
            "5",
            "--until",
            "20",
            "--log",
            "full",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "replica 0  start" in done.stdout
    assert "replica 0  step         superblock" in done.stdout
    assert "start_view" in done.stdout


def test_a_failure_can_be_made_smaller_and_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The product is broken in the other process too: Python loads a module at its start."""
    (tmp_path / "sitecustomize.py").write_text(
        "from appliance.cores.vsr.member import Member\n"
        "Member.may_speak = lambda it, header: it.status not in (0, 4)\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

    def simulate(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "appliance", "simulate", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stdout

    told = simulate("--lite", "--seed", "0", "--minimise")
    assert "superblocks: replica" in told and "not needed:" in told
    again = re.findall(r"^again: tigerchat simulate (.*)$", told, re.MULTILINE)
    assert len(again) == 2
    assert "superblocks: replica" in simulate(*again[1].split())


@pytest.mark.soak
def test_fresh_worlds_keep_every_promise_for_a_long_time(seed: int, soak_seconds: int) -> None:
    end = time.monotonic() + soak_seconds
    first = 2_000_000_000 + seed % 1_000_000_000
    tally = Tally()
    print(f"\nfresh seeds from {first} on, one of four of the whole swarm")
    for start in count(first, SOAK_BATCH):
        batch = range(start, start + SOAK_BATCH)
        for result in run_all((n, LITE if n % 4 else SWARM) for n in batch):
            tally.add(result)
            assert not result.failure, result.failure
        print(tally.line(), flush=True)
        if time.monotonic() > end:
            break


def test_who_hears_of_a_failed_flush_once_all_is_healed_is_started_again() -> None:
    """The flush fails in the last tick in which anything may; its process hears of it, and halts,
    in the first tick of those in which the core has to converge."""
    result = run((11_176_741_072, LITE))
    assert result.faults["flush_error"] > 0 and not result.failure, result.failure
