"""A plugin of pytest, `-p tests.failures --failures FILE`: what failed, for who looks once more."""

import json
from pathlib import Path
from typing import TypedDict

import pytest

LOGS_SHOWN_MAX = 6
LOG_SHOWN_LINES = 40
LOG_READ_SIZE_MAX = 4 << 20


class Failure(TypedDict):
    """`when` it failed: setup, call, teardown, collect. `text`: all that the report shows."""

    test: str
    when: str
    text: str


class Failures:
    """Of one run, gathered where the reports of all its processes arrive."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: list[Failure] = []

    def _add(self, report: pytest.TestReport | pytest.CollectReport, when: str) -> None:
        if report.failed:
            text = "\n".join([report.longreprtext, *(said for _, said in report.sections)])
            self._found.append({"test": report.nodeid, "when": when, "text": text})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report, report.when or "")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report, "collect")

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._found, indent=1))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tigerchat").addoption("--failures", type=Path, help="list what failed there")


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.getoption("--failures")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(file), "tigerchat-failures")


def logs_of_sites(folder: Path) -> list[tuple[str, str]]:
    """A title and the end of each log that tests keep under `folder`, the newest first, cut to the
    last lines and, before these, whatever speaks of a fault.
    """
    found = [file for deep in ("*", "*/*", "*/*/*") for file in folder.glob(f"{deep}.log")]
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
