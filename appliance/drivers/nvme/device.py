"""A raw block device as the medium of a volume: a whole namespace or a partition.

The volume's folder names it by the link `data`, and the volume's linear space is the device's own:
superblock, journal, checkpoints, then every extent. Nothing lies between it and the device but the
kernel's queue, so what the device says of itself is read here, and judged.
"""

import errno
import fcntl
import os
import stat
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from appliance.base.errors import StorageError
from appliance.base.limits import KIB, MIB, SECTOR_SIZE
from appliance.drivers.nvme.direct import aligned_buffer, open_direct
from appliance.formats.geometry import Geometry
from appliance.formats.volume_label import LABEL_OFFSETS, LABEL_SIZE, decode_label

DATA = "data"  # of a volume's folder: a file, or a link to a device
SEGMENTS = "segments"  # beside it, where it is a file
ERASES = 2  # times that an operator says it before anything is overwritten
WRITE_BACK = "write back"

_BLKGETSIZE64, _BLKSSZGET, _BLKPBSZGET = 0x80081272, 0x1268, 0x127B
_BLKIOOPT, _BLKALIGNOFF, _BLKROGET, _BLKDISCARD, _BLKZEROOUT = (
    0x1279,
    0x127A,
    0x125E,
    0x1277,
    0x127F,
)
_RANGE = struct.Struct("<QQ")  # start, size
_ZERO_STEP = 1024 * MIB
_PROBE_SIZE, _PROBE_TAIL, _SAMPLES = 4 * MIB, 1 * MIB, 256
_IN_MEMORY = ("ram", "zram")
_ALIGNED = 256 * KIB  # every zone and every extent begins at a multiple of it

_RAID = b"\xfc\x4e\x2b\xa9"  # also near the end, by older layouts: the tail is looked at

# Where others leave their names: (offset, bytes, whose it is).
_SIGNATURES = (
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an xfs file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (536, b"LVM2", "an LVM physical volume"),
    (0, _RAID, "a member of a RAID"),
    (4096, _RAID, "a member of a RAID"),
    (4086, b"SWAPSPACE2", "swap space"),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (510, b"\x55\xaa", "a boot sector or a partition table"),
)


@dataclass(frozen=True, slots=True)
class Device:
    """What the kernel says of a device; sizes in bytes. `write_cache` is "" where it is not
    told."""

    path: str
    size: int
    logical: int
    physical: int
    optimal: int  # 0: it has no wish
    alignment: int  # of its first byte; 0 is aligned, -1 says that it never is
    write_cache: str
    discards: bool

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def device_of(folder: Path) -> Path | None:
    """The device that holds the volume in `folder`; None where files do, also by a link.
    StorageError when what the link leads to has gone."""
    link = folder / DATA
    if not link.is_symlink():
        return None
    try:
        mode = link.stat().st_mode
    except OSError as error:
        raise StorageError(
            f"{link} leads to {os.readlink(link)}, which is not there: put the device back, or "
            "remove the link and run `tigerchat recover` with another one"
        ) from error
    return Path(os.readlink(link)) if stat.S_ISBLK(mode) else None


def locate_extent(folder: Path, extent: int, geometry: Geometry) -> tuple[Path, int]:
    """Where an extent of the volume in `folder` lies: a file, and an offset in it."""
    if (folder / DATA).is_block_device():
        return folder / DATA, geometry.data_size + extent * geometry.extent_size
    return folder / SEGMENTS / f"{extent:06d}", 0


def probe(path: Path) -> Device:
    """Ask the kernel about a device. StorageError for what is none, or cannot be read."""
    try:
        if not stat.S_ISBLK(path.stat().st_mode):
            raise StorageError(
                f"{path} is no block device: name one, as /dev/disk/by-id shows them"
            )
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be opened: {error.strerror}; name a device that this user may use"
        ) from error
    try:
        queue = _queue(os.fstat(fd).st_rdev)
        return Device(
            path=str(path),
            size=_ask(fd, _BLKGETSIZE64, "<Q"),
            logical=_ask(fd, _BLKSSZGET, "<i"),
            physical=_ask(fd, _BLKPBSZGET, "<I"),
            optimal=_ask(fd, _BLKIOOPT, "<I"),
            alignment=_ask(fd, _BLKALIGNOFF, "<i"),
            write_cache=_text(queue / "write_cache"),
            discards=_text(queue / "discard_max_bytes") not in ("", "0"),
        )
    finally:
        os.close(fd)


def _ask(fd: int, request: int, layout: str) -> int:
    buffer = bytearray(struct.calcsize(layout))
    fcntl.ioctl(fd, request, buffer)
    (value,) = struct.unpack(layout, buffer)
    return int(value)


def _queue(number: int) -> Path:
    """The kernel's figures of the disk: those of a partition stand with the whole."""
    own = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return own / "queue" if (own / "queue").exists() else own.resolve().parent / "queue"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def refuse_unfit(device: Device, needed: int) -> None:
    """StorageError for a device on which a volume of `needed` bytes cannot lie."""
    path = Path(device.path)
    if path.resolve().name.startswith(_IN_MEMORY):
        raise StorageError(f"{path} lives in memory and forgets all at power-off: name a disk")
    if device.logical > SECTOR_SIZE:
        raise StorageError(
            f"{path} has sectors of {device.logical} bytes; allowed: at most {SECTOR_SIZE}, see "
            "`nvme format --lbaf`"
        )
    if device.alignment:
        raise StorageError(
            f"{path} begins off the disk's own blocks, so that each write would touch two: begin "
            "the partition at a multiple of 1 MiB"
        )
    if device.size < needed:
        raise StorageError(
            f"{path} has {device.size >> 20} MiB and a volume of so many segments takes "
            f"{needed >> 20} MiB: say fewer (segments_max of the site), or name a larger device"
        )


def notes(device: Device) -> list[str]:
    """What whoever formats should know of this device: a sentence each."""
    said = [f"sectors of {device.logical} bytes on blocks of {device.physical}"]
    if device.write_cache == WRITE_BACK:
        said.append(
            "it has a write cache that power-off empties: every durable write is flushed, and pays"
        )
    elif device.write_cache:
        said.append("no write is lost at power-off: it has no write cache, or one with capacitors")
    if device.physical > SECTOR_SIZE:
        said.append(f"a write of {SECTOR_SIZE} bytes makes it read the block first")
    if device.optimal and _ALIGNED % device.optimal and device.optimal % _ALIGNED:
        said.append(f"it likes writes of {device.optimal} bytes, at which no zone begins")
    if not device.discards:
        said.append("it cannot be told what is free")
    return said


def contents(path: Path) -> str:
    """What a device carries, in a few words; "" for one that is blank wherever we look.

    Looked at: the names that others leave, the first 4 MiB, the last one, partitions, and samples
    between. A blank part of a disk that carries something elsewhere is found by its partitions.
    """
    device = probe(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        number = os.fstat(fd).st_rdev
        own = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
        parts = sorted(entry.parent.name for entry in own.glob("*/partition"))
        if parts:
            return f"partitions ({', '.join(parts)})"
        head = os.pread(fd, _PROBE_SIZE, 0)
        facts = [decode_label(head[at : at + LABEL_SIZE]) for at in LABEL_OFFSETS]
        if any(facts):
            return "a volume of tigerchat"
        for offset, mark, what in _SIGNATURES:
            if head[offset : offset + len(mark)] == mark:
                return what
        for at in _raid_at_end(device.size):
            if os.pread(fd, len(_RAID), at) == _RAID:
                return "a member of a RAID"
        step = max(SECTOR_SIZE, device.size // _SAMPLES // SECTOR_SIZE * SECTOR_SIZE)
        tail = max(0, device.size - _PROBE_TAIL)
        pieces = ((at, os.pread(fd, SECTOR_SIZE, at)) for at in range(0, device.size, step))
        for at, piece in ((0, head), (tail, os.pread(fd, _PROBE_TAIL, tail)), *pieces):
            if any(piece):
                return f"bytes that are not zero, from {at} on"
        return ""
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; check the device") from error
    finally:
        os.close(fd)


def _raid_at_end(size: int) -> tuple[int, int]:
    """Where the layouts 0.90 and 1.0 of Linux' software RAID begin."""
    return (size & -64 * KIB) - 64 * KIB, (size - 8 * KIB) & -4 * KIB


def open_alone(path: Path) -> int:
    """A descriptor for direct transfers that nobody shares: neither a file system that is mounted,
    nor another volume. StorageError says that it is in use."""
    try:
        fd = open_direct(path, os.O_RDWR | os.O_EXCL)
    except StorageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EBUSY:
            raise StorageError(
                f"{path} is in use: it is mounted, or open in another process; stop that first"
            ) from error
        raise
    if _ask(fd, _BLKROGET, "<i"):  # an open for writing succeeds all the same
        os.close(fd)
        raise StorageError(f"{path} may only be read: `blockdev --setrw`, or its switch")
    return fd


def check_free(path: Path, needed: int, erase: int) -> None:
    """StorageError unless a volume may be made on this device; nothing of it is changed.

    What it carries is overwritten when the operator has said so twice.
    """
    refuse_unfit(probe(path), needed)
    os.close(open_alone(path))
    found = contents(path)
    if found and erase < ERASES:
        again = "say --erase once more" if erase else "say --erase --erase"
        raise StorageError(
            f"{path} carries {found}: name an empty device, or {again} to lose all that is on it"
        )


def claim(folder: Path, path: Path) -> None:
    """Let the volume that will be made in `folder` lie on this device."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = folder / DATA
    if link.is_symlink() and Path(os.readlink(link)) == path:
        return
    if link.exists() and not link.is_symlink():
        raise StorageError(f"{link} is a file of a volume: choose another folder, or remove it")
    fresh = folder / f"{DATA}.new"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path)
    fresh.rename(link)


def zero_out(fd: int, path: Path, start: int, size: int) -> None:
    """Have zeros in a range, by the device itself where it can."""
    for at in range(start, start + size, _ZERO_STEP):
        length = min(_ZERO_STEP, start + size - at)
        try:
            fcntl.ioctl(fd, _BLKZEROOUT, _RANGE.pack(at, length))
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be filled with zeros at {at}: {error.strerror}; check the device"
            ) from error


def discard(fd: int, start: int, size: int) -> None:
    """Tell the device that nobody needs a range any more. OSError when it does not want to know."""
    fcntl.ioctl(fd, _BLKDISCARD, _RANGE.pack(start, size))


def size_of(fd: int) -> int:
    """Bytes of the device behind a descriptor."""
    return os.lseek(fd, 0, os.SEEK_END)


def read_label(folder: Path) -> dict[str, Any] | None:
    """What the label on the device of a volume's folder says: the first copy that is whole."""
    fd = open_direct(folder / DATA, os.O_RDONLY)
    buffer = aligned_buffer(LABEL_SIZE)
    try:
        for offset in LABEL_OFFSETS:
            try:
                got = os.preadv(fd, [buffer], offset)
            except OSError:
                continue  # a broken sector; there are others
            facts = decode_label(buffer[:got])
            if facts is not None:
                return facts
        return None
    finally:
        os.close(fd)
