"""A cluster that is gone is made anew from what is left of it, and goes on where it ended."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from appliance.drivers.chat.client import Client, new_message_id
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.snapshot import HEAD_SIZE, parse_of_any
from tests.ports import FreePorts
from tests.system.local_site import LocalSite, ports_in_a_row, run

MESSAGES = 230  # more than two segments, a checkpoint or more, and some operations behind it
ROOMS = ("one", "two")
DEVICE = uuid4()
IDS = {room: [new_message_id() for _ in range(MESSAGES)] for room in ROOMS}


class RestoredSite(LocalSite):
    """A site that `restore` makes of volumes."""

    def __init__(self, folder: Path, first_port: int, sources: list[str], *, nodes: int) -> None:
        super().__init__(folder, first_port, geometry="small", nodes=nodes)
        self.sources, self.said = sources, ""

    def __enter__(self) -> "RestoredSite":
        super().__enter__()
        return self

    def _format(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = restored(
            self.folder, self.sources, "--nodes", str(len(self.nodes)), "--ports",
            str(self.first_port),
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
