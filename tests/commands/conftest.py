"""The program as its users run it: a process, what it printed, its exit code."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from appliance.__main__ import tigerchat as tigerchat_group
from tests import forked, removal
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import LocalSite, ports_in_a_row

TOP = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "appliance"]
Tigerchat = Callable[..., subprocess.CompletedProcess[str]]
Sentence = Callable[[subprocess.CompletedProcess[str], int], str]
Chat = Callable[..., str]


def environment() -> dict[str, str]:
    """As a user has it who is not a process of ours."""
    ours = ("TIGERCHAT_PARENT", "NOTIFY_SOCKET", "WATCHDOG_USEC")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "PYTHONPATH": str(TOP)}


@pytest.fixture(scope="session")
def tigerchat() -> Tigerchat:
    """`tigerchat("format", "--local", folder)`: run a verb to its end. Options are those of
    subprocess.run, and `constants` of `forked.run`; what only a real process can be given makes it
    one."""

    def run(
        *words: object, timeout: float = HUNG_S, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        if not options.keys() - {"cwd", "input", "constants"}:
            return forked.run(
                words,
                environment=environment(),
                text=options.get("input"),
                timeout_s=timeout,
                folder=options.get("cwd"),
                constants=options.get("constants", forked.NO_CONSTANTS),
            )
        return subprocess.run(
            [*COMMAND, *map(str, words)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def sentence() -> Sentence:
    """`sentence(result, 2)`: the one line with which a verb refused, and its exit code."""

    def of(result: subprocess.CompletedProcess[str], code: int) -> str:
        assert result.returncode == code, result.stderr + result.stdout
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("tigerchat: ")
        return lines[0].removeprefix("tigerchat: ")

    return of


@pytest.fixture(scope="package")  # even an idle site takes a quarter of a core from other tests
def serving(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[LocalSite]:
    """A site of three nodes that serves, for all tests that talk to one; rates are unlimited."""
    folder = tmp_path_factory.mktemp("serving") / "site"
    with LocalSite(folder, ports_in_a_row(free_ports), log_level="warning") as site:
        yield site
    removal.remove(folder)


@pytest.fixture
def chat(serving: LocalSite) -> Chat:
    """`chat("send", room, "hello")`: a verb that speaks to `serving` and must succeed, run in this
    process, because starting one costs more than the verb; what it printed. One that reads shows
    all that an earlier one was told is stored, whichever node it asks."""

    def run(*words: object, text: str | None = None) -> str:
        if words[0] == "tail" or words[:2] == ("room", "list"):
            serving.wait_told()
        arguments = [*map(str, words), "--local", str(serving.folder)]
        done = CliRunner().invoke(tigerchat_group, arguments, input=text, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run
