"""Durable writes of a volume on this disk: alone, as the journal makes them, and beside a
checkpoint.

python tests/bench/bench_volume.py [folder]
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from appliance.base.limits import MIB, SECTOR_SIZE
from appliance.drivers.nvme.latency import percentile
from appliance.drivers.nvme.volume import Volume, create


class Writer:
    """Writes to an open volume and waits for all of them."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self._left = 0
        self._token = 0
        self._done: asyncio.Future[None] | None = None
        volume.start(
            asyncio.get_running_loop(),
            on_writes_done=self._writes_done,
            on_reads_done=lambda reads: None,
            on_failed=lambda code, reason: sys.exit(f"{code}: {reason}"),
        )

    def _writes_done(self, tokens: list[int]) -> None:
        self._left -= len(tokens)
        if self._left == 0 and self._done is not None:
            self._done.set_result(None)

    def put(self, address: int, data: bytes) -> None:
        self._token += 1
        self._left += 1
        self.volume.write(self._token, address, (data,))

    async def settled(self) -> None:
        if self._left:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
            self._done = None


async def measure(folder: Path, rounds: int) -> dict[str, float]:
    """Figures of `rounds` durable groups of each kind."""
    volume = Volume(folder)
    geometry, writer = volume.geometry, Writer(volume)
    sector, batch = os.urandom(SECTOR_SIZE), os.urandom(36 * SECTOR_SIZE)
    figures: dict[str, float] = {}

    async def latency(name: str, sizes: list[bytes]) -> None:
        taken = []
        for number in range(rounds):
            start = time.perf_counter()
            for place, data in enumerate(sizes):
                slot = (number * len(sizes) + place) % geometry.slot_count
                writer.put(geometry.wal_prepares_offset + slot * geometry.message_size_max, data)
            await writer.settled()
            taken.append(int((time.perf_counter() - start) * 1e6))
        taken.sort()
        figures[f"{name}_p50_us"] = percentile(taken, 50)
        figures[f"{name}_p99_us"] = percentile(taken, 99)
        figures[f"{name}_per_s"] = round(rounds * len(sizes) / (sum(taken) / 1e6))

    await latency("sector", [sector])
    await latency("prepare_64_records", [batch])
    await latency("pipeline_of_8_prepares", [batch] * 8)
    for place in range(32):
        writer.put(geometry.checkpoints_offset + place * MIB, bytes(MIB))
    await latency("sector_beside_checkpoint", [sector])
    await writer.settled()
    volume.close()
    return figures


def run(folder: Path, rounds: int) -> dict[str, float]:
    """Format a volume in `folder`, measure, remove it."""
    place = Path(tempfile.mkdtemp(prefix="bench-", dir=folder))
    try:
        facts = create(place / "volume", geometry="production", segments_max=8, writes=[])
        figures = uvloop.run(measure(place / "volume", rounds))
    finally:
        shutil.rmtree(place)
    return {"format_p50_us": facts["flush"]["p50_us"], **figures}


if __name__ == "__main__":
    where = (
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "build"
    )
    where.mkdir(exist_ok=True)
    print(json.dumps(run(where, 500), indent=1))
