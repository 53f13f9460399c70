"""Holes in the interpreter's heap of small objects, and giving back the memory that lies in them.

The interpreter keeps objects of up to 512 bytes in arenas of 1 MiB, cut into pools of 16 KiB, each
for blocks of one size. An arena goes back to the system with the last object in it. A busy hour
fills a hundred of them; afterwards a number lies here, a timer there, a list that was changed for a
fresh one: each such object holds a MiB, nearly all of it in pools that are free.

Objects cannot be moved, and which pools are free only the interpreter knows. But who asks for
blocks until all of a pool are his owns what lies in it, and may tell the system that he does not
need its content. So holes are taken: for the heap they are in use, and have no memory. Of each the
first page stays, where the interpreter keeps what it knows of a pool.

    take     free pools, until there are no more
    release  them to the interpreter when it grows again, instead of further arenas
"""

import ctypes
import mmap
from collections.abc import Iterable
from pathlib import Path

from appliance.base.limits import KIB, MIB

POOL_SIZE, ARENA_SIZE = 16 * KIB, MIB  # as CPython 3.11 is built
_HEAD_SIZE = 48
_BLOCK_SIZE, _BLOCKS = 512, 31  # the largest there are, so that a pool has the fewest
_BATCH = 8  # pools between two looks whether there are any left; so many stay
_PARTS_MAX = 512  # pools of which some blocks are ours: that many are no hole, but another heap
_STATM = Path("/proc/self/statm")


def _mapped_size() -> int:
    """Bytes of this process' address space."""
    return int(_STATM.read_bytes().split()[0]) * mmap.PAGESIZE


def _blocks_of(pool: int) -> range:
    first = pool + _HEAD_SIZE
    return range(first, first + _BLOCKS * _BLOCK_SIZE, _BLOCK_SIZE)


class Holes:
    """Of this process, for one of its threads. Where the heap is another one, none is found."""

    def __init__(self) -> None:
        own = ctypes.PyDLL(None)  # whose calls are short, and keep the interpreter's lock
        self._allocate, self._free = own.PyObject_Malloc, own.PyObject_Free
        self._advise = own.madvise
        self._allocate.restype, self._allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._free.restype, self._free.argtypes = None, [ctypes.c_void_p]
        self._advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.pools: list[int] = []  # addresses of those that are held
        self._parts: dict[int, list[int]] = {}  # pool -> its blocks that we have so far

    @property
    def size(self) -> int:
        """Bytes of the pools that are held."""
        return len(self.pools) * POOL_SIZE

    def take(self, pools_max: int) -> bool:
        """Hold so many more free pools, at most, without their memory. Whether there may be more of
        them: no, once the interpreter had to map an arena for us."""
        for _ in range(0, pools_max, _BATCH):
            mapped = _mapped_size()
            pools = self._fetch()
            if _mapped_size() - mapped >= ARENA_SIZE or len(self._parts) > _PARTS_MAX:
                for pool in pools:
                    self._return(_blocks_of(pool))
                self._return_parts()
                return False
            for pool in pools:
                self._advise(pool + mmap.PAGESIZE, POOL_SIZE - mmap.PAGESIZE, mmap.MADV_DONTNEED)
            self.pools += pools
        return True

    def release(self, pools_max: int) -> None:
        """Return so many of the pools that are held, at most, to the interpreter."""
        self._return_parts()
        for pool in self.pools[-pools_max:]:
            self._return(_blocks_of(pool))
        del self.pools[-pools_max:]

    def _fetch(self) -> list[int]:
        """Ask for as many blocks as a batch has: the pools of which all are ours now."""
        parts, whole = self._parts, []
        for _ in range(_BATCH * _BLOCKS):
            block = self._allocate(_BLOCK_SIZE)
            if block is None:
                break  # the system has no memory left
            pool = block & -POOL_SIZE
            blocks = parts.setdefault(pool, [])
            blocks.append(block)
            if len(blocks) == _BLOCKS and sorted(blocks) == list(_blocks_of(pool)):
                del parts[pool]
                whole.append(pool)
        return whole

    def _return_parts(self) -> None:
        for blocks in self._parts.values():
            self._return(blocks)
        self._parts.clear()

    def _return(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._free(block)
