"""How a run of all tests is put together: its parts, its limits, what is looked at once more."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import record, run, side_by_side
from tests.patience import HUNG_S
from tests.record import Failure, Record, logs_of_sites

ROOT = Path(__file__).resolve().parents[2]
SLOW = "E   AssertionError: after 480 s not yet: all serve"


def failure(name: str, text: str = SLOW, when: str = "call") -> Failure:
    return {"test": name, "when": when, "text": text}


def system(number: int, text: str = SLOW, when: str = "call") -> Failure:
    return failure(f"tests/system/test_kill.py::test_{number}", text, when)


def test_few_that_took_too_long_are_looked_at_once_more() -> None:
    assert run.refused([system(1)]) is None
    assert run.refused([system(1), system(2), failure("tests/web/test_page.py::test_x")]) is None


@pytest.mark.parametrize(
    "failures",
    [
        [],
        [system(number) for number in range(4)],
        [failure("tests/cores/vsr/test_wal.py::test_it")],
        [system(1), failure("tests/simulation/test_seeds.py::test_it")],
        [system(1, when="teardown")],
        [system(1, when="collect")],
        [system(1, "E   assert 3 == 4\nlog\nTraceback (most recent call last):")],
        [system(1, "E   assert 3 == 4\nlog\nException in callback f")],
        [system(1, "E   assert 3 == 4\nlog\ntigerchat: HALT STORAGE_WRITE at x")],
        [system(1, "E   AssertionError: 3 messages lost")],
    ],
)
def test_what_speaks_against_the_product_stays_red(failures: list[Failure]) -> None:
    assert run.refused(failures) is not None


class Played:
    """Runs of pytest that end as they are told to; `failed` is what the parts record."""

    def __init__(self, report: Path, codes: list[int | None], failed: list[Failure]) -> None:
        self.report, self.codes, self.failed = report, codes, failed
        self.asked: list[list[str]] = []

    def __call__(self, arguments: list[str], seconds_max: float) -> int | None:
        self.asked.append(arguments)
        for name in side_by_side.PARTS:
            if f"--part={name}" in arguments:
                own = [one for one in self.failed if (name == "alone") == ("system" in one["test"])]
                told = record.empty() | {"failures": own, "passed": 7, "running": ["tests/x"]}
                (self.report / f"{name}.json").write_text(json.dumps(told))
        return self.codes.pop(0)


@pytest.mark.parametrize(("again", "expected"), [(0, 0), (1, 1)])
def test_a_test_is_red_or_flaky_as_its_second_look_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: int, expected: int
) -> None:
    played = Played(tmp_path, [0, 1, again], [system(1)])
    assert run.main(["tests"], played, tmp_path) == expected
    assert played.asked[2:] == [[system(1)["test"]]]
    said = capsys.readouterr().out
    assert ("FLAKY" in said) == (expected == 0) == ("FAILED" not in said)
    assert re.search(r"\n1 failed, 14 passed in |\n15 passed in ", said)


def test_the_second_part_runs_when_the_first_is_red_and_nothing_is_repeated(tmp_path: Path) -> None:
    failed = [failure("tests/cores/vsr/test_wal.py::test_it"), system(1)]
    played = Played(tmp_path, [1, 1], failed)
    assert run.main(["tests"], played, tmp_path) == 1
    assert len(played.asked) == 2


@pytest.mark.parametrize(
    ("codes", "expected"), [([5, 0], 0), ([0, 5], 0), ([5, 5], 5), ([1, 0], 1), ([0, 0], 0)]
)
def test_a_part_may_have_no_tests(tmp_path: Path, codes: list[int | None], expected: int) -> None:
    assert run.main(["tests"], Played(tmp_path, codes, []), tmp_path) == expected


@pytest.mark.parametrize(
    ("cores", "words", "expected"),
    [
        (2, ["--processes", "3"], ["2", "0"]),
        (8, ["--processes", "3"], ["3", "0"]),
        (None, ["--processes=3"], ["1", "0"]),
        (2, ["--processes", "1"], ["1", "0"]),
        (2, ["--processes", "0"], ["0", "0"]),
        (2, ["--processes", "3", "-n", "0"], ["0", "0"]),
        (2, ["--processes", "3", "-n", "5"], ["5", "5"]),
        (2, ["-n", "4"], ["4", "4"]),
        (2, [], [None, None]),
    ],
)
def test_what_only_computes_has_a_process_a_core_real_ones_run_one_at_a_time_and_own_words_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int | None,
    words: list[str],
    expected: list[str | None],
) -> None:
    monkeypatch.setattr(run.os, "cpu_count", lambda: cores)
    played = Played(tmp_path, [0, 0], [])
    assert run.main([*words, "tests", "-rs"], played, tmp_path) == 0
    assert [last_of("-n", each) for each in played.asked] == expected
    assert all(each[-2:] == ["tests", "-rs"] for each in played.asked)
    assert not any("processes" in word for each in played.asked for word in each)


def last_of(option: str, words: list[str]) -> str | None:
    """Its value as pytest takes it."""
    found = [words[place + 1] for place, word in enumerate(words) if word == option]
    return found[-1] if found else None


@pytest.mark.parametrize(
    ("numbers", "expected"), [((), "3"), (("PROCESSES=1",), "1"), (("PROCESSES=7",), "7")]
)
def test_make_test_says_how_many_processes_and_passes_words_on(
    numbers: tuple[str, ...], expected: str
) -> None:
    line = ["make", "-n", "test", "ARGS=-n 0", *numbers]
    told = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (words,) = [line.split() for line in told.splitlines() if "tests.run" in line]
    assert last_of("--processes", words) == expected and words[-2:] == ["-n", "0"]


def test_a_run_that_was_broken_off_is_not_repeated(tmp_path: Path) -> None:
    played = Played(tmp_path, [2], [system(1)])
    assert run.main(["tests"], played, tmp_path) == 2
    assert len(played.asked) == 1


def test_a_run_that_takes_too_long_is_ended_and_says_what_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = Played(tmp_path, [None], [])
    assert run.main(["tests"], played, tmp_path) == 2
    assert "was running: tests/x" in capsys.readouterr().out
    assert run.execute([sys.executable, "-c", "import time; time.sleep(3600)"], 0.5) is None


@pytest.mark.parametrize("told", ["1", "", None])
def test_processes_of_a_run_keep_what_they_compiled_whatever_python_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    monkeypatch.setattr(run.os, "environ", {**run.os.environ, "TIGERCHAT_TEST_KEPT": "yes"})
    run.os.environ.pop(run.NO_BYTECODE, None)
    if told is not None:
        run.os.environ[run.NO_BYTECODE] = told
    program = (
        "import os, pathlib, sys\n"
        "said = sys.dont_write_bytecode, os.environ['TIGERCHAT_TEST_KEPT']\n"
        "pathlib.Path(sys.argv[1]).write_text(repr(said))"
    )
    assert run.execute([sys.executable, "-c", program, str(tmp_path / "said")], HUNG_S) == 0
    assert (tmp_path / "said").read_text() == "(False, 'yes')"


RED = """
def test_a():
    assert 1 == 2
def test_b(nothing):
    pass
def test_c():
    pass
"""


def test_what_ran_and_what_failed_is_recorded_for_each_phase(tmp_path: Path) -> None:
    red = tmp_path / "test_red.py"
    red.write_text(RED)
    file = tmp_path / "out" / "record.json"
    words = (sys.executable, "-m", "pytest", "-p", "tests.record", f"--record={file}", str(red))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HUNG_S)
    assert done.returncode == 1, done.stdout + done.stderr
    found: Record = json.loads(file.read_text())
    assert [(one["test"].rpartition("::")[2], one["when"]) for one in found["failures"]] == [
        ("test_a", "call"),
        ("test_b", "setup"),
    ]
    assert "assert 1 == 2" in found["failures"][0]["text"]
    assert (len(found["seconds"]), found["passed"], found["running"]) == (3, 1, [])


def test_a_test_that_hangs_is_ended_and_shows_where(tmp_path: Path) -> None:
    hanging = tmp_path / "test_hangs.py"
    hanging.write_text("import time\ndef test_it():\n    time.sleep(3600)\n")
    words = (sys.executable, "-m", "pytest", "--timeout=1", str(hanging))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HUNG_S)
    assert done.returncode == 1 and "time.sleep(3600)" in done.stdout, done.stdout


def test_logs_show_their_faults_and_their_end(tmp_path: Path) -> None:
    (tmp_path / "test_x0").mkdir()
    lines = ["HALT STORAGE_WRITE at x", *(f"line {number}" for number in range(100))]
    (tmp_path / "test_x0" / "site.log").write_text("\n".join(lines))
    ((title, text),) = logs_of_sites(tmp_path)
    assert title == "log test_x0/site.log"
    assert text.splitlines()[:2] == ["HALT STORAGE_WRITE at x", "line 60"]


def test_a_log_of_a_site_that_has_ended_before_is_not_shown(tmp_path: Path) -> None:
    ended, goes_on, quiet = (tmp_path / f"{name}.log" for name in ("ended", "goes_on", "quiet"))
    for file in (ended, goes_on, quiet):
        file.write_text("HALT VOLUME_MOVED at x\n")
    for file in (ended, quiet):
        os.utime(file, (1000.0, 1000.0))
    with quiet.open("ab"):  # its site has nothing to say for a while
        shown = [title for title, _ in logs_of_sites(tmp_path, 1001.0)]
    assert shown == ["log goes_on.log", "log quiet.log"]
