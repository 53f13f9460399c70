"""Flushes of some processes, counted by strace."""

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

O_DSYNC = 0o10000  # a bit of O_SYNC as well
ATTACHED_S = 0.5  # until strace is attached to every thread
ENDED_S = 10.0
CALLS = ("fsync", "fdatasync", "pwrite64", "pwritev", "pwritev2")
_CALL = re.compile(r"^(?P<thread>\d+) +(?P<call>\w+)\((?P<fd>\d+)(?P<rest>.*) = (?P<got>-?\d+)\b")
_ASKED = re.compile(r"RWF_D?SYNC\b[\w|]*\)$")  # the last word of a call
Synced = set[tuple[int, int]]  # thread, descriptor: each write to it is flushed by itself


class Counted:
    """Between entering and leaving, of the processes `pids` and all their threads."""

    def __init__(self, pids: list[int], trace: Path) -> None:
        self._pids, self._trace = pids, trace
        self.count = 0

    def __enter__(self) -> "Counted":
        self._trace.unlink(missing_ok=True)
        words = ["strace", "-f", "-qq", "-e", f"trace={','.join(CALLS)}", "-o", str(self._trace)]
        for pid in self._pids:
            words += ["-p", str(pid)]
        self._tracer = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        time.sleep(ATTACHED_S)
        self._before = len(self._trace.read_bytes()) if self._trace.exists() else 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        synced = {pair for pid in self._pids for pair in synced_by_open(pid)}
        self._tracer.send_signal(signal.SIGINT)
        self._tracer.wait(ENDED_S)
        if error is None:
            told = self._trace.read_bytes()[self._before :].decode(errors="replace")
            self.count = flushes_in(told, synced)


def flushes_in(text: str, synced: Synced) -> int:
    """Calls that have made something durable."""
    count = 0
    for line in resumed(text).splitlines():
        found = _CALL.match(line)
        if found is None or int(found["got"]) < 0:
            continue
        if found["call"] in ("fsync", "fdatasync"):
            count += 1
        else:
            asked = found["call"] == "pwritev2" and _ASKED.search(found["rest"])
            count += bool(asked) or (int(found["thread"]), int(found["fd"])) in synced
    return count


def synced_by_open(pid: int) -> Iterator[tuple[int, int]]:
    """Descriptors of a process that were opened so, for each of its threads."""
    place = Path("/proc", str(pid))
    with contextlib.suppress(OSError):  # one that ends meanwhile flushes nothing more
        threads = [int(path.name) for path in (place / "task").iterdir()]
        for path in (place / "fdinfo").iterdir():
            told = re.search(r"^flags:\s+(\d+)", path.read_text(), re.MULTILINE)
            if told and int(told[1], 8) & O_DSYNC:
                yield from ((thread, int(path.name)) for thread in threads)


def resumed(text: str) -> str:
    """Calls that strace printed in two pieces, because another thread came between, in one."""
    begun: dict[tuple[str, str], str] = {}
    lines = []
    for line in text.splitlines():
        thread = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            call = line.split(" ", 1)[1].lstrip().split("(", 1)[0]
            begun[thread, call] = line.removesuffix("<unfinished ...>")
        elif match := re.search(r"<\.\.\. (\w+) resumed>(.*)", line):
            if (thread, match[1]) in begun:
                lines.append(begun.pop((thread, match[1])) + match[2])
        else:
            lines.append(line)
    return "\n".join(lines)
