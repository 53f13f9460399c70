"""`make test`: a run of all tests, and one more look, alone, at the few that failed beside others.

A busy machine may starve a real process for longer than a test thought possible. What fails so is
shown as FLAKY and is a fault of the test, to be mended next; a fault of the product stays red:
nothing is repeated that more than a few tests say, that needs no real process, or that speaks of
one.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.failures import Failure, speaks_of_a_fault

REPEATED_MAX = 3
TESTS_FAILED = 1  # as pytest exits
REPEAT_S_MAX = 600  # of one test
FAILURES = Path("build/test-report/failures.json")
REAL_PROCESSES = tuple(
    f"tests/{folder}/"
    for folder in (
        "bench",
        "commands",
        "drivers/hdfs",
        "interoperability",
        "node",
        "packaging",
        "reports",
        "roles",
        "system",
        "web",
    )
)
_VERDICT = re.compile(r"\b(lost|doubled|reordered|diverged)\b")


def refused(failures: list[Failure]) -> str | None:
    """Why these may not be looked at once more; None if they may."""
    tests = {failure["test"] for failure in failures}
    if not 0 < len(tests) <= REPEATED_MAX:
        return f"{len(tests)} tests failed"
    for failure in failures:
        test = failure["test"]
        if failure["when"] not in ("setup", "call"):
            return f"{test} failed in its {failure['when']}"
        if not test.startswith(REAL_PROCESSES):
            return f"{test} needs no real process"
        errors = "\n".join(line for line in failure["text"].splitlines() if line[:2] == "E ")
        if speaks_of_a_fault(failure["text"]) or _VERDICT.search(errors):
            return f"{test} speaks of a fault of the product"
    return None


def pytest(arguments: list[str], seconds_max: float | None = None) -> int:
    """Run it to its end; who stops this stops it, and it ends what it started."""
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells all of a group
    try:
        return process.wait(seconds_max)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        return TESTS_FAILED


def main(
    arguments: list[str],
    run: Callable[[list[str], float | None], int] = pytest,
    file: Path = FAILURES,
) -> int:
    file.unlink(missing_ok=True)
    code = run(["-p", "tests.failures", f"--failures={file}", *arguments], None)
    if code != TESTS_FAILED or not file.exists():
        return code
    failures: list[Failure] = json.loads(file.read_text())
    if why := refused(failures):
        print(f"not looked at once more: {why}", flush=True)
        return code
    tests = sorted({failure["test"] for failure in failures})
    for test in tests:
        print(f"\nonce more, alone: {test}", flush=True)
        if code := run([test], REPEAT_S_MAX):
            return code
    for test in tests:
        print(f"FLAKY {test}: red beside others, green alone")
    print(f"{len(tests)} passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
