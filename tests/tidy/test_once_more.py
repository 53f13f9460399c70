"""What may be looked at once more after a run, and what stays red."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import run
from tests.failures import Failure, logs_of_sites
from tests.patience import HUNG_S

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


@pytest.mark.parametrize(("again", "expected"), [(0, 0), (1, 1)])
def test_a_test_is_red_or_flaky_as_its_second_look_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: int, expected: int
) -> None:
    file = tmp_path / "failures.json"
    asked: list[list[str]] = []

    def played(arguments: list[str], seconds_max: float | None) -> int:
        asked.append(arguments)
        if len(asked) == 1:
            file.write_text(json.dumps([system(1)]))
            return 1
        return again

    assert run.main(["tests"], played, file) == expected
    assert asked[1:] == [[system(1)["test"]]]
    assert ("FLAKY" in capsys.readouterr().out) == (expected == 0)


def test_a_run_that_was_broken_off_is_not_repeated(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def played(arguments: list[str], seconds_max: float | None) -> int:
        asked.append(arguments)
        return 2

    assert run.main(["tests"], played, tmp_path / "failures.json") == 2
    assert len(asked) == 1


def test_what_failed_is_written_for_each_phase(tmp_path: Path) -> None:
    red = tmp_path / "test_red.py"
    red.write_text("def test_a():\n    assert 1 == 2\n\n\ndef test_b(nothing):\n    pass\n")
    file = tmp_path / "out" / "failures.json"
    words = (sys.executable, "-m", "pytest", "-p", "tests.failures", f"--failures={file}", str(red))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HUNG_S)
    assert done.returncode == 1, done.stdout + done.stderr
    found: list[Failure] = json.loads(file.read_text())
    assert [(one["test"].rpartition("::")[2], one["when"]) for one in found] == [
        ("test_a", "call"),
        ("test_b", "setup"),
    ]
    assert "assert 1 == 2" in found[0]["text"]


def test_logs_show_their_faults_and_their_end(tmp_path: Path) -> None:
    (tmp_path / "test_x0").mkdir()
    lines = ["HALT STORAGE_WRITE at x", *(f"line {number}" for number in range(100))]
    (tmp_path / "test_x0" / "site.log").write_text("\n".join(lines))
    ((title, text),) = logs_of_sites(tmp_path)
    assert title == "log test_x0/site.log"
    assert text.splitlines()[:2] == ["HALT STORAGE_WRITE at x", "line 60"]
