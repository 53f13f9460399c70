"""Files opened past the page cache: aligned buffers, sector-sized transfers, three ways to make a
write durable."""

import ctypes
import errno
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from appliance.base.errors import StorageError
from appliance.base.limits import MIB, SECTOR_SIZE

# How a write becomes durable; format measures which is fastest here.
FLUSH_O_DSYNC = "o_dsync"  # every write through a descriptor that flushes by itself
FLUSH_RWF_DSYNC = "rwf_dsync"  # the same, asked for with each call
FLUSH_FDATASYNC = "fdatasync"  # a call of its own after the write
FLUSH_METHODS = (FLUSH_O_DSYNC, FLUSH_RWF_DSYNC, FLUSH_FDATASYNC)

ZERO_FILL_STEP = 1 * MIB

_MEMORY_FILE_SYSTEMS = {0x01021994: "tmpfs", 0x858458F6: "ramfs"}
# These make up the numbers of files as they are mounted, or when a file is looked for anew. 9p and
# FUSE may pass on those of a file system that keeps them; which one it is cannot be told.
_PASSING_INODES = frozenset(
    (
        0x4D44,  # vfat, msdos
        0x2011BAB0,  # exfat
        0x65735546,  # FUSE, also virtiofs
        0x01021997,  # 9p
        0xFF534D42,  # cifs
        0xFE534D42,  # smb2 and later
        0x517B,  # smb of before
    )
)
_LIBC = ctypes.CDLL(None, use_errno=True)
_STATFS_SIZE = 256  # at least that of struct statfs

# struct statx: its first word says which fields are filled, among them the time of birth
_AT_EMPTY_PATH, _STATX_BTIME, _STATX_SIZE, _STATX_BIRTH_AT = 0x1000, 0x800, 256, 80
_WORD = struct.Struct("<I")
_STATX_BIRTH = struct.Struct("<qI")  # seconds, nanoseconds


def aligned_buffer(size: int) -> memoryview:
    """`size` zeroed bytes at a page boundary, as direct transfers need them. Keep it for the
    process' life."""
    assert size % SECTOR_SIZE == 0
    return memoryview(mmap.mmap(-1, size))


def file_system_of_memory(path: Path) -> str | None:
    """The name of the file system of `path` if it lives in memory, where nothing is ever
    durable."""
    statfs = ctypes.create_string_buffer(_STATFS_SIZE)
    if _LIBC.statfs(os.fsencode(path), statfs) != 0:
        return None
    return _MEMORY_FILE_SYSTEMS.get(_file_system_type(statfs))


def _file_system_type(statfs: "ctypes.Array[ctypes.c_char]") -> int:
    """Its first word; of a number of 32 bits some kernels extend the sign."""
    word: int = _WORD.unpack_from(statfs)[0]
    return word


def lasting_inode(fd: int) -> int:
    """The number by which the file system knows the file of `fd`, also after it was mounted again;
    0 where it keeps none."""
    statfs = ctypes.create_string_buffer(_STATFS_SIZE)
    try:
        told = _LIBC.fstatfs(fd, statfs) == 0
    except AttributeError:
        told = False
    passing = told and _file_system_type(statfs) in _PASSING_INODES
    return 0 if passing else os.fstat(fd).st_ino


def refuse_memory(folder: Path) -> None:
    """Raise StorageError when `folder` lies in memory."""
    name = file_system_of_memory(folder)
    if name is not None:
        raise StorageError(
            f"{folder} is on {name}, which lives in memory and forgets all at power-off: "
            f"choose a folder on a disk"
        )


def birth_ns(fd: int) -> int:
    """When the file of `fd` was made, in nanoseconds since 1970; 0 where that is not told: the file
    system does not keep it, or the kernel or the C library has no statx."""
    answer = ctypes.create_string_buffer(_STATX_SIZE)
    try:
        refused = _LIBC.statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, answer) != 0
    except AttributeError:
        return 0
    if refused or not _WORD.unpack_from(answer)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _STATX_BIRTH.unpack_from(answer, _STATX_BIRTH_AT)
    made_ns: int = seconds * 1_000_000_000 + nanoseconds
    return max(0, made_ns)


def flush_file(path: Path) -> None:
    """Make durable what any process wrote to `path`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def open_direct(path: Path, flags: int) -> int:
    """A descriptor of `path` that bypasses the page cache; StorageError with a remedy when that
    cannot be."""
    try:
        return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise StorageError(
                f"{path}: this file system has no direct I/O (O_DIRECT): "
                f"choose a folder on ext4, xfs or a raw device"
            ) from error
        raise StorageError(
            f"{path}: cannot be opened: {error.strerror}; {_remedy(error)}"
        ) from error


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "let the user who runs this node read and write it"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space on that file system"
    if error.errno == errno.ENOENT:
        return "run `tigerchat format`, or correct the folder"
    return "see the error"


def zero_fill(
    fd: int,
    path: Path,
    size: int,
    buffer: memoryview,
    pause: Callable[[], object] | None = None,
    *,
    allocate: bool = True,
    write: bool = True,
    flush: Callable[[int], None] = os.fsync,
) -> None:
    """Allocate and write `size` zeros: space that is only reserved would pay for the file system's
    journal later. A device has nothing to `allocate`; a file that lives for a minute may go without
    the `write`. `flush` of the descriptor comes last.

    `buffer` is aligned and all zero; `pause` is called between two steps.
    """
    assert size % SECTOR_SIZE == 0
    try:
        if allocate:
            os.posix_fallocate(fd, 0, size)
        step = min(len(buffer), ZERO_FILL_STEP)
        for offset in range(0, size if write else 0, step):
            length = min(step, size - offset)
            if os.pwrite(fd, buffer[:length], offset) != length:
                raise OSError(errno.ENOSPC, "short write")
            if pause is not None:
                pause()
        flush(fd)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageError(
                f"{path}: no room for {size} bytes ({error.strerror}): free space on that "
                f"file system, or raise the limit on file sizes"
            ) from error
        raise StorageError(
            f"{path}: cannot be written: {error.strerror}; {_remedy(error)}"
        ) from error


class DirectFile:
    """One file of a volume, open for direct transfers. Buffers, lengths and offsets are whole
    sectors.

    `write` alone promises nothing; `write_durable` and `flush` return once the medium has the
    bytes. Every failure is an OSError: whoever writes must stop for good.
    """

    __slots__ = ("path", "method", "slow_seconds", "_fd", "_fd_durable")

    def __init__(
        self, path: Path, method: str, slow_seconds: float = 0.0, fd: int | None = None
    ) -> None:
        """`fd`: an open descriptor of the file, which is this one's from now on."""
        assert method in FLUSH_METHODS
        self.path, self.method, self.slow_seconds = path, method, slow_seconds
        self._fd = open_direct(path, os.O_RDWR) if fd is None else fd
        self._fd_durable = (
            open_direct(path, os.O_RDWR | os.O_DSYNC) if method == FLUSH_O_DSYNC else -1
        )

    def fileno(self) -> int:
        return self._fd

    def write(self, data: memoryview, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written != len(data):
            raise OSError(errno.EIO, f"short write: {written} of {len(data)} bytes")

    def flush(self) -> None:
        os.fdatasync(self._fd)
        if self.slow_seconds:
            time.sleep(self.slow_seconds)

    def write_durable(self, data: memoryview, offset: int) -> None:
        if self.method == FLUSH_FDATASYNC:
            self.write(data, offset)
            self.flush()
            return
        if self.method == FLUSH_O_DSYNC:
            written = os.pwrite(self._fd_durable, data, offset)
        else:
            written = os.pwritev(self._fd, [data], offset, os.RWF_DSYNC)
        if written != len(data):
            raise OSError(errno.EIO, f"short write: {written} of {len(data)} bytes")
        if self.slow_seconds:
            time.sleep(self.slow_seconds)

    def read(self, data: memoryview, offset: int) -> bool:
        """Fill `data`; False when the medium or the end of the file does not let it."""
        try:
            return os.preadv(self._fd, [data], offset) == len(data)
        except OSError:
            return False

    def close(self) -> None:
        os.close(self._fd)
        if self._fd_durable >= 0:
            os.close(self._fd_durable)
        self._fd = self._fd_durable = -1
