"""Rights of rooms: token and room must both allow what is done, on every node, from then on."""

import random
from typing import Any
from uuid import UUID

import pytest

from appliance.cores.edge.room_names import RoomNames
from appliance.cores.edge.room_rights import RoomRights
from appliance.cores.edge.session import Session
from appliance.cores.rooms.keeping import said_in
from appliance.formats.client.connection import ErrorFrame, Ping, Pong
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.rooms import (
    CloseRoom,
    ListRooms,
    RoomRightsAnswer,
    RoomRightsRequest,
    RoomsPage,
    RoomState,
    RoomStateRequest,
)
from appliance.formats.client.sign_in import RefreshToken
from appliance.formats.client.subscribing import MessageEvent, SubscribeRoom
from appliance.formats.geometry import SMALL
from appliance.formats.record import BODY, FLAGS, KIND_AUDIT, body_len_in
from appliance.formats.room_limits import (
    ALL,
    MODERATORS,
    UNLIMITED,
    Limiting,
    Limits,
    decode_limiting,
    encode_limiting,
)
from appliance.formats.verified_segment import VerifiedSegments
from tests.cores.edge.test_renaming import MEMBER, MODERATOR, answer, begun, fill, pair
from tests.cores.edge.test_revocations import audit
from tests.cores.edge.world import World, acks, errors, token


def limit(world: World, session: Session, room: UUID, **words: str) -> Any:
    world.send(session, RoomRightsRequest(room_id=room, request="r", **words))
    world.settle()
    return answer(world, session, "r")


def said(world: World) -> list[Limiting]:
    """What the log says of rights."""
    bodies = [
        record[BODY : BODY + body_len_in(record)]
        for record in world.shard.log
        if record[FLAGS] == KIND_AUDIT
    ]
    return [found for found in map(decode_limiting, bodies) if found is not None]


def sent(world: World, session: Session, room: UUID, number: int) -> list[str]:
    """Of a message: the names of errors; none if it was stored."""
    world.say(session, room, number, 1)
    world.settle()
    frames = world.take(session)
    return errors(frames) or [""] * (not acks(frames))


def reads(world: World, session: Session, room: UUID) -> bool:
    world.send(session, SnapshotRequest(room_id=room, request="h"))
    world.settle()
    return type(answer(world, session, "h")) is SnapshotChunk


@pytest.mark.parametrize("binary", [True, False])
def test_only_whom_token_and_room_let_may_send(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    assert sent(world, bob, room, 1) == []
    told = limit(world, anna, room, send=MODERATORS)
    assert told == RoomRightsAnswer(
        room_id=room, read=ALL, send=MODERATORS, moderate=ALL, request="r"
    )
    assert said(world) == [Limiting("general", Limits(send=MODERATORS), 1, "anna")]
    assert sent(world, bob, room, 2) == ["forbidden"] and sent(world, anna, room, 1) == []
    assert reads(world, bob, room)
    assert limit(world, anna, room, send="=bob\n=carl").send == "=bob\n=carl"
    assert sent(world, bob, room, 2) == [] and sent(world, anna, room, 2) == ["forbidden"]
    carl = world.open(number=3, name="carl", rights={"*": ["read"]}, binary=binary)
    assert sent(world, carl, room, 1) == ["forbidden"], "his token does not let him"
    assert limit(world, anna, room, send=ALL).send == ALL
    assert sent(world, anna, room, 2) == []
    assert limit(world, bob, room) == told.__class__(
        room_id=room, read=ALL, send=ALL, moderate=ALL, request="r"
    )


@pytest.mark.parametrize("binary", [True, False])
def test_who_may_read_no_more_hears_no_more_at_once(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    for session in (anna, bob):
        world.send(session, SubscribeRoom(room_id=room))
        world.take(session)
    world.send(anna, RoomRightsRequest(room_id=room, read="=anna"))
    world.settle()
    world.say(anna, room, 1, 1)
    world.settle()
    (ended,) = world.take(bob)
    assert (type(ended), ended.name, ended.room_id) == (ErrorFrame, "forbidden", room)
    assert MessageEvent in {type(frame) for frame in world.take(anna)}
    assert not reads(world, bob, room) and reads(world, anna, room)
    world.send(bob, SubscribeRoom(room_id=room, request="s"))
    assert answer(world, bob, "s").name == "forbidden"
    world.send(bob, ListRooms(request="l"))
    page = answer(world, bob, "l")
    assert type(page) is RoomsPage and page.rooms == []
    limit(world, anna, room, read=ALL)
    assert reads(world, bob, room)


@pytest.mark.parametrize("binary", [True, False])
def test_who_follows_is_told_what_he_may_do_then_and_who_comes_later_too(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    world.send(bob, SubscribeRoom(room_id=room))
    world.take(bob)
    limit(world, anna, room, send=MODERATORS)
    (state,) = world.take(bob)
    assert (type(state), state.may_read, state.may_send) == (RoomState, True, False)
    world.send(bob, SubscribeRoom(room_id=room))
    assert [type(frame) for frame in world.take(bob)][1:] == [RoomState]
    world.send(bob, ListRooms())
    state, _ = world.take(bob)
    assert (state.room_id, state.may_send) == (room, False)
    limit(world, anna, room, send=ALL)
    assert [frame.may_send for frame in world.take(bob)] == [True]
    world.send(bob, ListRooms())
    assert [type(frame) for frame in world.take(bob)] == [RoomsPage]


def test_who_may_not_moderate_there_changes_nothing() -> None:
    world, anna, bob, room = pair()
    assert limit(world, bob, room, send=ALL).send == ALL, "as it was"
    assert limit(world, bob, room, send="=bob").name == "forbidden"
    carl = world.open(number=3, name="carl", rights=MODERATOR)
    limit(world, anna, room, moderate="=anna")
    assert limit(world, carl, room, send="=carl").name == "forbidden"
    world.send(carl, CloseRoom(room_id=room))
    assert errors(world.take(carl)) == ["forbidden"]
    assert len(said(world)) == 1
    admin = world.open(number=4, name="root", rights={"general": ["admin"]})
    assert limit(world, admin, room, moderate=ALL).moderate == ALL


def test_nobody_shuts_himself_out_or_names_nobody() -> None:
    world, anna, _, room = pair()
    for words in (
        {"moderate": "=bob"},
        {"read": "=bob"},
        {"send": "bob"},
        {"moderate": MODERATORS},
    ):
        assert limit(world, anna, room, **words).name == "field_invalid"
    many = "\n".join(f"={'u' * 40}{number}" for number in range(60))
    assert limit(world, anna, room, send=many).name == "field_invalid"
    assert said(world) == [] and anna.in_flight == 0


def test_a_newer_token_is_judged_by_the_room_too() -> None:
    """Who moderates no more by his token is none of the moderators."""
    world, anna, _, room = pair()
    carl = world.open(number=3, name="carl", rights=MODERATOR)
    limit(world, anna, room, read=MODERATORS)
    world.send(carl, SubscribeRoom(room_id=room))
    world.take(carl)
    world.send(carl, RefreshToken(token=token("carl", rights=MEMBER)))
    _, ended = world.take(carl)
    assert (ended.name, ended.room_id) == ("forbidden", room)
    assert not reads(world, carl, room)


def test_an_edge_that_begins_later_lets_nobody_do_what_it_has_not_read() -> None:
    before, anna, _, room = pair()
    limit(before, anna, room, send=MODERATORS, read="=anna")
    for seq in range(2, 200):
        audit(before, b"{}", seq)  # it stands pages ago
    world = World(room_names=RoomNames(), attached=False)
    world.shard = before.shard
    world.attach()
    bob = world.open(number=2, name="bob", rights=MEMBER)
    carl = world.open(number=3, name="carl", rights=MEMBER)
    world.send(carl, ListRooms())
    world.say(bob, room, 1, 1)
    world.send(bob, RoomStateRequest(room_id=room, request="s"))
    world.send(bob, ListRooms(request="l"))
    assert world.take(bob) == [], "it waits until that is read"
    world.tick(20)
    world.settle()
    frames = world.take(bob)
    assert errors(frames) == ["forbidden", "forbidden"]
    assert [frame.rooms for frame in frames if type(frame) is RoomsPage] == [[]]
    assert [type(frame) for frame in world.take(carl)] == [RoomsPage]
    world.send(carl, Ping())
    assert [type(frame) for frame in world.take(carl)] == [Pong], "nothing waits any more"


def test_who_waits_too_long_is_told_that_this_node_cannot_tell() -> None:
    world = World(room_names=RoomNames())  # there is no room of the shard: it is never read
    bob = world.open(number=2, name="bob", rights=MEMBER)
    for frame in (RoomStateRequest(room_id=UUID(int=9)), ListRooms()):
        world.send(bob, frame)
        world.tick(100)
        assert errors(world.take(bob)) == ["unavailable"]


def test_rights_that_go_with_a_segment_are_stated_anew_with_the_time_of_then() -> None:
    world, anna, _, room = pair()
    limit(world, anna, room, send=MODERATORS)
    fill(world, anna, room)
    first = VerifiedSegments(world.shard.files, SMALL).segment(0)
    assert first is not None
    (body,) = said_in(first)
    told = decode_limiting(body)
    assert told is not None
    assert told.said_us > 0 and told._replace(said_us=0) == said(world)[0]
    audit(world, body, 2)
    world.shard.files.oldest = 1
    assert begun(world).edge.lookup.rights.of("general") == Limits(send=MODERATORS)


def test_what_is_stated_anew_counts_as_when_it_was_said() -> None:
    rights = RoomRights()
    first, second = (Limiting("a", limits, 1, "c") for limits in (Limits(send=("a",)), UNLIMITED))
    rights.learn([(20, encode_limiting(second)), (90, encode_limiting(first._replace(said_us=10)))])
    assert rights.of("a") == UNLIMITED


def test_the_order_in_which_acts_are_heard_makes_no_difference(seed: int) -> None:
    chance = random.Random(seed)
    every = [UNLIMITED, Limits(send=MODERATORS), Limits(read=("a",)), Limits(moderate=("a", "b"))]
    for _ in range(100):
        acts = []
        for at_us in range(1, chance.randint(2, 10)):
            room, number = chance.choice("ab"), chance.randint(1, 3)
            limiting = Limiting(room, chance.choice(every), number, "anna")
            acts.append((at_us, encode_limiting(limiting)))
            if chance.random() < 0.3:  # stated anew, when the record is dropped
                acts.append((90 + at_us, encode_limiting(limiting._replace(said_us=at_us))))
        known, other = RoomRights(), RoomRights()
        told = list[bytes]()
        known.on_news = told.extend
        known.learn(acts)
        for act in chance.sample(acts, len(acts)):
            other.learn([act])
        for room in "ab":
            assert known.of(room) == other.of(room)
            assert known.next_number(room) == other.next_number(room)
        count = len(told)
        known.learn(chance.sample(acts, len(acts)))
        assert len(told) == count, "nothing of this is news"
        assert id_bytes(UUID(int=1)) not in told
