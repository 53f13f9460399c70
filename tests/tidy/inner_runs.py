"""Runs of pytest inside a test, forked from one process that has imported what each of them needs.

Importing it takes several times what such a run does. What a run sees is as if it had been started
by `python -m pytest`: its words, environment, folder, streams, exit code. Who must have a process
that is started anew asks for one.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
FORKER = [sys.executable, "-m", "tests.tidy.inner_runs"]
NEEDED = (
    *("hypothesis.strategies", "xdist.scheduler", "tests.forked", "tests.ports", "tests.record"),
    *("tests.side_by_side", "tests.system.hdfs_site"),
)
OUTPUT = "output"  # a pipe in a run's folder


class InnerRuns:
    """Close it when done."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / OUTPUT
        os.mkfifo(self._pipe)
        self._process = subprocess.Popen(
            FORKER, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, folder: Path, words: list[str], environment: dict[str, str]) -> tuple[int, str]:
        """Exit code, and output to its end: until nobody holds it any more."""
        asked = {"words": words, "folder": str(folder), "environment": environment}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(
            json.dumps({**asked, "output": str(self._pipe)}), file=self._process.stdin, flush=True
        )
        output = self._pipe.read_text()
        return int(self._process.stdout.readline()), output

    def close(self) -> None:
        with self._process:
            pass


def serve() -> int:
    """Fork for each line that is read; what the fork ends with."""
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return become(**asked)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0


def become(words: list[str], folder: str, environment: dict[str, str], output: str) -> int:
    """A run of pytest with these words."""
    out, nothing = os.open(output, os.O_WRONLY), os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((nothing, out, out)):
        os.dup2(source, target)
    for source in (nothing, out):
        os.close(source)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, folder)
    # Of what this process has imported already: its assertions are not what these runs are about.
    return int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *words]))


if __name__ == "__main__":
    for name in NEEDED:
        importlib.import_module(name)
    sys.exit(serve())
