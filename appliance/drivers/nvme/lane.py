"""One I/O thread of a volume: takes what is queued, makes it durable as a group, answers once."""

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from appliance.base.errors import StorageError
from appliance.base.limits import IO_GROUP_SIZE_MAX, SECTOR_SIZE
from appliance.drivers.nvme.direct import DirectFile, aligned_buffer
from appliance.drivers.nvme.flushes import Flushes, NotConfirmed
from appliance.drivers.nvme.latency import Latency
from appliance.drivers.nvme.parallel import open_parallel

Buffer = bytes | bytearray | memoryview

# Why a lane stopped for good.
STORAGE_WRITE = "STORAGE_WRITE"
DISK_FULL = "DISK_FULL"
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_NO_ROOM = _FULL | {errno.EFBIG}  # of a file that is to be made: a limit on its size is no fault


class WriteItem(NamedTuple):
    token: int
    address: int
    size: int
    buffers: Sequence[Buffer]
    queued_ns: int


class ReadItem(NamedTuple):
    token: int
    address: int
    length: int


class Run(NamedTuple):
    """Bytes of the staging buffer that go to one place of one file."""

    file: DirectFile
    start: int
    size: int
    offset: int


class Locator(Protocol):
    """Finds the file of an address; called in the lane's thread only."""

    def locate(self, address: int, *, writing: bool) -> tuple[DirectFile, int] | None:
        """File and offset; None when a file to be read is not there. StorageError when it cannot be
        made."""


Done = Callable[[list[int], list[tuple[int, bytes | None]]], None]


class Lane:
    """A thread with a queue. `done(write tokens, reads)` and `failed(code, reason)` are called in
    the thread.

    Writes leave in the order they came, but that a group is sorted by address; overlapping writes
    never share one. With `parallel` the runs of a group are under way together, if the kernel can;
    without, no call writes more than `step` bytes, and the device takes turns between lanes.
    """

    def __init__(
        self,
        name: str,
        locator: Locator,
        *,
        group_once: bool,
        step: int,
        parallel: bool,
        flushes: Flushes,
        done: Done,
        failed: Callable[[str, str], None],
    ) -> None:
        self._locator, self._group_once, self._step = locator, group_once, step
        self._flushes, self._done, self._failed = flushes, done, failed
        self._queue: SimpleQueue[WriteItem | ReadItem | None] = SimpleQueue()
        self._writes: deque[WriteItem] = deque()
        self._reads: deque[ReadItem] = deque()
        self._staging = aligned_buffer(IO_GROUP_SIZE_MAX)
        self._parallel = open_parallel(self._staging) if parallel else None
        self._closing = False
        self.latency = Latency()  # of each write, from queued to durable
        self.groups = self.bytes_written = 0
        self._thread = threading.Thread(target=self._run, name=f"volume-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, item: WriteItem | ReadItem) -> None:
        self._queue.put(item)

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join()
        if self._parallel is not None:
            self._parallel.close()

    # --- in the thread

    def _run(self) -> None:
        try:
            while self._take():
                reads = [(item.token, self._read(item)) for item in self._take_reads()]
                writes = self._write_group(self._take_group())
                if reads or writes:
                    self._confirm(writes, reads)
        except StorageError as error:  # the next extent cannot be made, or opened
            self._stop(_code(error.__cause__, _NO_ROOM), str(error))
        except OSError as error:
            self._stop(_code(error, _FULL), f"{error.strerror or error} (errno {error.errno})")
        except NotConfirmed:
            pass

    def _stop(self, code: str, reason: str) -> None:
        self._flushes.fail()
        self._failed(code, reason)

    def _confirm(self, writes: list[int], reads: list[tuple[int, bytes | None]]) -> None:
        """Tell of what is done, unless anything of this volume has failed before."""
        self._flushes.confirm(lambda: self._done(writes, reads), of_writes=bool(writes))

    def _take(self) -> bool:
        """Move what is queued to the two waiting lists, waiting if there is nothing. False = closed
        and empty."""
        wait = not self._writes and not self._reads and not self._closing
        try:
            while True:
                item = self._queue.get(block=wait)
                wait = False
                if item is None:
                    self._closing = True
                elif isinstance(item, WriteItem):
                    self._writes.append(item)
                else:
                    self._reads.append(item)
        except Empty:
            return bool(self._writes or self._reads) or not self._closing

    def _take_reads(self) -> list[ReadItem]:
        """Reads of at most one staging buffer: they wait for one group of writes, and a group for
        no more reads."""
        taken: list[ReadItem] = []
        size = 0
        while self._reads and (not taken or size + self._reads[0].length <= IO_GROUP_SIZE_MAX):
            size += self._reads[0].length
            taken.append(self._reads.popleft())
        return taken

    def _read(self, item: ReadItem) -> bytes | None:
        found = self._locator.locate(item.address, writing=False)
        if found is None:
            return None
        file, offset = found
        view = self._staging[: item.length]
        return bytes(view) if file.read(view, offset) else None

    def _take_group(self) -> list[WriteItem]:
        """Waiting writes in order while they fit the staging buffer and none overlaps another; by
        address."""
        group: list[WriteItem] = []
        size = 0
        while self._writes:
            item = self._writes[0]
            if size + item.size > IO_GROUP_SIZE_MAX or _overlaps(item, group):
                break
            size += item.size
            group.append(self._writes.popleft())
        group.sort(key=lambda item: item.address)
        return group

    def _write_group(self, group: list[WriteItem]) -> list[int]:
        """Make a group durable; the tokens that are. Neighbours in one file leave in one call."""
        if not group:
            return []
        runs = self._stage(group)
        if len(runs) == 1 and runs[0].size <= self._step:
            self._write_each(runs)
        elif self._parallel is not None:
            self._parallel.write([(r.file.fileno(), r.start, r.size, r.offset) for r in runs])
            self._flush(runs)
        elif self._group_once:
            self._write_in_steps(runs)
            self._flush(runs)
        else:
            self._write_each(runs)
        now = time.monotonic_ns()
        for item in group:
            self.latency.add(now - item.queued_ns)
            self.bytes_written += item.size
        self.groups += 1
        return [item.token for item in group]

    def _write_each(self, runs: list[Run]) -> None:
        for run in runs:
            with self._flushes.flush():
                run.file.write_durable(self._staging[run.start : run.start + run.size], run.offset)

    def _write_in_steps(self, runs: list[Run]) -> None:
        for run in runs:
            for at in range(0, run.size, self._step):
                start = run.start + at
                size = min(self._step, run.size - at)
                run.file.write(self._staging[start : start + size], run.offset + at)

    def _flush(self, runs: list[Run]) -> None:
        for file in dict.fromkeys(run.file for run in runs):
            with self._flushes.flush():
                file.flush()

    def _stage(self, group: list[WriteItem]) -> list[Run]:
        """Copy a group into the staging buffer; its runs of neighbours."""
        runs: list[Run] = []
        staging, filled = self._staging, 0
        for item in group:
            found = self._locator.locate(item.address, writing=True)
            assert found is not None
            file, offset = found
            start = filled
            for buffer in item.buffers:
                size = len(buffer)
                staging[filled : filled + size] = buffer
                filled += size
            assert filled - start == item.size
            last = runs[-1] if runs else None
            if last is not None and last.file is file and last.offset + last.size == offset:
                runs[-1] = last._replace(size=last.size + item.size)
            else:
                runs.append(Run(file, start, item.size, offset))
        return runs


def _code(error: BaseException | None, full: frozenset[int]) -> str:
    """Why a lane stops: no room is another matter for the operator than a broken disk."""
    return DISK_FULL if isinstance(error, OSError) and error.errno in full else STORAGE_WRITE


def _overlaps(item: WriteItem, group: list[WriteItem]) -> bool:
    start, end = item.address, item.address + item.size
    return any(other.address < end and start < other.address + other.size for other in group)


assert IO_GROUP_SIZE_MAX % SECTOR_SIZE == 0
