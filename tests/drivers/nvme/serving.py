"""A volume whose writes and reads can be awaited; run as a program it is a process to be killed.

serving.py write FOLDER [N]      writes sectors numbered from N + 1 on for ever, prints each one
                                 confirmed
serving.py limit FOLDER BYTES    may write files up to BYTES only, then writes what stdin names
"""

import asyncio
import itertools
import resource
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import uvloop

from appliance.base.limits import SECTOR_SIZE
from appliance.drivers.nvme.volume import Volume

SECTORS_IN_FLIGHT = 8


class Serving:
    """An open volume that serves: `await` each write and read. `failure` is (code, reason)."""

    def __init__(self, folder: Path, flush_slow_ms: int = 0) -> None:
        self.volume = Volume(folder, flush_slow_ms=flush_slow_ms)
        self.failure: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self.order: list[int] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._token = 0

    async def __aenter__(self) -> "Serving":
        self.volume.start(
            asyncio.get_running_loop(),
            on_writes_done=self._writes_done,
            on_reads_done=self._reads_done,
            on_failed=lambda code, reason: self.failure.set_result((code, reason)),
        )
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.volume.close()

    def _writes_done(self, tokens: list[int]) -> None:
        self.order += tokens
        for token in tokens:
            self._waiting.pop(token).set_result(None)

    def _reads_done(self, reads: list[tuple[int, bytes | None]]) -> None:
        for token, data in reads:
            self.order.append(token)
            self._waiting.pop(token).set_result(data)

    def _next(self) -> tuple[int, asyncio.Future[Any]]:
        self._token += 1
        future = self._waiting[self._token] = asyncio.get_running_loop().create_future()
        return self._token, future

    def write(self, address: int, *buffers: bytes) -> asyncio.Future[None]:
        token, future = self._next()
        self.volume.write(token, address, buffers)
        return future

    def read(self, address: int, length: int) -> asyncio.Future[bytes | None]:
        token, future = self._next()
        self.volume.read(token, address, length)
        return future


def numbered_sector(number: int) -> bytes:
    """A sector that shows in every word which write it is of."""
    return number.to_bytes(8, "little") * (SECTOR_SIZE // 8)


async def _write_for_ever(folder: Path, number: int) -> None:
    async with Serving(folder) as serving:
        geometry = serving.volume.geometry

        async def writer(lane: int) -> None:
            nonlocal number
            while True:
                number += 1
                mine = number
                slot = mine % geometry.slot_count
                address = geometry.wal_prepares_offset + slot * geometry.message_size_max
                await serving.write(address + lane * SECTOR_SIZE, numbered_sector(mine))
                confirm(address + lane * SECTOR_SIZE, mine)

        async def filler() -> None:
            """A few sectors in each extent, one after the other."""
            nonlocal number
            for sector in itertools.count(number):
                extent, place = divmod(sector // 8, serving.volume.segments_max)[1], sector % 8
                number += 1
                mine = number
                address = geometry.data_size + extent * geometry.extent_size + place * SECTOR_SIZE
                await serving.write(address, numbered_sector(mine))
                confirm(address, mine)

        def confirm(address: int, mine: int) -> None:
            sys.stdout.write(f"{address} {mine}\n")
            sys.stdout.flush()

        await asyncio.gather(*(writer(lane) for lane in range(3)), filler())


async def _write_limited(folder: Path, limit: int) -> None:
    async with Serving(folder) as serving:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for line in sys.stdin.read().split():
            address, _, size = line.partition("+")
            future = serving.write(int(address), bytes(int(size)))
            await asyncio.wait([future, serving.failure], return_when=asyncio.FIRST_COMPLETED)
            if serving.failure.done():
                print(*serving.failure.result())
                return
            print("durable")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        uvloop.run(_write_for_ever(Path(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 0))
    else:
        uvloop.run(_write_limited(Path(sys.argv[2]), int(sys.argv[3])))
