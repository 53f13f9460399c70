"""Rooms whose first record is dropped, on an edge that begins later: names are stated anew."""

import itertools
from typing import Any

from appliance.base import limits
from appliance.cores.edge.room_names import RoomNames
from appliance.cores.rooms.keeping import names_in
from appliance.formats.client.rooms import ListRooms, RoomsPage
from appliance.formats.client.sending import MessageAck
from appliance.formats.geometry import SMALL
from appliance.formats.room_names import encode_room_names
from appliance.formats.verified_segment import VerifiedSegments
from tests.cores.edge.test_history import ROOMS, written
from tests.cores.edge.test_revocations import audit
from tests.cores.edge.world import World, errors


def past() -> tuple[World, list]:
    """Three rooms are created in segment 0; the log goes on behind it."""
    world, _, rooms = written([0] * (2 * SMALL.segment_records))
    audit(world, b"{}", 1)  # the shard's own room is there
    return world, rooms


def state(world: World, names: list[str], first_seq: int = 2) -> None:
    for seq, body in enumerate(encode_room_names(names, node="node-0", at_us=0), first_seq):
        audit(world, body, seq)


def begun(world: World) -> World:
    """An edge that begins now, when segment 0 is dropped."""
    world.shard.files.oldest = 1
    fresh = World(log_sessions=1, room_names=RoomNames(), attached=False)
    fresh.shard = world.shard
    fresh.attach()
    fresh.tick(3)
    return fresh


def listed(world: World) -> list[str]:
    """As a client hears that asks again while it is told to."""
    session = world.open()
    for _ in range(20):
        world.send(session, ListRooms())
        frames: list[Any] = []
        while not frames:
            world.tick(1)
            frames = world.take(session)
        (frame,) = frames
        if type(frame) is RoomsPage:
            return [item.name for item in frame.rooms]
        assert frame.name == "unavailable" and frame.temporary
    raise AssertionError("no list")


def test_a_room_is_listed_and_written_to_by_its_name_that_was_stated() -> None:
    world, rooms = past()
    state(world, ROOMS)
    for seq in range(3, 4 * limits.REVOCATIONS_PAGE):
        audit(world, b"{}", seq)  # it stands pages ago
    fresh = begun(world)
    writer = fresh.open(number=7)
    fresh.say(writer, rooms[0], 1, 1)
    for _ in range(20):
        fresh.tick(1)
        fresh.settle()
    assert MessageAck in {type(frame) for frame in fresh.take(writer)}
    assert sorted(listed(fresh)) == sorted(ROOMS)


def test_no_list_lacks_rooms_whose_names_are_still_read() -> None:
    world, _ = past()
    state(world, ROOMS)
    for seq in range(3, 4 * limits.REVOCATIONS_PAGE):
        audit(world, b"{}", seq)
    assert sorted(listed(begun(world))) == sorted(ROOMS)


def test_what_is_stated_later_is_heard() -> None:
    world, _ = past()
    fresh = begun(world)
    assert listed(fresh) == [], "nothing was stated: none of them can be named"
    state(world, ROOMS[:2])
    fresh.publish()
    assert sorted(listed(fresh)) == sorted(ROOMS[:2])


def test_nothing_is_read_before_a_name_is_missed() -> None:
    world, _ = past()
    state(world, ROOMS)
    names = RoomNames()
    fresh = World(log_sessions=1, room_names=names, attached=False)
    fresh.shard = world.shard
    fresh.attach()
    fresh.tick(3)
    assert sorted(listed(fresh)) == sorted(ROOMS) and not names.is_wanted


def test_a_name_of_another_room_names_none() -> None:
    """An id follows from the name: what is stated can only be left out."""
    world, _ = past()
    state(world, ["elsewhere", ROOMS[1]])
    assert listed(begun(world)) == [ROOMS[1]]


def test_what_an_edge_holds_is_bounded() -> None:
    names = RoomNames()
    every = [f"room-{number}" for number in range(limits.ROOM_NAMES_MAX + 10)]
    for body in encode_room_names(every, node="", at_us=0):
        names.learn([(0, body)])
    assert len(names._known) == limits.ROOM_NAMES_MAX
    assert every[-1] in names._known.values() and every[0] not in names._known.values()


def test_names_that_go_with_a_segment_are_those_created_and_stated_there() -> None:
    world, _ = past()
    state(world, ["stated", "also stated"])
    session = world.open(number=9)
    world.room(session, "late")
    room = world.room(session, ROOMS[0])
    for seq in itertools.count(1):
        if len(world.shard.log) >= 4 * SMALL.segment_records:
            break
        world.say(session, room, seq, 1)
        world.settle()
    segments = VerifiedSegments(world.shard.files, SMALL)
    told = [list(names_in(segment)) for n in range(4) if (segment := segments.segment(n))]
    assert sorted(told[0]) == sorted(ROOMS), "each once, though they go on later"
    assert told[1] == [] and sorted(told[2]) == ["also stated", "late", "stated"]


def test_a_room_without_a_stated_name_is_refused_to_who_writes() -> None:
    world, rooms = past()
    fresh = begun(world)
    writer = fresh.open(number=7)
    fresh.say(writer, rooms[0], 1, 1)
    for _ in range(1000):
        fresh.tick(1)
    assert set(errors(fresh.take(writer))) == {"unavailable"}
