"""Writes that are under way together: all land, and one that fails is told when all have ended."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.limits import SECTOR_SIZE
from appliance.drivers.nvme.direct import aligned_buffer
from appliance.drivers.nvme.parallel import PARALLEL_MAX, ParallelWrites, Run, open_parallel
from tests.drivers.nvme.serving import numbered_sector

COUNT = 3 * PARALLEL_MAX + 5


class Bench:
    """A file of zeros, a buffer of numbered sectors, and the writes between them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "file"
        self.path.write_bytes(bytes(2 * COUNT * SECTOR_SIZE))
        self.fd = os.open(self.path, os.O_RDWR | os.O_DIRECT)
        self.buffer = aligned_buffer(COUNT * SECTOR_SIZE)
        for number in range(COUNT):
            start = number * SECTOR_SIZE
            self.buffer[start : start + SECTOR_SIZE] = numbered_sector(number + 1)
        writes = open_parallel(self.buffer)
        assert writes is not None
        self.writes: ParallelWrites = writes

    def run(self, number: int) -> Run:
        """Sector `number` to every other place, from the end."""
        start = number * SECTOR_SIZE
        return self.fd, start, SECTOR_SIZE, 2 * (COUNT - 1 - number) * SECTOR_SIZE

    def landed(self) -> list[int]:
        """Numbers of the sectors that lie in the file where they belong."""
        data = self.path.read_bytes()
        return [
            number
            for number in range(COUNT)
            if data[self.run(number)[3] :][:SECTOR_SIZE] == numbered_sector(number + 1)
        ]


@pytest.fixture
def bench(disk_folder: Path) -> Iterator[Bench]:
    made = Bench(disk_folder)
    yield made
    made.writes.close()
    os.close(made.fd)


def test_all_writes_land_where_they_belong(bench: Bench) -> None:
    bench.writes.write([bench.run(number) for number in range(COUNT)])
    os.fdatasync(bench.fd)
    assert bench.landed() == list(range(COUNT))
    data = bench.path.read_bytes()
    assert data.count(bytes(SECTOR_SIZE)) == COUNT  # the places between were not touched


@pytest.mark.parametrize("bad", [0, 7, PARALLEL_MAX])
def test_a_write_that_fails_is_told_after_the_others_ended(bench: Bench, bad: int) -> None:
    reader = os.open(bench.path, os.O_RDONLY | os.O_DIRECT)
    runs = [bench.run(number) for number in range(PARALLEL_MAX + 1)]
    runs[bad] = (reader, *runs[bad][1:])
    with pytest.raises(OSError) as caught:
        bench.writes.write(runs)
    os.close(reader)
    assert caught.value.errno == errno.EBADF
    before = range(bad) if bad < PARALLEL_MAX else range(PARALLEL_MAX)
    assert set(before) <= set(bench.landed())
    bench.writes.write([bench.run(COUNT - 1)])  # nothing is left from before
    assert COUNT - 1 in bench.landed()


def test_a_write_that_is_not_aligned_is_refused(bench: Bench) -> None:
    with pytest.raises(OSError) as caught:
        bench.writes.write([(bench.fd, 8, SECTOR_SIZE, 0)])
    assert caught.value.errno == errno.EINVAL


def test_a_short_write_among_many_is_not_taken_for_whole(bench: Bench) -> None:
    """The kernel cuts a write at the limit on a file's size, and tells that it did a part."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 5 * SECTOR_SIZE
    runs = [
        (bench.fd, 0, SECTOR_SIZE, 0),
        (bench.fd, SECTOR_SIZE, 4 * SECTOR_SIZE, limit - SECTOR_SIZE),
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match="Input/output error") as told:
            bench.writes.write(runs)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert told.value.errno == errno.EIO
    assert bench.path.read_bytes()[limit - SECTOR_SIZE :][:SECTOR_SIZE] == numbered_sector(2)
