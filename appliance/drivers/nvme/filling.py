"""Extents that a volume is made with: each a file, which gets its name when it is durable."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from appliance.base.errors import StorageError
from appliance.base.limits import IO_GROUP_SIZE_MAX, SECTOR_SIZE
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.nvme.direct import aligned_buffer, open_direct, zero_fill
from appliance.formats.geometry import Geometry

Write = tuple[int, bytes]  # address, bytes


def filled(segments: Path, sizes: Geometry, writes: Iterable[Write]) -> Iterator[Write]:
    """Puts those `writes` into files in `segments` that are of extents; the others, in order."""
    filling: _Filling | None = None
    staging: memoryview | None = None
    for address, data in writes:
        extent, offset = divmod(address - sizes.data_size, sizes.extent_size)
        if filling is not None and extent != filling.extent:
            filling.end()
            filling = None
        if extent < 0:
            yield address, data
            continue
        if filling is None:
            staging = staging or aligned_buffer(IO_GROUP_SIZE_MAX)
            filling = _Filling(segments, extent, sizes.extent_size, staging)
        filling.write(offset, data)
    if filling is not None:
        filling.end()


class _Filling:
    """One file. Where nothing is written it reads as zeros."""

    def __init__(self, segments: Path, extent: int, size: int, staging: memoryview) -> None:
        self.extent, self._staging = extent, staging
        self._path = segments / f"{extent:06d}"
        self._fresh = self._path.with_name(self._path.name + ".new")
        self._fd = open_direct(self._fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._start = self._held = 0
        zero_fill(self._fd, self._path, size, staging, write=False)

    def write(self, offset: int, data: bytes) -> None:
        """Whole sectors; neighbours that follow each other go in one transfer."""
        assert offset % SECTOR_SIZE == 0 and len(data) % SECTOR_SIZE == 0
        view = memoryview(data)
        while len(view):
            if offset != self._start + self._held or self._held == len(self._staging):
                self._flush()
                self._start = offset
            size = min(len(view), len(self._staging) - self._held)
            self._staging[self._held : self._held + size] = view[:size]
            self._held += size
            offset, view = offset + size, view[size:]

    def _flush(self) -> None:
        held, self._held = self._staging[: self._held], 0
        try:
            if len(held) and os.pwrite(self._fd, held, self._start) != len(held):
                raise StorageError(f"{self._path}: short write at {self._start}: check the disk")
        except OSError as error:
            raise StorageError(
                f"{self._path}: cannot be written at {self._start}: {error.strerror}; check the "
                "disk"
            ) from error

    def end(self) -> None:
        """Durable, under its name."""
        self._flush()
        os.fsync(self._fd)
        os.close(self._fd)
        self._fresh.rename(self._path)
        sync_folder(self._path.parent)
