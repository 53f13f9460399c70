"""Two thousand bits flip in every zone of nodes that run and serve readers all the while: no answer
has a wrong byte, none takes long, and everything is mended."""

import asyncio
import hashlib
import random
import time
from collections import Counter
from pathlib import Path
from uuid import UUID

from appliance.drivers.chat.client import Client
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.geometry import PRODUCTION
from tests.system.local_site import NODES, LocalSite, ports_in_a_row, wait_until
from tests.system.test_bit_flips import (
    byte_at,
    compared,
    fill,
    flip_all,
    op_at,
    place_of,
    superblocks,
    whole,
)

FLIPS = {
    "superblock": 20, "witness": 80, "prepare": 150, "reply": 20, "table": 80, "segment": 350,
}  # fmt: skip
OPS_BEFORE = 2300  # two checkpoints and more
RECORDS_BEFORE = 31_000  # sealed segments, one of which no checkpoint names yet
OPS_BETWEEN = 2 * PRODUCTION.checkpoint_ops + 100  # both checkpoint zones are written anew
PAGE = 1000
MEND_S = 60.0
assert NODES * sum(FLIPS.values()) >= 2000


def test_two_thousand_bits_flip_under_readers_who_never_get_a_wrong_byte(
    tmp_path, free_ports, seed
):
    chance = random.Random(seed)
    site = LocalSite(tmp_path / "site", ports_in_a_row(free_ports), scrub_interval_ms=10)
    with site:
        said = asyncio.run(fill(site, OPS_BEFORE, RECORDS_BEFORE))
        asyncio.run(hurt_all(site, said, chance))
        asyncio.run(fill(site, OPS_BETWEEN, 0, prefix="after"))
        wait_until(site.caught_up, 30, "all replicas stand at the same op")
        volumes = [VolumeReader(site.place(node) / "shard-0") for node in range(NODES)]
        wait_until(
            lambda: all(whole(superblocks(volume)) for volume in volumes),
            10,
            "four equal superblock copies on each node",
        )
    for victim in range(NODES):
        for zone, (reference, mended) in compared(volumes, victim).items():
            assert reference == mended, f"node {victim}, {zone}: {len(reference ^ mended)} differ"


async def hurt_all(site: LocalSite, said: dict[UUID, list[str]], chance: random.Random) -> None:
    """One node's disk after the other, while all nodes are read from."""
    readers = Readers(site, said)
    tasks = [asyncio.create_task(readers.read(node)) for node in range(NODES)]
    flipped: Counter[str] = Counter()
    try:
        for victim in range(NODES):
            places = flip_all(site.place(victim) / "shard-0", chance, FLIPS)
            flipped.update(zone for zone, _, _ in places)
            answered = readers.answers
            await asyncio.to_thread(wait_mended, site, victim, places)
            assert readers.answers > answered, f"nobody read while node {victim} was hurt"
            assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
    assert sum(flipped.values()) >= 2000 and set(flipped) == set(FLIPS)
    print(f"flipped {dict(flipped)}; {readers.answers} answers, slowest {readers.slowest_s:.2f} s")


class Readers:
    """Whole histories, again and again, through each node's own edge."""

    def __init__(self, site: LocalSite, said: dict[UUID, list[str]]) -> None:
        self.site, self.answers, self.slowest_s = site, 0, 0.0
        self.wanted = {room: [digest(body) for body in bodies] for room, bodies in said.items()}

    async def read(self, node: int) -> None:
        access = self.site.access()
        async with Client([access.endpoints[node]], access.token, patience_s=60) as client:
            while True:
                for room, wanted in self.wanted.items():
                    await self._room(client, room, wanted)

    async def _room(self, client: Client, room: UUID, wanted: list[bytes]) -> None:
        start, given = 1, 0
        while given < len(wanted):
            asked = time.monotonic()
            page = await client.snapshot(room, from_op=start, limit=PAGE)
            self.slowest_s = max(self.slowest_s, time.monotonic() - asked)
            self.answers += 1
            for message in page.messages:
                if "." in message.body and given < len(wanted):
                    assert digest(message.body) == wanted[given], f"op {message.op} of {room}"
                    given += 1
            assert page.has_more or given == len(wanted), f"{given} of {len(wanted)} in {room}"
            start = page.messages[-1].op + 1


def digest(body: str) -> bytes:
    return hashlib.sha256(body.encode()).digest()


def wait_mended(site: LocalSite, victim: int, flipped: list[tuple[str, Path, int]]) -> None:
    """Until what `victim` may still need is what a peer has: sealed segments, and slots above the
    checkpoint. All else is written again as the log goes on, and compared in the end."""
    peer = site.place((victim + 1) % NODES) / "shard-0"
    volume, status = VolumeReader(peer), site.status(victim)
    assert status is not None
    wrong = [
        (file, offset)
        for zone, file, offset in flipped
        if zone == "segment" or op_at(volume, zone, offset) > status["checkpoint"]
    ]

    def broken() -> int:
        wrong[:] = [
            (file, offset)
            for file, offset in wrong
            if byte_at(file, offset) != byte_at(peer / place_of(file), offset)
        ]
        return len(wrong)

    wait_until(lambda: not broken(), MEND_S, lambda: f"broken: {wrong[:5]}", lambda: len(wrong))
    status = site.status(victim)
    assert status is not None
    marks = status["marks"]
    print(
        f"node {victim}: { ({k: v for k, v in marks.items() if 'scrub' in k or 'segment' in k}) }"
    )
    assert marks["segment_backfilled"] > 0
