"""A volume on a raw device: one layout, sectors of both sizes, and what is refused beforehand."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from appliance.base.errors import StorageError
from appliance.base.limits import MIB, SECTOR_SIZE
from appliance.drivers.nvme.device import check_free, claim
from appliance.drivers.nvme.direct import FLUSH_METHODS
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.drivers.nvme.reader import VolumeReader
from appliance.drivers.nvme.volume import Volume, create
from appliance.formats.geometry import SMALL, SUPERBLOCK_COPY_SIZE
from appliance.formats.volume_label import LABEL_OFFSETS, decode_label, encode_label
from tests.drivers.nvme import serving as serving_module
from tests.drivers.nvme.rot import flip
from tests.drivers.nvme.serving import Serving, numbered_sector
from tests.loop_device import loop_device
from tests.patience import HUNG_S, within
from tests.system.local_site import wait_until

TOP = Path(__file__).resolve().parents[3]
SEGMENTS_MAX = 8
SIZE = 16 * MIB  # of the device
NEEDED = SMALL.data_size + SEGMENTS_MAX * SMALL.extent_size


@pytest.fixture(params=[512, 4096])
def device(disk_folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with loop_device(disk_folder / "disk", SIZE, sector_size=request.param) as made:
        yield made


@pytest.fixture
def folder(disk_folder: Path, device: Path) -> Path:
    """A formatted small volume on it."""
    volume = disk_folder / "shard-0"
    claim(volume, device)
    create(volume, geometry="small", segments_max=SEGMENTS_MAX, writes=[(0, numbered_sector(9))])
    return volume


def digest(device: Path) -> str:
    return hashlib.sha256(device.read_bytes()).hexdigest()


def test_a_device_holds_the_layout_of_files_from_its_first_byte(folder: Path) -> None:
    assert sorted(entry.name for entry in folder.iterdir()) == ["data", "volume.json"]
    raw = (folder / "data").read_bytes()
    assert raw[:SECTOR_SIZE] == numbered_sector(9)
    for offset in LABEL_OFFSETS:
        label = decode_label(raw[offset : offset + SECTOR_SIZE])
        assert label is not None and label["flush"]["method"] in FLUSH_METHODS
    end = LABEL_OFFSETS[-1] + SECTOR_SIZE
    assert not any(raw[end:NEEDED])


def test_what_is_written_to_a_device_is_there_for_the_next_process(folder: Path) -> None:
    places = {
        SMALL.wal_prepares_offset: 1,
        SMALL.checkpoints_offset: 2,
        SMALL.data_size: 3,
        SMALL.data_size + 5 * SMALL.extent_size: 4,
        NEEDED - SECTOR_SIZE: 5,
    }

    async def write() -> None:
        async with within(HUNG_S), Serving(folder) as serving:
            await asyncio.gather(
                *(serving.write(at, numbered_sector(n)) for at, n in places.items())
            )
            statistics = serving.volume.statistics()
            assert statistics.device and statistics.extents == SEGMENTS_MAX

    uvloop.run(write())
    volume = Volume(folder)
    volume.flush_all()
    found = volume.read_many([(at, SECTOR_SIZE) for at in places])
    volume.close()
    assert found == [numbered_sector(number) for number in places.values()]
    reader = VolumeReader(folder)
    assert reader.extents() == [0, 5]
    reader.close()
    views = MappedSegments(folder / "segments", SMALL, SEGMENTS_MAX)
    assert views.view(5) is None  # no footer: but mapping it at its place was tried


def test_writes_that_a_killed_process_confirmed_are_on_the_device(folder: Path) -> None:
    command = [sys.executable, serving_module.__file__, "write", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(200)]
        writer.kill()
        lines += writer.stdout.readlines()
    confirmed: dict[int, int] = {}
    for line in lines:
        if line.endswith("\n"):
            address, number = map(int, line.split())
            confirmed[address] = number
    volume = Volume(folder)
    found = volume.read_many([(address, SECTOR_SIZE) for address in confirmed])
    volume.close()
    for number, data in zip(confirmed.values(), found, strict=True):
        assert data is not None
        stored = int.from_bytes(data[:8], "little")
        assert stored >= number and data == numbered_sector(stored)


def test_two_processes_never_open_one_device(folder: Path) -> None:
    first = Volume(folder)
    with pytest.raises(StorageError, match="is in use: it is mounted, or open in another process"):
        Volume(folder)
    first.close()
    Volume(folder).close()


def by_tool(*words: str) -> Callable[[Path], None]:
    """What a tool leaves that names the device last."""
    return lambda device: told(*words, str(device))


def partitions(device: Path) -> None:
    told("sfdisk", "--quiet", str(device), text="label: gpt\n,8M\n,\n")


def by_bytes(*at: tuple[int, bytes]) -> Callable[[Path], None]:
    """The name that a tool leaves which not every machine has."""

    def write(device: Path) -> None:
        with device.open("r+b") as file:
            for offset, mark in at:
                file.seek(offset if offset >= 0 else SIZE + offset)
                file.write(mark)

    return write


def told(*words: str, text: str = "") -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, input=text)


RAID = bytes.fromhex("fc4e2ba9")
CARRIED = {
    "ext4": (by_tool("mkfs.ext4", "-q", "-F"), "an ext2, ext3 or ext4 file system"),
    "swap": (by_tool("mkswap"), "swap space"),
    "GPT": (partitions, "a partition table|partitions"),
    "LVM": (by_bytes((512, b"LABELONE"), (536, b"LVM2 001")), "an LVM physical volume"),
    "LUKS": (by_bytes((0, b"LUKS\xba\xbe\0\2")), "a LUKS volume"),
    "RAID 1.1": (by_bytes((0, RAID)), "a member of a RAID"),
    "RAID 1.2": (by_bytes((4096, RAID)), "a member of a RAID"),
    "RAID 1.0": (by_bytes((-8192, RAID)), "a member of a RAID"),
    "RAID 0.90": (by_bytes((-65536, RAID)), "a member of a RAID"),
    "xfs": (by_bytes((0, b"XFSB")), "an xfs file system"),
    "btrfs": (by_bytes((0x10040, b"_BHRfS_M")), "a btrfs file system"),
    "plain data": (by_bytes((9 * MIB, b"mine")), "bytes that are not zero"),
}


@pytest.mark.parametrize("kind", CARRIED)
def test_what_a_device_carries_is_told_by_name_and_must_be_given_up_twice(
    kind: str, device: Path
) -> None:
    put, name = CARRIED[kind]
    check_free(device, NEEDED, erase=0)  # blank
    put(device)
    before = digest(device)
    for erase in (0, 1):
        with pytest.raises(StorageError, match=rf"carries ({name}).*--erase"):
            check_free(device, NEEDED, erase)
    check_free(device, NEEDED, erase=2)
    assert digest(device) == before, "whoever looks changes nothing"


def test_the_device_of_another_site_must_be_given_up_twice_and_one_in_use_is_refused(
    folder: Path, device: Path
) -> None:
    before = digest(device)
    for erase in (0, 1):
        with pytest.raises(StorageError, match=r"carries a volume of tigerchat.*--erase"):
            check_free(device, NEEDED, erase)
    check_free(device, NEEDED, erase=2)
    volume = Volume(folder)
    with pytest.raises(StorageError, match="is in use: it is mounted, or open"):
        check_free(device, NEEDED, erase=2)
    volume.close()
    assert digest(device) == before


def test_a_disk_whose_partition_is_in_use_is_refused(device: Path) -> None:
    partitions(device)
    told("partx", "--add", str(device))
    part = Path(f"{device}p1")
    try:
        wait_until(part.exists, HUNG_S, f"{part} is there")
        with pytest.raises(StorageError, match="carries partitions"):
            check_free(device, NEEDED, erase=0)
        holder = os.open(part, os.O_RDONLY | os.O_EXCL)
        try:
            with pytest.raises(StorageError, match="is in use: it is mounted, or open"):
                check_free(device, NEEDED, erase=2)
        finally:
            os.close(holder)
    finally:
        told("partx", "--delete", str(device))


def test_devices_that_are_mounted_small_or_none_are_refused(
    device: Path, disk_folder: Path
) -> None:
    with pytest.raises(StorageError, match="16 MiB and a volume of so many segments takes 95 MiB"):
        check_free(device, 95 * MIB, erase=2)
    with pytest.raises(StorageError, match="no block device"):
        check_free(disk_folder / "disk", NEEDED, erase=2)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(device)], check=True)
    point = disk_folder / "mounted"
    point.mkdir()
    subprocess.run(["mount", str(device), str(point)], check=True)
    try:
        with pytest.raises(StorageError, match="is in use: it is mounted"):
            check_free(device, NEEDED, erase=2)
    finally:
        subprocess.run(["umount", str(point)], check=True)


def test_one_whole_label_is_enough_and_another_volumes_device_is_refused(
    folder: Path, device: Path
) -> None:
    for offset in LABEL_OFFSETS[:-1]:
        flip(device, offset + 100)
    volume = Volume(folder)
    assert volume.facts["flush"]["method"] in FLUSH_METHODS
    volume.close()
    flip(device, LABEL_OFFSETS[-1] + 100)
    with pytest.raises(StorageError, match="a device that holds no volume"):
        Volume(folder)
    with device.open("r+b") as file:
        file.seek(SUPERBLOCK_COPY_SIZE)
        file.write(encode_label({"id": "another"}))
    with pytest.raises(StorageError, match="a device that holds another volume"):
        Volume(folder)


def test_extents_that_are_given_up_are_discarded_and_those_needed_stay(
    folder: Path, disk_folder: Path
) -> None:
    def ends(extent: int) -> tuple[int, int]:
        start = SMALL.data_size + extent * SMALL.extent_size
        return start, start + SMALL.extent_size - SECTOR_SIZE

    async def story() -> None:
        async with within(HUNG_S), Serving(folder) as serving:
            for extent in range(SEGMENTS_MAX):
                for address in ends(extent):
                    await serving.write(address, numbered_sector(1))
            assert serving.volume.keep_only([2, 3])
            assert await serving.read(ends(2)[0], SECTOR_SIZE) == numbered_sector(1)
            assert await serving.read(ends(1)[0], SECTOR_SIZE) is None
            while any((folder / "data").read_bytes()[ends(7)[1] : NEEDED]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await serving.write(ends(7)[0], numbered_sector(2))
            assert await serving.read(ends(7)[0], SECTOR_SIZE) == numbered_sector(2)
            time.sleep(0.05)  # noqa: ASYNC251  the other thread has had its turn

    uvloop.run(story())
    raw = (folder / "data").read_bytes()
    for extent in range(SEGMENTS_MAX):
        first, last = (raw[at : at + 8] != bytes(8) for at in ends(extent))
        assert (first, last) == {2: (True, True), 3: (True, True), 7: (True, False)}.get(
            extent, (False, False)
        ), extent
