"""Folders of tests, and how those in which a site lay are removed in no time.

A volume that was written here and there has thousands of extents. Where a file system tells its
disk of each one that becomes free (`discard`), a site of three nodes takes seconds to remove, or
twenty when others ask the disk for the same. Zeros that are only noted have no such seams.
"""

import ctypes
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BUILD = Path(__file__).resolve().parents[1] / "build"
LARGE = 1 << 18  # bytes on the disk: what is smaller has few extents
_KEEP_SIZE, _ZERO_RANGE = 0x01, 0x10  # fallocate(2)


def make_whole(folder: Path) -> None:
    """Each large file in it becomes zeros in few extents, as far as the file system can. What has
    another name elsewhere stays as it is, and what has holes: they would take room."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with suppress(OSError):
                found = os.lstat(path)
                alone = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
                if alone and 512 * found.st_blocks >= max(LARGE, found.st_size):
                    _zero(path, found.st_size)


def remove(folder: Path) -> None:
    """With all that lies in it, which nobody uses any more."""
    make_whole(folder)
    shutil.rmtree(folder)


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """An empty folder beside the program, as volumes refuse memory; it is removed in the end."""
    BUILD.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="test-", dir=BUILD))
    try:
        yield folder
    finally:
        remove(folder)


def _zero(path: str, size: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        mode = _ZERO_RANGE | _KEEP_SIZE
        ctypes.CDLL(None).fallocate(file, mode, ctypes.c_long(0), ctypes.c_long(size))
    finally:
        os.close(file)
