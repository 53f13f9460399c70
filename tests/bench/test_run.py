"""`make bench` goes through its motions in a short form, so that it cannot rot."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.importing import MESSAGES_QUICK
from tests.bench.measured import page
from tests.bench.run import PARTS
from tests.bench.steady import back_after
from tests.patience import HUNG_S
from tests.system.local_site import environment

RUN = Path(__file__).with_name("run.py")


# What each part prints; one without a line does nothing in the quick form.
SAYS: dict[str, tuple[str, ...]] = {
    "without client TLS": ("acked/s", "deliveries/s"),
    "with client TLS": (),
    "failover": ("kill -9 of the primary, flushes slowed by 10 ms: back after",),
    "failover in checkpoints": (),
    "shipping": ("shipping at up to 20 MB/s",),
    "reading archives": ("reading irssi: ", "reading slack: "),
    "importing": (f"importing {MESSAGES_QUICK} messages",),
    "restore": ("restoring 20000 records:",),
    "one node hurt": (),
    "big volumes": ("recovering a wiped volume", "restart with a ring of full prepares"),
    "reports": (),
    "objects": (),
    "checked history": ("history to the client, a room alone:", "fan-out:", "broken leaf:"),
    "executable": ("idle memory in MB: supervisor",),
    "volume": ("through the volume on a file, beside a bare loop of its calls:",),
    "one message on devices": ("median time of a message alone, three nodes on raw devices",),
    "objects between edges": ("objects from edge to edge of three nodes",),
    "question of quorum": (),
    "idle site": ("idle site: ",),
    "clients that left": ("memory of an edge after 20 clients have left",),
    "ways in": ("by webtransport, beside WebSocket on TLS:", "until a message that waited"),
    "idle clients": ("each of 20 idle clients, webtransport:",),
    "a crowd resumes": ("until all follow their room again:",),
    "federation": ("catching up on 300 messages of another site:", "times without federation"),
}


# What shows in seconds that figures are measured, told, judged and not kept.
SHORT = ("failover in checkpoints", "reading archives", "volume", "objects")


@pytest.mark.parametrize(
    "part",
    [part if part in SHORT else pytest.param(part, marks=pytest.mark.soak) for part in SAYS],
)
def test_bench_goes_through_the_motions_of_each_part_in_its_quick_form(
    part: str, tmp_path: Path
) -> None:
    history = RUN.with_name("history.jsonl")
    before = history.read_bytes() if history.exists() else b""
    done = subprocess.run(
        [sys.executable, RUN, "--quick", "--folder", tmp_path, "--only", part],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=4 * HUNG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in SAYS[part]:
        assert line in done.stdout
    assert (history.read_bytes() if history.exists() else b"") == before
    assert list(tmp_path.iterdir()) == []


def test_every_part_of_bench_is_gone_through() -> None:
    assert list(SAYS) == list(PARTS)


def test_page_of_what_was_measured_names_figure_bar_and_whether_it_held() -> None:
    rows = [
        {"kind": "executable", "what": "onedir form", "value": 90.5, "unit": "MB",
         "bar": "at most 120", "held": True},
        {"kind": "volume", "what": "p99", "value": 1.3, "unit": "times", "bar": "at most 1.2",
         "held": False},
        {"kind": "objects", "merges_per_s": 1},
    ]  # fmt: skip
    machine = {"cores": 2, "model": "M", "memory_gib": 4, "kernel": "6", "python": "3"}
    text = page(rows, machine, "abc", "now")
    assert "| onedir form | 90.5 MB | at most 120 | held |" in text
    assert "| p99 | 1.3 times | at most 1.2 | **missed** |" in text
    assert text.count("\n| ") == 3 and "now, commit abc: 2 cores of M" in text


def test_curve_is_back_when_three_seconds_in_a_row_are_within_twice_of_before() -> None:
    before = [90.0, 5.0, 6.0, 5.0]  # the first second warms up
    assert back_after([*before, 400.0, 9.0, 8.0, 7.0, 6.0], 4) == (5.0, 1)
    assert back_after([*before, 400.0, 9.0, 30.0, 7.0, 6.0, 6.0], 4) == (5.0, 3)
    assert back_after([*before, 8.0, 9.0, 7.0], 4) == (5.0, 0)
    assert back_after([*before, float("inf"), 80.0, 70.0], 4) == (5.0, None)
