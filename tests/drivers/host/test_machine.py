"""Clocks, knobs and figures of a process, on the machine that runs the tests."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.drivers.host import clock
from appliance.drivers.host.figures import Figures
from tests.patience import HUNG_S

REPO = Path(__file__).resolve().parents[3]


def in_a_process(code: str, environment: dict[str, str] | None = None) -> tuple[str, str]:
    """What `code` prints to stdout and stderr in a process of its own: knobs are for ever."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPO), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=HUNG_S,
        check=True,
    )
    return done.stdout, done.stderr


def test_clocks_tell_the_time_in_the_units_of_their_names() -> None:
    before = time.monotonic_ns()
    assert before <= clock.monotonic_ns() <= time.monotonic_ns()
    assert abs(clock.realtime_us() - time.time() * 1e6) < 1e6


def test_seeds_differ() -> None:
    assert len({clock.seed() for _ in range(100)}) == 100


def test_pinning_reports_what_it_did() -> None:
    code = """
import os
from appliance.drivers.host import knobs
core = sorted(os.sched_getaffinity(0))[-1]
print(knobs.pin([core]), os.sched_getaffinity(0) == {core})
print(knobs.pin([100_000]))
"""
    done, refused = in_a_process(code)[0].splitlines()
    assert done.startswith("ok:") and done.endswith("True")
    assert refused.startswith("failed:")


def test_every_knob_answers_ok_or_why_not() -> None:
    code = """
import gc, sys
from appliance.drivers.host import knobs
for name in ("fine_timers", "quick_threads", "keep_memory", "return_memory", "settle_memory"):
    print(getattr(knobs, name)())
print(gc.get_freeze_count() > 1000, sys.getswitchinterval() < 0.001)
"""
    lines = in_a_process(code)[0].splitlines()
    assert all(line.startswith(("ok", "failed: ")) for line in lines[:5])
    assert lines[5] == "True True"


def test_figures_are_those_of_this_process() -> None:
    figures = Figures().read()
    assert figures.pid == os.getpid()
    assert figures.rss > 10_000_000
    assert figures.threads >= 1 and figures.files >= 3
    assert figures.cpu_seconds > 0 and figures.started < time.time()


def test_figures_are_read_once_a_second_however_often_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times_ns = iter([0, 999_999_999, 1_000_000_000])
    monkeypatch.setattr(clock, "monotonic_ns", lambda: next(times_ns))
    figures = Figures()
    first, second, third = figures.read(), figures.read(), figures.read()
    assert first is second and third is not first


@pytest.mark.parametrize(("level", "count"), [("info", 1), ("error", 0)])
def test_log_lines_reach_stderr_from_their_level_on(level: str, count: int) -> None:
    code = f"""
from appliance.drivers.host.log import start_log
start_log("replica-0", "{level}").info("said %s", "this")
"""
    lines = in_a_process(code)[1].splitlines()
    assert len(lines) == count
    assert all(line.endswith("INFO replica-0: said this") for line in lines)


def test_a_stream_of_the_journal_is_known_by_its_inode(tmp_path: Path) -> None:
    code = """
import os, sys
from appliance.drivers.host.log import in_journal
stat = os.fstat(2)
print(in_journal())
os.environ["JOURNAL_STREAM"] = f"{stat.st_dev}:{stat.st_ino}"
print(in_journal())
"""
    assert in_a_process(code, {"JOURNAL_STREAM": "1:2"})[0].split() == ["False", "True"]
