"""The volume of one shard: made at format, opened by one process, served by two lanes."""

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from appliance.base.errors import StorageError
from appliance.base.json_text import parse_json
from appliance.base.limits import IO_GROUP_SIZE_MAX, IO_STEP_BACK, MIB, SECTOR_SIZE
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.nvme import device as devices
from appliance.drivers.nvme.device_extents import DeviceExtents
from appliance.drivers.nvme.direct import (
    ZERO_FILL_STEP,
    DirectFile,
    aligned_buffer,
    birth_ns,
    flush_file,
    lasting_inode,
    open_direct,
    refuse_memory,
    zero_fill,
)
from appliance.drivers.nvme.extents import EXTENTS_AT_FORMAT, Extents
from appliance.drivers.nvme.filling import filled
from appliance.drivers.nvme.flush import Flush, measure
from appliance.drivers.nvme.flushes import Flushes
from appliance.drivers.nvme.lane import STORAGE_WRITE, Buffer, Lane, ReadItem, WriteItem
from appliance.formats.geometry import (
    PRODUCTION,
    SMALL,
    SUPERBLOCK_ZONE_SIZE,
    Geometry,
    whole_sectors,
)
from appliance.formats.status.replica import VolumeStatus
from appliance.formats.volume_file import ID_SIZE, VolumeFile
from appliance.formats.volume_label import LABEL_OFFSETS, encode_label

GEOMETRIES = {"production": PRODUCTION, "small": SMALL}
_FORMAT = 1
_READERS = _WRITERS = 8  # threads of read_many, at process start only; of format
_DATA, _SEGMENTS, _FACTS = devices.DATA, devices.SEGMENTS, "volume.json"
# all that a volume's folder may hold
FILES = frozenset((_DATA, f"{_DATA}.new", _SEGMENTS, _FACTS, "volume.new"))

Write = tuple[int, bytes]  # address, bytes


def create(
    folder: Path, *, geometry: str, segments_max: int, writes: Iterable[Write], brief: bool = False
) -> dict[str, Any]:
    """Make the volume of a shard in `folder` and return what `volume.json` says of it.

    The data file and the first extents are zeros on the medium, then `writes` are; behind the data
    file begin the extents, each written at one time, before what follows them. `volume.json`
    comes last: without it nothing was formatted, and format may be run again. StorageError refuses
    a folder that holds a volume. A `brief` one takes no time to make, for a site that lives for a
    minute: a data file that is no device is reserved only, which costs each first write a bit more,
    and the ways to flush are hardly measured.
    """
    sizes = GEOMETRIES[geometry]
    assert segments_max >= EXTENTS_AT_FORMAT
    facts_path = folder / _FACTS
    if facts_path.exists():
        raise StorageError(
            f"{folder} already holds a volume: choose another folder, or remove it to lose its data"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_memory(folder)
    facts = {
        "format": _FORMAT,
        "id": secrets.token_hex(16),  # tells this volume from others of the same replica
        "geometry": geometry,
        "segments_max": segments_max,
    }
    if devices.device_of(folder) is None:
        facts |= _make_files(folder, sizes, segments_max, writes, brief)
    else:
        facts |= _make_on_device(folder, facts, writes, brief)
    _write_facts(facts_path, facts)
    return facts


def _make_files(
    folder: Path, sizes: Geometry, segments_max: int, writes: Iterable[Write], brief: bool
) -> dict[str, Any]:
    """The data file and the first extents; what was measured."""
    segments = folder / _SEGMENTS
    segments.mkdir(mode=0o700, exist_ok=True)
    zeros = aligned_buffer(ZERO_FILL_STEP)
    data_path = folder / _DATA
    fd = open_direct(data_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        _lock(fd, data_path)
        zero_fill(fd, data_path, sizes.data_size, zeros, write=not brief)
        flush, figures = measure(data_path, sizes.wal_prepares_offset, MIB, zeros, brief)
        _write_all(fd, data_path, filled(segments, sizes, writes))
        os.fsync(fd)
    finally:
        os.close(fd)
    extents = Extents(segments, sizes.extent_size, segments_max, flush.method)
    extents.scan()
    for extent in range(EXTENTS_AT_FORMAT):
        extents.make(extent, write=not brief)
    extents.close()
    return {"flush": asdict(flush), "measured": figures}


def _make_on_device(
    folder: Path, facts: dict[str, Any], writes: Iterable[Write], brief: bool
) -> dict[str, Any]:
    """The same on the device that the folder names: zeros, what is written, labels last."""
    sizes, path = GEOMETRIES[facts["geometry"]], folder / _DATA
    named = devices.device_of(folder)
    assert named is not None
    found = devices.probe(named)
    space = facts["segments_max"] * sizes.extent_size
    devices.refuse_unfit(found, sizes.data_size + space)
    zeros = aligned_buffer(ZERO_FILL_STEP)
    fd = devices.open_alone(path)
    try:
        # The end first: what an older volume left at the start counts until it is overwritten.
        devices.zero_out(fd, path, sizes.data_size, space)
        zero_fill(fd, path, sizes.data_size, zeros, allocate=False)
        flush, figures = measure(path, sizes.wal_prepares_offset, MIB, zeros, brief)
        measured = {"flush": asdict(flush), "measured": figures}
        _write_all(fd, path, writes)
        os.fsync(fd)
        label = encode_label(facts | measured)
        _write_all(fd, path, [(offset, label) for offset in LABEL_OFFSETS])
        os.fsync(fd)
    finally:
        os.close(fd)
    return measured | {"device": found.plain()}


def _write_all(fd: int, path: Path, writes: Iterable[Write]) -> None:
    """Several at once, as each waits for the device; neighbours that follow each other go in one
    transfer. Of a sector that is written again the last bytes stay."""
    staging = aligned_buffer(IO_GROUP_SIZE_MAX)
    runs: list[tuple[int, int, int]] = []  # address, start in the buffer, size
    sectors: set[int] = set()  # of these runs
    held = 0

    def write(part: list[tuple[int, int, int]]) -> None:
        for address, start, size in part:
            _write_at(fd, path, staging[start : start + size], address)

    with ThreadPoolExecutor(_WRITERS) as pool:
        for address, data in writes:
            size = len(data)
            assert address % SECTOR_SIZE == 0 and size % SECTOR_SIZE == 0
            own = range(address // SECTOR_SIZE, (address + size) // SECTOR_SIZE)
            if held + size > len(staging) or not sectors.isdisjoint(own):
                list(pool.map(write, (runs[first::_WRITERS] for first in range(_WRITERS))))
                runs, held = [], 0
                sectors.clear()
            sectors.update(own)
            staging[held : held + size] = data
            before, start, length = runs[-1] if runs else (0, 0, 0)
            if length and before + length == address:
                runs[-1] = (before, start, length + size)
            else:
                runs.append((address, held, size))
            held += size
        list(pool.map(write, (runs[first::_WRITERS] for first in range(_WRITERS))))


def _write_at(fd: int, path: Path, data: memoryview, address: int) -> None:
    try:
        if os.pwrite(fd, data, address) != len(data):
            raise StorageError(f"{path}: short write at {address}: check the disk")
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written at {address}: {error.strerror}; check the disk"
        ) from error


def _write_facts(path: Path, facts: dict[str, Any]) -> None:
    fresh = path.with_suffix(".new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    sync_folder(path.parent)


def read_facts(folder: Path) -> dict[str, Any]:
    """What `volume.json` in `folder` says; StorageError when there is no formatted volume."""
    path = folder / _FACTS
    try:
        facts: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        known = (
            facts["format"] == _FORMAT
            and facts["geometry"] in GEOMETRIES
            and facts["segments_max"] >= EXTENTS_AT_FORMAT
            and len(bytes.fromhex(facts.get("id", ""))) in (0, ID_SIZE)
        )
        Flush(**facts["flush"])
    except FileNotFoundError as error:
        raise StorageError(
            f"{folder} holds no volume: correct the folder, or run `tigerchat recover` on the node "
            "that lost it"
        ) from error
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be read: {error.strerror}; let this user read it"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} is not readable as volume facts: restore it from another copy"
        ) from error
    if not known:
        raise StorageError(
            f"{path} was written by another version: use the version that formatted it"
        )
    return facts


def file_of(fd: int, facts: dict[str, Any], *, on_device: bool) -> VolumeFile:
    """Which file the data of a volume is; of a device its label alone tells."""
    volume_id = bytes.fromhex(facts.get("id", "")).rjust(ID_SIZE, b"\0")
    if on_device:
        return VolumeFile(volume_id=volume_id)
    return VolumeFile(lasting_inode(fd), birth_ns(fd), volume_id)


def file_in(folder: Path) -> VolumeFile:
    """The same of a volume that nobody need have open. StorageError as of `Volume`."""
    facts = read_facts(folder)
    if devices.device_of(folder) is not None:
        return file_of(-1, facts, on_device=True)
    fd = open_direct(folder / _DATA, os.O_RDONLY)
    try:
        return file_of(fd, facts, on_device=False)
    finally:
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(f"{path} is open in another process: stop that one first") from error


def _label(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """What the device says of its volume. StorageError when it holds another one, or none."""
    found = devices.read_label(folder)
    if found is None or found["id"] != facts["id"]:
        what = "no volume" if found is None else "another volume"
        raise StorageError(
            f"{folder / _DATA} leads to a device that holds {what}: put the right one back, or run "
            "`tigerchat recover` on the node that lost it"
        )
    return found


class Volume:
    """An open volume. `flush_all`, then `read_many` may be used at once; `write` and `read` after
    `start`, from the loop's thread.

    Invariants: one process holds the lock of the data file; a token in `_writing` is not durable
    yet; a read in `_held` overlaps one of these; after a failure no write is confirmed any more.
    """

    def __init__(self, folder: Path, *, flush_slow_ms: int = 0) -> None:
        refuse_memory(folder)
        self.facts = read_facts(folder)
        self.folder = folder
        self.device = devices.device_of(folder)
        if self.device is not None:
            self.facts |= _label(folder, self.facts)
        self.geometry: Geometry = GEOMETRIES[self.facts["geometry"]]
        self.segments_max: int = self.facts["segments_max"]
        self._end = self.geometry.data_size + self.segments_max * self.geometry.extent_size
        flush = Flush(**self.facts["flush"])
        self._group_once, self._flushes = flush.group_once, Flushes()
        self._data, self._extents = self._open(flush.method, flush_slow_ms / 1000)
        self.file = file_of(self._data.fileno(), self.facts, on_device=self.device is not None)
        self._writing: dict[int, tuple[int, int]] = {}  # token -> address, end
        self._held: list[ReadItem] = []
        self._failed = False
        self._lanes: tuple[Lane, Lane] | None = None
        self._readers = ThreadPoolExecutor(_READERS, "volume-read")  # until lanes run

    def _open(self, method: str, slow: float) -> tuple[DirectFile, Extents | DeviceExtents]:
        """The data and the extents: nobody else has them open."""
        path = self.folder / _DATA
        alone = devices.open_alone(path) if self.device is not None else None
        data = DirectFile(path, method, slow, alone)
        with contextlib.ExitStack() as undo:
            undo.callback(data.close)
            extents: Extents | DeviceExtents
            if self.device is not None:
                self._check_size(path, devices.size_of(data.fileno()), self._end)
                extents = DeviceExtents(data, self.geometry, self.segments_max)
            else:
                _lock(data.fileno(), path)
                self._check_size(path, os.fstat(data.fileno()).st_size, self.geometry.data_size)
                extents = Extents(
                    self.folder / _SEGMENTS,
                    self.geometry.extent_size,
                    self.segments_max,
                    method,
                    slow,
                    flushes=self._flushes,
                )
                extents.scan()
            undo.pop_all()
        return data, extents

    def _check_size(self, path: Path, size: int, wanted: int) -> None:
        if size < wanted if self.device is not None else size != wanted:
            raise StorageError(
                f"{path} has {size} bytes, its geometry says {wanted}: it was cut "
                f"or replaced; format this replica anew and let its peers fill it"
            )

    # --- addresses

    def locate(self, address: int, *, writing: bool) -> tuple[DirectFile, int] | None:
        """File and offset of an address; for a write its extent is made if need be, and the one
        that is written next begun."""
        data_size = self.geometry.data_size
        if address < data_size:
            return self._data, address
        extent, offset = divmod(address - data_size, self.geometry.extent_size)
        if writing:
            if not self._extents.present(extent):
                self._extents.make(extent)
            self._extents.make_ahead(extent)
        elif not self._extents.present(extent):
            return None
        try:
            return self._extents.file(extent), self._extents.start(extent) + offset
        except (OSError, StorageError):
            if writing or self._extents.present(extent):
                raise
            return None  # given up this very moment

    def _whole(self, address: int, size: int) -> bool:
        """Whether a range is sectors of one file of this volume."""
        data_size = self.geometry.data_size
        if (
            address % SECTOR_SIZE
            or size % SECTOR_SIZE
            or size <= 0
            or not 0 <= address <= self._end - size
        ):
            return False
        if address < data_size:
            return address + size <= data_size
        return (address - data_size) % self.geometry.extent_size + size <= self.geometry.extent_size

    # --- before serving

    def flush_all(self) -> None:
        """Make durable whatever can be read here: bytes and names. Blocks; before any of it counts.

        A process that was killed may have written what it never flushed. It can be read, and the
        next power cut takes it: a write that flushes itself (FUA) leaves it where it is.
        StorageError when the medium refuses.
        """
        assert self._lanes is None
        try:
            self._data.flush()
            list(self._readers.map(flush_file, self._extents.files()))
            if self.device is None:
                sync_folder(self.folder / _SEGMENTS)
            sync_folder(self.folder)
        except OSError as error:
            raise StorageError(
                f"{self.folder}: what a former process wrote cannot be flushed: "
                f"{error.strerror}; check the disk"
            ) from error

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """The bytes of each (address, length), None where the medium refuses. Blocks; for the start
        of a process."""
        assert self._lanes is None
        in_data = all(address < self.geometry.data_size for address, _ in ranges)
        # the extents' open files belong to one thread
        if len(ranges) < 2 * _READERS or not in_data:
            return self._read_some(ranges)
        share = -(-len(ranges) // _READERS)
        shares = [ranges[at : at + share] for at in range(0, len(ranges), share)]
        return [data for some in self._readers.map(self._read_some, shares) for data in some]

    def _read_some(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """One thread's share, in order; neighbours in one call."""
        buffer = aligned_buffer(MIB)
        answers: list[bytes | None] = []
        while len(answers) < len(ranges):
            first = len(answers)
            address, length = ranges[first]
            count = 1
            for following, size in ranges[first + 1 :]:
                if following != address + length or length + size > MIB - SECTOR_SIZE:
                    break
                length += size
                count += 1
            data = self._read_range(address, length, buffer)
            if data is None and count > 1:  # one bad sector does not take the others with it
                answers += [self._read_range(*span, buffer) for span in ranges[first:][:count]]
                continue
            at = 0
            for _, size in ranges[first : first + count]:
                answers.append(None if data is None else data[at : at + size])
                at += size
        return answers

    def _read_range(self, address: int, length: int, buffer: memoryview) -> bytes | None:
        low = address // SECTOR_SIZE * SECTOR_SIZE
        size = whole_sectors(address + length) - low
        if size > len(buffer):
            buffer = aligned_buffer(size)
        found = self.locate(low, writing=False)
        if found is None or not found[0].read(buffer[:size], found[1]):
            return None
        return bytes(buffer[address - low : address - low + length])

    # --- serving

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        on_writes_done: Callable[[list[int]], None],
        on_reads_done: Callable[[list[tuple[int, bytes | None]]], None],
        on_failed: Callable[[str, str], None],
    ) -> None:
        """Start the lanes. Completions arrive in the loop, a list for each group; `on_failed(code,
        reason)` once."""
        assert self._lanes is None
        self._readers.shutdown()
        self._on_writes_done, self._on_reads_done, self._on_failed = (
            on_writes_done,
            on_reads_done,
            on_failed,
        )

        def done(writes: list[int], reads: list[tuple[int, bytes | None]]) -> None:
            # the loop was closed: nobody listens any more
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver, writes, reads)

        def failed(code: str, reason: str) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._fail, code, reason)

        self._extents.on_failed = lambda reason: failed(STORAGE_WRITE, reason)
        self._lanes = (
            Lane(
                "front",
                self,
                group_once=self._group_once,
                step=IO_GROUP_SIZE_MAX,
                parallel=True,
                flushes=self._flushes,
                done=done,
                failed=failed,
            ),
            Lane(
                "back",
                self,
                group_once=True,
                step=IO_STEP_BACK,
                parallel=False,
                flushes=self._flushes,
                done=done,
                failed=failed,
            ),
        )
        for lane in self._lanes:
            lane.start()

    def write(self, token: int, address: int, buffers: Sequence[Buffer]) -> None:
        """Queue a write of whole sectors; `buffers` must not change until it is done."""
        assert self._lanes is not None and token not in self._writing
        size = sum(len(buffer) for buffer in buffers)
        assert self._whole(address, size), (address, size)
        assert size <= IO_GROUP_SIZE_MAX
        self._writing[token] = (address, address + size)
        lane = self._lanes[0] if address < self.geometry.checkpoints_offset else self._lanes[1]
        lane.put(WriteItem(token, address, size, buffers, time.monotonic_ns()))

    def read(self, token: int, address: int, length: int) -> None:
        """Queue a read of whole sectors. What a later write does to these bytes meanwhile is not
        defined."""
        assert self._lanes is not None
        assert self._whole(address, length) and length <= IO_GROUP_SIZE_MAX, (address, length)
        item = ReadItem(token, address, length)
        if self._overlaps_write(item):
            self._held.append(item)
        else:
            # a superblock counts once its copies were read back: that must not wait behind a
            # checkpoint, as a view change waits for it
            self._lanes[0 if address < SUPERBLOCK_ZONE_SIZE else 1].put(item)

    def _overlaps_write(self, item: ReadItem) -> bool:
        start, end = item.address, item.address + item.length
        return any(low < end and start < high for low, high in self._writing.values())

    def _deliver(self, writes: list[int], reads: list[tuple[int, bytes | None]]) -> None:
        if self._failed or not self._flushes.may_confirm():
            return
        for token in writes:
            del self._writing[token]
        if self._held and writes:
            held, self._held = self._held, []
            for item in held:
                self.read(item.token, item.address, item.length)
        if writes:
            self._on_writes_done(writes)
        if reads:
            self._on_reads_done(reads)

    def _fail(self, code: str, reason: str) -> None:
        if not self._failed:
            self._failed = True
            self._on_failed(code, f"{self.folder}: {reason}")

    def statistics(self) -> VolumeStatus:
        """For the status: how long a durable write takes here, what waits, what format measured."""
        assert self._lanes is not None
        front, back = self._lanes
        size, free = self._disk()
        return VolumeStatus(
            id=self.facts.get("id", ""),
            flush_method=self.facts["flush"]["method"],
            format_p50_us=self.facts["flush"]["p50_us"],
            format_p99_us=self.facts["flush"]["p99_us"],
            journal=front.latency.figures(),
            background=back.latency.figures(),
            groups=front.groups + back.groups,
            bytes_written=front.bytes_written + back.bytes_written,
            writes_waiting=len(self._writing),
            extents=self._extents.count(),
            extents_max=self.segments_max,
            extent_size=self.geometry.extent_size,
            disk_size=size,
            disk_free=free,
            device=str(self.device or ""),
            alarm=self._extents.ahead_error,
        )

    def _disk(self) -> tuple[int, int]:
        """Bytes that this user may take of the disk, as df counts, and those that are free. Of a
        device all are the volume's, and what holds no segment is free to it: `Room` counts."""
        if self.device is not None:
            return self._end, self.segments_max * self.geometry.extent_size
        disk = os.fstatvfs(self._data.fileno())
        # What is kept back for root is neither taken nor free to a node.
        usable = disk.f_blocks - disk.f_bfree + disk.f_bavail
        return usable * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def keep_only(self, segments: Iterable[int]) -> bool:
        """Give up the extents of all other segments; whether there were any."""
        others = self._extents.numbers() - {number % self.segments_max for number in segments}
        try:
            if others:
                self._extents.give_up(others)
        except OSError as error:
            if self._flushes.may_confirm():
                raise
            self._fail(STORAGE_WRITE, f"{error.strerror or error} (errno {error.errno})")
        return bool(others)

    def has_room(self, segments: Iterable[int], *, volumes: int) -> bool:
        """Whether these segments can be written: extents that are not there yet have to be made.
        `volumes` so many grow on this disk.
        """
        if self.device is not None:
            return True  # format has taken all of it
        missing = {number % self.segments_max for number in segments} - self._extents.numbers()
        state = os.fstatvfs(self._data.fileno())  # its folder may have been moved away
        needed = len(missing) * volumes * self.geometry.extent_size
        return needed <= state.f_bavail * state.f_frsize

    def displaced(self) -> bool:
        """Whether the folder no longer leads to the file that is open: it was moved, replaced or
        removed, so that a restart would find another volume or none."""
        here = os.fstat(self._data.fileno())
        try:
            there = (self.folder / _DATA).stat()
            if self.device is not None:  # its node may have been made anew
                return here.st_rdev != there.st_rdev
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # cannot be told now; what the disk has to say is said by reads and writes
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def close(self) -> None:
        """Finish what is queued, stop the lanes, close the files and give up the lock."""
        self._readers.shutdown()
        if self._lanes is not None:
            for lane in self._lanes:
                lane.close()
        self._extents.close()
        self._data.close()
