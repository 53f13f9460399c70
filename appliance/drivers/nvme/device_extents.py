"""Segments on a raw device: their extents follow the data, each at its place, all there from format
on."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from appliance.drivers.nvme.device import discard
from appliance.drivers.nvme.direct import DirectFile
from appliance.formats.geometry import Geometry

_DISCARD_EXTENTS = 8  # in one call, which the journal's writes may have to wait for
_PAUSE_SECONDS = 0.01


class DeviceExtents:
    """As `Extents`, on the device that `file` has open. Nothing is made here; what is given up is
    discarded by a thread of its own, and cannot be read until it is written again.

    Invariant: no range is discarded while its extent is present; `_discarding` is held by who
    changes that.
    """

    def __init__(self, file: DirectFile, geometry: Geometry, count_max: int) -> None:
        self.size, self.count_max = geometry.extent_size, count_max
        self.ahead_error = ""
        self.on_failed: Callable[[str], None] = lambda reason: None  # nothing here is flushed
        self._first, self._file = geometry.data_size, file
        self._present = set(range(count_max))
        self._discarding = threading.Lock()
        self._freed: set[int] = set()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, extent: int) -> int:
        """Where it begins on the device."""
        assert 0 <= extent < self.count_max
        return self._first + extent * self.size

    def present(self, extent: int) -> bool:
        return extent in self._present

    def files(self) -> list[Path]:
        """None: the device is flushed as a whole."""
        return []

    def numbers(self) -> set[int]:
        return self._present.copy()

    def count(self) -> int:
        return len(self._present)

    def make(self, extent: int) -> None:
        """It is written again: from now on nobody discards it."""
        with self._discarding:
            self._freed.discard(extent)
            self._present.add(extent)

    def make_ahead(self, extent: int) -> None:
        """All are there."""

    def file(self, extent: int) -> DirectFile:
        return self._file

    def give_up(self, extents: set[int]) -> None:
        """Let the device have what nobody needs: it writes the faster, and wears the less."""
        with self._discarding:
            extents &= self._present
            self._present -= extents
            self._freed |= extents
            if self._freed and self._thread is None:
                self._thread = threading.Thread(target=self._discard, name="discard", daemon=True)
                self._thread.start()

    def _discard(self) -> None:
        while not self._closing.wait(_PAUSE_SECONDS):
            with self._discarding:
                if not self._freed:
                    self._thread = None  # the next one to give up anything starts another
                    return
                first = min(self._freed)
                count = 1
                while first + count in self._freed and count < _DISCARD_EXTENTS:
                    count += 1
                self._freed -= set(range(first, first + count))
                # a device that cannot, or no longer: the next write says what matters
                with contextlib.suppress(OSError):
                    discard(self._file.fileno(), self.start(first), count * self.size)

    def close(self) -> None:
        """End the thread; the file is its owner's."""
        self._closing.set()
        with self._discarding:
            thread = self._thread
        if thread is not None:
            thread.join()
