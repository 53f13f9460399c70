"""What the volume adds to a durable write: the same 4 KiB writes through it, and by a bare loop of
the same system calls, in turns."""

import asyncio
import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.base.limits import SECTOR_SIZE
from appliance.drivers.nvme.direct import DirectFile, aligned_buffer
from appliance.drivers.nvme.latency import percentile
from appliance.drivers.nvme.volume import Volume, create

ROUNDS = 10  # of each kind, by turns: whatever the disk does meanwhile meets both alike
WRITES = 400  # in a round, one after the other
_SEGMENTS_MAX = 4


@dataclass(frozen=True, slots=True)
class Overhead:
    """Medians over the rounds, in µs. `ratio` is what the bar is about."""

    method: str
    volume_p50_us: float
    volume_p99_us: float
    bare_p50_us: float
    bare_p99_us: float

    @property
    def ratio(self) -> float:
        return self.volume_p99_us / self.bare_p99_us


@contextlib.contextmanager
def scratch_volume(folder: Path) -> Iterator[Path]:
    """A small volume in a folder of its own below `folder`, removed afterwards."""
    made = Path(tempfile.mkdtemp(prefix="volume-", dir=folder))
    try:
        create(made / "shard-0", geometry="small", segments_max=_SEGMENTS_MAX, writes=[])
        yield made / "shard-0"
    finally:
        shutil.rmtree(made)


async def measure_overhead(folder: Path, *, rounds: int = ROUNDS, writes: int = WRITES) -> Overhead:
    """Load the volume in `folder`, which nobody has open. What lies in its journal is lost."""
    volume = Volume(folder)
    bare = DirectFile(folder / "data", volume.facts["flush"]["method"])
    waiting: list[asyncio.Future[None]] = []
    volume.start(
        asyncio.get_running_loop(),
        on_writes_done=lambda tokens: waiting.pop().set_result(None),
        on_reads_done=lambda reads: None,
        on_failed=lambda code, reason: waiting.pop().set_exception(OSError(f"{code}: {reason}")),
    )
    try:
        through, beside = [], []
        for _ in range(rounds):
            through.append(await _through_volume(volume, waiting, writes))
            beside.append(_by_bare_calls(bare, volume, writes))
    finally:
        volume.close()
        bare.close()
    medians = [
        statistics.median(percentile(taken, per_cent) for taken in kind)
        for kind in (through, beside)
        for per_cent in (50, 99)
    ]
    return Overhead(bare.method, *medians)


def _addresses(volume: Volume, writes: int) -> Iterator[int]:
    """Where prepares begin, slot after slot: no two neighbours, as in the journal."""
    geometry = volume.geometry
    for number in range(writes):
        slot = number % geometry.slot_count
        yield geometry.wal_prepares_offset + slot * geometry.message_size_max


async def _through_volume(
    volume: Volume, waiting: list[asyncio.Future[None]], writes: int
) -> list[int]:
    loop, taken = asyncio.get_running_loop(), []
    sector = bytes(SECTOR_SIZE)
    for token, address in enumerate(_addresses(volume, writes)):
        start = time.perf_counter_ns()
        future = loop.create_future()
        waiting.append(future)
        volume.write(token, address, (sector,))
        await future
        taken.append((time.perf_counter_ns() - start) // 1000)
    return sorted(taken)


def _by_bare_calls(bare: DirectFile, volume: Volume, writes: int) -> list[int]:
    taken = []
    sector = aligned_buffer(SECTOR_SIZE)
    for address in _addresses(volume, writes):
        start = time.perf_counter_ns()
        bare.write_durable(sector, address)
        taken.append((time.perf_counter_ns() - start) // 1000)
    return sorted(taken)
