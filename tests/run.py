"""`make test`: what only computes, then what needs real processes; and one more look at the few of
these that failed.

    python -m tests.run --processes 2 tests -rs       further words are those of pytest

    tests of cores, formats, worlds ──▶ beside ─┐
    tests with real processes ────────▶ alone ──┴─▶ once more? ─▶ build/test-report, table

What only computes is given as many processes as there are cores, at most those that are asked for:
one more would take time from the others, and wait for nothing. What needs real processes runs one
test after the other in pytest's own: nothing beside a test takes the time that it waits for.

A machine that is busy all the same may starve a real process for longer than a test thought
possible. What fails so is shown as FLAKY and is a fault of the test, to be mended next; a fault of
the product stays red: nothing is repeated that more than a few tests say, that needs no real
process, or that speaks of one.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests import record, side_by_side, speed
from tests.record import Failure, Record, speaks_of_a_fault

REPEATED_MAX = 3
TESTS_FAILED, NONE_COLLECTED, STOPPED = 1, 5, 2  # as pytest exits
REPEAT_S_MAX = 600  # of one test
RUN_S_MAX = 3600  # of all, on the slowest machine too
ENDS_WITHIN_S = 120  # what is told to end, with all that it has started
REPORT = Path("build/test-report")
SLOWEST_SHOWN = 25
WORTH_A_TABLE = 100  # tests
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_VERDICT = re.compile(r"\b(lost|doubled|reordered|diverged)\b")


class Run:
    """Of the parts, one after the other; `start` runs pytest with these words, for so long at most,
    and gives its exit code; None: it was ended."""

    def __init__(
        self, start: Callable[[list[str], float], int | None], report: Path = REPORT
    ) -> None:
        self._start, self._report = start, report
        self._began_s = time.monotonic()
        self._end_s = self._began_s + RUN_S_MAX
        self.records: dict[str, Record] = {}

    def part(self, name: str, arguments: list[str]) -> int:
        """Run one; how pytest exits."""
        self._report.mkdir(parents=True, exist_ok=True)
        file = self._report / f"{name}.json"
        file.unlink(missing_ok=True)
        words = ["-p", "tests.record", f"--record={file}", f"--part={name}"]
        words += [f"--junitxml={self._report / name}.xml", *arguments]
        print(f"\npart {name}", flush=True)
        code = self._start(words, max(1.0, self._end_s - time.monotonic()))
        self.records[name] = json.loads(file.read_text()) if file.exists() else record.empty()
        if code is None:
            print(f"ended after {self.seconds / 60:.0f} minutes, as long as a run may take")
            for test in self.records[name]["running"]:
                print(f"  was running: {test}")
            return STOPPED
        return code

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def failures(self) -> list[Failure]:
        return [failure for each in self.records.values() for failure in each["failures"]]

    def once_more(self) -> list[str] | None:
        """Look at what failed once more, alone; those that are green then. None: it stays red."""
        if why := refused(self.failures):
            print(f"not looked at once more: {why}", flush=True)
            return None
        tests = sorted({failure["test"] for failure in self.failures})
        for test in tests:
            print(f"\nonce more, alone: {test}", flush=True)
            if self._start([test], REPEAT_S_MAX) != 0:
                return None
        return tests

    def told(self, flaky: list[str]) -> list[str]:
        """The closing lines."""
        seconds = {name: s for each in self.records.values() for name, s in each["seconds"].items()}
        lines = []
        if len(seconds) >= WORTH_A_TABLE:
            lines += [f"slowest {SLOWEST_SHOWN}:"]
            slowest = sorted(seconds.items(), key=lambda pair: -pair[1])[:SLOWEST_SHOWN]
            lines += [f"{spent:8.1f} s  {name}" for name, spent in slowest]
            lines += [
                "time by folder:",
                *side_by_side.table(seconds.items(), speed.machine_speed()),
            ]
            counts = [f"{len(each['seconds'])} {name}" for name, each in self.records.items()]
            soak = sum(each["soak"] for each in self.records.values())
            lines += [f"tests: {', '.join(counts)}; {soak} more by `make soak`"]
        lines += [f"FLAKY {test}: red at first, green alone" for test in flaky]
        failed = sorted({failure["test"] for failure in self.failures} - {*flaky})
        lines += [f"FAILED {test}" for test in failed]
        passed = sum(each["passed"] for each in self.records.values()) + len(flaky)
        words = [f"{len(failed)} failed"] if failed else []
        return [*lines, f"{', '.join([*words, f'{passed} passed'])} in {self.seconds:.2f}s"]


def refused(failures: list[Failure]) -> str | None:
    """Why these may not be looked at once more; None if they may."""
    tests = {failure["test"] for failure in failures}
    if not 0 < len(tests) <= REPEATED_MAX:
        return f"{len(tests)} tests failed"
    for failure in failures:
        test = failure["test"]
        if failure["when"] not in ("setup", "call"):
            return f"{test} failed in its {failure['when']}"
        if not side_by_side.needs_real_processes(test):
            return f"{test} needs no real process"
        errors = "\n".join(line for line in failure["text"].splitlines() if line[:2] == "E ")
        if speaks_of_a_fault(failure["text"]) or _VERDICT.search(errors):
            return f"{test} speaks of a fault of the product"
    return None


def pytest(arguments: list[str], seconds_max: float) -> int | None:
    """Run it to its end; who stops this stops it, and it ends what it started."""
    return execute([sys.executable, "-m", "pytest", *arguments], seconds_max)


def environment() -> dict[str, str]:
    """Where Python is told to write no bytecode, each process of each part would compile all tests
    anew, which takes three times what reading them does; `tools/setup.py` compiles the program."""
    return {name: text for name, text in os.environ.items() if name != NO_BYTECODE}


def execute(words: list[str], seconds_max: float) -> int | None:
    """A command to its end; None: to the end of its time."""
    process = subprocess.Popen(words, env=environment())
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    # The terminal tells all of a group.
    before_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait(seconds_max)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # as Ctrl-C: it tells what ran
        try:
            process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return None
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, before_interrupt)


def processes_of(part: str, asked: int) -> int:
    """How many processes a part is spread over; 0: over none, it runs in pytest's own."""
    return 0 if part == "alone" else min(asked, os.cpu_count() or 1)


def main(
    arguments: list[str],
    start: Callable[[list[str], float], int | None] = pytest,
    report: Path = REPORT,
) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--processes", type=int)
    asked, arguments = parser.parse_known_args(arguments)
    run = Run(start, report)
    code, flaky = NONE_COLLECTED, []
    for name in side_by_side.PARTS:
        spread = [] if asked.processes is None else ["-n", str(processes_of(name, asked.processes))]
        ended = run.part(name, [*spread, *arguments])  # a later -n is the one that counts
        if ended == TESTS_FAILED or (ended == 0 and code == NONE_COLLECTED):
            code = ended
        elif ended not in (0, NONE_COLLECTED):
            code = ended
            break
    if code == TESTS_FAILED and (green := run.once_more()) is not None:
        code, flaky = 0, green
    print("", *run.told(flaky), sep="\n", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
