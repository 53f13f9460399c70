"""Knobs of this process: each is tried, and its outcome reported, whatever it is."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterable

from appliance.base.limits import KIB, MIB

_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000
_GC_THRESHOLDS = (50_000, 20, 50)  # generations: what lives long was frozen at start
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h>
_KEPT_SIZE = 32 * MIB  # glibc takes no larger threshold; a batch has up to 1 MiB
_TOP_SIZE = 128 * KIB  # that stays free at the heap's end; where glibc begins
_LENT_SIZE = 32 * KIB  # less than a piece of what waits for a client: such come by the thousand
_SWITCH_SECONDS = 0.0005  # an I/O thread waits no longer for the interpreter


def pin(cpus: Iterable[int]) -> str:
    """Run on these cores only."""
    wanted = sorted(set(cpus))
    try:
        os.sched_setaffinity(0, wanted)
    except (OSError, ValueError) as error:
        return f"failed: {error}"
    return f"ok: {wanted}"


def fine_timers() -> str:
    """Timers that fire within a microsecond of their time instead of 50."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0) == 0:
        return "ok"
    return f"failed: {os.strerror(ctypes.get_errno())}"


def quick_threads() -> str:
    """Let a thread that finished its I/O interrupt another one soon."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    return f"ok: {_SWITCH_SECONDS * 1000} ms"


def settle_memory() -> str:
    """After start: forget the garbage, exempt what is left from collection, collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    return f"ok: {gc.get_freeze_count()} objects frozen"


def keep_memory() -> str:
    """Let freed batches be used again: by default each is mapped, zeroed and unmapped anew, page by
    page."""
    libc = ctypes.CDLL(None)
    done = [libc.mallopt(name, _KEPT_SIZE) for name in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD)]
    return f"ok: {_KEPT_SIZE // MIB} MiB kept" if all(done) else "failed: mallopt refused"


def return_memory() -> str:
    """Let what is large be mapped by itself, and given back the moment it is freed: clients say how
    much that is, and the heap would keep the most there ever was, in pieces. One heap for all
    threads: each would keep its own."""
    libc = ctypes.CDLL(None)
    wanted = {
        _M_TRIM_THRESHOLD: _TOP_SIZE,
        _M_MMAP_THRESHOLD: _LENT_SIZE,
        _M_ARENA_MAX: 1,
    }
    done = [libc.mallopt(name, value) for name, value in wanted.items()]
    return f"ok: {_LENT_SIZE // KIB} KiB kept" if all(done) else "failed: mallopt refused"
