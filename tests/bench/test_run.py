"""`make bench` goes through its motions in a short form, so that it cannot rot."""

import subprocess
import sys
from pathlib import Path

from tests.bench.steady import back_after
from tests.patience import HUNG_S
from tests.system.local_site import environment

RUN = Path(__file__).with_name("run.py")


def test_bench_measures_and_kills_in_its_quick_form(tmp_path):
    history = RUN.with_name("history.jsonl")
    before = history.read_bytes() if history.exists() else b""
    done = subprocess.run(
        [sys.executable, RUN, "--quick", "--folder", tmp_path],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=4 * HUNG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "acked/s" in done.stdout and "deliveries/s" in done.stdout
    assert "kill -9 of the primary, flushes slowed by 10 ms: back after" in done.stdout
    assert "shipping at up to 20 MB/s" in done.stdout
    assert "recovering a wiped volume" in done.stdout
    assert "restart with a ring of full prepares" in done.stdout
    assert (history.read_bytes() if history.exists() else b"") == before
    assert list(tmp_path.iterdir()) == []


def test_curve_is_back_when_three_seconds_in_a_row_are_within_twice_of_before():
    before = [90.0, 5.0, 6.0, 5.0]  # the first second warms up
    assert back_after([*before, 400.0, 9.0, 8.0, 7.0, 6.0], 4) == (5.0, 1)
    assert back_after([*before, 400.0, 9.0, 30.0, 7.0, 6.0, 6.0], 4) == (5.0, 3)
    assert back_after([*before, 8.0, 9.0, 7.0], 4) == (5.0, 0)
    assert back_after([*before, float("inf"), 80.0, 70.0], 4) == (5.0, None)
