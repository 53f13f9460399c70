"""Several writes at once from one thread, by the kernel's asynchronous I/O.

A group of writes at scattered places would otherwise wait for the device once for each. The calls
have no wrapper in the C library, so they are made by number; where the machine is another one, or
the kernel refuses, `open_parallel` gives None and the writes are made one after the other.
"""

import ctypes
import errno
import os
import platform
import struct

PARALLEL_MAX = 64  # writes in one call; a group beyond is cut

# io_setup, io_destroy, io_getevents, io_submit
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_PWRITE = 1

# data, key, rw_flags, opcode, priority, fd, buffer, size, offset, reserved, flags, eventfd
_CONTROL = struct.Struct("<QIIHhIQQqQII")
_EVENT = struct.Struct("<QQqq")  # data, control block, result, result 2
assert _CONTROL.size == 64 and _EVENT.size == 32

_LIBC = ctypes.CDLL(None, use_errno=True)


Run = tuple[int, int, int, int]  # descriptor, start in the buffer, size, offset in the file


class ParallelWrites:
    """Writes from one buffer. For one thread; returns only when the kernel is done with all."""

    def __init__(self, buffer: memoryview, context: int, calls: tuple[int, int, int, int]) -> None:
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        self._buffer = buffer  # keeps the address valid
        self._context = ctypes.c_ulong(context)
        numbers = [ctypes.c_long(call) for call in calls]
        _, self._destroy, self._getevents, self._submit = numbers
        self._control = ctypes.create_string_buffer(_CONTROL.size * PARALLEL_MAX)
        start = ctypes.addressof(self._control)
        addresses = [start + _CONTROL.size * slot for slot in range(PARALLEL_MAX)]
        self._pointers = (ctypes.c_uint64 * PARALLEL_MAX)(*addresses)
        self._events = ctypes.create_string_buffer(_EVENT.size * PARALLEL_MAX)

    def write(self, runs: list[Run]) -> None:
        """Write all `runs`; OSError for the first that failed or was short."""
        for first in range(0, len(runs), PARALLEL_MAX):
            self._write_some(runs[first : first + PARALLEL_MAX])

    def close(self) -> None:
        """Give the kernel's context back; nothing is under way between two calls of `write`."""
        _LIBC.syscall(self._destroy, self._context)

    def _write_some(self, runs: list[Run]) -> None:
        for slot, (fd, start, size, offset) in enumerate(runs):
            _CONTROL.pack_into(
                self._control, _CONTROL.size * slot,
                slot, 0, 0, _PWRITE, 0, fd, self._base + start, size, offset, 0, 0, 0,
            )  # fmt: skip
        submitted, problem = 0, 0
        while submitted < len(runs) and not problem:
            pointers = ctypes.byref(self._pointers, 8 * submitted)
            count = _LIBC.syscall(
                self._submit, self._context, ctypes.c_long(len(runs) - submitted), pointers
            )
            if count > 0:
                submitted += count
            elif ctypes.get_errno() == errno.EAGAIN and submitted:
                break  # wait for these, then go on with the rest
            elif ctypes.get_errno() != errno.EINTR:
                problem = ctypes.get_errno() or errno.EIO
        problem = self._wait(runs, submitted) or problem
        if problem:
            raise OSError(problem, os.strerror(problem))
        if submitted < len(runs):
            self._write_some(runs[submitted:])

    def _wait(self, runs: list[Run], count: int) -> int:
        """Until all `count` writes have ended, however; the errno of one that failed, or 0."""
        left, problem = count, 0
        while left:
            number = ctypes.c_long(left)
            ended = _LIBC.syscall(
                self._getevents, self._context, number, number, self._events, None
            )
            if ended < 0:
                assert ctypes.get_errno() == errno.EINTR
                continue
            left -= ended
            for slot in range(ended):
                number_of_run, _, result, _ = _EVENT.unpack_from(self._events, _EVENT.size * slot)
                if result != runs[number_of_run][2]:
                    problem = -result if result < 0 else errno.EIO  # short
        return problem


def open_parallel(buffer: memoryview) -> ParallelWrites | None:
    """For writes from `buffer`, which lives as long as the process; None where there is no such."""
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return None
    context = ctypes.c_ulong(0)
    if _LIBC.syscall(ctypes.c_long(calls[0]), ctypes.c_long(PARALLEL_MAX), ctypes.byref(context)):
        return None
    return ParallelWrites(buffer, context.value, calls)
