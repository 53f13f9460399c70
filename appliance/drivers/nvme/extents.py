"""Segments as files: an extent each, full of zeros before its first use, neighbours made ahead of
need."""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from appliance.base.errors import StorageError
from appliance.base.limits import EXTENTS_OPEN_MAX
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.nvme.direct import (
    ZERO_FILL_STEP,
    DirectFile,
    aligned_buffer,
    open_direct,
    zero_fill,
)
from appliance.drivers.nvme.flushes import Flushes

EXTENTS_AT_FORMAT = 2
_PAUSE_SECONDS = 0.002  # between two steps of writing ahead: the journal's writes come first


class Extents:
    """Files `segments/%06d` of `size` bytes, numbered below `count_max`.

    A file appears under its name only when all of it is durable zeros, so a name is a promise. One
    thread writes ahead; only the back lane opens files for transfers. `ahead_error` is the sentence
    of the last failure to write ahead, or ""; `on_failed` hears of one that was a flush's.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        count_max: int,
        method: str,
        slow_seconds: float = 0.0,
        *,
        flushes: Flushes | None = None,
    ) -> None:
        """`flushes`: of the volume; None: nothing else is written to it meanwhile."""
        self.folder, self.size, self.count_max = folder, size, count_max
        self.method, self.slow_seconds = method, slow_seconds
        self.ahead_error = ""
        self.on_failed: Callable[[str], None] = lambda reason: None  # in the thread that failed
        self._flushes = flushes or Flushes()
        self._open: OrderedDict[int, DirectFile] = OrderedDict()
        self._making = threading.Lock()  # one extent is made at a time
        self._urgent = threading.Event()  # somebody waits for the extent that is being made
        self._thread: threading.Thread | None = None
        self._present: set[int] = set()
        self._gone: set[int] = set()  # given up, perhaps still in `_open`
        self._zeros: memoryview | None = None

    def path(self, extent: int) -> Path:
        assert 0 <= extent < self.count_max
        return self.folder / f"{extent:06d}"

    def scan(self) -> None:
        """Learn which extents there are; remove what an interrupted process left half made."""
        for entry in sorted(self.folder.iterdir()):
            if entry.name.endswith(".new"):
                entry.unlink()
            elif len(entry.name) == 6 and entry.name.isdigit() and int(entry.name) < self.count_max:
                if entry.stat().st_size == self.size:
                    self._present.add(int(entry.name))

    def present(self, extent: int) -> bool:
        return extent in self._present

    def start(self, extent: int) -> int:
        """Where it begins in its file."""
        return 0

    def files(self) -> list[Path]:
        """The files of all extents that there are."""
        return [self.path(extent) for extent in sorted(self._present)]

    def numbers(self) -> set[int]:
        """Those that there are; the other thread may add one at any time."""
        return self._present.copy()

    def count(self) -> int:
        return len(self._present)

    def give_up(self, extents: set[int]) -> None:
        """Remove the files of extents that nobody needs: room for others."""
        for extent in extents & self._present:
            self._present.discard(extent)  # before the file: what is here can be opened
            self._gone.add(extent)
            self.path(extent).unlink()
        self._sync_folder()

    def make(self, extent: int, *, write: bool = True) -> None:
        """Have `extent` there, durable zeros, before this returns; without the `write`, as
        `zero_fill` has it. StorageError when there is no room."""
        self._urgent.set()
        with self._making:
            try:
                self._make(extent, write)
            finally:
                self._urgent.clear()

    def _make(self, extent: int, write: bool = True) -> None:
        if extent in self._present:
            return
        if self._zeros is None:
            self._zeros = aligned_buffer(ZERO_FILL_STEP)
        path = self.path(extent)
        fresh = path.with_name(path.name + ".new")
        fd = open_direct(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            zero_fill(fd, path, self.size, self._zeros, self._pause, write=write, flush=self._flush)
        except StorageError:
            with contextlib.suppress(OSError):  # the error that matters is already on its way
                fresh.unlink()
            raise
        finally:
            os.close(fd)
        fresh.rename(path)
        self._sync_folder()
        self._present.add(extent)

    def _flush(self, fd: int) -> None:
        with self._flushes.flush():
            os.fsync(fd)

    def _sync_folder(self) -> None:
        with self._flushes.flush():
            sync_folder(self.folder)

    def _pause(self) -> None:
        self._urgent.wait(_PAUSE_SECONDS)

    def make_ahead(self, extent: int) -> None:
        """Start making what will be written after `extent`, unless another one is being made.

        That is the next one; where it is there, the one before: segments are refilled from the
        newest down.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        neighbour = (extent + 1) % self.count_max
        if neighbour in self._present:
            neighbour = max(0, extent - 1)
        if neighbour in self._present:
            return
        self._thread = threading.Thread(
            target=self._run_ahead, args=(neighbour,), name="extent-ahead", daemon=True
        )
        self._thread.start()

    def _run_ahead(self, extent: int) -> None:
        try:
            with self._making:
                self._make(extent)
            self.ahead_error = ""
        except (StorageError, OSError) as error:
            self.ahead_error = str(error)
            if not self._flushes.may_confirm():
                self.on_failed(str(error))
            # else there was no room: the write that needs it tries again and decides

    def file(self, extent: int) -> DirectFile:
        """The open file of an extent that is there; the least recently used one is closed."""
        if extent in self._gone:  # the open one, if there is one, has no name any more
            self._gone.discard(extent)
            old = self._open.pop(extent, None)
            if old is not None:
                old.close()
        file = self._open.get(extent)
        if file is None:
            while len(self._open) >= EXTENTS_OPEN_MAX:
                self._open.popitem(last=False)[1].close()
            file = self._open[extent] = DirectFile(
                self.path(extent), self.method, self.slow_seconds
            )
        self._open.move_to_end(extent)
        return file

    def close(self) -> None:
        """Close the files; what is being made ahead is finished first."""
        if self._thread is not None:
            self._urgent.set()
            self._thread.join()
        while self._open:
            self._open.popitem()[1].close()
