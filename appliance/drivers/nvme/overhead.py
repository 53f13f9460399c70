"""What the volume adds to a durable write: the same 4 KiB writes through it, and by a bare loop of
the same system calls, in turns.

Both are timed where they are asked for. Through the volume that is the loop of a replica: its queue
to the thread that writes, the write, and the wake-up by which the loop hears that it is durable.
"""

import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.base.errors import StorageError
from appliance.base.limits import SECTOR_SIZE
from appliance.drivers.nvme.device import check_free, claim, open_alone, zero_out
from appliance.drivers.nvme.direct import DirectFile, aligned_buffer
from appliance.drivers.nvme.latency import percentile
from appliance.drivers.nvme.volume import GEOMETRIES, Volume, create

ROUNDS = 10  # of each kind, by turns: whatever the disk does meanwhile meets both alike
WRITES = 400  # in a round, one after the other
_GEOMETRY, _SEGMENTS_MAX = "small", 4
_PER_CENT = (50, 99)


@dataclass(frozen=True, slots=True)
class Figures:
    """Percentiles in µs of a round, or medians of those of several."""

    volume_p50_us: float
    volume_p99_us: float
    bare_p50_us: float
    bare_p99_us: float

    @property
    def ratio(self) -> float:
        """Of the p99s: what the bar is about."""
        return self.volume_p99_us / self.bare_p99_us

    @property
    def ratio_p50(self) -> float:
        return self.volume_p50_us / self.bare_p50_us

    def plain(self) -> dict[str, float]:
        return {
            "volume_p50_us": self.volume_p50_us,
            "volume_p99_us": self.volume_p99_us,
            "bare_p50_us": self.bare_p50_us,
            "bare_p99_us": self.bare_p99_us,
            "ratio_p50": round(self.ratio_p50, 3),
            "ratio": round(self.ratio, 3),
        }


@dataclass(frozen=True, slots=True)
class Overhead:
    """By which method writes were made durable, and each round."""

    method: str
    rounds: tuple[Figures, ...]

    @property
    def all(self) -> Figures:
        """Medians over the rounds."""
        names = ("volume_p50_us", "volume_p99_us", "bare_p50_us", "bare_p99_us")
        return Figures(
            *(statistics.median(getattr(round_, name) for round_ in self.rounds) for name in names)
        )

    def plain(self) -> dict[str, Any]:
        return {
            "method": self.method,
            **self.all.plain(),
            "rounds": [round_.plain() for round_ in self.rounds],
        }


@contextlib.contextmanager
def scratch_volume(folder: Path, device: Path | None = None, erase: int = 0) -> Iterator[Path]:
    """A small volume in a folder of its own below `folder`, removed afterwards; on `device`, which
    is left blank. StorageError as of `check_free`."""
    geometry = GEOMETRIES[_GEOMETRY]
    size = geometry.data_size + _SEGMENTS_MAX * geometry.extent_size
    if device is not None:
        check_free(device, size, erase)
    made = Path(tempfile.mkdtemp(prefix="volume-", dir=folder))
    try:
        if device is not None:
            claim(made / "shard-0", device)
        create(made / "shard-0", geometry=_GEOMETRY, segments_max=_SEGMENTS_MAX, writes=[])
        yield made / "shard-0"
    finally:
        shutil.rmtree(made)
        if device is not None:
            _blank(device, size)


def _blank(device: Path, size: int) -> None:
    fd = open_alone(device)
    try:
        zero_out(fd, device, 0, size)
        os.fsync(fd)
    finally:
        os.close(fd)


async def measure_overhead(
    folder: Path,
    *,
    rounds: int = ROUNDS,
    writes: int = WRITES,
    tell: Callable[[Figures], None] = lambda figures: None,
) -> Overhead:
    """Load the volume in `folder`, which nobody has open; what lies in its journal is lost. `tell`
    hears of each round. Which of the two begins a round, alternates."""
    volume = Volume(folder)
    bare = DirectFile(folder / "data", volume.facts["flush"]["method"])
    load = _Load(volume)
    found: list[Figures] = []
    try:
        for number in range(rounds):
            if number % 2:
                beside = _by_bare_calls(bare, volume, writes)
                through = await load.round(writes)
            else:
                through = await load.round(writes)
                beside = _by_bare_calls(bare, volume, writes)
            taken = (percentile(kind, p) for kind in (through, beside) for p in _PER_CENT)
            found.append(Figures(*taken))
            tell(found[-1])
    finally:
        volume.close()
        bare.close()
    return Overhead(bare.method, tuple(found))


class _Load:
    """One write after the other to an open volume, each asked for in the loop when the loop hears
    of the one before, as a replica does it."""

    def __init__(self, volume: Volume) -> None:
        self._volume, self._sector = volume, bytes(SECTOR_SIZE)
        self._addresses: Iterator[int] = iter(())
        self._begun_ns, self._taken = 0, list[int]()
        self._ended: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        volume.start(
            asyncio.get_running_loop(),
            on_writes_done=self._on_done,
            on_reads_done=lambda reads: None,
            on_failed=self._on_failed,
        )

    async def round(self, writes: int) -> list[int]:
        """What each of so many took, in µs, from the shortest on."""
        self._addresses, self._taken = _addresses(self._volume, writes), []
        self._ended = asyncio.get_running_loop().create_future()
        self._next()
        return sorted(await self._ended)

    def _next(self) -> None:
        address = next(self._addresses, None)
        if address is None:
            self._ended.set_result(self._taken)
            return
        self._begun_ns = time.perf_counter_ns()
        self._volume.write(len(self._taken), address, (self._sector,))

    def _on_done(self, tokens: list[int]) -> None:
        self._taken.append((time.perf_counter_ns() - self._begun_ns) // 1000)
        self._next()

    def _on_failed(self, code: str, reason: str) -> None:
        self._ended.set_exception(StorageError(f"{code}: {reason}: check the disk"))


def _addresses(volume: Volume, writes: int) -> Iterator[int]:
    """Where prepares begin, slot after slot: no two neighbours, as in the journal."""
    geometry = volume.geometry
    for number in range(writes):
        slot = number % geometry.slot_count
        yield geometry.wal_prepares_offset + slot * geometry.message_size_max


def _by_bare_calls(bare: DirectFile, volume: Volume, writes: int) -> list[int]:
    taken = []
    sector = aligned_buffer(SECTOR_SIZE)
    for address in _addresses(volume, writes):
        start = time.perf_counter_ns()
        bare.write_durable(sector, address)
        taken.append((time.perf_counter_ns() - start) // 1000)
    return sorted(taken)
