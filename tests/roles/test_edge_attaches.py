"""When an edge reads from the replica of its node: by what the replica says of itself."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.status.replica import LogStanding
from appliance.formats.status.status import parse
from appliance.roles.edge.local_replica import Local
from appliance.roles.edge.replica_feed import ReplicaFeed
from appliance.roles.edge.standing import why_behind
from tests.cores.edge.world import World
from tests.statuses import attachment

WELL = {
    "status": "normal",
    "state_ready": True,
    "commit_min": 99,
    "commit_max": 100,
    "stale_ms": 0,
    "oldest_segment": 0,
}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"status": "view_change"}, "view_change"),
        ({"status": "view_change", "stale_ms": 800}, ""),  # the past, and everybody is told
        ({"status": "recovering_head", "stale_ms": 800}, "recovering_head"),
        ({"state_ready": False}, "fetching its state"),
        ({"commit_max": 200}, "101 ops behind"),
    ],
)
def test_a_replica_serves_reads_with_whole_and_recent_tables_only(
    changed: dict[str, object], why: str
) -> None:
    assert why_behind(parse(LogStanding, WELL | changed)) == why


class Deaf:
    """Sessions of the log that ask nothing."""

    def on_connected(self, *_: object) -> None:
        """A replica can be reached."""


def attach(world: World, folder: Path, **changed: object) -> None:
    """The replica of this node comes, and says how it is."""
    told = replace(
        attachment(len(world.shard.ring)),
        **WELL | changed,
        log_seq=len(world.shard.log),
        segments_folder=str(folder),
    )
    feed = ReplicaFeed(Deaf(), lambda: None, 0, bytes(16))
    local: Any = Local(feed, world.edge, on_status=lambda status: None)
    local.on_attached(None, told, world.shard.ring)


def test_a_replica_that_came_is_not_read_before_it_is_well(tmp_path: Path) -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    for changed, told in (
        ({"status": "recovering_head"}, ErrorFrame),
        ({"status": "view_change"}, ErrorFrame),
        ({"state_ready": False}, ErrorFrame),
        ({}, SnapshotChunk),
        ({"status": "view_change", "stale_ms": 800}, SnapshotChunk),
    ):
        world.edge.on_detached(0)
        attach(world, tmp_path, **changed)
        world.take(session)
        world.send(session, SnapshotRequest(room_id=room))
        (answer,) = world.take(session)
        assert type(answer) is told, answer
        if told is ErrorFrame:
            assert (answer.name, answer.temporary) == ("unavailable", True)
        else:
            assert (answer.stale_since is not None) == ("stale_ms" in changed)
