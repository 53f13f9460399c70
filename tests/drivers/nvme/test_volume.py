"""The volume on a real disk: format, order, groups, and what happens when the disk says no."""

import asyncio
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from appliance.base.errors import StorageError
from appliance.base.limits import IO_SAMPLES, MIB, SECTOR_SIZE
from appliance.drivers.nvme import flushes
from appliance.drivers.nvme import volume as volume_module
from appliance.drivers.nvme.direct import FLUSH_METHODS, DirectFile
from appliance.drivers.nvme.extents import EXTENTS_AT_FORMAT
from appliance.drivers.nvme.latency import Latency
from appliance.drivers.nvme.volume import Volume, create, file_in, read_facts
from appliance.formats.geometry import SMALL, SUPERBLOCK_COPY_STRIDE
from appliance.formats.status.process import Latencies
from appliance.formats.volume_file import VolumeFile
from tests.drivers.nvme import serving as serving_module
from tests.drivers.nvme.serving import Serving, numbered_sector
from tests.patience import HUNG_S, within

REPO = Path(__file__).resolve().parents[3]
SEGMENTS_MAX = 8
EXTENT = SMALL.data_size  # address of the first extent


@pytest.fixture
def folder(disk_folder: Path) -> Path:
    """A formatted small volume."""
    place = disk_folder / "shard-0"
    create(place, geometry="small", segments_max=SEGMENTS_MAX, writes=[])
    return place


def serve(
    folder: Path, story: Callable[[Serving], Coroutine[None, None, None]], flush_slow_ms: int = 0
) -> None:
    """Run `story` with the volume open."""

    async def run() -> None:
        async with within(HUNG_S), Serving(folder, flush_slow_ms) as serving:
            await story(serving)

    uvloop.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does soon."""
    async with within(HUNG_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def process(*arguments: object) -> list[str]:
    return [sys.executable, serving_module.__file__, *map(str, arguments)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPO)}


# --- format ---------------------------------------------------------------------------------------


def test_format_leaves_zeros_but_for_what_it_was_told_to_write(disk_folder: Path) -> None:
    place = disk_folder / "shard-0"
    block = numbered_sector(7)
    create(place, geometry="small", segments_max=SEGMENTS_MAX, writes=[(2 * SECTOR_SIZE, block)])
    data = (place / "data").read_bytes()
    assert len(data) == SMALL.data_size
    assert data[2 * SECTOR_SIZE : 3 * SECTOR_SIZE] == block
    assert not any(data[: 2 * SECTOR_SIZE]) and not any(data[3 * SECTOR_SIZE :])
    extents = sorted((place / "segments").iterdir())
    assert [path.name for path in extents] == ["000000", "000001"]
    assert all(path.read_bytes() == bytes(SMALL.extent_size) for path in extents)
    assert (place / "data").stat().st_blocks * 512 >= SMALL.data_size  # written, not a hole


def test_format_writes_neighbours_and_scattered_sectors_of_any_number_to_their_places(
    disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than its buffer holds."""
    monkeypatch.setattr(volume_module, "IO_GROUP_SIZE_MAX", 50 * SECTOR_SIZE)
    sectors = SMALL.data_size // SECTOR_SIZE
    places = [*range(sectors // 3), *range(sectors - 1, sectors // 3, -2)]
    writes = [(place * SECTOR_SIZE, numbered_sector(1 + place)) for place in places]
    folder = disk_folder / "shard-0"
    create(folder, geometry="small", segments_max=SEGMENTS_MAX, writes=writes, brief=True)
    wanted = bytearray(SMALL.data_size)
    for address, sector in writes:
        wanted[address : address + SECTOR_SIZE] = sector
    assert (folder / "data").read_bytes() == wanted


def test_of_a_sector_that_format_writes_again_the_last_bytes_stay(disk_folder: Path) -> None:
    """Whichever thread writes it."""
    rounds, addresses = 40, [address * SECTOR_SIZE for address in range(0, 40, 2)]
    numbered = [(address, numbered_sector(n)) for n in range(1, rounds) for address in addresses]
    folder = disk_folder / "shard-0"
    create(folder, geometry="small", segments_max=SEGMENTS_MAX, writes=numbered, brief=True)
    data = (folder / "data").read_bytes()
    found = {data[address : address + SECTOR_SIZE] for address in addresses}
    assert found == {numbered_sector(rounds - 1)}


def test_format_measures_every_way_to_flush_and_keeps_the_figures(folder: Path) -> None:
    facts = read_facts(folder)
    assert set(facts["measured"]) == set(FLUSH_METHODS)
    best = min(facts["measured"], key=lambda method: facts["measured"][method]["mean_us"])
    assert facts["flush"]["method"] == best
    assert 0 < facts["flush"]["p50_us"] <= facts["flush"]["p99_us"]


def test_format_refuses_a_folder_that_holds_a_volume(folder: Path) -> None:
    with pytest.raises(StorageError, match="already holds a volume"):
        create(folder, geometry="small", segments_max=SEGMENTS_MAX, writes=[])


def test_format_that_was_interrupted_can_be_run_again(folder: Path) -> None:
    (folder / "volume.json").unlink()
    (folder / "segments" / "000001").rename(folder / "segments" / "000001.new")
    with pytest.raises(StorageError, match="holds no volume: correct the folder"):
        Volume(folder)
    create(folder, geometry="small", segments_max=SEGMENTS_MAX, writes=[])
    Volume(folder).close()
    assert not list(folder.glob("segments/*.new"))


def test_memory_is_refused_with_a_sentence(tmp_path: Path) -> None:
    memory = Path("/dev/shm") / f"tigerchat-{os.getpid()}"
    memory.mkdir()
    try:
        with pytest.raises(StorageError, match="tmpfs, which lives in memory"):
            create(memory / "x", geometry="small", segments_max=SEGMENTS_MAX, writes=[])
    finally:
        for path in sorted(memory.rglob("*"), reverse=True):
            path.rmdir()
        memory.rmdir()


def test_format_writes_each_zero_or_reserves_room_that_reads_as_zeros(disk_folder: Path) -> None:
    written, reserved = disk_folder / "written", disk_folder / "reserved"
    for place in (written, reserved):
        brief = place == reserved
        create(place, geometry="small", segments_max=SEGMENTS_MAX, writes=[], brief=brief)
        data = place / "data"
        assert data.stat().st_blocks * 512 >= data.stat().st_size == SMALL.data_size
    with (written / "data").open("rb") as file:  # what is only reserved counts as a hole
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == SMALL.data_size

    async def story(serving: Serving) -> None:
        start = SMALL.wal_prepares_offset + 20 * SMALL.message_size_max
        await serving.write(start, numbered_sector(7))
        found = await serving.read(start - SECTOR_SIZE, 3 * SECTOR_SIZE)
        assert found == bytes(SECTOR_SIZE) + numbered_sector(7) + bytes(SECTOR_SIZE)

    serve(reserved, story)


# --- open -----------------------------------------------------------------------------------------


def opened_as(folder: Path) -> VolumeFile:
    """Which file the volume says that it is, opened and closed again."""
    volume = Volume(folder)
    volume.close()
    return volume.file


def test_a_volume_knows_which_file_it_is_and_stays_it_when_its_folder_is_moved(
    folder: Path,
) -> None:
    """As `stat` tells it; the time of birth only where the file system keeps it."""
    file, data = opened_as(folder), folder / "data"
    assert file.inode == data.stat().st_ino
    assert file.volume_id.hex() == read_facts(folder)["id"]
    told = subprocess.run(["stat", "-c", "%W", data], capture_output=True, text=True, check=True)
    assert file.birth_ns // 1_000_000_000 == int(told.stdout)
    assert file_in(folder) == file
    moved = folder.rename(folder.with_name("elsewhere"))
    assert opened_as(moved) == file == file_in(moved)


def test_a_copy_of_a_volume_is_another_file_also_under_the_number_of_the_first(
    folder: Path, disk_folder: Path
) -> None:
    """A file system may give the number of a file that was removed again; not its time of birth."""
    file = opened_as(folder)
    copy = Path(shutil.copytree(folder, disk_folder / "copy"))
    found = opened_as(copy)
    assert found.is_other(than=file) and found.volume_id == file.volume_id
    if file.birth_ns:
        assert found._replace(inode=file.inode).is_other(than=file)


def test_a_time_of_birth_that_nobody_tells_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A C library without the call, a kernel that refuses it, a file system that keeps no time."""

    class Refuses:
        @staticmethod
        def statx(*_: object) -> int:
            return -1

    class Empty:
        @staticmethod
        def statx(*_: object) -> int:
            return 0

    for library in (object(), Refuses(), Empty()):
        monkeypatch.setattr("appliance.drivers.nvme.direct._LIBC", library)
        found = file_in(folder)
        assert found.birth_ns == 0 and found.inode


class MountedAgain:
    """A file system of some type, by whose word alone a file has another number than before."""

    def __init__(self, kind: int) -> None:
        self._kind = kind

    def fstatfs(self, fd: int, statfs: Any) -> int:
        statfs.raw = self._kind.to_bytes(4, "little") + b"\xff" * (len(statfs) - 4)
        return 0

    def statx(self, *_: object) -> int:
        return -1


@pytest.mark.parametrize(
    ("kind", "lasting"),
    [
        (0x4D44, False),  # vfat
        (0x2011BAB0, False),  # exfat
        (0x65735546, False),  # fuse
        (0x01021997, False),  # 9p
        (0xFF534D42, False),  # cifs
        (0xFE534D42, False),  # smb2
        (0x517B, False),  # smb
        (0xEF53, True),  # ext4
        (0x58465342, True),  # xfs
        (0x9123683E, True),  # btrfs
        (0x2FC12FC1, True),  # zfs
        (0x6969, True),  # nfs
        (0x794C7630, True),  # overlayfs
    ],
)
def test_a_number_that_does_not_outlast_its_mount_tells_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: int, lasting: bool
) -> None:
    known = opened_as(folder)
    monkeypatch.setattr("appliance.drivers.nvme.direct._LIBC", MountedAgain(kind))
    found = file_in(folder)
    assert found.inode == (known.inode if lasting else 0)
    before = known._replace(inode=known.inode + 1)  # as it was mounted before, and written down
    assert found.is_other(than=before) == lasting
    assert found._replace(volume_id=bytes(15) + b"x").is_other(than=before)


def test_two_processes_never_open_one_volume(folder: Path) -> None:
    first = Volume(folder)
    with pytest.raises(StorageError, match="open in another process"):
        Volume(folder)
    first.close()
    Volume(folder).close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not readable as volume facts"),
        ('{"format": 1}', "not readable as volume facts"),
        ("[]", "not readable as volume facts"),
    ],
)
def test_broken_facts_are_named(folder: Path, text: str, sentence: str) -> None:
    (folder / "volume.json").write_text(text)
    with pytest.raises(StorageError, match=sentence):
        Volume(folder)


def test_facts_of_a_later_version_are_refused(folder: Path) -> None:
    facts = json.loads((folder / "volume.json").read_text())
    (folder / "volume.json").write_text(json.dumps({**facts, "format": 2}))
    with pytest.raises(StorageError, match="another version"):
        Volume(folder)


def test_a_data_file_of_another_size_is_refused(folder: Path) -> None:
    os.truncate(folder / "data", SMALL.data_size - SECTOR_SIZE)
    with pytest.raises(StorageError, match="cut or replaced"):
        Volume(folder)
    os.truncate(folder / "data", SMALL.data_size)
    Volume(folder).close()  # the refusal gave the lock back


def test_read_many_gives_exactly_the_bytes_asked_for(disk_folder: Path) -> None:
    place = disk_folder / "shard-0"
    sectors = [(i * SECTOR_SIZE, numbered_sector(i)) for i in range(40)]
    create(place, geometry="small", segments_max=SEGMENTS_MAX, writes=sectors)
    volume = Volume(place)
    asked = [(i * SECTOR_SIZE + i, 64) for i in range(40)]
    expected = [numbered_sector(i)[i : i + 64] for i in range(40)]
    assert volume.read_many(asked) == expected
    assert volume.read_many(asked[:3]) == expected[:3]
    across = volume.read_many([(SECTOR_SIZE - 8, 16)])
    assert across == [numbered_sector(0)[:8] + numbered_sector(1)[:8]]
    missing = EXTENT + 5 * SMALL.extent_size
    assert volume.read_many([(EXTENT, 8), (missing, 8)]) == [bytes(8), None]
    volume.close()


def test_read_many_loses_no_neighbour_of_an_unreadable_range(folder: Path) -> None:
    volume = Volume(folder)
    os.truncate(folder / "data", SMALL.data_size - 2 * SECTOR_SIZE)
    last = [(SMALL.data_size - back * SECTOR_SIZE, SECTOR_SIZE) for back in (4, 3, 2, 1)]
    assert volume.read_many(last) == [bytes(SECTOR_SIZE), bytes(SECTOR_SIZE), None, None]
    many = last * 8
    assert volume.read_many(many) == [bytes(SECTOR_SIZE), bytes(SECTOR_SIZE), None, None] * 8
    volume.close()


# --- order and groups -----------------------------------------------------------------------------


def test_a_confirmed_write_lies_in_the_file(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        address = SMALL.wal_prepares_offset
        await serving.write(address, b"head" * 32, numbered_sector(1)[128:], numbered_sector(2))
        written = (folder / "data").read_bytes()[address:][: 2 * SECTOR_SIZE]
        assert written[:128] == b"head" * 32 and written[SECTOR_SIZE:] == numbered_sector(2)

    serve(folder, story)


def test_writes_queued_at_once_share_a_flush(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        addresses = [SMALL.wal_headers_offset + slot * SECTOR_SIZE for slot in range(40)]
        await asyncio.gather(*(serving.write(a, numbered_sector(a)) for a in addresses[::-1]))
        statistics = serving.volume.statistics()
        assert statistics.groups <= 3  # the first may have left alone
        assert statistics.journal.count == 40
        for address in addresses:
            assert await serving.read(address, SECTOR_SIZE) == numbered_sector(address)

    serve(folder, story, flush_slow_ms=30)


def test_overlapping_writes_land_in_the_order_they_were_given(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        base = SMALL.wal_prepares_offset
        for first in range(0, 60, 3):
            three = [
                serving.write(base, numbered_sector(first), numbered_sector(first)),
                serving.write(base + SECTOR_SIZE, numbered_sector(first + 1)),
                serving.write(base, numbered_sector(first + 2)),
            ]
            await asyncio.gather(*three)
            found = await serving.read(base, 2 * SECTOR_SIZE)
            assert found == numbered_sector(first + 2) + numbered_sector(first + 1)

    serve(folder, story)


def test_a_read_waits_for_the_write_it_overlaps(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        address = SMALL.wal_prepares_offset + SECTOR_SIZE
        for number in range(1, 20):
            write = serving.write(address, numbered_sector(number))
            found = await serving.read(address - SECTOR_SIZE, 3 * SECTOR_SIZE)
            assert write.done()
            assert found == bytes(SECTOR_SIZE) + numbered_sector(number) + bytes(SECTOR_SIZE)

    serve(folder, story, flush_slow_ms=5)


def test_a_read_stands_behind_one_group_of_writes_at_most(disk_folder: Path) -> None:
    place = disk_folder / "shard-0"
    create(place, geometry="production", segments_max=SEGMENTS_MAX, writes=[])

    async def story(serving: Serving) -> None:
        geometry = serving.volume.geometry
        start = geometry.checkpoints_offset
        writes = [serving.write(start + i * MIB, bytes(MIB)) for i in range(24)]
        read = serving.read(geometry.wal_headers_offset, SECTOR_SIZE)
        assert await read == bytes(SECTOR_SIZE)
        assert sum(write.done() for write in writes) <= 12
        await asyncio.gather(*writes)

    serve(place, story)


def test_the_journal_does_not_wait_for_a_checkpoint(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        zone = [SMALL.checkpoints_offset + i * SECTOR_SIZE for i in range(0, 20, 2)]
        slow = [serving.write(address, numbered_sector(1)) for address in zone]
        # Each overlaps the one before: a group of its own, one after the other.
        slow += [serving.write(zone[0], numbered_sector(i)) for i in range(2, 30)]
        await serving.write(SMALL.wal_headers_offset, numbered_sector(3))
        assert not slow[-1].done()
        await asyncio.gather(*slow)

    serve(folder, story, flush_slow_ms=30)


def test_a_superblock_is_read_back_while_a_checkpoint_is_flushed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view change waits for its superblock: three copies written, then all of them read back."""
    flushing, go_on = threading.Event(), threading.Event()

    def flush(file: DirectFile) -> None:
        if threading.current_thread().name == "volume-back":
            flushing.set()
            assert go_on.wait(HUNG_S)
        os.fdatasync(file.fileno())

    monkeypatch.setattr(DirectFile, "flush", flush)
    monkeypatch.setattr(flushes, "awaits_device", lambda thread: not go_on.is_set())

    async def story(serving: Serving) -> None:
        places = [SMALL.checkpoints_offset + i * SECTOR_SIZE for i in (0, 2)]
        checkpoint = [serving.write(address, numbered_sector(1)) for address in places]
        try:
            await until(flushing.is_set)
            for copy in range(3):
                address = copy * SUPERBLOCK_COPY_STRIDE
                await serving.write(address, numbered_sector(copy))
                found = await serving.read(address, SECTOR_SIZE)
                assert found == numbered_sector(copy)
            assert not any(write.done() for write in checkpoint[1:])
        finally:
            go_on.set()
        await asyncio.gather(*checkpoint)

    serve(folder, story)


def test_a_slowed_flush_shows_in_the_statistics(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        for slot in range(5):
            await serving.write(SMALL.wal_headers_offset + slot * SECTOR_SIZE, bytes(SECTOR_SIZE))
        figures = serving.volume.statistics().journal
        assert figures.count == 5 and figures.p50_us >= 10_000

    serve(folder, story, flush_slow_ms=10)


def test_statistics_tell_of_the_newest_thousand_only() -> None:
    latency = Latency()
    assert latency.figures() == Latencies(recent=0, p50_us=0, p99_us=0)
    for _ in range(IO_SAMPLES):
        latency.add(9_000_000)
    for microseconds in range(1, IO_SAMPLES + 1):
        latency.add(microseconds * 1000)
    assert latency.figures() == Latencies(
        count=2 * IO_SAMPLES, recent=IO_SAMPLES, p50_us=501, p99_us=991, max_us=1000
    )


# --- extents --------------------------------------------------------------------------------------


def test_the_next_extent_is_there_before_it_is_needed(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        for extent in range(SEGMENTS_MAX):
            await serving.write(EXTENT + extent * SMALL.extent_size, numbered_sector(extent))
            following = folder / "segments" / f"{(extent + 1) % SEGMENTS_MAX:06d}"
            await until(following.exists)
            assert following.stat().st_size == SMALL.extent_size
        for extent in range(SEGMENTS_MAX):
            found = await serving.read(EXTENT + extent * SMALL.extent_size, SECTOR_SIZE)
            assert found == numbered_sector(extent)
        assert serving.volume.statistics().extents == SEGMENTS_MAX

    serve(folder, story)


def test_when_segments_are_refilled_downwards_the_one_before_is_there_in_time(
    folder: Path,
) -> None:
    async def story(serving: Serving) -> None:
        for extent in reversed(range(3, SEGMENTS_MAX)):
            await serving.write(EXTENT + extent * SMALL.extent_size, numbered_sector(extent))
            await until((folder / "segments" / f"{extent - 1:06d}").exists)
        await until(lambda: serving.volume.statistics().extents == SEGMENTS_MAX)

    serve(folder, story)


def test_extents_that_are_given_up_make_room_and_are_made_anew(folder: Path) -> None:
    """What is written after is in the new file, whoever had the old one open; what is read before
    is not there."""

    async def story(serving: Serving) -> None:
        at = EXTENT + 2 * SMALL.extent_size
        for extent in range(4):
            place = EXTENT + extent * SMALL.extent_size
            await serving.write(place, numbered_sector(extent))
        await until((folder / "segments" / "000004").exists)
        volume = serving.volume
        assert not volume.keep_only(range(5))
        assert volume.keep_only(range(3, 5)) and not (folder / "segments" / "000002").exists()
        assert await serving.read(at, SECTOR_SIZE) is None
        assert await serving.read(at + SMALL.extent_size, SECTOR_SIZE) == numbered_sector(3)
        await serving.write(at, numbered_sector(7))
        assert await serving.read(at, SECTOR_SIZE) == numbered_sector(7)
        assert (folder / "segments" / "000002").read_bytes()[:SECTOR_SIZE] == numbered_sector(7)

    serve(folder, story)


def test_a_disk_is_as_full_as_df_says_without_what_is_kept_back_for_root(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(serving: Serving) -> None:
        state = SimpleNamespace(f_blocks=1000, f_bfree=800, f_bavail=200, f_frsize=4096)
        monkeypatch.setattr("os.fstatvfs", lambda place: state)
        told = serving.volume.statistics()
        assert (told.disk_size, told.disk_free) == (400 * 4096, 200 * 4096)

    serve(folder, story)


def test_room_is_what_extents_that_are_not_there_yet_need(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(size: int) -> None:
        state = SimpleNamespace(f_bavail=size, f_frsize=1)
        monkeypatch.setattr("os.fstatvfs", lambda place: state)

    async def story(serving: Serving) -> None:
        await serving.write(EXTENT, numbered_sector(0))
        await until((folder / "segments" / "000001").exists)
        free(2 * SMALL.extent_size)
        volume = serving.volume
        assert volume.has_room(range(4), volumes=1), "two are there"
        assert not volume.has_room(range(5), volumes=1)
        assert not volume.has_room(range(4), volumes=2)
        free(0)
        assert volume.has_room(range(2), volumes=1)
        assert volume.has_room(range(SEGMENTS_MAX, SEGMENTS_MAX + 2), volumes=1), "written again"

    serve(folder, story)


def test_a_new_volume_makes_none_that_is_not_soon_needed(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        await serving.write(EXTENT, numbered_sector(0))
        assert serving.volume.statistics().extents == EXTENTS_AT_FORMAT

    serve(folder, story)
    assert len(list((folder / "segments").iterdir())) == EXTENTS_AT_FORMAT


def test_an_extent_that_somebody_waits_for_is_made_without_pauses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.drivers.nvme.extents._PAUSE_SECONDS", HUNG_S)

    async def story(serving: Serving) -> None:
        await serving.write(EXTENT + 6 * SMALL.extent_size, numbered_sector(6))

    serve(folder, story)


def test_an_extent_that_was_skipped_is_made_when_it_is_written(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        address = EXTENT + 6 * SMALL.extent_size + SECTOR_SIZE
        assert await serving.read(address, SECTOR_SIZE) is None
        await serving.write(address, numbered_sector(6))
        found = await serving.read(address - SECTOR_SIZE, 2 * SECTOR_SIZE)
        assert found == bytes(SECTOR_SIZE) + numbered_sector(6)

    serve(folder, story)


def test_half_made_extents_of_a_dead_process_are_removed(folder: Path) -> None:
    half = folder / "segments" / "000002.new"
    half.write_bytes(b"half")
    short = folder / "segments" / "000003"
    short.write_bytes(b"short")
    volume = Volume(folder)
    assert not half.exists()
    assert volume.read_many([(EXTENT + 3 * SMALL.extent_size, 8)]) == [None]
    volume.close()


# --- failures -------------------------------------------------------------------------------------


def test_an_unreadable_range_is_none_and_the_rest_is_served(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        os.truncate(folder / "data", SMALL.checkpoints_offset)
        assert await serving.read(SMALL.checkpoints_offset, SECTOR_SIZE) is None
        assert await serving.read(0, SECTOR_SIZE) == bytes(SECTOR_SIZE)
        assert not serving.failure.done()

    serve(folder, story)


def limited(folder: Path, limit: int, writes: list[tuple[int, int]]) -> list[str]:
    """What a process says that may not write beyond `limit` bytes of any file."""
    asked = " ".join(f"{address}+{size}" for address, size in writes)
    done = subprocess.run(
        process("limit", folder, limit), input=asked, env=ENVIRONMENT, text=True,
        capture_output=True, timeout=HUNG_S, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.parametrize("method", FLUSH_METHODS)
def test_a_failed_write_ends_the_volume_whatever_the_flush(folder: Path, method: str) -> None:
    facts = json.loads((folder / "volume.json").read_text())
    facts["flush"]["method"] = method
    (folder / "volume.json").write_text(json.dumps(facts))
    limit = SMALL.wal_prepares_offset
    said = limited(folder, limit, [(0, SECTOR_SIZE), (limit, SECTOR_SIZE), (0, SECTOR_SIZE)])
    assert said[0] == "durable"
    assert len(said) == 2 and said[1].startswith("STORAGE_WRITE") and "File too large" in said[1]


def test_a_failed_write_of_a_group_ends_the_volume(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        good, bad = SMALL.wal_headers_offset, SMALL.wal_prepares_offset
        writes = [serving.write(good, numbered_sector(1))]  # keeps the lane busy
        resource.setrlimit(resource.RLIMIT_FSIZE, (bad, hard))
        try:
            writes += [serving.write(good + SECTOR_SIZE * i, bytes(SECTOR_SIZE)) for i in (2, 4)]
            writes.append(serving.write(bad, bytes(SECTOR_SIZE)))
            code, reason = await serving.failure
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert code == "STORAGE_WRITE" and "File too large" in reason
        assert not any(write.done() for write in writes[1:])  # none of that group is confirmed

    serve(folder, story, flush_slow_ms=30)


def test_a_short_write_ends_the_volume(folder: Path) -> None:
    limit = SMALL.wal_prepares_offset + SECTOR_SIZE
    said = limited(folder, limit, [(SMALL.wal_prepares_offset, 2 * SECTOR_SIZE)])
    assert len(said) == 1 and said[0].startswith("STORAGE_WRITE") and "short write" in said[0]


def test_no_room_for_an_extent_is_a_full_disk(folder: Path) -> None:
    said = limited(folder, 64 * 1024, [(EXTENT + 4 * SMALL.extent_size, SECTOR_SIZE)])
    assert len(said) == 1 and said[0].startswith("DISK_FULL") and "free space" in said[0]
    assert not (folder / "segments" / "000004.new").exists()


def test_writing_ahead_without_room_is_an_alarm_and_no_failure(folder: Path) -> None:
    async def story(serving: Serving) -> None:
        ahead = folder / "segments" / "000002.new"
        ahead.mkdir()  # nobody can make a file of that name
        await serving.write(EXTENT + SMALL.extent_size, numbered_sector(1))
        await until(lambda: serving.volume.statistics().alarm != "")
        assert "000002" in (serving.volume.statistics().alarm or "")
        ahead.rmdir()
        await serving.write(EXTENT + SMALL.extent_size, numbered_sector(2))
        await until(lambda: serving.volume.statistics().alarm == "")

    serve(folder, story)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_a_full_file_system_is_named_at_format_and_later(disk_folder: Path) -> None:
    image, place = disk_folder / "image", disk_folder / "small"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(12 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        with pytest.raises(StorageError, match="no room for .* free space"):
            create(place / "big", geometry="production", segments_max=SEGMENTS_MAX, writes=[])
        (place / "big" / "data").unlink()
        create(place / "fits", geometry="small", segments_max=4096, writes=[])
        serve(place / "fits", fill_until_full)
    finally:
        subprocess.run(["umount", place], check=True)


async def fill_until_full(serving: Serving) -> None:
    """Write extent after extent; the first one without room must fail as a full disk."""
    for extent in range(4096):
        future = serving.write(EXTENT + extent * SMALL.extent_size, bytes(SECTOR_SIZE))
        await asyncio.wait([future, serving.failure], return_when=asyncio.FIRST_COMPLETED)
        if serving.failure.done():
            break
    code, reason = serving.failure.result()
    assert extent > 2 and code == "DISK_FULL" and "free space" in reason


def test_what_a_killed_process_had_confirmed_is_on_disk(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(4):
        wanted, late_s = chance.randrange(21, 200), chance.uniform(0, 0.05)
        writer = subprocess.Popen(
            process("write", folder), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        confirmed: dict[int, int] = {}
        killer = threading.Timer(late_s, writer.kill)
        for lines, line in enumerate(writer.stdout):
            if line.endswith("\n"):
                address, number = map(int, line.split())
                confirmed[address] = max(number, confirmed.get(address, 0))
            if lines == wanted:
                killer.start()
        assert writer.wait() == -signal.SIGKILL  # not of itself, and so not before it was due
        killer.join()
        assert len(confirmed) > 20
        volume = Volume(folder)  # the lock went with the process
        for address, number in confirmed.items():
            (found,) = volume.read_many([(address, SECTOR_SIZE)])
            assert found is not None
            newest = int.from_bytes(found[:8], "little")
            assert found == numbered_sector(newest)  # never torn
            assert newest >= number  # a later one may have landed and not been heard of
        volume.close()


def test_close_finishes_what_was_queued(folder: Path) -> None:
    async def run() -> None:
        serving = Serving(folder, flush_slow_ms=20)
        async with serving:
            for slot in range(20):
                address = SMALL.wal_headers_offset + slot * SECTOR_SIZE
                serving.write(address, numbered_sector(slot))
        volume = Volume(folder)
        for slot in range(20):
            address = SMALL.wal_headers_offset + slot * SECTOR_SIZE
            assert volume.read_many([(address, SECTOR_SIZE)]) == [numbered_sector(slot)]
        volume.close()

    async def bounded() -> None:
        async with within(HUNG_S):
            await run()

    uvloop.run(bounded())
