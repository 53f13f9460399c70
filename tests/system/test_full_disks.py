"""Disks that fill up, real ones of a few MiB: one replica's never becomes everybody's, and when all
are about to be full, a reserve is left with which the group leads, reads, drops and goes on."""

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from appliance.base.limits import EXTENTS_RESERVED_MIN
from appliance.drivers.chat.client import Client
from appliance.formats.geometry import SMALL
from tests.ports import FreePorts
from tests.system.local_site import (
    NODES,
    SLOWER_MAX,
    LocalSite,
    ports_in_a_row,
    run,
    wait_until,
)

DISK_SIZE = 16 << 20
SEGMENTS = 16  # that a disk has room for, beside what format made
SEGMENTS_MAX = 40  # that it could hold, were there nothing else
ROOM = "flood"
BATCH = 20
KEPT_S = 5
BACK_S = 30.0


class SmallDisks(LocalSite):
    """Each volume lies on a file system of its own."""

    def __init__(self, folder: Path, first_port: int, **settings: int | bool | str) -> None:
        super().__init__(
            folder,
            first_port,
            geometry="small",
            segments_max=SEGMENTS_MAX,
            brief=False,
            log_level="warning",
            **settings,
        )
        self.disks = ExitStack()
        self.told: dict[int, str] = {}  # op -> body, as acknowledged

    def __enter__(self) -> "SmallDisks":
        with self.disks:
            for node in self.nodes:
                self.disks.enter_context(disk(self.place(node) / "shard-0"))
            super().__enter__()
            self.disks = self.disks.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.disks:
            super().__exit__()

    def free(self, node: int) -> int:
        return shutil.disk_usage(self.place(node) / "shard-0").free

    def fill(self, node: int, segments: int = SEGMENTS) -> None:
        """Leave room for so many segments."""
        ballast = self.place(node) / "shard-0" / "lost+found" / "ballast"
        ballast.write_bytes(bytes(max(0, self.free(node) - segments * SMALL.extent_size)))

    def empty(self, node: int) -> None:
        (self.place(node) / "shard-0" / "lost+found" / "ballast").unlink()

    def sparing(self) -> bool:
        """Whether whoever leads takes no messages."""
        found = [status for status in self.statuses() if status]
        return any(s["space"]["sparing"] for s in found if s["role"] == "primary")

    def log_text(self) -> str:
        return self.folder.with_name(f"{self.folder.name}.log").read_text(errors="replace")

    async def write(self, count: int, *nodes: int) -> None:
        """So many messages, or until the group takes no more."""
        access = self.access()
        endpoints = [access.endpoints[node] for node in nodes or self.nodes]
        async with Client(endpoints, access.token, patience_s=60.0) as client:
            room = (await client.create_room(ROOM)).room_id
            for _ in range(count // BATCH):
                bodies = [f"message {len(self.told)} {number}" for number in range(BATCH)]
                waiting = [await client.post(room, body) for body in bodies]
                while not all(done.done() for done in waiting):
                    await asyncio.wait(waiting, timeout=1.0)
                    if await asyncio.to_thread(self.sparing):
                        break
                for body, done in zip(bodies, waiting, strict=True):
                    if done.done():
                        self.told[done.result().op] = body
                if not all(done.done() for done in waiting):
                    return

    async def check(self, *nodes: int, dropped: int = 0) -> None:
        """Each of these nodes serves what was acknowledged, but for the first `dropped` ops."""
        access = self.access()
        for node in nodes:
            async with Client([access.endpoints[node]], access.token, patience_s=60.0) as client:
                room = (await client.create_room(ROOM)).room_id
                served: dict[int, str] = {}
                start = 1
                while True:
                    page = await client.snapshot(room, from_op=start, limit=1000)
                    served |= {item.op: item.body for item in page.messages}
                    if not page.has_more:
                        break
                    start = page.messages[-1].op + 1
            lacks = [o for o, body in self.told.items() if o > dropped and served.get(o) != body]
            assert not lacks, f"node {node} lacks {lacks[:5]}, {len(lacks)} in all"


@contextmanager
def disk(place: Path) -> Iterator[None]:
    """An empty file system of `DISK_SIZE` at `place`."""
    place.mkdir(parents=True)
    image = place.parent.parent.with_name(f"{place.parent.name}.img")
    with image.open("wb") as file:
        file.truncate(DISK_SIZE)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)
        image.unlink()


@pytest.fixture
def site(tmp_path: Path, free_ports: FreePorts) -> Iterator[SmallDisks]:
    with SmallDisks(tmp_path / "site", ports_in_a_row(free_ports)) as made:
        yield made


def test_when_all_disks_are_about_to_be_full_a_reserve_is_left_and_nobody_halts(
    site: SmallDisks,
) -> None:
    """View changes, checkpoints, readers and retention go on; then messages do."""
    for node in site.nodes:
        site.fill(node)
    asyncio.run(site.write(2 * SEGMENTS * SMALL.segment_records))
    assert site.sparing()
    taken = len(site.told)
    expected = (SEGMENTS - EXTENTS_RESERVED_MIN) * SMALL.segment_records
    assert taken > expected / 2, "the reserve is not most of the disk"
    for node in site.nodes:
        assert site.free(node) >= SMALL.extent_size, "something is left of the reserve"
    told = run("status", "--local", str(site.folder))
    assert "space" in told.stdout and "the shard takes no messages" in told.stdout
    primary = site.leader()
    site.kill_node(primary)
    wait_until(lambda: site.primary() not in (None, primary), BACK_S, "somebody else leads")
    others = [node for node in site.nodes if node != primary]
    asyncio.run(site.check(*others))
    site.start(primary)
    wait_until(site.caught_up, BACK_S, "the killed one is back")
    done = run("retention", "set", repr(KEPT_S / 86_400), "--local", str(site.folder))
    assert done.returncode == 0, done.stderr
    for node in site.nodes:
        site.kill_node(node)
        site.start(node)
        wait_until(site.settled, BACK_S, "the restarted one is back")
    wait_until(lambda: not site.sparing(), BACK_S, "old segments go")
    asyncio.run(site.write(SMALL.segment_records))
    assert len(site.told) > taken
    oldest = max(status["oldest_segment"] for status in site.statuses() if status)
    asyncio.run(site.check(*site.nodes, dropped=(oldest + 1) * SMALL.segment_records))
    assert "HALT" not in site.log_text()


def shown(site: SmallDisks) -> str:
    return run("status", "--local", str(site.folder)).stdout


def told_of_halt(site: SmallDisks, victim: int) -> None:
    """Whoever looks sees why, also between two tries, each of which ends as the one before."""
    began, before = time.monotonic(), site.log_text().count("HALT DISK_FULL")
    while site.log_text().count("HALT DISK_FULL") == before:
        rows = [row for row in shown(site).splitlines() if re.match(r"\w+_(down|halted) ", row)]
        (line,) = [row for row in rows if not row.startswith("peer_down")]
        assert line.startswith("replica_halted") and f"node-{victim}" in line, rows
        missed = [row for row in rows if row != line]  # it comes and goes: a peer has not heard it
        assert all(f"hears nothing from replica {victim} " in row for row in missed), rows
        assert "HALT DISK_FULL" in line and "free space" in line, line
        assert time.monotonic() - began < SLOWER_MAX * BACK_S
    rows = [row for row in shown(site).splitlines() if row.startswith("replica_halted")]
    assert int(re.search(r"(\d+) s$", rows[0])[1]) >= 4, "it is as old as the first halt"


@pytest.mark.soak
def test_one_full_disk_is_one_replica_s_trouble_and_over_when_there_is_room(
    site: SmallDisks,
) -> None:
    victim = 2
    site.fill(victim, 6)
    asyncio.run(site.write(SEGMENTS * SMALL.segment_records, 0, 1))
    assert len(site.told) == SEGMENTS * SMALL.segment_records
    assert not site.sparing()
    wait_until(lambda: "HALT DISK_FULL" in site.log_text(), BACK_S, "its replica halts")
    asyncio.run(site.check(0, 1))
    told_of_halt(site, victim)
    site.empty(victim)
    wait_until(site.caught_up, BACK_S, lambda: f"it comes back: {site.statuses()}")
    wait_until(lambda: "replica_halted" not in shown(site), BACK_S, lambda: shown(site))
    asyncio.run(site.check(*range(NODES)))
    halts = [line for line in site.log_text().splitlines() if "HALT" in line]
    assert all(f"node-{victim}/" in line and "DISK_FULL" in line for line in halts), halts
