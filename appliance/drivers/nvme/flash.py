"""Writes a disk image to a device and reads it back: past the page cache, so that the medium is
what answers."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from appliance.base.errors import FormatError, StorageError
from appliance.base.limits import MIB
from appliance.drivers.nvme.device import ERASES, contents, open_alone, probe, size_of, zero_out
from appliance.drivers.nvme.direct import aligned_buffer
from appliance.formats.geometry import whole_sectors
from appliance.formats.partition_table import parse_partition_table

_STEP = 4 * MIB
_END = MIB  # of the device: an older table's copy, which a larger device would find there

Progress = Callable[[str, int, int], None]  # what is done, bytes so far, bytes in all


def check_image(path: Path) -> int:
    """Bytes of a whole disk image; StorageError for anything else."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:

            def read(offset: int, count: int) -> bytes:
                file.seek(offset)
                return file.read(count)

            return parse_partition_table(read, size).size
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be read: {error.strerror}; name the file of an image"
        ) from error
    except FormatError as error:
        raise StorageError(f"{path} {error}: fetch it anew; nothing was written") from error


def flash(image: Path, device: Path, *, erase: int, progress: Progress) -> str:
    """Write a whole image to a device that nobody uses and read it back; SHA-256 of what is there.

    StorageError before the first byte for a device that is in use, too small, or carries something
    that was not given up twice; after it when the medium does not give back what was written.
    """
    size = check_image(image)
    if size > (there := probe(device).size):
        raise StorageError(
            f"{device} has {there} bytes and the image has {size}: name a larger device"
        )
    fd = open_alone(device)
    try:
        found = contents(device)
        if found and erase < ERASES:
            again = "say --erase once more" if erase else "say --erase --erase"
            raise StorageError(f"{device} carries {found}: {again} to lose all that is on it")
        buffer = aligned_buffer(_STEP)
        written = _write(fd, device, image, size, buffer, progress)
        seen = _read(fd, device, size, buffer, progress)
        if seen != written:
            raise StorageError(
                f"{device} does not hold what was written: it is broken, take another one"
            )
        return seen
    finally:
        os.close(fd)


def _write(
    fd: int, device: Path, image: Path, size: int, buffer: memoryview, progress: Progress
) -> str:
    digest = hashlib.sha256()
    try:
        if size_of(fd) > size:
            zero_out(fd, device, size_of(fd) - _END, _END)
        with image.open("rb") as file:
            for at in range(0, size, _STEP):
                count = file.readinto(buffer)
                if count != min(_STEP, size - at):
                    raise StorageError(f"{image} was cut short while it was written: begin anew")
                digest.update(buffer[:count])
                whole = whole_sectors(count)
                buffer[count:whole] = bytes(whole - count)
                if os.pwrite(fd, buffer[:whole], at) != whole:
                    raise StorageError(f"{device}: short write at {at}: check the device")
                progress("written", at + count, size)
        os.fsync(fd)
    except OSError as error:
        raise StorageError(
            f"{device}: cannot be written: {error.strerror}; check the device"
        ) from error
    return digest.hexdigest()


def _read(fd: int, device: Path, size: int, buffer: memoryview, progress: Progress) -> str:
    digest = hashlib.sha256()
    for at in range(0, size, _STEP):
        count = min(_STEP, size - at)
        whole = whole_sectors(count)
        try:
            if os.preadv(fd, [buffer[:whole]], at) != whole:
                raise StorageError(f"{device}: short read at {at}: check the device")
        except OSError as error:
            raise StorageError(
                f"{device}: cannot be read back at {at}: {error.strerror}; check the device"
            ) from error
        digest.update(buffer[:count])
        progress("verified", at + count, size)
    return digest.hexdigest()
