"""A shard that keeps a while only never fills up, and drops nothing too early."""

import asyncio
import json
from pathlib import Path

from appliance.drivers.chat.client import Client
from tests.ports import FreePorts
from tests.system.local_site import LocalSite, ports_in_a_row, run, wait_until

SEGMENTS_MAX, SEGMENT_RECORDS = 8, 100  # of the small geometry
SECONDS = 1
DAYS = SECONDS / 86_400
MESSAGES = SEGMENTS_MAX * SEGMENT_RECORDS * 3 // 2  # of what the volume holds, and half as much
ROOM, RENAMED = "flood", "a flood of long ago"
USED_MAX = SEGMENTS_MAX // 2  # then writers wait: who finds it full waits longer than it is
DROP_S = 30.0


def retention(site: LocalSite, *words: str) -> str:
    done = run("retention", *words, "--local", str(site.folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def used(site: LocalSite) -> int:
    """Segments that the shard holds."""
    now = site.answer(0)
    return int(now["log_seq"]) // SEGMENT_RECORDS + 1 - int(now["oldest_segment"])


async def write(site: LocalSite, count: int) -> None:
    """Messages as fast as the shard drops old ones; each must be acknowledged."""
    access = site.access()
    async with Client(access.endpoints, access.token, patience_s=60.0) as client:
        room = (await client.create_room(ROOM)).room_id
        for at in range(0, count, 50):
            waiting = [await client.post(room, f"{at + number}") for number in range(50)]
            await asyncio.gather(*waiting)
            await asyncio.to_thread(
                wait_until, lambda: used(site) <= USED_MAX, DROP_S, lambda: f"{used(site)} are used"
            )


async def history(site: LocalSite) -> list[int]:
    """The ops that are still there, oldest first."""
    access = site.access()
    async with Client(access.endpoints, access.token, patience_s=60.0) as client:
        room = (await client.create_room(ROOM)).room_id
        found: list[int] = []
        has_more = True
        while has_more:  # a page may hold fewer than were asked for
            after = found[-1] + 1 if found else 1
            page = await client.snapshot(room, from_op=after, limit=1000)
            found += [message.op for message in page.messages]
            has_more = page.has_more
        return found


def listed(site: LocalSite) -> list[str]:
    """Names of the rooms, as the site tells now."""
    done = run("room", "list", "--json", "--local", str(site.folder))
    return [json.loads(line)["name"] for line in done.stdout.splitlines()]


class Flooded(LocalSite):
    """Set before the first start; shipping is off, as in every test site."""

    def _settle(self) -> None:
        assert f"{DAYS:g} days are kept" in retention(self, "set", repr(DAYS))


def oldest(site: LocalSite) -> set[int]:
    return {status["oldest_segment"] for status in site.statuses() if status}


def test_a_shard_that_keeps_a_while_takes_more_than_its_volume_holds(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    ports = ports_in_a_row(free_ports)
    with Flooded(
        tmp_path / "site", ports, nodes=1, geometry="small", segments_max=SEGMENTS_MAX
    ) as site:
        for words in (("create", ROOM), ("rename", ROOM, RENAMED)):
            assert run("room", *words, "--local", str(site.folder)).returncode == 0
        asyncio.run(write(site, MESSAGES))
        wait_until(lambda: min(oldest(site)) >= SEGMENTS_MAX, DROP_S, lambda: f"{oldest(site)}")
        there = asyncio.run(history(site))
        assert there == list(range(there[0], MESSAGES + 2))  # a suffix, the room's creation aside
        assert there[0] > SEGMENTS_MAX * SEGMENT_RECORDS / 2
        for edge in site.processes(0, "edge"):
            edge.kill()
        wait_until(lambda: listed(site) == [RENAMED], 30, "one that begins later to know the room")
        tried = retention(site, "show", "--days", "1000")
        assert "1000 days are kept (tried, not set)" in tried and "nothing is old enough" in tried
        before = (site.folder / "site.toml").read_text()
        assert "nothing was changed" in retention(site, "set", "everything", "--dry-run")
        assert (site.folder / "site.toml").read_text() == before
    assert "HALT" not in (tmp_path / "site.log").read_text(errors="replace")
