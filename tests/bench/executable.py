"""The frozen program: its size, how soon a node of it serves, what its processes hold idle."""

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from appliance.drivers.host.service import Listener
from tests.killed import kill_whole
from tests.patience import HUNG_S
from tests.system.local_site import TOP, first_free_port, words_of

BUILD = TOP / "packaging" / "executable" / "build.py"
ONEDIR_MB_MAX, ONEFILE_MB_MAX = 120, 55
READY_S_MAX = 1.5  # from exec to READY=1, files in the page cache, median of the starts
IDLE_RSS_MB_MAX, NODE_RSS_MB_MAX = 60, 340  # of each process; of all of a node together
GONE_S_MAX = 2.0  # from kill -9 of the supervisor until none of its processes is left
STARTS, IDLE_S = 10, 10
QUICK_STARTS, QUICK_IDLE_S = 2, 1

Row = dict[str, Any]


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Row]:
    """A row for each bar. Quick: the source tree stands in for the frozen program."""
    if quick:
        return _measure_node([sys.executable, "-m", "appliance"], folder, quick, say)
    dist = folder / "dist"
    words = ["--dist", str(dist), "--build", str(folder / "build")]
    subprocess.run([sys.executable, str(BUILD), *words], check=True, stdout=subprocess.DEVNULL)
    rows = []
    for name, most in (("tigerchat", ONEDIR_MB_MAX), ("tigerchat-onefile", ONEFILE_MB_MAX)):
        form = "onedir" if name == "tigerchat" else "onefile"
        rows.append(_row(f"{form} form", size_mb(dist / name), "MB", most))
    try:
        rows += _measure_node([str(dist / "tigerchat" / "tigerchat")], folder, quick, say)
    finally:
        shutil.rmtree(dist)
        shutil.rmtree(folder / "build")
    for row in rows:
        say(f"{row['what']}: {row['value']} {row['unit']} ({row['bar']})")
    return rows


def _row(what: str, value: float, unit: str, most: float) -> Row:
    held = value <= most
    return {
        "kind": "executable",
        "what": what,
        "value": round(value, 2),
        "unit": unit,
        "held": held,
        "bar": f"at most {most}",
    }


def size_mb(path: Path) -> float:
    """Millions of bytes of a file or of all files below a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file()) / 1e6


def _measure_node(
    program: list[str], folder: Path, quick: bool, say: Callable[[str], None]
) -> list[Row]:
    site = folder / "frozen"
    words = ["--nodes", "1", "--ports", str(first_free_port())]
    subprocess.run([*program, "format", "--local", str(site), *words], check=True, cwd=TOP)
    node = site / "node-0"
    starts, idle_s = (QUICK_STARTS, QUICK_IDLE_S) if quick else (STARTS, IDLE_S)
    took: list[float] = []
    held: dict[str, Held] = {}
    gone_s = 0.0
    for number in range(starts + 1):  # the first one only warms up
        with started(program, node) as (process, seconds):
            if number:
                took.append(seconds)
            if number == starts:
                time.sleep(idle_s)
                held = memory_mb(process)
                gone_s = kill_whole(process)
    shutil.rmtree(site)
    told = (f"{name} {mb.resident:.0f} (share {mb.share:.0f})" for name, mb in held.items())
    say("idle memory in MB: " + ", ".join(told))
    median = statistics.median(took)
    largest = max(held, key=lambda name: held[name].resident)
    together = sum(mb.resident for mb in held.values())
    row = _row(f"memory of an idle node, its {len(held)} processes together", together, "MB",
               NODE_RSS_MB_MAX)  # fmt: skip
    row["shares_mb"] = round(sum(mb.share for mb in held.values()), 2)
    return [
        _row(f"READY=1 of a node, median of {starts} starts", median, "s", READY_S_MAX),
        _row(f"memory of an idle process, the largest: {largest}", held[largest].resident, "MB",
             IDLE_RSS_MB_MAX),
        row,
        _row("kill -9 of a supervisor until none of its processes is left", gone_s, "s",
             GONE_S_MAX),
    ]  # fmt: skip


@contextmanager
def started(program: list[str], node: Path) -> Iterator[tuple[psutil.Process, float]]:
    """A node under a service manager's eyes, and the seconds until it said READY=1."""
    manager = Listener()
    environment = {**os.environ, "NOTIFY_SOCKET": manager.address, "PYTHONPATH": str(TOP)}
    environment.pop("TIGERCHAT_PARENT", None)
    words = [*program, "start", "--node-folder", str(node), "--quiet"]
    begun = time.monotonic()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    try:
        while not ((said := manager.receive()) and "READY=1" in said[1]):
            assert process.poll() is None, f"the node ended with {process.returncode}"
            assert time.monotonic() - begun < HUNG_S, "the node is never ready"
            time.sleep(0.002)
        yield psutil.Process(process.pid), time.monotonic() - begun
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        process.wait(HUNG_S)
        manager.close()


class Held(NamedTuple):
    """Memory of a process, MB: all that is resident, and its share of it, in which a page that
    several have counts for each by as much less."""

    resident: float
    share: float


def memory_mb(supervisor: psutil.Process) -> dict[str, Held]:
    """Memory of a node's processes, by role."""
    held = {"supervisor": _held(supervisor)}
    for child in supervisor.children():
        words = words_of(child)
        held[words[words.index("start") + 1]] = _held(child)
    return held


def _held(process: psutil.Process) -> Held:
    memory = process.memory_full_info()
    return Held(memory.rss / 1e6, memory.pss / 1e6)
