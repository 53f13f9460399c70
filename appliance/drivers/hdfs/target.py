"""What every target can do, its errors, and how fast it may be written."""

import threading
import time
from collections.abc import Iterator
from typing import Protocol

from appliance.base.errors import TargetUnavailable
from appliance.formats.webhdfs import Entry

BLOCK_SIZE = 256 * 1024  # bytes between two looks at the limit and at `abort`


class Target(Protocol):
    """A place for shipped files; paths are relative to its root, parts joined by `/`."""

    def describe(self) -> str:
        """For the operator: where it is, without secrets."""

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file, over what may be there; its folders are made."""

    def read(self, path: str) -> Iterator[bytes]:
        """The bytes of a file, a block at a time."""

    def status(self, path: str) -> Entry | None:
        """What is at `path`; None for nothing."""

    def list(self, path: str) -> list[Entry]:
        """What lies in a folder, by name."""

    def rename(self, source: str, destination: str, *, overwrite: bool) -> bool:
        """Move a file at once; False when the destination exists and must not be replaced."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""

    def delete(self, path: str) -> bool:
        """Remove a file; False when there was none."""

    def abort(self) -> None:
        """Have what runs in another thread, and all that is asked later, fail soon."""


class Limiter:
    """Keeps what is written and read back below `rate` bytes a second; 0 is no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._free_at = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def take(self, size: int) -> None:
        """Wait until `size` more bytes may pass. Raises TargetUnavailable after `stop`."""
        if self._stopped.is_set():
            raise TargetUnavailable("the shipper stops")
        if self._rate == 0:
            return
        with self._lock:
            now = time.monotonic()
            wait = self._free_at - now
            self._free_at = max(now, self._free_at) + size / self._rate
        if wait > 0 and self._stopped.wait(wait):
            raise TargetUnavailable("the shipper stops")

    def pause(self, seconds: float) -> None:
        """Sleep, but not beyond `stop`."""
        if self._stopped.wait(seconds):
            raise TargetUnavailable("the shipper stops")

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Nothing passes any more."""
        self._stopped.set()
