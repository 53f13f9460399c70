"""What a site costs while nobody wants anything from it: CPU, and how often its processes wake."""

import re
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import psutil

from tests.system.local_site import LocalSite

SETTLED_S = 5  # after the start
WAKES_MAX = 1_000  # a second, of the loops of all processes of three nodes

Say = Callable[[str], None]


def measure(site: LocalSite, seconds: float, say: Say) -> list[dict[str, Any]]:
    """Of a supervised site: a row by role, and one for all with its bar."""
    time.sleep(min(SETTLED_S, seconds))
    before, began_s = taken(site), time.monotonic()
    time.sleep(seconds)
    after, passed_s = taken(site), time.monotonic() - began_s
    cpu: defaultdict[str, float] = defaultdict(float)
    wakes: defaultdict[str, float] = defaultdict(float)
    for process, (role, cpu_s, switches) in after.items():
        if process in before:
            cpu[role] += 100 * (cpu_s - before[process][1]) / passed_s
            wakes[role] += (switches - before[process][2]) / passed_s
    rows = []
    for role, percent in sorted(cpu.items(), key=lambda item: -item[1]):
        say(f"idle {role}s together: {percent:.1f} % of a core, {wakes[role]:.0f} wake-ups/s")
        rows.append({"kind": "idle", "what": role, "cpu_percent": round(percent, 2)})
        rows[-1]["wakes_per_s"] = round(wakes[role])
    all_of_them = round(sum(wakes.values()))
    bar = f"at most {WAKES_MAX}"
    say(f"idle site: {sum(cpu.values()):.1f} % of a core, {all_of_them} wake-ups/s ({bar})")
    rows.append(
        {"kind": "idle", "what": "wake-ups of an idle site", "value": all_of_them, "unit": "1/s"}
        | {"cpu_percent": round(sum(cpu.values()), 2), "held": all_of_them <= WAKES_MAX, "bar": bar}
    )
    return rows


def taken(site: LocalSite) -> dict[int, tuple[str, float, int]]:
    """By process: its role, CPU seconds of all threads, switches of its first thread."""
    found = {}
    for supervisor in site.supervisors.values():
        root = psutil.Process(supervisor.pid)
        for process in (root, *root.children(recursive=True)):
            try:
                role = re.search(r"start ([a-z]+) .*--node-folder", " ".join(process.cmdline()))
                times, switches = process.cpu_times(), process.num_ctx_switches()
            except psutil.Error:
                continue
            name = role[1] if role else "supervisor"
            found[process.pid] = (name, times.user + times.system, switches.voluntary)
    return found
