"""Which way to make a write durable is fastest on this device: measured at format, as pg_test_fsync
does."""

import time
from dataclasses import dataclass
from pathlib import Path

from appliance.base.limits import SECTOR_SIZE
from appliance.drivers.nvme.direct import FLUSH_METHODS, DirectFile
from appliance.drivers.nvme.latency import percentile

SAMPLES_SINGLE = 100  # durable writes of one sector, for each method
SAMPLES_GROUP = 25  # groups of GROUP_WRITES scattered sectors
GROUP_WRITES = 4
BRIEF_SHARE = 25  # one in so many samples of a brief measurement
_STRIDE = 37  # sectors between two writes: no two of a group are neighbours


@dataclass(frozen=True, slots=True)
class Flush:
    """The choice: `method` for each durable write; `group_once` = several writes share one
    fdatasync."""

    method: str
    group_once: bool
    p50_us: int
    p99_us: int


def measure(
    path: Path, offset: int, size: int, buffer: memoryview, brief: bool = False
) -> tuple[Flush, dict[str, dict[str, int]]]:
    """Write zeros into `size` bytes of zeros at `offset` in every way; the best way, and all the
    figures; `brief`: by few samples."""
    sectors = size // SECTOR_SIZE
    assert sectors > GROUP_WRITES * _STRIDE
    figures: dict[str, dict[str, int]] = {}
    for method in FLUSH_METHODS:
        file = DirectFile(path, method)
        try:
            figures[method] = _measure_method(file, buffer[:SECTOR_SIZE], offset, sectors, brief)
        finally:
            file.close()
    best = min(FLUSH_METHODS, key=lambda method: figures[method]["mean_us"])
    chosen = figures[best]
    group_once = chosen["group_once_us"] < chosen["group_each_us"]
    return Flush(best, group_once, chosen["p50_us"], chosen["p99_us"]), figures


def _measure_method(
    file: DirectFile, sector: memoryview, offset: int, sectors: int, brief: bool
) -> dict[str, int]:
    next_sector = 0

    def next_offset() -> int:
        nonlocal next_sector
        next_sector = (next_sector + _STRIDE) % sectors
        return offset + next_sector * SECTOR_SIZE

    singles, each, once = [], [], []
    share = BRIEF_SHARE if brief else 1
    for _ in range(max(1, SAMPLES_SINGLE // share)):
        start = time.monotonic_ns()
        file.write_durable(sector, next_offset())
        singles.append((time.monotonic_ns() - start) // 1000)
    for _ in range(max(1, SAMPLES_GROUP // share)):
        start = time.monotonic_ns()
        for _ in range(GROUP_WRITES):
            file.write_durable(sector, next_offset())
        middle = time.monotonic_ns()
        for _ in range(GROUP_WRITES):
            file.write(sector, next_offset())
        file.flush()
        each.append((middle - start) // 1000)
        once.append((time.monotonic_ns() - middle) // 1000)
    singles.sort()
    return {
        "p50_us": percentile(singles, 50),
        "p99_us": percentile(singles, 99),
        "mean_us": sum(singles) // len(singles),
        "group_each_us": percentile(sorted(each), 50),
        "group_once_us": percentile(sorted(once), 50),
    }
