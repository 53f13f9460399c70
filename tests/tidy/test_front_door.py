"""Set-up puts a command `tigerchat` beside the interpreter; it works from any folder."""

import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.patience import HUNG_S
from tests.system.local_site import wait_until
from tools import setup

COMMAND = Path(sys.prefix, "bin", "tigerchat")


def test_the_command_runs_the_program_from_any_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [COMMAND, "version"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tigerchat ")


def test_a_command_of_another_checkout_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "tigerchat"
    command.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(setup, "COMMAND", command)
    setup.put_command()
    assert str(setup.TOP) in command.read_text()
    assert command.stat().st_mode & 0o111
    before = command.stat().st_mtime_ns
    setup.put_command()
    assert command.stat().st_mtime_ns == before, "and it is left alone when it is right"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((), ""),
        (("NODES=5", "SHARDS=2"), "--nodes 5 --shards 2"),
        (("STANDBYS=1",), "--standbys 1"),
    ],
)
def test_make_run_passes_on_the_numbers_that_were_said_alone(
    numbers: tuple[str, ...], words: str
) -> None:
    """A site that exists has its own, whoever came and went."""
    done = subprocess.run(
        ["make", "-n", "run", *numbers], cwd=setup.TOP, capture_output=True, text=True, check=True
    )
    (start,) = [line for line in done.stdout.splitlines() if " start " in line]
    assert " ".join(start.partition("--local ./run")[2].split()) == words


def test_what_make_report_sets_up_are_the_lock_of_the_reports_and_java() -> None:
    locks, packages = setup.ENVIRONMENTS["report"]
    node_locks, node_packages = setup.ENVIRONMENTS["node"]
    assert set(locks) - set(node_locks) == {"reports"}
    assert set(node_locks) <= set(locks)
    beside = [package for package in packages if package not in node_packages]
    assert beside == list(setup.JAVA_PACKAGES)
    assert beside
    recipe = (setup.TOP / "Makefile").read_text().partition("\nreport:")[2].partition("\n\n")[0]
    assert "$(SETUP) report\n" in recipe


def test_what_make_soak_sets_up_beside_what_tests_need_is_a_machine_to_boot() -> None:
    locks, packages = setup.ENVIRONMENTS["soak"]
    test_locks, test_packages = setup.ENVIRONMENTS["tests"]
    assert locks == test_locks
    beside = [package for package in packages if package not in test_packages]
    assert beside == list(setup.GUEST_PACKAGES)
    recipe = (setup.TOP / "Makefile").read_text().partition("\nsoak:")[2].partition("\n\n")[0]
    assert "$(SETUP) soak\n" in recipe


def test_errands_are_run_beside_each_other_and_the_first_that_failed_is_told() -> None:
    """The first waits for the last: one after the other, none would end."""
    last_began = threading.Event()
    ended: list[str] = []

    def first() -> None:
        assert last_began.wait(HUNG_S)
        ended.append("first")

    def failed(name: str) -> None:
        raise setup.SetupError(name)

    def last() -> None:
        last_began.set()
        ended.append("last")

    with pytest.raises(setup.SetupError, match="second"):
        setup.side_by_side([first, partial(failed, "second"), partial(failed, "third"), last])
    assert sorted(ended) == ["first", "last"]


def test_a_command_is_run_beside_what_is_still_fetched_once_the_environment_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make test` has its checks of the tree run; what they find fails the set-up."""
    ran = tmp_path / "ran"

    def fetch_for_long() -> None:
        wait_until(ran.exists, HUNG_S, "the command has run")

    monkeypatch.setattr(setup, "COMMAND", tmp_path / "tigerchat")
    monkeypatch.setitem(setup.ENVIRONMENTS, "tests", ((), ()))
    for name in ("fetch_jars", "install_modules", "fetch_trees"):
        monkeypatch.setattr(setup, name, fetch_for_long)
    there = f"import os; os.stat({str(setup.COMMAND)!r}); open({str(ran)!r}, 'x')"
    assert setup.main(["tests", "--", sys.executable, "-c", there]) == 0
    assert setup.main(["tests"]) == 0
    assert capsys.readouterr().err == ""
    assert setup.main(["tests", "--", "false"]) == 1
    assert capsys.readouterr().err == "setup: failed: false; see above\n"
    assert setup.main(["--", "false"]) == 2


@pytest.mark.parametrize("failing", ["mypy", "tidy.py", "ruff check", "ruff format", "nothing"])
def test_checks_of_the_tree_that_run_at_once_say_all_they_found_and_fail_when_one_does(
    failing: str, tmp_path: Path
) -> None:
    shown = subprocess.run(
        ["make", "-n", "check"], cwd=setup.TOP, capture_output=True, text=True, check=True
    ).stdout
    (words,) = re.findall(r"setup\.py check -- (make .*)", shown)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho looked\ncase "$*" in *"{failing}"*) exit 1; esac\n')
    python.chmod(0o700)
    done = subprocess.run(
        [*words.split(), f"PYTHON={python}"],
        cwd=setup.TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("looked\n") == 4, done
    assert done.returncode == (0 if failing == "nothing" else 2), done


def test_what_a_network_may_fail_is_tried_again_and_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = tmp_path / "tries"
    text = f"import os; p = {str(tries)!r}; os.system('printf x >> ' + p); "
    pauses: list[float] = []
    second = [sys.executable, "-c", text + "exit(os.stat(p).st_size < 2)"]
    setup.run_patiently(second, "not done", pauses.append)
    assert (tries.read_text(), pauses) == ("xx", [10])
    assert capsys.readouterr().out.endswith("failed: tried again in 10 s\n")
    with pytest.raises(setup.SetupError, match="never done"):
        setup.run_patiently([sys.executable, "-c", text + "exit(1)"], "never done", pauses.append)
    assert len(tries.read_text()) == 5
