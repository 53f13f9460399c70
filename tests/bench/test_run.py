"""`make bench` goes through its motions in a short form, so that it cannot rot."""

import subprocess
import sys
from pathlib import Path

from tests.system.local_site import environment

RUN = Path(__file__).with_name("run.py")


def test_bench_measures_and_kills_in_its_quick_form(tmp_path):
    history = RUN.with_name("history.jsonl")
    before = history.read_bytes() if history.exists() else b""
    done = subprocess.run(
        [sys.executable, RUN, "--quick", "--folder", tmp_path], env=environment(),
        capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "acked/s" in done.stdout and "deliveries/s" in done.stdout
    assert "kill -9 of the primary, flushes slowed by 10 ms: back after" in done.stdout
    assert (history.read_bytes() if history.exists() else b"") == before
    assert list(tmp_path.iterdir()) == []
