"""Rooms that moderators close and open: who may, what is refused then, who hears of it."""

from typing import Any
from uuid import UUID

import pytest

from appliance.base.prng import Prng
from appliance.cores.edge.catalogue import Catalogue
from appliance.cores.edge.requests.access import allowed_by
from appliance.cores.edge.session import Session
from appliance.formats import session as replies
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.rights import IMPORT, MODERATE, READ, SEND
from appliance.formats.client.rooms import (
    CloseRoom,
    ListRooms,
    RoomsPage,
    RoomState,
    RoomStateRequest,
)
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from appliance.formats.event import decode_policy, encode_policy
from appliance.formats.policy_bits import POLICY_CLOSED, POLICY_SHARED
from appliance.formats.record import (
    BODY,
    BODY_LEN,
    FLAGS,
    KIND_IMPORTED,
    KIND_ROOM_POLICY,
    encode,
)
from appliance.formats.sharing import SharedSite, Sharing
from tests.cores.edge.world import World, acks, errors

MODERATOR = {"*": ["read", "send", "moderate"]}
MEMBER = {"*": ["read", "send"]}
OSLO, BERN, ROME = (
    SharedSite(name, bytes([n]) * 32) for n, name in enumerate(("oslo", "bern", "rome"))
)


def pair(**words: Any) -> tuple[World, Session, Session, UUID]:
    """A moderator, a member, and a room."""
    world = World()
    anna = world.open(rights=MODERATOR, **words)
    bob = world.open(number=2, name="bob", rights=MEMBER, **words)
    return world, anna, bob, world.room(anna)


def close(world: World, session: Session, room: UUID, *, closed: bool = True) -> Any:
    world.send(session, CloseRoom(room_id=room, closed=closed, request="c"))
    world.settle()
    (answer,) = [frame for frame in world.take(session) if getattr(frame, "request", None) == "c"]
    return answer


def policies(world: World, room: UUID) -> list[Any]:
    """What each policy record of the room says."""
    found = [record for record in world.ops(room) if record[FLAGS] == KIND_ROOM_POLICY]
    sizes = [int.from_bytes(record[BODY_LEN : BODY_LEN + 4], "little") for record in found]
    return [
        decode_policy(record[BODY : BODY + size]) for record, size in zip(found, sizes, strict=True)
    ]


def share(world: World, room: UUID, *sites: SharedSite, number: int) -> None:
    """As an operator does, by another edge."""
    body = encode_policy(0, Sharing(tuple(sites)))
    record = encode(
        room_id=id_bytes(room), msg_id=bytes([number]) * 16, author_id=0, body=body,
        client_id=bytes([number]) * 16, client_seq=1, kind=KIND_ROOM_POLICY,
    )  # fmt: skip
    world.shard.apply(record)


@pytest.mark.parametrize("binary", [True, False])
def test_a_closed_room_takes_nothing_until_it_is_opened_again(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    world.say(bob, room, 1, 1)
    world.settle()
    assert acks(world.take(bob)) == [(1, 2)]
    state = close(world, anna, room)
    assert (state.closed, state.may_send, state.may_read) == (True, False, True)
    world.say(bob, room, 2, 1)
    world.say(bob, room, 1, 1)  # what was acknowledged before is acknowledged again
    world.settle()
    frames = world.take(bob)
    assert errors(frames) == ["room_closed"] and acks(frames) == [(1, 2)]
    stored = len(world.ops(room))
    state = close(world, anna, room, closed=False)
    assert (state.closed, state.may_send) == (False, True)
    world.say(bob, room, 2, 1)  # its number was not used
    world.settle()
    assert acks(world.take(bob)) == [(2, stored + 2)]


def test_what_is_under_way_is_judged_by_its_place_in_the_log() -> None:
    world, anna, bob, room = pair()
    world.say(bob, room, 1, 3)
    world.send(anna, CloseRoom(room_id=room))
    world.say(bob, room, 4, 3)
    world.settle()
    frames = world.take(bob)
    assert [seq for seq, _ in acks(frames)] == list(range(1, 1 + len(acks(frames))))
    refused = errors(frames)
    assert len(acks(frames)) + len(refused) == 6 and refused[0] == "room_closed"
    assert set(refused) <= {"room_closed", "sequence_gap"}
    assert len(world.ops(room)) == 2 + len(acks(frames))


def test_an_import_is_refused_as_a_message_is() -> None:
    world, anna, _, room = pair()
    close(world, anna, room)
    importer = world.open(number=3, name="ines", rights={"*": ["import"]})
    frame = SendMessage(room_id=room, client_seq=1, kind=KIND_IMPORTED, body="77 Ada\nsaid")
    world.send(importer, frame)
    world.settle()
    assert errors(world.take(importer)) == ["room_closed"]


def test_who_may_not_moderate_there_changes_nothing() -> None:
    world, anna, bob, room = pair()
    only_other = world.open(number=3, name="eve", rights={"other": ["admin"]})
    for session in (bob, only_other):
        answer = close(world, session, room)
        assert (answer.name, answer.room_id) == ("forbidden", room)
    assert policies(world, room) == []
    unknown = UUID(int=77)
    world.send(anna, CloseRoom(room_id=unknown))
    world.settle()
    assert errors(world.take(anna)) == ["room_unknown"]


@pytest.mark.parametrize("binary", [True, False])
def test_who_follows_the_room_hears_of_it_and_who_comes_later_too(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    world.send(bob, SubscribeRoom(room_id=room))
    world.take(bob)
    close(world, anna, room)
    event, state = world.take(bob)
    assert (type(event), event.kind, event.author) == (MessageEvent, KIND_ROOM_POLICY, "anna")
    assert ord(event.body[0]) == POLICY_CLOSED
    assert state == RoomState(
        room_id=room, closed=True, may_read=True, may_send=False, may_import=False,
        may_moderate=False, name="general",
    )  # fmt: skip
    late = world.open(number=3, name="carl", binary=binary, rights=MODERATOR)
    world.send(late, SubscribeRoom(room_id=room))
    subscribed, state = world.take(late)
    assert type(subscribed) is Subscribed
    assert (state.closed, state.may_moderate) == (True, True)
    close(world, anna, room, closed=False)
    for session, may_moderate in ((bob, False), (late, True)):  # each what he may do there
        (state,) = [frame for frame in world.take(session) if type(frame) is RoomState]
        assert (state.closed, state.may_send, state.may_moderate) == (False, True, may_moderate)
    world.send(anna, SubscribeRoom(room_id=room))
    assert [type(frame) for frame in world.take(anna)] == [Subscribed]


@pytest.mark.parametrize("binary", [True, False])
def test_a_list_of_rooms_tells_before_it_which_are_closed(binary: bool) -> None:
    world, anna, bob, room = pair(binary=binary)
    secret = world.room(anna, "secret")
    close(world, anna, room)
    close(world, anna, secret)
    world.send(bob, ListRooms(request="l"))
    *states, page = world.take(bob)
    assert [(frame.room_id, frame.closed, frame.request) for frame in states] == [
        (room, True, None),
        (secret, True, None),
    ]
    assert type(page) is RoomsPage and len(page.rooms) == 2
    eve = world.open(number=3, name="eve", binary=binary, rights={"general": ["read"]})
    world.send(eve, ListRooms())
    assert [frame.name for frame in world.take(eve) if type(frame) is RoomState] == ["general"]


def test_the_state_of_a_room_is_told_to_who_may_read_there_by_its_row_too() -> None:
    """Also by an edge that begins when the room was closed long ago."""
    world, anna, bob, room = pair()
    close(world, anna, room)
    world.edge.lookup.catalogue = Catalogue()
    world.edge.lookup.catalogue.rooms.clear()
    world.attach()
    for session, may_moderate in ((anna, True), (bob, False)):
        world.send(session, RoomStateRequest(room_id=room, request="s"))
        world.settle()
        (state,) = world.take(session)
        assert (state.closed, state.may_send, state.may_moderate) == (True, False, may_moderate)
        assert (state.name, state.request) == ("general", "s")
    eve = world.open(number=3, name="eve", rights={"*": ["send", "moderate"]})
    world.send(eve, RoomStateRequest(room_id=room))
    world.settle()
    assert errors(world.take(eve)) == ["forbidden"]


def test_who_shares_a_room_is_kept_when_it_is_closed_and_opened() -> None:
    world, anna, _, room = pair()
    share(world, room, OSLO, BERN, number=1)
    world.publish()
    close(world, anna, room)
    close(world, anna, room, closed=False)
    said = policies(world, room)
    assert [policy.bits for policy in said] == [
        POLICY_SHARED,
        POLICY_SHARED | POLICY_CLOSED,
        POLICY_SHARED,
    ]
    assert len({policy.sharing for policy in said}) == 1


def test_what_an_operator_shares_at_the_same_time_is_not_undone() -> None:
    """His policy is committed between the one that was repeated and the one that closes."""
    world, anna, _, room = pair()
    share(world, room, OSLO, BERN, number=1)
    world.publish()
    world.send(anna, CloseRoom(room_id=room, request="c"))
    share(world, room, OSLO, ROME, number=2)
    world.settle()
    last = policies(world, room)[-1]
    assert last.bits == POLICY_SHARED | POLICY_CLOSED
    assert {site.name for site in last.sharing.sites} == {"oslo", "rome"}
    (answer,) = [frame for frame in world.take(anna) if type(frame) is RoomState]
    assert (answer.closed, answer.request) == (True, "c")
    assert anna.in_flight == 0


def test_another_who_closes_at_the_same_time_makes_nobody_write_anew() -> None:
    world, anna, _, room = pair()
    other = world.open(number=3, name="carl", rights=MODERATOR)
    world.send(anna, CloseRoom(room_id=room))
    world.send(other, CloseRoom(room_id=room, closed=False))
    world.settle()
    for session, closed in ((anna, True), (other, False)):
        assert [frame.closed for frame in world.take(session)] == [closed]
    assert len(policies(world, room)) == 2


def test_a_change_is_answered_though_the_replica_of_this_node_goes_away() -> None:
    world, anna, _, room = pair()
    world.send(anna, CloseRoom(room_id=room))
    world.process()
    assert world.take(anna) == []  # this node has not seen it
    world.edge.on_detached(0)
    assert [frame.closed for frame in world.take(anna)] == [True]
    assert anna.in_flight == 0
    world.send(anna, CloseRoom(room_id=room))
    assert errors(world.take(anna)) == ["unavailable"]


def test_what_the_shard_refuses_of_a_change_is_told_by_name() -> None:
    world, anna, _, room = pair()
    world.shard.refuse_with = replies.STORAGE_FULL
    answer = close(world, anna, room)
    assert (type(answer), answer.name, answer.room_id) == (ErrorFrame, "storage_full", room)
    assert anna.in_flight == 0


def test_both_token_and_policy_must_allow_what_is_done(seed: int) -> None:
    prng = Prng(seed)
    for _ in range(200):
        bits, policy = prng.below(32), prng.below(4)
        allowed = allowed_by(policy, bits)
        assert allowed & ~bits == 0
        takes_away = SEND | IMPORT if policy & POLICY_CLOSED else 0
        assert allowed == bits & ~takes_away
        assert allowed & (READ | MODERATE) == bits & (READ | MODERATE)


def test_a_room_is_closed_once_though_the_request_is_repeated() -> None:
    """Its session of the log was lost after it was committed."""
    world, anna, _, room = pair()
    world.send(anna, CloseRoom(room_id=room, request="c"))
    ((lane, records, _),) = world.requests
    world.shard.apply(records)
    world.requests.clear()
    world.edge.on_evicted(0, lane)
    world.edge.on_ready(0, lane)
    world.step()
    world.settle()
    (state,) = [frame for frame in world.take(anna) if type(frame) is RoomState]
    assert (state.closed, state.request) == (True, "c")
    assert len(policies(world, room)) == 1 and anna.in_flight == 0
