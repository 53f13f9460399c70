"""Rooms that moderators give another name: who may, what it leads to, who hears of it."""

from typing import Any
from uuid import UUID

import pytest

from appliance.cores.edge.room_names import RoomNames
from appliance.cores.edge.session import Session
from appliance.cores.rooms.keeping import said_in
from appliance.formats import session as replies
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.finding import FindMessage, MessageFound
from appliance.formats.client.rooms import (
    CloseRoom,
    CreateRoom,
    ListRooms,
    RenameRoom,
    RoomAnswer,
    RoomsPage,
    RoomState,
    RoomStateRequest,
)
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.subscribing import Subscribed, SubscribeRoom
from appliance.formats.geometry import SMALL
from appliance.formats.record import (
    BODY,
    CLIENT_ID,
    FLAGS,
    KIND_AUDIT,
    MSG_ID,
    SHARD_ROOM_ID,
    body_len_in,
)
from appliance.formats.renaming import Renaming, decode_renaming, encode_renaming
from appliance.formats.room_name import room_id_of
from appliance.formats.verified_segment import VerifiedSegments
from tests.cores.edge.test_revocations import audit
from tests.cores.edge.world import World, acks, errors

MODERATOR = {"*": ["read", "send", "moderate"]}
MEMBER = {"*": ["read", "send"]}


def begun(before: World | None = None) -> World:
    """An edge that reads what is said of names: a new one, or one on the shard of another."""
    world = World(room_names=RoomNames(), attached=False)
    if before is not None:
        world.shard = before.shard
    else:
        audit(world, b"{}", 1)  # the shard's own room is there
    world.attach()
    world.tick(3)
    return world


def pair(**words: Any) -> tuple[World, Session, Session, UUID]:
    """A moderator, a member, and a room."""
    world = begun()
    anna = world.open(rights=MODERATOR, **words)
    bob = world.open(number=2, name="bob", rights=MEMBER, **words)
    return world, anna, bob, world.room(anna)


def rename(world: World, session: Session, room: UUID, name: str) -> Any:
    world.send(session, RenameRoom(room_id=room, name=name, request="n"))
    world.settle()
    return answer(world, session, "n")


def answer(world: World, session: Session, request: str) -> Any:
    frames = world.take(session)
    (found,) = [frame for frame in frames if getattr(frame, "request", None) == request]
    return found


def said(world: World) -> list[Renaming]:
    """What the log says of names."""
    bodies = [
        record[BODY : BODY + body_len_in(record)]
        for record in world.shard.log
        if record[FLAGS] == KIND_AUDIT
    ]
    return [found for found in map(decode_renaming, bodies) if found is not None]


def listed(world: World, session: Session) -> dict[UUID, str]:
    world.send(session, ListRooms(request="l"))
    page = answer(world, session, "l")
    assert type(page) is RoomsPage
    return {item.room_id: item.name for item in page.rooms}


def state_of(world: World, session: Session, room: UUID) -> Any:
    world.send(session, RoomStateRequest(room_id=room, request="s"))
    world.settle()
    return answer(world, session, "s")


def fill(world: World, session: Session, room: UUID) -> None:
    """The segment with what was said of the room is sealed, and another one."""
    for first in range(1, 2 * SMALL.segment_records, 10):
        world.say(session, room, first, 10)
        world.settle()


@pytest.mark.parametrize("binary", [True, False])
def test_a_room_is_shown_by_its_new_name_wherever_it_is_named(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    world.say(bob, room, 1, 1)
    world.settle()
    world.take(bob)
    state = rename(world, anna, room, "plan")
    assert state == RoomState(
        room_id=room, closed=False, may_read=True, may_send=True, may_import=False,
        may_moderate=True, name="plan", request="n",
    )  # fmt: skip
    assert said(world) == [Renaming("general", "plan", 1, "anna")]
    assert listed(world, bob) == {room: "plan"}
    assert state_of(world, bob, room).name == "plan"
    msg_id = id_of(world.ops(room)[-1][MSG_ID : MSG_ID + 16])
    world.send(bob, FindMessage(msg_id=msg_id, request="f"))
    world.settle()
    found = answer(world, bob, "f")
    assert type(found) is MessageFound and found.room == "plan"
    world.send(anna, CloseRoom(room_id=room, request="c"))
    world.settle()
    assert answer(world, anna, "c").name == "plan"
    world.say(anna, room, 1, 1)
    world.settle()
    assert errors(world.take(anna)) == ["room_closed"]


@pytest.mark.parametrize("binary", [True, False])
def test_who_follows_the_room_hears_of_it_and_who_comes_later_too(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    world.send(bob, SubscribeRoom(room_id=room))
    world.take(bob)
    rename(world, anna, room, "plan")
    (state,) = world.take(bob)
    assert (type(state), state.name, state.may_moderate) == (RoomState, "plan", False)
    late = world.open(number=3, name="carl", binary=binary, rights=MODERATOR)
    world.send(late, SubscribeRoom(room_id=room))
    subscribed, state = world.take(late)
    assert type(subscribed) is Subscribed
    assert (state.name, state.may_moderate) == ("plan", True)
    world.send(late, ListRooms())
    state, page = world.take(late)
    assert (state.name, state.may_moderate, page.rooms[0].name) == ("plan", True, "plan")
    rename(world, anna, room, "general")  # as it was made: nothing more is told of it
    assert [frame.name for frame in world.take(bob)] == ["general"]
    world.send(anna, SubscribeRoom(room_id=room))
    assert [type(frame) for frame in world.take(anna)] == [Subscribed]


def test_each_name_leads_to_the_room_and_to_no_other() -> None:
    world, anna, bob, room = pair()
    for name in ("plan", "plan b"):
        rename(world, anna, room, name)
    for name in ("general", "plan", "plan b"):
        assert state_of(world, bob, id_of(room_id_of(name))).room_id == room
        world.send(anna, CreateRoom(name=name, request="r"))
        world.settle()
        made = answer(world, anna, "r")
        assert made == RoomAnswer(room_id=room, created=False, name="plan b", request="r")
    other = world.room(anna, "other")
    for name in ("plan", "plan b", "general"):
        refused = rename(world, anna, other, name)
        assert (type(refused), refused.name, refused.room_id) == (
            ErrorFrame,
            "room_name_taken",
            other,
        )
    assert state_of(world, bob, id_of(room_id_of("nowhere"))).name == "room_unknown"
    assert len(said(world)) == 2 and anna.in_flight == 0
    assert rename(world, anna, room, "plan").name == "plan", "it had that name"
    stored = len(world.shard.log)
    assert rename(world, anna, room, "plan").name == "plan"
    assert len(world.shard.log) == stored, "nothing was said, it is called so"


def test_who_may_not_gives_no_name() -> None:
    world, anna, bob, room = pair()
    general_alone = world.open(
        number=3, name="eve", rights={"general": ["admin"], "plan": ["read"]}
    )
    plan_alone = world.open(number=4, name="ines", rights={"general": ["read"], "*": ["moderate"]})
    for session in (bob, general_alone):
        assert rename(world, session, room, "plan").name == "forbidden"
    assert rename(world, anna, room, " plan").name == "room_name_invalid"
    assert said(world) == []
    assert rename(world, plan_alone, room, "plan").name == "plan"
    unknown = UUID(int=77)
    assert rename(world, anna, unknown, "plan").name == "room_unknown"


def test_rights_go_by_the_name_that_the_room_was_made_under() -> None:
    world, anna, _, room = pair()
    rename(world, anna, room, "plan")
    of_old = world.open(number=3, name="eve", rights={"general": ["read", "send"]})
    of_new = world.open(number=4, name="ines", rights={"plan": ["read", "send", "moderate"]})
    world.send(of_old, SendMessage(room_id=room, client_seq=1, body="x"))
    world.send(of_new, SendMessage(room_id=room, client_seq=1, body="x"))
    world.settle()
    assert acks(world.take(of_old)) == [(1, 2)]
    assert errors(world.take(of_new)) == ["forbidden"]
    assert listed(world, of_old) == {room: "plan"} and listed(world, of_new) == {}
    world.send(of_new, CreateRoom(name="plan"))
    assert errors(world.take(of_new)) == ["room_name_taken"]


def test_an_edge_that_begins_later_knows_the_names() -> None:
    before, anna, _, room = pair()
    rename(before, anna, room, "plan")
    for seq in range(2, 200):
        audit(before, b"{}", seq)  # it stands pages ago
    world = World(room_names=RoomNames(), attached=False)
    world.shard = before.shard
    world.attach()
    bob = world.open(number=2, name="bob", rights=MODERATOR)
    world.send(bob, RoomStateRequest(room_id=id_of(room_id_of("plan")), request="s"))
    assert world.take(bob) == [], "it waits until that is read"
    world.tick(20)
    world.settle()
    assert answer(world, bob, "s").room_id == room
    assert listed(world, bob) == {room: "plan"}
    assert state_of(world, bob, id_of(room_id_of("plan"))).room_id == room
    assert rename(world, bob, room, "other").name == "other"
    assert [each.number for each in said(world)] == [1, 2]


def test_an_edge_that_reads_the_log_anew_knows_what_was_said_meanwhile() -> None:
    world, anna, _, room = pair()
    body = encode_renaming(Renaming("general", "meanwhile", 1, "carl"))
    world.edge.on_detached(0)
    audit(world, body, 2)
    for seq in range(3, 600):
        audit(world, b"{}", seq)
    world.attach()
    refused = rename(world, anna, room, "plan")
    assert refused.name == "unavailable" and refused.temporary
    world.tick(20)
    assert listed(world, anna) == {room: "meanwhile"}


def test_of_two_who_give_one_name_at_the_same_time_the_later_one_is_refused() -> None:
    world, anna, _, room = pair()
    other = world.room(anna, "other")
    carl = world.open(number=3, name="carl", rights=MODERATOR)
    world.send(anna, RenameRoom(room_id=room, name="plan", request="n"))
    world.send(carl, RenameRoom(room_id=other, name="plan", request="n"))
    world.settle()
    assert answer(world, anna, "n").name == "plan"
    assert answer(world, carl, "n").name == "room_name_taken"
    assert listed(world, anna) == {room: "plan", other: "other"}
    assert anna.in_flight == carl.in_flight == 0


def test_what_the_shard_refuses_of_a_name_is_told_and_may_be_tried_again() -> None:
    world, anna, _, room = pair()
    world.send(anna, RenameRoom(room_id=room, name="plan", request="n"))
    world.process(1)  # no room was made under the name
    world.shard.refuse_with = replies.STORAGE_FULL
    world.settle()
    refused = answer(world, anna, "n")
    assert (refused.name, refused.room_id) == ("storage_full", room)
    world.shard.refuse_with = replies.OK
    assert rename(world, anna, room, "plan").name == "plan"
    assert rename(world, anna, room, "other").name == "other"
    devices = {record[CLIENT_ID : CLIENT_ID + 16] for record in world.ops(id_of(SHARD_ROOM_ID))}
    assert len(devices) == 2, "one of who made the room of the test, one of all names"
    assert anna.in_flight == 0


def test_a_name_is_given_once_though_its_request_is_repeated() -> None:
    """Its session of the log was lost after it was committed."""
    world, anna, _, room = pair()
    world.send(anna, RenameRoom(room_id=room, name="plan", request="n"))
    world.process(1)
    ((lane, records, _),) = world.requests
    world.shard.apply(records)
    world.requests.clear()
    world.edge.on_evicted(0, lane)
    world.edge.on_ready(0, lane)
    world.step()
    world.settle()
    assert answer(world, anna, "n").name == "plan"
    assert len(said(world)) == 1 and anna.in_flight == 0


def test_a_name_is_answered_though_the_replica_of_this_node_goes_away() -> None:
    world, anna, _, room = pair()
    world.send(anna, RenameRoom(room_id=room, name="plan"))
    world.process()
    assert world.take(anna) == []  # this node has not seen it
    world.edge.on_detached(0)
    assert errors(world.take(anna)) == ["unavailable"]
    assert anna.in_flight == 0
    world.send(anna, RenameRoom(room_id=room, name="plan"))
    assert errors(world.take(anna)) == ["unavailable"]


def test_names_that_go_with_a_segment_are_stated_anew_with_the_time_of_then() -> None:
    world, anna, _, room = pair()
    rename(world, anna, room, "plan")
    fill(world, anna, room)
    segments = VerifiedSegments(world.shard.files, SMALL)
    first = segments.segment(0)
    assert first is not None
    (body,) = said_in(first)
    told = decode_renaming(body)
    assert told is not None
    assert told.said_us > 0 and told._replace(said_us=0) == said(world)[0]
    audit(world, encode_renaming(Renaming("other", "plan", 1, "carl")), 2)  # later, and heard first
    audit(world, body, 3)
    world.shard.files.oldest = 1
    fresh = begun(world)
    assert fresh.edge.lookup.new_names.shown("general") == "plan"
    assert fresh.edge.lookup.new_names.shown("other") == "other"
    assert id_bytes(room) == fresh.edge.lookup.new_names.leads_to(room_id_of("plan"))
