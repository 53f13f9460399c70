"""What a user may do: each user, room, frame and moment, one cell each, against a table by hand."""

import itertools

import pytest

from appliance.formats.client.fields import id_of
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.rooms import CreateRoom, ListRooms
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import RefreshToken, Welcome
from appliance.formats.client.subscribing import SubscribeRoom
from appliance.formats.room_name import room_id_of
from tests.cores.edge.world import World, errors, events, token

ALL = {"*": ["admin"]}
ROOMS = ("team-a", "public")
USERS = {
    "nobody": {},
    "reader": {"*": ["read"]},
    "writer": {"*": ["send"]},
    "maker": {"*": ["moderate"]},
    "admin": ALL,
    "team": {"team-*": ["read", "send"]},
    "mixed": {"team-*": ["send"], "*-a": ["moderate"], "public": ["read"]},
}
FRAMES = ("subscribe_room", "events", "snapshot_request", "list_rooms", "send", "create_room")
# user -> room -> what is allowed there; r reading in all its forms, s sending, m making
MAY = {
    "nobody": {"team-a": "", "public": ""},
    "reader": {"team-a": "r", "public": "r"},
    "writer": {"team-a": "s", "public": "s"},
    "maker": {"team-a": "m", "public": "m"},
    "admin": {"team-a": "rsm", "public": "rsm"},
    "team": {"team-a": "rs", "public": ""},
    "mixed": {"team-a": "sm", "public": "r"},
}
NEEDS = dict(zip(FRAMES, "rrrrsm", strict=True))
MOMENTS = ("before", "after refresh", "after key removal")


def asked(world: World, session, room: str, frame: str, seq: int) -> bool:
    """Whether the session gets what it asks for."""
    room_id = id_of(room_id_of(room))
    if frame == "events":
        return heard(world, session, room_id)
    sent = {
        "subscribe_room": SubscribeRoom(room_id=room_id),
        "snapshot_request": SnapshotRequest(room_id=room_id),
        "list_rooms": ListRooms(),
        "send": SendMessage(room_id=room_id, client_seq=seq, body="x"),
        "create_room": CreateRoom(name=room),
    }[frame]
    world.send(session, sent)
    world.settle()
    answers = world.take(session)
    if frame == "list_rooms" and answers:
        return room in [item.name for item in answers[0].rooms]
    return bool(answers) and not errors(answers)


def heard(world: World, session, room_id) -> bool:
    """Whether the session hears of a message that somebody else says now."""
    if session.state == "ready" and room_id not in session.subscriptions:
        world.send(session, SubscribeRoom(room_id=room_id))
    world.take(session)
    other = world.open(number=900 + len(world.shard.log), name="other", rights=ALL)
    world.say(other, room_id, 1, 1)
    world.settle()
    return bool(events(world.take(session)))


def used(world: World, session) -> None:
    """Everything the session could have remembered of both rooms, it has."""
    for room in ROOMS:
        room_id = id_of(room_id_of(room))
        world.send(session, SubscribeRoom(room_id=room_id))
        world.send(session, SnapshotRequest(room_id=room_id))
        world.send(session, SendMessage(room_id=room_id, client_seq=1, body="x"))
    world.settle()
    assert not errors(world.take(session))


@pytest.mark.parametrize(
    ("user", "room", "frame", "moment"), list(itertools.product(USERS, ROOMS, FRAMES, MOMENTS))
)
def test_each_user_may_do_what_the_table_says(user, room, frame, moment):
    world = World()
    maker = world.open(number=99, name="maker", rights=ALL)
    for name in ROOMS:
        world.room(maker, name)
    rights, seq = USERS[user], 1
    if moment == "before":
        session = world.open(rights=rights)
    else:
        session, seq = world.open(rights=ALL if moment == "after refresh" else rights), 1
        if moment == "after refresh":
            used(world, session)
            seq = 2
            world.send(session, RefreshToken(token=token(rights=rights)))
            world.settle()
            world.take(session)
        else:
            keys, world.tokens.keys = world.tokens.keys, {}
            world.edge.on_keys()
            world.step()
            world.take(session)
            world.tokens.keys = keys  # for those who come later
    allowed = NEEDS[frame] in MAY[user][room] and moment != "after key removal"
    assert asked(world, session, room, frame, seq) == allowed


def test_at_a_refresh_subscriptions_to_rooms_that_were_taken_away_end_and_the_client_is_told():
    world = World()
    session = world.open(rights=ALL)
    for room in ROOMS:
        world.room(session, room)
    used(world, session)
    world.send(session, RefreshToken(token=token(rights={"public": ["read"]})))
    welcome, refused = world.take(session)
    assert type(welcome) is Welcome
    assert (refused.name, refused.room_id) == ("forbidden", id_of(room_id_of("team-a")))
    assert [subscription.room.name for subscription in session.subscriptions.values()] == ["public"]


def test_what_waits_for_a_room_is_judged_by_the_rights_of_the_moment_it_goes_on():
    world = World()
    maker = world.open(number=99, name="maker", rights=ALL)
    world.room(maker, "public")
    room_id = id_of(room_id_of("public"))
    session = world.open(rights=ALL)
    world.edge.on_blocked(session)
    world.send(session, RefreshToken(token=token(rights={})))
    world.send(session, SnapshotRequest(room_id=room_id))
    world.edge.on_writable(session)
    assert errors(world.take(session)) == ["forbidden"]
