"""A cluster that is gone is made anew from what is left of it, and goes on where it ended."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client, new_message_id
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.site import SITE_FILE
from appliance.formats.snapshot import HEAD_SIZE, parse_of_any
from tests.ports import FreePorts
from tests.system.hdfs_site import USER, Hdfs, fresh_folder
from tests.system.local_site import HEARS_NOBODY, LocalSite, ports_in_a_row, run, wait_until
from tests.system.test_retention import MESSAGES as MESSAGES_DROPPED
from tests.system.test_retention import ROOM, SEGMENTS_MAX, Flooded, history, listed, oldest
from tests.system.test_retention import write as flood

MESSAGES = 230  # more than two segments, a checkpoint or more, and some operations behind it
ROOMS = ("one", "two")
DEVICE = uuid4()
IDS = {room: [new_message_id() for _ in range(MESSAGES)] for room in ROOMS}


class RestoredSite(LocalSite):
    """A site that `restore` makes of volumes, or of shipped files."""

    def __init__(
        self,
        folder: Path,
        first_port: int,
        sources: list[str],
        *,
        nodes: int,
        words: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(folder, first_port, geometry="small", nodes=nodes, **settings)
        self.sources, self.words, self.said = sources, words, ""

    def __enter__(self) -> "RestoredSite":
        super().__enter__()
        return self

    def _format(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = restored(
            self.folder, self.sources, "--nodes", str(len(self.nodes)), "--ports",
            str(self.first_port), *self.words,
        )  # fmt: skip
        self.said = done.stdout
        return done


def restored(folder: Path, sources: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    given = [word for source in sources for word in ("--from", source)]
    others = ("--no-objects", "--no-farm", "--geometry", "small", "--brief")
    return run("restore", *given, "--local", str(folder), *words, *others)


async def write(site: LocalSite) -> dict[str, UUID]:
    access = site.access()
    rooms = {}
    async with Client(access.endpoints, access.token, client_id=DEVICE, patience_s=60.0) as client:
        for name in ROOMS:
            rooms[name] = room = (await client.create_room(name)).room_id
            for at in range(0, MESSAGES, 50):
                ids = IDS[name][at : at + 50]
                waiting = [await client.post(room, f"{name} {id}", msg_id=id) for id in ids]
                await asyncio.gather(*waiting)
    return rooms


async def read(site: LocalSite, room: UUID) -> list[Any]:
    access = site.access()
    async with Client(access.endpoints, access.token, patience_s=60.0) as client:
        found: list[Any] = []
        has_more = True
        while has_more:
            page = await client.snapshot(room, from_op=len(found) + 1, limit=1000)
            found += page.messages
            has_more = page.has_more
        return found


def records_of(site: LocalSite, room: str, file: Path) -> bytes:
    """All of a room's records, in the file that a node signs; their chain was verified."""
    done = run("snapshot", "room", room, "--to", str(file), "--local", str(site.folder))
    assert done.returncode == 0, done.stderr
    raw = file.read_bytes()
    _, found = parse_of_any(raw, ((node.name, node.public_key) for node in site.site.nodes))
    assert (found.first_op, found.last_op) == (1, found.record_count)
    return raw[HEAD_SIZE : HEAD_SIZE + found.record_count * RECORD_SIZE]


async def go_on(site: LocalSite, room: UUID) -> None:
    """What was acknowledged is known by its number still, and the next one follows."""
    access = site.access()
    async with Client(access.endpoints, access.token, client_id=DEVICE, patience_s=60.0) as client:
        client.start_at(room, MESSAGES)
        again = await client.send(room, f"one {IDS['one'][-1]}", msg_id=IDS["one"][-1])
        assert again.op == MESSAGES + 1
        following = await client.send(room, "and on")
        assert following.op == MESSAGES + 2


def test_a_volume_of_one_node_becomes_a_cluster_of_three_that_goes_on(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    ports = ports_in_a_row(free_ports)
    with LocalSite(tmp_path / "old", ports, nodes=1, geometry="small") as old:
        rooms = asyncio.run(write(old))
        before = {name: asyncio.run(read(old, room)) for name, room in rooms.items()}
        records = records_of(old, "one", tmp_path / "old.snapshot")
        volume = str(old.place(0) / "shard-0")
        refused = restored(tmp_path / "new", [volume])
        assert refused.returncode == 1
        assert "of the 1 replicas of shard 0 node-0 answers" in refused.stderr
    with RestoredSite(tmp_path / "new", ports, [volume], nodes=3) as new:
        assert f"one: goes on after op {MESSAGES + 1}" in new.said
        for name, room in rooms.items():
            assert asyncio.run(read(new, room)) == before[name]
        asyncio.run(go_on(new, rooms["one"]))
        again = records_of(new, "one", tmp_path / "new.snapshot")
        assert again[:-RECORD_SIZE] == records, "and one more, linked to the last of them"
    assert "HALT" not in (tmp_path / "new.log").read_text(errors="replace")


class Writer(threading.Thread):
    """Writes until nobody answers any more; `acked` is (op, body)."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access
        self.room: UUID | None = None
        self.acked: dict[int, str] = {}

    def run(self) -> None:
        with suppress(Exception):  # the site is killed under it
            asyncio.run(self._talk())

    async def _talk(self) -> None:
        async with Client(self._access.endpoints, self._access.token, patience_s=5.0) as client:
            self.room = (await client.create_room("talk")).room_id
            while True:
                bodies = [uuid4().hex for _ in range(10)]
                waiting = [await client.post(self.room, body) for body in bodies]
                for body, done in zip(bodies, waiting, strict=True):
                    self.acked[(await done).op] = body


@pytest.mark.soak
@pytest.mark.parametrize("left", [(0, 1), (1, 2), (0, 2)])
def test_two_of_three_volumes_lose_nothing_that_was_acknowledged_when_all_were_killed(
    tmp_path: Path, free_ports: FreePorts, left: tuple[int, ...]
) -> None:
    ports = ports_in_a_row(free_ports)
    with LocalSite(tmp_path / "old", ports, geometry="small") as old:
        writer = Writer(old.access())
        writer.start()
        wait_until(lambda: len(writer.acked) > 400, 60, lambda: f"{len(writer.acked)} are acked")
        old.kill()
        writer.join()
    volumes = [str(old.place(node) / "shard-0") for node in left]
    assert writer.room is not None
    with RestoredSite(tmp_path / "new", ports, volumes, nodes=3) as new:
        bodies = {message.op: message.body for message in asyncio.run(read(new, writer.room))}
        assert {op: bodies.get(op) for op in writer.acked} == writer.acked
    assert "HALT" not in (tmp_path / "new.log").read_text(errors="replace")


@pytest.mark.soak
def test_what_a_site_has_shipped_into_a_folder_becomes_a_cluster(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    shipped_and_restored(tmp_path, free_ports, str(tmp_path / "archive"))


@pytest.mark.soak
def test_what_a_site_has_shipped_to_hdfs_becomes_a_cluster(
    tmp_path: Path, free_ports: FreePorts, hdfs: Hdfs
) -> None:
    archive = f"{hdfs.url}/{fresh_folder()}"
    shipped_and_restored(tmp_path, free_ports, archive, "--ship-user", USER)


def shipped_and_restored(tmp_path: Path, free_ports: FreePorts, archive: str, *words: str) -> None:
    """What lies there becomes a cluster, which serves all of it and ships in its turn."""
    ports = ports_in_a_row(free_ports)
    options: dict[str, Any] = {"ship_target": archive, "ship_user": USER}
    with LocalSite(tmp_path / "old", ports, nodes=1, geometry="small", **options) as old:
        rooms = asyncio.run(write(old))
        before = {name: asyncio.run(read(old, room)) for name, room in rooms.items()}
        done = run("ship", "now", "--close", "--local", str(old.folder))
        assert done.returncode == 0, done.stderr
    words = (*words, "--site", str(old.folder / SITE_FILE))
    with RestoredSite(tmp_path / "new", ports, [archive], nodes=1, words=words, **options) as new:
        assert "found" not in new.said
        for name, room in rooms.items():
            assert asyncio.run(read(new, room)) == before[name]
        asyncio.run(go_on(new, rooms["one"]))
        for verb in (("ship", "now", "--close"), ("ship", "verify")):
            done = run(*verb, "--local", str(new.folder))
            assert done.returncode == 0, done.stdout + done.stderr


class RestoredApart(LocalSite):
    """A site each node of which is restored by itself, as on machines of their own."""

    source = ""

    def _format(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = run(*words)
        assert done.returncode == 0, done.stderr
        said = set()
        for node in self.nodes:
            shutil.rmtree(self.place(node) / "shard-0")
            (self.place(node) / "formatted").unlink()
            own = ("--from", self.source, "--node-folder", str(self.place(node)), "--brief")
            done = run("restore", *own, constants=HEARS_NOBODY)
            assert done.returncode == 0, done.stderr
            said.add(next(line for line in done.stdout.splitlines() if ", state " in line))
        assert len(said) == 1
        return done


@pytest.mark.soak
def test_machines_that_are_restored_each_by_itself_become_one_cluster(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    ports = ports_in_a_row(free_ports)
    with LocalSite(tmp_path / "old", ports, nodes=1, geometry="small") as old:
        rooms = asyncio.run(write(old))
        before = {name: asyncio.run(read(old, room)) for name, room in rooms.items()}
    RestoredApart.source = str(old.place(0) / "shard-0")
    with RestoredApart(tmp_path / "new", ports, geometry="small") as new:
        for name, room in rooms.items():
            assert asyncio.run(read(new, room)) == before[name]
        asyncio.run(go_on(new, rooms["one"]))
    assert "HALT" not in (tmp_path / "new.log").read_text(errors="replace")


@pytest.mark.soak
def test_a_site_that_had_dropped_its_oldest_messages_goes_on_and_ships_what_it_has(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    ports = ports_in_a_row(free_ports)
    with Flooded(
        tmp_path / "old", ports, nodes=1, geometry="small", segments_max=SEGMENTS_MAX
    ) as old:
        asyncio.run(flood(old, MESSAGES_DROPPED))
        wait_until(lambda: min(oldest(old)) >= SEGMENTS_MAX, 30, lambda: f"{oldest(old)}")
        there = asyncio.run(history(old))
    volume, archive = str(old.place(0) / "shard-0"), str(tmp_path / "archive")
    with RestoredSite(tmp_path / "new", ports, [volume], nodes=1, ship_target=archive) as new:
        now = asyncio.run(history(new))
        assert there[0] <= now[0] and now == list(range(now[0], there[-1] + 1))
        assert listed(new) == [ROOM]
        done = run("send", ROOM, "and on", "--local", str(new.folder))
        assert done.returncode == 0 and done.stdout.startswith(str(there[-1] + 1)), done.stdout
        done = run("ship", "now", "--close", "--local", str(new.folder))
        assert done.returncode == 0, done.stdout + done.stderr
    assert "HALT" not in (tmp_path / "new.log").read_text(errors="replace")
