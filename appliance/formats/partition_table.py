"""The GUID partition table of a disk image: enough of it to tell a whole image from one that was
cut short or damaged.

    sector 1            header: signature, CRC of itself, where it and its copy lie, where the rows
    last sector         the copy of the header
"""

import binascii
import struct
from collections.abc import Callable
from dataclasses import dataclass

from appliance.base.errors import FormatError

LOGICAL_SECTOR_SIZE = 512  # of the images that we make
# signature, revision, header size, CRC, reserved, own sector, sector of the copy, first and last
# usable sector, id of the disk, first sector of the rows, their count, size of one, their CRC
_HEADER = struct.Struct("<8s4sIIIQQQQ16sQIII")
_SIGNATURE = b"EFI PART"
_ROWS_SIZE_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class PartitionTable:
    """`size`: bytes of the whole image, whose last sector is the copy of the header."""

    disk: bytes
    size: int


def parse_partition_table(read: Callable[[int, int], bytes], size: int) -> PartitionTable:
    """The table of an image of `size` bytes; `read(offset, size)` gives its bytes.

    FormatError says what is wrong: no table, cut short, or damaged.
    """
    own, copy, disk = _header(read, 1, "has no partition table: it is no disk image")
    whole = (copy + 1) * LOGICAL_SECTOR_SIZE
    if own != 1:
        raise FormatError("has a partition table that is not at its start: it is damaged")
    if size < whole:
        raise FormatError(f"was cut short: {size} of {whole} bytes")
    if size > whole:
        raise FormatError(f"has {size - whole} bytes too many at its end")
    at, _, other = _header(read, copy, "lacks the copy of its partition table: it is damaged")
    if (at, other) != (copy, disk):
        raise FormatError("has two partition tables that differ: it is damaged")
    return PartitionTable(disk, whole)


def _header(read: Callable[[int, int], bytes], sector: int, missing: str) -> tuple[int, int, bytes]:
    """(its own sector, that of the other one, id of the disk)."""
    raw = read(sector * LOGICAL_SECTOR_SIZE, LOGICAL_SECTOR_SIZE)
    if len(raw) < _HEADER.size or raw[:8] != _SIGNATURE:
        raise FormatError(missing)
    (_, _, header_size, crc, _, own, other, _, _, disk, rows, count, row_size, rows_crc) = (
        _HEADER.unpack_from(raw)
    )
    zeroed = raw[:16] + bytes(4) + raw[20:header_size]
    if header_size != _HEADER.size or binascii.crc32(zeroed) != crc:
        raise FormatError("has a damaged partition table")
    if count * row_size > _ROWS_SIZE_MAX:
        raise FormatError("has a damaged partition table")
    if binascii.crc32(read(rows * LOGICAL_SECTOR_SIZE, count * row_size)) != rows_crc:
        raise FormatError("has a damaged partition table")
    return own, other, disk
