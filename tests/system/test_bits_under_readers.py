"""Two thousand bits flip in every zone of nodes that run and serve readers all the while: no answer
has a wrong byte, and everything is mended. How long the slowest took is printed: a client asks
again after `unavailable`. That a mend itself waits for no tick and writes no more than is broken is
held by `tests/cores/vsr/test_scrub.py`."""

import asyncio
import hashlib
import random
import time
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from appliance.drivers.chat.client import Client
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE
from tests.drivers.nvme.rot import flip
from tests.ports import FreePorts
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
FLIPS_OPEN = 40  # in the segment that is not full yet
OPS_BEFORE = 2300  # two checkpoints and more
RECORDS_BEFORE = 31_000  # sealed segments, one of which no checkpoint names yet
OPS_BETWEEN = 2 * PRODUCTION.checkpoint_ops + 100  # both checkpoint zones are written anew
PAGE = 1000
PAUSES_PER_ANSWER = 2  # as long as it took: readers who never pause take the time from what mends
MEND_S = 60.0
assert NODES * sum(FLIPS.values()) >= 2000


@pytest.mark.soak
def test_two_thousand_bits_flip_under_readers_who_never_get_a_wrong_byte(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
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
            places += flip_open(site, victim, chance)
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
    assert sum(flipped.values()) >= 2000 and set(flipped) == {*FLIPS, "open segment"}
    print(f"flipped {dict(flipped)}; {readers.answers} answers, slowest {readers.slowest_s:.2f} s")


def flip_open(site: LocalSite, victim: int, chance: random.Random) -> list[tuple[str, Path, int]]:
    """Flip bits of records that the segment which is not full yet holds here and on a peer."""
    own, peer = (VolumeReader(site.place(n % NODES) / "shard-0") for n in (victim, victim + 1))
    extent = next(n for n in own.extents() if not any(footer_start(own, n)))
    pairs = zip(records(own, extent), records(peer, extent), strict=True)
    both = [at for at, (here, there) in enumerate(pairs) if here == there and any(here)]
    assert both, "the open segment holds nothing durable"
    file = own.folder / "segments" / f"{extent:06d}"
    taken: set[int] = set()
    while len(taken) < FLIPS_OPEN:
        taken.add(chance.choice(both) * RECORD_SIZE + chance.randrange(RECORD_SIZE))
    for offset in sorted(taken):
        flip(file, offset, chance.randrange(8))
    return [("open segment", file, offset) for offset in sorted(taken)]


def footer_start(volume: VolumeReader, extent: int) -> bytes:
    size = volume.geometry.segment_data_size
    return (volume.read_extent(extent) or b"")[size : size + 8]


def records(volume: VolumeReader, extent: int) -> list[bytes]:
    raw = volume.read_extent(extent) or b""
    ends = volume.geometry.segment_records * RECORD_SIZE
    return [raw[at : at + RECORD_SIZE] for at in range(0, ends, RECORD_SIZE)]


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
            took_s = time.monotonic() - asked
            self.slowest_s = max(self.slowest_s, took_s)
            self.answers += 1
            await asyncio.sleep(PAUSES_PER_ANSWER * took_s)
            for message in page.messages:
                if "." in message.body and given < len(wanted):
                    assert digest(message.body) == wanted[given], f"op {message.op} of {room}"
                    given += 1
            assert page.has_more or given == len(wanted), f"{given} of {len(wanted)} in {room}"
            start = page.messages[-1].op + 1


def digest(body: str) -> bytes:
    return hashlib.sha256(body.encode()).digest()


def wait_mended(site: LocalSite, victim: int, flipped: list[tuple[str, Path, int]]) -> None:
    """Until what `victim` may still need is what a peer has: segments, and slots above the
    checkpoint. All else is written again as the log goes on, and compared in the end."""
    peer = site.place((victim + 1) % NODES) / "shard-0"
    volume, status = VolumeReader(peer), site.answer(victim)
    wrong = [
        (file, offset)
        for zone, file, offset in flipped
        if zone in {"segment", "open segment"} or op_at(volume, zone, offset) > status["checkpoint"]
    ]

    def broken() -> int:
        wrong[:] = [
            (file, offset)
            for file, offset in wrong
            if byte_at(file, offset) != byte_at(peer / place_of(file), offset)
        ]
        return len(wrong)

    wait_until(lambda: not broken(), MEND_S, lambda: f"broken: {wrong[:5]}", lambda: len(wrong))
    marks = site.answer(victim)["marks"]
    print(
        f"node {victim}: { ({k: v for k, v in marks.items() if 'scrub' in k or 'segment' in k}) }"
    )
    assert marks["segment_backfilled"] > 0 and marks["scrub_found_open_segment"] > 0
