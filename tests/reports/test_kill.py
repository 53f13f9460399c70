"""kill -9 of an ingest at random moments: the next one goes on, and no row is missing or double."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.reports.command_line import finished, report
from tests.reports.maker import Site, make
from tests.reports.rows import fingerprint, log_seqs
from tests.reports.site_tables import MakeTables

HOURS, PER_HOUR = 24, 400
COMMITS = 10  # of a run, or nearly so: it is killed between two, or within one
HOURS_FOR_ONE_KILL, COMMITS_FOR_ONE_KILL = 6, 6
TRIES_A_KILL = 4  # a run may end before its kill comes
SOAK_ROUNDS_MIN = 3  # of 8 kills each


def killed_and_finished(
    tables: MakeTables,
    tmp_path: Path,
    seed: int,
    kills: int,
    hours: int = HOURS,
    commits: int = COMMITS,
) -> None:
    prng = random.Random(seed)
    site = Site(seed=seed % 10**6, shards=2)
    root = tmp_path / "archive"
    make(root, site, hours, PER_HOUR)
    keys = site.write_keys(tmp_path / "keys.json")
    disturbed, calm = tables(site, root), tables(site, root)
    words = (
        "ingest",
        str(root),
        "--keys",
        str(keys),
        "--tables",
        str(disturbed.folder),
        "--batch-records",
        str(site.shards * hours * PER_HOUR // commits),
    )
    done = 0
    for number in range(TRIES_A_KILL * kills):
        process = report(tmp_path / f"spark-{number}", *words)
        wait_s = prng.uniform(0, 0.6)
        assert process.stdout is not None
        for line in process.stdout:
            if "verified" in line:
                break
        time.sleep(wait_s)
        if process.poll() is None:
            done += 1
            os.killpg(process.pid, signal.SIGKILL)
        finished(process)
        if done == kills:
            break
    code, out, err = finished(report(tmp_path / "spark-last", *words))
    assert code == 0, out + err
    assert "verified and in the tables" in out
    assert done == kills, f"{done} of {kills} runs had not ended before they were killed"
    assert calm.ingest().clean
    assert fingerprint(disturbed.folder, disturbed.state) == fingerprint(calm.folder, calm.state)
    total = hours * PER_HOUR
    assert log_seqs(disturbed.folder, disturbed.state) == {
        shard: list(range(1, total + 1)) for shard in range(2)
    }
    assert not (disturbed.folder / "_staging").exists() or not any(
        (disturbed.folder / "_staging").rglob("*.parquet")
    )
    listed = {file.path for file in disturbed.state.records}
    assert {
        path.relative_to(disturbed.folder).as_posix()
        for path in (disturbed.folder / "records").rglob("*.parquet")
    } == listed


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_ingest_that_was_killed_makes_the_same_tables(
    tables: MakeTables, tmp_path: Path, seed: int, kills: int
) -> None:
    size = (HOURS_FOR_ONE_KILL, COMMITS_FOR_ONE_KILL) if kills == 1 else (HOURS, COMMITS)
    killed_and_finished(tables, tmp_path, seed, kills, *size)


@pytest.mark.soak
def test_ingest_killed_again_and_again_makes_the_same_tables(
    tables: MakeTables, tmp_path: Path, seed: int, soak_seconds: int
) -> None:
    deadline, rounds = time.monotonic() + soak_seconds, 0
    while rounds < SOAK_ROUNDS_MIN or time.monotonic() < deadline:
        killed_and_finished(tables, tmp_path / str(rounds), seed + rounds, 8)
        rounds += 1
