"""Memory that was freed, and that the process holds all the same.

`knobs.keep_memory` lets the heap keep what is freed, so that batches find it mapped. An attack, or
a busy hour, would leave its largest heap behind for ever. So a process that has grown gives back
what is free, once a second at most: one that stays as it is pays for reading one number.

Garbage in cycles is freed by the collector alone, which after `knobs.settle_memory` hardly ever
looks at what has lived for long. Nothing of ours is such garbage as a rule: connections go with the
last reference to them. What is so all the same, a library's or a mistake's, is collected here:

    it has grown, or much became free ──▶ what is young
    it has grown by a quarter         ──▶ all
    it holds more than it once did    ──▶ all, a minute later; in vain: after two, four ... sixteen

What is free then in the heap of small objects, and held by few that are not, `holes` gives back,
a MiB a second once it is quiet; what it took, it returns while the process grows.

Nothing else runs meanwhile, which with ten thousand clients is felt: so no more than a hundredth of
the time goes to it, and a thousandth where nothing has grown.
"""

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from appliance.base.limits import (
    COLLECT_AGAIN_S,
    COLLECT_AGAIN_S_MAX,
    COLLECT_GROWTH,
    COLLECT_SHARE_AGAIN_MAX,
    COLLECT_SHARE_MAX,
    HOLES_AGAIN_S,
    HOLES_POOLS_STEP,
    HOLES_QUIET_S,
    MEMORY_SLACK_MAX,
    SWEEP_BLOCKS_MAX,
)
from appliance.drivers.host.holes import Holes
from appliance.formats.status.edge import Slackness

_STATM = Path("/proc/self/statm")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def resident_size() -> int:
    """Bytes of this process in memory, shared ones too."""
    return int(_STATM.read_bytes().split()[1]) * _PAGE_SIZE


class _Heap(ctypes.Structure):
    """What glibc says of its heaps: struct mallinfo2 of <malloc.h>, bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class Slack:
    """Of this process: how much it held when it last gave back what it did not need, and how much
    of its heap was free then."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s` only goes forward."""
        self._libc = ctypes.CDLL(None)
        self._libc.mallinfo2.restype = _Heap
        self._now_s = now_s
        self._held, self._free = resident_size(), self._free_size()
        self._kept = self._least = self._held  # after all was collected, and that it ever held
        self._rested_s = 0.0  # from when on all may be collected
        self._again_s, self._wait_s = 0.0, COLLECT_AGAIN_S  # and is, though nothing has grown
        self._pause_s = self._pause_s_max = 0.0
        self._collections = self._given_back = 0
        self._holes = Holes()
        self._quiet_s = self._take_s = 0.0  # until when holes are returned, from when on taken
        self._is_swept = False  # since much changed
        self._blocks = sys.getallocatedblocks()  # of the heap of small objects, at least

    def _free_size(self) -> int:
        """Bytes of the heap that are free, given back or not."""
        return int(self._libc.mallinfo2().fordblks)

    def give_back(self) -> bool:
        """Return what is free to the system, if much was taken or much became free since the last
        time, or a peak may have left garbage behind; whether it was tried."""
        size, free, now_s = resident_size(), self._free_size(), self._now_s()
        self._held, self._free = min(self._held, size), min(self._free, free)
        self._kept, self._least = min(self._kept, size), min(self._least, size)
        has_changed = max(size - self._held, free - self._free) > MEMORY_SLACK_MAX
        has_grown = size - self._kept > max(MEMORY_SLACK_MAX, COLLECT_GROWTH * self._kept)
        is_large = size - self._least > MEMORY_SLACK_MAX and now_s >= self._again_s
        if (has_grown or is_large) and now_s >= self._rested_s:
            self._collect(now_s)
            self._trim()
            in_vain = not has_grown and size - self._held <= MEMORY_SLACK_MAX
            self._plan(in_vain)
        elif has_changed:
            gc.collect(1)
            self._trim()
        else:
            self._mind_holes(now_s)
            return False
        self._quiet_s = self._take_s = now_s + HOLES_QUIET_S
        self._is_swept = False
        self._given_back += 1
        self._mind_holes(now_s)
        return True

    def _mind_holes(self, now_s: float) -> None:
        """Take some more of them, or return some. What that changes is no growth."""
        size = resident_size()
        if now_s < self._quiet_s:
            self._holes.release(HOLES_POOLS_STEP)
        elif now_s < self._take_s or size - self._least <= MEMORY_SLACK_MAX:
            return
        elif not self._is_swept:
            self._sweep()
            return
        elif not self._holes.take(HOLES_POOLS_STEP):
            self._take_s = now_s + HOLES_AGAIN_S
        self._held += resident_size() - size

    def _sweep(self) -> None:
        """Have the interpreter let go of what it keeps to be quicker: thousands of objects, each in
        a pool that would be free. Names by which attributes were looked up, even one that is a new
        string each time; and freed objects to use again, which it drops when all is collected. That
        is soon done while there is little."""
        sys._clear_type_cache()
        blocks = sys.getallocatedblocks()
        self._blocks = min(self._blocks, blocks)
        if blocks - self._blocks < SWEEP_BLOCKS_MAX:
            gc.collect(2)
        self._trim()  # what was freed since was too little to be a change
        self._is_swept = True

    def _trim(self) -> None:
        self._libc.malloc_trim(0)
        self._held, self._free = resident_size(), self._free_size()

    def _collect(self, now_s: float) -> None:
        gc.collect()
        self._pause_s = self._now_s() - now_s
        self._pause_s_max = max(self._pause_s_max, self._pause_s)
        self._collections += 1

    def _plan(self, in_vain: bool) -> None:
        """When all is collected next: of who holds much and needs it ever more seldom."""
        now_s, self._kept = self._now_s(), self._held
        self._wait_s = min(2 * self._wait_s, COLLECT_AGAIN_S_MAX) if in_vain else COLLECT_AGAIN_S
        self._rested_s = now_s + self._pause_s / COLLECT_SHARE_MAX
        self._again_s = now_s + max(self._wait_s, self._pause_s / COLLECT_SHARE_AGAIN_MAX)

    def told(self) -> Slackness:
        """For its status: how often memory was given back and all garbage collected, how long
        nothing else ran for that, the last time and at most, and bytes of holes in its heap."""
        return Slackness(
            given_back=self._given_back,
            collections=self._collections,
            pause_ms=round(1000 * self._pause_s, 1),
            pause_ms_max=round(1000 * self._pause_s_max, 1),
            holes=self._holes.size,
        )
