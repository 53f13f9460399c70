"""A file of a fixed size that is written in place, in pieces: figures of which a power cut may take
the last half minute. Nothing waits for the disk; what the kernel holds outlives the process."""

import contextlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from appliance.base.errors import StorageError
from appliance.drivers.host.durable_file import unusable

ASIDE = ".damaged"  # behind the name of what was set aside; the next one takes its place


class FixedFile:
    """Of `size` bytes. `open` or `make` once, then `write`; StorageError says why it cannot be."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self._size = path, size
        self._fd: int | None = None

    def open(self) -> memoryview | None:
        """All of it, as far as one byte more than the size; None: there is none. In memory that is
        none of the heap's, which would keep as much for good."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self.path, error) from error
        self._fd = fd
        found, end = memoryview(mmap.mmap(-1, self._size + 1)), 0
        try:
            while read := os.preadv(fd, [found[end:]], end):
                end += read
        except OSError as error:
            self.close()
            raise unusable(self.path, error) from error
        return found[:end].toreadonly()

    def set_aside(self) -> Path:
        """Where it is now."""
        self.close()
        aside = self.path.with_name(self.path.name + ASIDE)
        try:
            self.path.rename(aside)
        except OSError as error:
            raise unusable(self.path, error) from error
        return aside

    def make(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """A new one, zero but for these pieces, by offset; the name appears when they are there."""
        self.close()
        fresh = self.path.with_name(self.path.name + ".new")
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._fd = os.open(fresh, flags, 0o600)
            os.ftruncate(self._fd, self._size)
            self.write(pieces)
            fresh.rename(self.path)
        except StorageError:
            self.close()  # what is written later goes into one that has its name
            raise
        except OSError as error:
            self.close()
            raise unusable(self.path, error) from error

    def write(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        assert self._fd is not None
        try:
            for offset, raw in pieces:
                assert offset + len(raw) <= self._size
                view = memoryview(raw)
                while view:
                    written = os.pwrite(self._fd, view, offset)
                    view, offset = view[written:], offset + written
        except OSError as error:
            raise unusable(self.path, error) from error

    def is_open(self) -> bool:
        return self._fd is not None

    def close(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd = None
