"""What tunes a process for its duty: memory that stays in memory, a priority, no memory images.

Each is tried by the process itself. What was refused it tells its supervisor, in words; how things
are, the supervisor reads from the kernel, so that what it shows is what `/proc` and `taskset` show.
"""

import ctypes
import os
import resource
from dataclasses import dataclass

from appliance.drivers.host.topology import of_process

MCL_CURRENT, MCL_ONFAULT = 1, 4  # <sys/mman.h>
POLICIES = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr"}


def no_core_dumps() -> str:
    """No memory image of this process or its children: it would hold the private keys."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def lock_memory() -> str:
    """Keep in memory what this process has mapped, once it was touched. What it maps later is not
    locked: history that clients read is the page cache's to give up. Empty, or why not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_ONFAULT) == 0:
        return ""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    why = os.strerror(ctypes.get_errno())
    return f"{why}; LimitMEMLOCK is {soft} bytes, it must be infinity"


def run_first(priority: int) -> str:
    """Run before everything of a lower real-time priority, on a core of our own. Empty, or why
    not."""
    if len(of_process(0)) != 1:
        return "this process has no core of its own: it would hold up all others"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        return f"{error.strerror}; LimitRTPRIO must be {priority} and RestrictRealtime off"
    return ""


def tune(*, memory_lock: bool, priority: int) -> dict[str, str]:
    """Tune this process; why what was refused was refused, by name."""
    tried = {"core_dumps": no_core_dumps()}
    if memory_lock:
        tried["memory_lock"] = lock_memory()
    if priority:
        tried["realtime_priority"] = run_first(priority)
    return {name: why for name, why in tried.items() if why}


@dataclass(frozen=True, slots=True)
class Seen:
    """How the kernel has a process."""

    cores: list[int]
    scheduling: str
    locked_bytes: int
    core_dump_bytes: int


def seen(pid: int) -> Seen | None:
    """None when it has gone."""
    try:
        policy = POLICIES.get(os.sched_getscheduler(pid), "unknown")
        priority = os.sched_getparam(pid).sched_priority
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            (locked,) = [line.split()[1] for line in file if line.startswith("VmLck:")]
        return Seen(
            cores=of_process(pid),
            scheduling=f"{policy} {priority}" if priority else policy,
            locked_bytes=int(locked) * 1024,
            core_dump_bytes=resource.prlimit(pid, resource.RLIMIT_CORE)[0],
        )
    except (OSError, ValueError):
        return None
