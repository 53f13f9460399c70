"""A plugin of pytest, `-p tests.record --record FILE`: what ran, for how long, and what failed, for
who adds several runs up.
"""

import json
import time
from pathlib import Path
from typing import Any, TypedDict

import psutil
import pytest

from tests import side_by_side

WRITTEN_EVERY_S = 10.0  # so that something is left of a run that is killed
SOAK = "left_to_soak"  # what a process of a run says under this name
LOGS_SHOWN_MAX = 6
LOG_SHOWN_LINES = 40
LOG_READ_SIZE_MAX = 4 << 20


class Failure(TypedDict):
    """`when` it failed: setup, call, teardown, collect. `text`: all that the report shows."""

    test: str
    when: str
    text: str


class Record(TypedDict):
    """Of one run. `seconds` of each test with its set-up and tear-down, in the order in which they
    ended; `passed` counts tests, `soak` those of its part that were left to `make soak`, as far as
    this process has collected them; `running` are those that began and have not ended.
    """

    seconds: dict[str, float]
    passed: int
    soak: int
    running: list[str]
    failures: list[Failure]


def empty() -> Record:
    """Of a run that has not begun."""
    return {"seconds": {}, "passed": 0, "soak": 0, "running": [], "failures": []}


def left_to_soak(items: list[pytest.Item]) -> int:
    """How many of them only a soak runs; those of another part are counted there."""
    return sum(
        item.get_closest_marker("soak") is not None
        and item.config.getoption("--part", None) in (None, side_by_side.part_of(item.nodeid))
        for item in items
    )


class Recorder:
    """Of one run, gathered where the reports of all its processes arrive."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._record = empty()
        self._running: dict[str, None] = {}
        self._written_s = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        if time.monotonic() > self._written_s + WRITTEN_EVERY_S:
            self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = self._record["seconds"]
        seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
        if report.when == "call" and not report.failed:
            self._record["passed"] += 1
        self._add(report, report.when or "")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report, "collect")

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._record["soak"] += left_to_soak(items)

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist
    def pytest_testnodedown(self, node: Any) -> None:
        """Its processes collect all the same tests, and say so when they end."""
        self._record["soak"] = getattr(node, "workeroutput", {}).get(SOAK, self._record["soak"])

    def _add(self, report: pytest.TestReport | pytest.CollectReport, when: str) -> None:
        if report.failed:
            text = "\n".join([report.longreprtext, *(said for _, said in report.sections)])
            failure: Failure = {"test": report.nodeid, "when": when, "text": text}
            self._record["failures"].append(failure)

    def pytest_sessionfinish(self) -> None:
        self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        self._record["running"] = list(self._running)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._record, indent=1))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tigerchat").addoption("--record", type=Path, help="tell there what ran")


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.getoption("--record")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(file), "tigerchat-record")


def logs_of_sites(folder: Path, since_s: float = 0.0) -> list[tuple[str, str]]:
    """A title and the end of each log that tests keep under `folder`, the newest first, cut to the
    last lines and, before these, whatever speaks of a fault. One to which nobody has written since
    then, in seconds since 1970, and which this process has closed, is of a site that has ended
    before: it says nothing of what fails now.
    """
    found = [file for deep in ("*", "*/*", "*/*/*") for file in folder.glob(f"{deep}.log")]
    open_here = {str(file.path) for file in psutil.Process().open_files()}
    found = [f for f in found if f.stat().st_mtime >= since_s or str(f.resolve()) in open_here]
    found.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    shown = []
    for file in found[:LOGS_SHOWN_MAX]:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - LOG_READ_SIZE_MAX))
            lines = log.read().decode(errors="replace").splitlines()
        faults = [line for line in lines[:-LOG_SHOWN_LINES] if speaks_of_a_fault(line)]
        text = "\n".join([*faults[:LOG_SHOWN_LINES], *lines[-LOG_SHOWN_LINES:]])
        shown.append((f"log {file.relative_to(folder)}", text))
    return shown


def speaks_of_a_fault(text: str) -> bool:
    """Of the product, not of the time that something took."""
    signs = (
        "Traceback (most recent",
        "Exception in callback",
        "HALT ",
        "Violation",
    )
    return any(sign in text for sign in signs)
