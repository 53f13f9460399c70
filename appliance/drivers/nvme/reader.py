"""Reads a volume that another process may be writing: takes no lock, changes nothing.

What is read is what the medium holds: past the page cache where the file system allows it. A range
that is being written meanwhile may show old and new bytes; who asks judges by digests, as at a
start after a crash.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import MIB, SECTOR_SIZE
from appliance.drivers.nvme.device import DATA, device_of, locate_extent
from appliance.drivers.nvme.direct import aligned_buffer, open_direct
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats.geometry import Geometry, whole_sectors


class VolumeReader:
    """`folder` is that of a volume, or its data file."""

    def __init__(self, folder: Path) -> None:
        folder = folder.parent if folder.is_file() else folder
        if not folder.is_dir():
            raise ConfigurationError(f"{folder} is not the folder of a volume, like node-0/shard-0")
        self.folder = folder
        facts = read_facts(folder)
        self.geometry: Geometry = GEOMETRIES[facts["geometry"]]
        self.segments_max: int = facts["segments_max"]
        self._buffer = aligned_buffer(4 * MIB)
        self._on_device = device_of(folder) is not None
        self._data = _open(folder / DATA)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """The bytes of each (address, length) of the data file; None where the medium refuses."""
        return [self._read(self._data, address, length) for address, length in ranges]

    def read(self, address: int, length: int) -> bytes | None:
        """As `read_many`, of one range."""
        return self._read(self._data, address, length)

    def extents(self) -> list[int]:
        """Extents that there are, ascending; of a device those that hold something."""
        if self._on_device:
            every = range(self.segments_max)
            return [extent for extent in every if any(self.read_extent_start(extent) or b"")]
        names = (entry.name for entry in (self.folder / "segments").iterdir())
        return sorted(int(name) for name in names if name.isdigit() and len(name) == 6)

    def read_extent(self, extent: int) -> bytes | None:
        """All of an extent; None where the medium refuses any of it."""
        return self._read_start(extent, self.geometry.extent_size)

    def read_extent_start(self, extent: int) -> bytes | None:
        """Its first sector."""
        return self._read_start(extent, SECTOR_SIZE)

    def read_footer(self, extent: int) -> bytes | None:
        """What follows the records of an extent."""
        size = self.geometry.extent_size - self.geometry.segment_data_size
        return self._read_start(extent, size, self.geometry.segment_data_size)

    def hold(self) -> None:
        """Keep others from working on the volume until `close`; StorageError while one does."""
        try:
            fcntl.flock(self._data, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(
                f"{self.folder / DATA} is open in another process: stop that one first"
            ) from error

    def _read_start(self, extent: int, size: int, offset: int = 0) -> bytes | None:
        path, start = locate_extent(self.folder, extent, self.geometry)
        file = _open(path)
        try:
            return self._read(file, start + offset, size)
        finally:
            os.close(file)

    def _read(self, file: int, offset: int, length: int) -> bytes | None:
        assert offset % SECTOR_SIZE == 0
        parts = []
        while length > 0:
            size = min(len(self._buffer), whole_sectors(length))
            try:
                got = os.preadv(file, [self._buffer[:size]], offset)
            except OSError:
                return None
            if got < min(size, length):
                return None
            parts.append(bytes(self._buffer[: min(size, length)]))
            offset, length = offset + size, length - size
        return b"".join(parts)

    def close(self) -> None:
        os.close(self._data)


def _open(path: Path) -> int:
    try:
        return open_direct(path, os.O_RDONLY)
    except StorageError:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # no direct I/O here, or a sentence
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be read: {error.strerror}; run this as the user of "
                "the node, and name the folder of a volume"
            ) from error
