"""An edge whose node holds no replica: it serves as the others do, by what other nodes tell it."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.drivers.host.node_folder import left_name
from appliance.formats.client.connection import NodeState
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.rooms import ListRooms, RenameRoom, RoomsPage, RoomState
from appliance.formats.geometry import SMALL
from tests.patience import HUNG_S
from tests.removal import folder_on_disk
from tests.roles.edge_site import Chat, EdgeSite, until
from tests.roles.replica_group import peer_ports

BATCH = 25  # messages that a client sends at once
VOTERS, AWAY = range(4), 4  # of five; the last one's replica was moved away
UNLIMITED = dict.fromkeys(("device_rate", "user_rate", "room_rate", "address_rate"), 10_000_000)


@pytest.fixture
def site() -> Iterator[EdgeSite]:
    """Segments hold a hundred records. Replicas run, and the edge of node 1."""
    with (
        folder_on_disk() as folder,
        peer_ports(5) as ports,
        EdgeSite(folder, nodes=5, ports=ports, geometry="small", hurried=True, **UNLIMITED) as made,
    ):
        (made.node(AWAY) / left_name(0)).write_text('{"op": 1, "aside": "shard-0.left-1"}\n')
        for node in VOTERS:
            made.start(node)
        made.start_edge(1)
        made.wait_serving(1)
        yield made


def start_away(site: EdgeSite) -> None:
    site.start_edge(AWAY)
    site.wait_serving(AWAY)


def source(site: EdgeSite) -> str:
    status = site.edge_status(AWAY)
    assert status is not None
    told: str = status["remote"]["0"]
    return told


def history(chat: Chat, room: uuid.UUID) -> list[Any]:
    """All of a room from the beginning, page by page."""
    found: list[Any] = []
    cursor = 1
    while True:
        chunk: Any = chat.ask(
            SnapshotRequest(room_id=room, from_op=cursor, limit=60), SnapshotChunk
        )
        found += chunk.messages
        if not chunk.has_more:
            return found
        cursor = chunk.cursor


def rooms(chat: Chat) -> list[tuple[str, int]]:
    page: Any = chat.ask(ListRooms(), RoomsPage)
    return [(item.name, item.message_count) for item in page.rooms]


def test_it_serves_rooms_history_and_followers_as_an_edge_beside_a_replica_does(
    site: EdgeSite,
) -> None:
    count = 3 * SMALL.segment_records
    with site.chat(1) as writer:
        room, other = writer.room("long"), writer.room("other")
        for first in range(1, count, BATCH):
            writer.say(room, first, BATCH)
        start_away(site)
        assert source(site).startswith("node-")
        with site.chat(AWAY) as far, site.chat(AWAY, user="bob") as late:
            far.follow(room)
            assert far.ops(count + 1) == list(range(1, count + 2))
            assert far.say(room, 1, 20) == list(range(count + 2, count + 22))
            assert writer.say(room, count + 1, 20) == list(range(count + 22, count + 42))
            assert far.ops(40) == list(range(count + 2, count + 42))
            assert history(far, room) == history(writer, room)
            late.follow(room, count + 31)
            assert late.ops(10) == list(range(count + 32, count + 42))
            # through several sealings, while it is followed from far away
            for first in range(count + 21, count + 271, BATCH):
                writer.say(room, first, BATCH)
            assert far.ops(250) == late.ops(250) == list(range(count + 42, count + 292))
            assert rooms(far) == rooms(writer)
            assert far.say(other, 1, 1) == [2]
            made = far.room("made far away")
            assert writer.say(made, 1, 1) == [2]
            writer.ask(RenameRoom(room_id=other, name="renamed"), RoomState)
            until(lambda: ("renamed", 2) in [(n, min(c, 2)) for n, c in rooms(far)], "renamed")
            assert history(far, room) == history(writer, room)


def test_it_goes_on_at_another_node_when_the_one_that_told_it_is_gone(site: EdgeSite) -> None:
    start_away(site)
    with site.chat(AWAY) as far, site.chat(1) as near:
        room = far.room("told on")
        far.follow(room)
        near.follow(room)
        said, killed = 0, set()
        for _ in range(3):
            until(lambda: source(site), "somebody tells the log")
            told = int(source(site).removeprefix("node-"))
            killed.add(told)
            site.kill(told)
            assert far.say(room, said + 1, BATCH) == list(range(said + 2, said + BATCH + 2))
            said += BATCH
            with site.chat(AWAY, user="bob") as late:  # from before until after the kill
                late.follow(room, max(1, said - BATCH - 5))
                first = max(1, said - BATCH - 5) + 1
                assert late.ops(said + 2 - first) == list(range(first, said + 2))
            site.start(told)
            site.until(told, lambda status: status["status"] == "normal")
        assert far.ops(said + 1) == near.ops(said + 1) == list(range(1, said + 2))
        assert history(far, room) == history(near, room) and len(killed) > 1


def test_without_anybody_it_serves_the_past_and_says_since_when(site: EdgeSite) -> None:
    start_away(site)
    with site.chat(AWAY) as far:
        room = far.room("past")
        far.say(room, 1, 10)
        assert len(history(far, room)) == 11
        before = time.time()
        for node in VOTERS:
            site.kill(node)
        state: Any = far.next(NodeState)
        assert state.stale_since is not None
        assert before - 10 < state.stale_since / 1_000_000 < time.time()
        chunk: Any = far.ask(SnapshotRequest(room_id=room, from_op=1), SnapshotChunk)
        assert [message.op for message in chunk.messages] == list(range(1, 12))
        assert chunk.stale_since == state.stale_since
        until(lambda: not source(site), lambda: source(site))
        assert site.get(AWAY, "/healthz")[0] != 200
        for node in VOTERS:
            site.start(node)
        site.wait_serving(AWAY)
        ended = time.monotonic() + HUNG_S
        while (state := far.next(NodeState)).stale_since is not None:
            assert time.monotonic() < ended
        assert far.say(room, 11, 1) == [12]
