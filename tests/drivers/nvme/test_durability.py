"""What may be called durable: nothing that was found at open before it was flushed, nothing that a
lane wrote while another lane's flush failed."""

import asyncio
import errno
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.base.errors import StorageError
from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr.open import NewReplica, format_writes, load
from appliance.drivers.nvme import flushes
from appliance.drivers.nvme.direct import DirectFile
from appliance.drivers.nvme.extents import EXTENTS_AT_FORMAT
from appliance.drivers.nvme.volume import Volume, create
from appliance.formats.geometry import SMALL
from tests.drivers.nvme.file_calls import watch_files
from tests.drivers.nvme.serving import Serving, numbered_sector
from tests.patience import HUNG_S

SEGMENTS_MAX = 8
READ = {"x86_64": "0", "aarch64": "63"}  # the number of the call
PAUSE_S = 0.2  # in which a lane that does not wait would have confirmed
IDS = [bytes([n]) * 16 for n in (1, 2, 3)]
FRONT, BACK = SMALL.wal_headers_offset, SMALL.checkpoints_offset


@pytest.fixture
def folder(disk_folder: Path) -> Path:
    """The volume of a replica, just formatted."""
    place = disk_folder / "shard-0"
    new = NewReplica(
        cluster=b"c" * 16,
        shard=0,
        replica_id=IDS[0],
        members=IDS,
        replica_count=3,
        segments_max=SEGMENTS_MAX,
        view=0,
    )
    writes = format_writes(SMALL, new)
    create(place, geometry="small", segments_max=SEGMENTS_MAX, writes=writes)
    return place


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    return watch_files(monkeypatch)


def test_everything_is_flushed_before_anything_read_at_open_counts(
    folder: Path, calls: list[tuple[str, str]]
) -> None:
    volume = Volume(folder)
    load(volume.geometry, volume.flush_all, volume.read_many)
    volume.close()
    reads = [place for place, (name, _) in enumerate(calls) if name == "preadv"]
    assert reads
    before = calls[: reads[0]]
    files = [folder / "data", *sorted((folder / "segments").iterdir())]
    assert {path for name, path in before if name == "fdatasync"} == {str(f) for f in files}
    # of an extent that was just made, the name
    assert {path for name, path in before if name == "fsync"} == {
        str(folder),
        str(folder / "segments"),
    }


def test_a_disk_that_cannot_flush_what_was_written_before_is_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", refuse)
    volume = Volume(folder)
    with pytest.raises(StorageError, match="cannot be flushed: .*; check the disk"):
        load(volume.geometry, volume.flush_all, volume.read_many)
    volume.close()


@pytest.mark.parametrize(("failing", "other"), [(BACK, FRONT), (FRONT, BACK)])
def test_a_flush_that_failed_in_one_lane_leaves_nothing_confirmed_in_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: int, other: int
) -> None:
    """The other lane's bytes are written; then the failing lane's flush fails, which may take them
    along; then the other lane's own flush succeeds."""
    written, failed = threading.Event(), threading.Event()
    names = {FRONT: "volume-front", BACK: "volume-back"}
    flushed: list[str] = []
    confirmed: list[list[int]] = []  # by the lane itself, whatever the loop makes of it

    def write_durable(self: DirectFile, data: memoryview, offset: int) -> None:
        lane = threading.current_thread().name
        if lane == names[failing]:
            assert written.wait(10)
            raise OSError(errno.EIO, "Input/output error")
        self.write(data, offset)
        written.set()
        assert failed.wait(10)
        os.fdatasync(self.fileno())
        flushed.append(lane)

    monkeypatch.setattr(DirectFile, "write_durable", write_durable)

    async def story() -> None:
        async with asyncio.timeout(20), Serving(folder) as serving:
            lanes = dict(zip((FRONT, BACK), serving.volume._lanes or (), strict=True))
            tell = lanes[failing]._failed

            def told(code: str, reason: str) -> None:
                failed.set()
                lanes[other]._thread.join(2)  # the loop hears of it last; that one ends by itself
                tell(code, reason)

            lanes[failing]._failed = told
            lanes[other]._done = lambda writes, reads: confirmed.append(writes)
            doubtful = serving.write(other, numbered_sector(1))
            serving.write(failing, numbered_sector(2))
            assert (await serving.failure)[0] == "STORAGE_WRITE"
            assert flushed == [names[other]]  # its own flush proved nothing
            assert confirmed == []
            assert not doubtful.done()
            assert serving.order == []

    uvloop.run(story())


@pytest.mark.parametrize(("failing", "other"), [(BACK, FRONT), (FRONT, BACK)])
def test_a_lane_waits_for_one_that_has_not_said_yet_that_its_flush_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: int, other: int
) -> None:
    """The failing lane's thread does not run between the failure and what counts it, as on a busy
    machine; the other lane's flush succeeds meanwhile."""
    written, failed = threading.Event(), threading.Event()
    asked, confirmed = threading.Event(), threading.Event()
    names = {FRONT: "volume-front", BACK: "volume-back"}

    def write_durable(self: DirectFile, data: memoryview, offset: int) -> None:
        if threading.current_thread().name == names[failing]:
            assert written.wait(HUNG_S)
            failed.set()
            assert asked.wait(HUNG_S)
            confirmed.wait(PAUSE_S)
            raise OSError(errno.EIO, "Input/output error")
        self.write(data, offset)
        written.set()
        assert failed.wait(HUNG_S)
        os.fdatasync(self.fileno())

    monkeypatch.setattr(DirectFile, "write_durable", write_durable)

    async def story() -> None:
        async with asyncio.timeout(HUNG_S), Serving(folder) as serving:
            lane = dict(zip((FRONT, BACK), serving.volume._lanes or (), strict=True))[other]
            confirm, done = lane._confirm, lane._done

            def ask(*what: Any) -> None:
                asked.set()
                confirm(*what)

            def tell(*what: Any) -> None:
                confirmed.set()
                done(*what)

            lane._confirm, lane._done = ask, tell  # type: ignore[method-assign]
            serving.write(other, numbered_sector(1))
            serving.write(failing, numbered_sector(2))
            assert (await serving.failure)[0] == "STORAGE_WRITE"
            assert not confirmed.is_set() and serving.order == []

    uvloop.run(story())


@pytest.mark.parametrize(("failing", "other"), [(BACK, FRONT), (FRONT, BACK)])
def test_what_a_lane_has_confirmed_is_not_delivered_once_the_other_has_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: int, other: int
) -> None:
    """The loop is busy meanwhile: the confirmation waits in front of it, and the failure is known
    before it is heard."""
    confirmed, failed = threading.Event(), threading.Event()
    names = {FRONT: "volume-front", BACK: "volume-back"}
    write_durable = DirectFile.write_durable

    def write_or_fail(self: DirectFile, data: memoryview, offset: int) -> None:
        if threading.current_thread().name == names[failing]:
            raise OSError(errno.EIO, "Input/output error")
        write_durable(self, data, offset)

    monkeypatch.setattr(DirectFile, "write_durable", write_or_fail)

    async def story() -> None:
        async with asyncio.timeout(HUNG_S), Serving(folder) as serving:
            lanes = dict(zip((FRONT, BACK), serving.volume._lanes or (), strict=True))
            done, fail = lanes[other]._done, lanes[failing]._failed

            def tell(*what: Any) -> None:
                done(*what)
                confirmed.set()

            def told(*why: str) -> None:
                fail(*why)
                failed.set()

            lanes[other]._done, lanes[failing]._failed = tell, told
            serving.write(other, numbered_sector(1))
            assert confirmed.wait(HUNG_S)  # the loop stands still until both are on their way
            serving.write(failing, numbered_sector(2))
            assert failed.wait(HUNG_S)
            assert (await serving.failure)[0] == "STORAGE_WRITE"
            assert serving.order == []

    uvloop.run(story())


def test_a_failed_flush_of_an_extent_made_ahead_leaves_nothing_confirmed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third thread writes to the device: what its flush takes is the lanes' too."""
    flush = os.fsync

    def refuse(fd: int) -> None:
        if threading.current_thread().name == "extent-ahead":
            raise OSError(errno.EIO, "Input/output error")
        flush(fd)

    monkeypatch.setattr(os, "fsync", refuse)

    async def story() -> None:
        async with asyncio.timeout(HUNG_S), Serving(folder) as serving:
            last = SMALL.data_size + (EXTENTS_AT_FORMAT - 1) * SMALL.extent_size
            serving.write(last, numbered_sector(1))  # and the next extent is begun
            code, reason = await serving.failure
            assert code == "STORAGE_WRITE" and "cannot be written: Input/output error" in reason
            before = [*serving.order]
            serving.write(FRONT, numbered_sector(2))
            assert serving.volume._lanes is not None
            serving.volume._lanes[0]._thread.join(HUNG_S)  # it ends by itself
            await asyncio.sleep(0)
            assert serving.order == before

    uvloop.run(story())


def test_a_thread_that_sleeps_in_a_flush_is_told_from_one_that_has_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a read in the place of the flush, as that can be made to sleep."""
    end, other = os.pipe()
    thread = threading.Thread(target=os.read, args=(end, 1))
    thread.start()
    assert thread.native_id is not None
    try:
        with monkeypatch.context() as patch:
            patch.setattr(flushes, "_FLUSHING", {READ[platform.machine()]})
            while not flushes.awaits_device(thread.native_id):
                time.sleep(0.001)
        assert not flushes.awaits_device(thread.native_id)
    finally:
        os.write(other, b"x")
        thread.join()
        os.close(end)
        os.close(other)
    assert not flushes.awaits_device(thread.native_id)


def test_sectors_of_a_lane_are_confirmed_while_nothing_has_failed(folder: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(20), Serving(folder) as serving:
            for address in (FRONT, BACK, FRONT + SECTOR_SIZE):
                await serving.write(address, numbered_sector(1))

    uvloop.run(story())
