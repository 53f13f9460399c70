"""Memory that was freed, and that the process holds all the same.

`knobs.keep_memory` lets the heap keep what is freed, so that batches find it mapped. An attack, or
a busy hour, would leave its largest heap behind for ever. So a process that has grown gives back
what is free, once a second at most: one that stays as it is pays for reading one number.
"""

import ctypes
import gc
import os
from pathlib import Path

from appliance.base.limits import MEMORY_SLACK_MAX

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

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._libc.mallinfo2.restype = _Heap
        self._held, self._free = resident_size(), self._free_size()

    def _free_size(self) -> int:
        """Bytes of the heap that are free, given back or not."""
        return int(self._libc.mallinfo2().fordblks)

    def give_back(self) -> bool:
        """Return what is free to the system, if much was taken or much became free since the last
        time; whether it was tried. What died young in cycles, as connections do, is collected
        first."""
        size, free = resident_size(), self._free_size()
        self._held, self._free = min(self._held, size), min(self._free, free)
        if max(size - self._held, free - self._free) <= MEMORY_SLACK_MAX:
            return False
        gc.collect(1)
        self._libc.malloc_trim(0)
        self._held, self._free = resident_size(), self._free_size()
        return True
