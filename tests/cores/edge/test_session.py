"""A connection from hello to its end: states, errors, bad input, refreshing, rooms that must be
looked up."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame
from websockets.streams import StreamReader

from appliance.base import limits
from appliance.base.prng import Prng
from appliance.cores.edge.session import SESSION, Session
from appliance.cores.edge.websocket import OPCODE_BINARY, OPCODE_TEXT, server_frame
from appliance.formats.client.connection import NextNode, NodeState, Ping, Pong
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.frame import encode_binary, encode_json
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.rooms import CreateRoom, ListRooms
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import Hello, RefreshToken, Welcome
from appliance.formats.client.subscribing import SubscribeRoom
from appliance.formats.client_errors import CLIENT_ERRORS, NodeFull
from appliance.formats.record import SHARD_ROOM_ID
from appliance.formats.room_name import room_id_of
from tests.cores.edge import errors_told
from tests.cores.edge.test_history import ROOMS, written
from tests.cores.edge.world import ENCODINGS, START_US, World, acks, device, errors, events, token

NOW_S = START_US // 1_000_000
# tests that take long, or would start themselves again
NO_ERRORS = ("every_error", "hundred_thousand", "every_bit_of_a_footer", "what_the_table_says")
# an answer to who has no conversation: no frame says it, and a test of that makes it happen
NO_FRAMES = (NodeFull,)


def fresh(world: World, binary: bool = False) -> Session:
    return world.edge.on_open("10.0.0.1", ENCODINGS[binary])


def text(world: World, session: Session, value: str | bytes) -> list[str]:
    world.edge.on_frame(session, value if isinstance(value, bytes) else value.encode(), True)
    return errors(world.take(session))


def test_states_are_only_those_of_the_table() -> None:
    assert set(SESSION) == {"new", "ready", "closed"}
    assert all(following in SESSION for row in SESSION.values() for following in row.values())
    assert SESSION["closed"] == {}


def test_hello_comes_first_or_the_connection_ends() -> None:
    world = World()
    session = fresh(world)
    assert text(world, session, '{"type":"ping"}') == ["hello_required"]
    assert world.closed[session.number] == "hello_required"
    assert text(world, session, '{"type":"ping"}') == []


def test_welcome_tells_who_where_and_how_much() -> None:
    world = World()
    session = fresh(world)
    world.send(session, Hello(token=token("bob"), client_id=device(1), request="h"))
    (frame,) = world.take(session)
    assert (frame.author, frame.client_id, frame.node, frame.request) == ("bob", device(1), 1, "h")
    assert frame.expires_at == START_US + 3600 * 1_000_000
    assert frame.limits.body_size_max == 2048


def test_a_second_hello_is_refused_and_the_connection_lives() -> None:
    world = World()
    session = world.open()
    world.send(session, Hello(token=token(), client_id=device(2)))
    world.send(session, Ping(request="p"))
    frames = world.take(session)
    assert errors(frames) == ["hello_repeated"]
    assert frames[1].request == "p"


def test_no_hello_in_time_ends_the_connection() -> None:
    world = World()
    early, late = fresh(world), world.open(number=5)
    world.tick(limits.HELLO_MS_MAX // 10)
    assert errors(world.take(early)) == ["hello_late"]
    assert world.closed[early.number] == "hello_late"
    assert late.state == "ready"


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        (token(exp=NOW_S - 1), "token_expired"),
        (token(nbf=NOW_S + 99), "token_not_yet_valid"),
        (token(headers={"kid": "new"}), "token_key_unknown"),
        ("nonsense", "token_invalid"),
    ],
)
def test_a_bad_token_at_hello_ends_the_connection(bad: str, name: str) -> None:
    world = World()
    session = fresh(world)
    world.send(session, Hello(token=bad, client_id=device(1), request="h"))
    (frame,) = world.take(session)
    assert (frame.name, frame.request) == (name, "h")
    assert world.closed[session.number] == name


def test_an_expired_token_ends_the_session_unless_refreshed_in_band() -> None:
    world = World()
    kept, lost = world.open(number=1), world.open(number=2)
    world.now_us += 3_000 * 1_000_000
    world.tick()
    world.send(kept, RefreshToken(token=token(exp=NOW_S + 7200), request="r"))
    assert [frame.request for frame in world.take(kept)] == ["r"]
    world.now_us += 700 * 1_000_000
    world.tick()
    assert errors(world.take(lost)) == ["token_expired"]
    assert world.closed[lost.number] == "token_expired"
    assert kept.state == "ready"
    world.now_us += 3_600 * 1_000_000
    world.tick()
    assert world.closed[kept.number] == "token_expired"


def test_a_refresh_that_fails_leaves_the_session_as_it_was() -> None:
    world = World()
    session = world.open()
    for bad, name in (
        (token("bob"), "token_invalid"),
        (token(exp=NOW_S - 5), "token_expired"),
        ("x", "token_invalid"),
    ):
        world.send(session, RefreshToken(token=bad))
        assert errors(world.take(session)) == [name]
    assert session.state == "ready"
    assert session.claims.author == "anna"


def test_a_refresh_changes_the_rights() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.send(session, RefreshToken(token=token(rights={"*": ["read"]})))
    world.take(session)
    world.say(session, room, 1, 1)
    assert errors(world.take(session)) == ["forbidden"]


def test_rights_are_those_of_the_patterns_that_match_the_name() -> None:
    world = World()
    creator = world.open(number=9)
    rooms = [world.room(creator, name) for name in ("team-a", "public", "secret")]
    session = world.open(rights={"team-*": ["read", "send"], "public": ["read"]})
    outcomes = []
    for room in rooms:
        world.say(session, room, 1, 1)
        world.send(session, SubscribeRoom(room_id=room))
        world.send(session, SnapshotRequest(room_id=room))
        world.settle()
        outcomes.append(errors(world.take(session)))
    assert outcomes == [[], ["forbidden"], ["forbidden"] * 3]
    world.send(session, CreateRoom(name="team-b"))
    assert errors(world.take(session)) == ["forbidden"]
    world.send(session, ListRooms())
    assert [item.name for item in world.take(session)[0].rooms] == ["team-a", "public"]


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("{", "frame_malformed"),
        ("", "frame_malformed"),
        ('{"x":' * 100_000, "frame_malformed"),
        (b'{"type":"ping","request":"\xff"}', "frame_malformed"),
        ("{}", "frame_unknown"),
        ('{"type":"fly"}', "frame_unknown"),
        ('{"type":"message_ack"}', "frame_unknown"),
        ("[]", "field_invalid"),
        ("7", "field_invalid"),
        ('{"type":"ping","request":5}', "field_invalid"),
        ('{"type":"subscribe_room"}', "field_invalid"),
        (json.dumps({"type": "ping", "request": "x" * 65}), "field_invalid"),
        (
            json.dumps({"type": "snapshot_request", "room_id": str(device(1)), "limit": 0}),
            "field_invalid",
        ),
        (
            json.dumps({"type": "snapshot_request", "room_id": str(device(1)), "limit": 1001}),
            "field_invalid",
        ),
        (json.dumps({"type": "list_rooms", "after": 5 << 32}), "field_invalid"),
        (json.dumps({"type": "create_room", "name": " x"}), "room_name_invalid"),
        (json.dumps({"type": "create_room", "name": "ä" * 65}), "room_name_invalid"),
        (json.dumps({"type": "create_room", "name": "a\x00b"}), "room_name_invalid"),
    ],
)
def test_bad_json_gets_its_error_and_the_connection_lives(frame: bytes | str, name: str) -> None:
    world = World()
    session = world.open(binary=False)
    assert text(world, session, frame) == [name]
    assert text(world, session, '{"type":"ping"}') == []
    assert session.number not in world.closed


def test_a_refused_frame_is_named_by_what_could_be_read_of_it() -> None:
    world = World()
    session = world.open(binary=False)
    world.edge.on_frame(
        session,
        json.dumps(
            {
                "type": "send_message",
                "room_id": str(device(3)),
                "client_seq": 9,
                "body": 5,
                "request": "q",
            }
        ).encode(),
        True,
    )
    (frame,) = world.take(session)
    assert (frame.name, frame.room_id, frame.client_seq, frame.request) == (
        "field_invalid",
        device(3),
        9,
        "q",
    )


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "frame_malformed"),
        (b"\x2f", "frame_malformed"),
        (b"\x2f\x02\x01\x00\x00\x00", "frame_malformed"),
        (b"\x2f\x01\x02\x00\x00\x00", "frame_malformed"),
        (b"\x99\x01\x01\x00", "frame_unknown"),
        (b"\x21\x01\x01\x00", "frame_unknown"),
        (b"\x20\x01\xff\xff", "frame_malformed"),
        (b"\x20\x01\x01\x00" + bytes(57) + b"\xff\xff\xff\xff", "frame_malformed"),
        (b"\x2f\x01\x01\x00\x05\x00ab", "frame_malformed"),
        (b"\x2f\x01\x01\x00\x01\x00\xff", "frame_malformed"),
    ],
)
def test_bad_binary_gets_its_error_and_the_connection_lives(data: bytes, name: str) -> None:
    world = World()
    session = world.open()
    world.edge.on_frame(session, data, False)
    assert errors(world.take(session)) == [name]
    assert session.number not in world.closed


def test_the_wrong_kind_of_frame_ends_the_connection() -> None:
    world = World()
    for binary in (True, False):
        session = world.open(binary=binary)
        world.edge.on_frame(session, b"{}", binary)
        assert errors(world.take(session)) == ["encoding_mismatch"]
        assert world.closed[session.number] == "encoding_mismatch"


def test_too_large_a_frame_ends_the_connection() -> None:
    world = World()
    session, other = world.open(), world.open(number=2)
    world.edge.on_frame(session, bytes(limits.CLIENT_FRAME_SIZE_MAX + 1), False)
    world.edge.on_oversize(other)
    for each in (session, other):
        assert errors(world.take(each)) == ["frame_too_large"]
        assert world.closed[each.number] == "frame_too_large"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"body": "x" * 2049}, "body_too_large"),
        ({"body": "ä" * 1025}, "body_too_large"),
        ({"kind": 4}, "kind_refused"),
        ({"client_seq": 0}, "field_invalid"),
    ],
)
def test_a_message_that_may_not_be_is_refused_by_name_and_number(
    changed: dict[str, Any], name: str
) -> None:
    for binary in (True, False):
        world = World()
        session = world.open(binary=binary)
        room = world.room(session)
        fields = {"room_id": room, "client_seq": 1, "body": "ok"} | changed
        world.send(session, SendMessage(**fields))
        (frame,) = world.take(session)
        assert (frame.name, frame.room_id, frame.client_seq) == (name, room, fields["client_seq"])
        assert session.in_flight == 0


def test_a_body_of_exactly_the_most_bytes_passes() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.send(session, SendMessage(room_id=room, client_seq=1, body="ä" * 1024))
    world.settle()
    assert acks(world.take(session)) == [(1, 2)]


def test_binary_bodies_must_be_utf8() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    good = encode_binary(SendMessage(room_id=room, client_seq=1, body="ab"))
    world.edge.on_frame(session, good[:-2] + b"\xff\xfe", False)
    assert errors(world.take(session)) == ["field_invalid"]


def test_creating_a_room_twice_names_the_same_room() -> None:
    world = World()
    first, second = world.open(number=1), world.open(number=2, name="bob", binary=False)
    world.send(first, CreateRoom(name="general", request="a"))
    world.send(second, CreateRoom(name="general", request="b"))
    world.settle()
    world.send(second, CreateRoom(name="general", request="c"))
    frames = world.take(first) + world.take(second)
    assert [(frame.created, frame.request) for frame in frames] == [
        (True, "a"),
        (False, "b"),
        (False, "c"),
    ]
    assert {frame.room_id for frame in frames} == {id_of(room_id_of("general"))}
    assert len(world.shard.log) == 1


def test_a_room_whose_name_was_dropped_keeps_no_other_from_being_listed() -> None:
    """Retention has dropped the record that created it, and the edge began anew since."""
    world, session, rooms = written([0] * 320)
    world.edge.lookup.catalogue.rooms.clear()
    late = world.room(session, "late")
    world.shard.files.oldest = 1
    world.edge.lookup.catalogue.rooms.clear()
    world.send(session, ListRooms())
    (frame,) = world.take(session)
    assert [item.room_id for item in frame.rooms] == [late]
    world.send(session, CreateRoom(name=ROOMS[0]))  # by who knows its name: it is there
    world.settle()
    world.take(session)
    world.send(session, ListRooms())
    (frame,) = world.take(session)
    assert {item.room_id for item in frame.rooms} == {late, rooms[0]}


def test_rooms_are_listed_in_pages_with_names_and_counts() -> None:
    world = World()
    session = world.open()
    for i in range(5):
        room = world.room(session, f"room-{i}")
        world.say(session, room, 1, i)
        world.settle()
    world.take(session)
    listed, after = [], None
    for _ in range(3):
        world.send(session, ListRooms(limit=2, after=after))
        (frame,) = world.take(session)
        listed += [(item.name, item.message_count) for item in frame.rooms]
        after = frame.next
    assert listed == [(f"room-{i}", i + 1) for i in range(5)]
    assert after is None


def test_a_room_that_does_not_exist_is_unknown_when_the_log_says_so() -> None:
    world = World()
    session = world.open(binary=False)
    missing = uuid.UUID(int=12345)
    world.send(session, SendMessage(room_id=missing, client_seq=1, body="x"))
    world.send(session, SubscribeRoom(room_id=missing, request="s"))
    world.send(session, Ping(request="p"))
    assert world.take(session) == []
    world.process()
    assert not world.shard.log
    frames = world.take(session)
    assert errors(frames) == ["room_unknown", "room_unknown"]
    assert [frame.request for frame in frames] == [None, "s", "p"]


def test_the_shards_own_room_is_nobodys() -> None:
    world = World()
    session = world.open()
    world.send(session, SubscribeRoom(room_id=id_of(SHARD_ROOM_ID)))
    world.send(session, SendMessage(room_id=id_of(bytes(16)), client_seq=1, body="x"))
    assert errors(world.take(session)) == ["room_unknown", "room_unknown"]


def test_messages_wait_in_order_while_their_room_is_looked_up() -> None:
    world = World()
    creator = world.open(number=9)
    known = world.room(creator, "known")
    other = World()
    other.shard = world.shard
    other.lookups_answered = False
    other.attach()
    session = other.open()
    for seq in range(1, 4):
        other.say(session, known, seq, 1)
    assert not other.requests
    other.lookups_answered = True
    row = other.shard.row(id_bytes(known))
    other.edge.on_rooms(0, len(other.shard.log), [id_bytes(known)], row)
    other.settle()
    assert acks(other.take(session)) == [(1, 2), (2, 3), (3, 4)]


def test_a_room_created_elsewhere_a_moment_ago_is_waited_for() -> None:
    world = World()
    creator = world.open(number=9)
    world.send(creator, CreateRoom(name="new"))
    room = id_of(room_id_of("new"))
    session = world.open(number=1)
    world.say(session, room, 1, 1)
    world.tick(5)
    assert acks(world.take(session)) == []
    world.process()
    world.publish()
    world.tick(2)
    world.settle()
    assert acks(world.take(session)) == [(1, 2)]


def test_without_a_replica_here_reading_is_unavailable_and_sending_goes_on() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.edge.on_detached(0)
    world.say(session, room, 1, 1)
    world.process()
    assert acks(world.take(session)) == [(1, 2)]
    world.send(session, SubscribeRoom(room_id=room))
    world.send(session, ListRooms())
    world.tick(limits.ROOM_WAIT_MS_MAX // 10 + 2)
    assert errors(world.take(session)) == ["unavailable", "unavailable"]
    world.attach()
    world.tick(3)
    world.send(session, SubscribeRoom(room_id=room, since_op=0))
    world.tick(3)
    assert events(world.take(session)) == [1, 2]


def test_a_client_reads_what_it_was_told_is_written() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 1)
    world.send(session, CreateRoom(name="second"))
    world.process()
    assert acks(world.take(session)) == [(1, 2)]
    world.send(session, ListRooms())
    world.send(session, SnapshotRequest(room_id=room))
    assert world.take(session) == []
    world.publish()
    chunk, rooms = world.take(session)
    assert [(item.name, item.message_count) for item in rooms.rooms] == [
        ("general", 2),
        ("second", 1),
    ]
    assert [message.op for message in chunk.messages] == [1, 2]
    world.say(session, room, 2, 1)
    world.process()
    world.send(session, SnapshotRequest(room_id=room))
    world.tick(limits.ROOM_WAIT_MS_MAX // 10 + 1)  # it does not wait for ever, nor lack op 3
    assert errors(world.take(session))[-1] == "unavailable"
    world.publish()
    world.send(session, SnapshotRequest(room_id=room))
    assert [message.op for message in world.take(session)[-1].messages] == [1, 2, 3]


def test_who_waited_for_a_replica_that_fell_behind_is_heard_again() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 1)
    world.process()
    for frame in (ListRooms(), SnapshotRequest(room_id=room)):
        world.take(session)
        world.send(session, frame)  # waits: the replica has not published what was acknowledged
        assert world.take(session) == []
        world.edge.on_replica_status(0, "recovering")
        world.tick()
        assert errors(world.take(session)) == ["unavailable"]
        world.send(session, Ping(request="p"))
        assert [type(frame) for frame in world.take(session)] == [Pong]
        world.edge.on_replica_status(0, "")


def test_who_waits_for_a_room_of_a_log_that_stays_behind_is_told_in_time() -> None:
    world = World()
    room = world.room(world.open(number=9), "made elsewhere")
    other = beside(world)
    session = other.open()
    other.send(session, SnapshotRequest(room_id=room))
    assert other.take(session) == []
    session.seen[0] = len(world.shard.log) + 1  # told of what the replica never publishes
    other.tick(limits.ROOM_WAIT_MS_MAX // 10 + 1)
    assert errors(other.take(session)) == ["unavailable"]


def test_a_replica_that_is_behind_is_named() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.edge.on_replica_status(0, "recovering")
    world.send(session, SnapshotRequest(room_id=room))
    (frame,) = world.take(session)
    assert (frame.name, frame.temporary) == ("unavailable", True)
    assert "recovering" in frame.detail
    world.edge.on_replica_status(0, "")
    world.send(session, SnapshotRequest(room_id=room))
    assert type(world.take(session)[0]) is SnapshotChunk


def beside(world: World) -> World:
    """Another edge of the same shard; the tables of its replica lack every room."""
    other = World()
    other.shard = world.shard
    other.attach()
    other.rooms_here = False
    return other


def test_a_replica_that_lacks_a_room_does_not_say_that_it_is_unknown() -> None:
    """It may be behind and not know it, or fetch its state anew; the log knows the room."""
    world = World()
    room = world.room(world.open(number=9), "made elsewhere")
    other = beside(world)
    session = other.open()
    for frame in (
        SnapshotRequest(room_id=room),
        SendMessage(room_id=room, client_seq=1, body="x"),
    ):
        other.send(session, frame)
        other.process()
        assert other.take(session) == []  # it waits for the replica
        other.tick(limits.ROOM_WAIT_MS_MAX // 10 + 1)
        assert not other.requests  # the log was asked once
        (refused,) = other.take(session)
        assert (refused.name, refused.temporary) == ("unavailable", True)
    assert len(world.shard.log) == 1  # asking leaves nothing behind
    other.rooms_here = True
    other.send(session, SnapshotRequest(room_id=room))
    assert type(other.take(session)[0]) is SnapshotChunk


def test_what_the_log_said_before_is_no_answer_to_who_asks_later() -> None:
    world = World()
    other = beside(world)
    early, late = other.open(number=1), other.open(number=2)
    room = id_of(room_id_of("new"))
    other.send(early, SnapshotRequest(room_id=room))
    (log_session, records, _), other.requests = other.requests[0], []
    results = world.shard.apply(records)
    assert world.room(world.open(number=9), "new") == room
    other.send(late, SnapshotRequest(room_id=room))
    other.edge.on_reply(0, log_session, results)
    other.edge.on_ready(0, log_session)
    assert errors(other.take(early)) == ["room_unknown"]  # as it was when it was asked
    other.settle()
    assert other.take(late) == []
    other.rooms_here = True
    other.tick()
    assert type(other.take(late)[0]) is SnapshotChunk


def test_the_log_is_asked_for_rooms_no_faster_than_a_device_may_send() -> None:
    world = World(rates={"device_rate": 5})
    session = world.open()
    answers = []
    for number in range(100):
        world.send(session, SnapshotRequest(room_id=uuid.UUID(int=number + 1)))
        world.process()
        answers += errors(world.take(session))
    assert set(answers) == {"room_unknown", "rate_limited"}
    assert answers.count("room_unknown") <= 10  # what passes at once at five a second


def test_who_has_left_is_not_told_what_the_log_says() -> None:
    world = World()
    session = world.open()
    world.send(session, SnapshotRequest(room_id=uuid.UUID(int=7)))
    world.edge.on_close(session)
    world.process()
    assert world.take(session) == []


def test_a_list_of_rooms_that_is_older_than_what_was_read_is_not_passed_on() -> None:
    """The replica fetches its state anew: its tables are behind what it had published."""
    world = World()
    session = world.open()
    world.room(session)
    world.rooms_here = False
    world.send(session, ListRooms())
    (frame,) = world.take(session)
    assert (frame.name, frame.temporary) == ("unavailable", True)


def test_a_replica_that_does_not_answer_does_not_say_that_a_room_is_unknown() -> None:
    """It may stand still, or have no time: the room may exist all the same."""
    world = World()
    session = world.open()
    world.lookups_answered = False
    missing = id_of(room_id_of("made elsewhere"))
    world.send(session, SnapshotRequest(room_id=missing))
    world.tick(limits.ROOM_WAIT_MS_MAX // 10 + 1)
    (frame,) = world.take(session)
    assert (frame.name, frame.temporary) == ("unavailable", True)


def test_when_the_node_stops_everybody_is_told() -> None:
    world = World()
    sessions = [world.open(number=1), fresh(world)]
    world.edge.shut_down()
    for session in sessions:
        assert errors(world.take(session)) == ["closing"]
        assert world.closed[session.number] == "closing"


def test_who_is_sent_away_is_told_where_to_in_turn() -> None:
    world = World()
    sessions = [world.open(number=1), world.open(number=2), fresh(world)]
    world.edge.shut_down(["wss://b:1/ws", "wss://c:2/ws"])
    told = [world.take(session) for session in sessions]
    urls = ["wss://b:1/ws", "wss://c:2/ws", "wss://b:1/ws"]
    assert [frames[0] for frames in told] == [NextNode(url=url, spread=4) for url in urls]
    assert [frames[1].detail.rpartition("go to ")[2] for frames in told] == urls


def test_many_who_are_sent_away_are_to_come_over_ten_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SPREAD_MS_OF_CLIENT", 4000)
    world = World()
    sessions = [world.open(number=number) for number in (1, 2, 3)]
    world.edge.shut_down(["wss://b:1/ws"])
    assert {world.take(session)[0].spread for session in sessions} == {limits.SPREAD_MS_MAX}


def test_no_more_sends_than_the_bound_are_in_flight() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    session.in_flight = limits.SESSION_SENDS_MAX - 1
    world.say(session, room, 1, 2)
    assert errors(world.take(session)) == ["busy"]


def test_every_error_that_this_edge_makes_reaches_a_client_and_is_explained(tmp_path: Path) -> None:
    """The other tests of this folder are run once more, and what clients received is looked at."""
    here = Path(__file__).parent
    told_file = tmp_path / "told"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", str(here), "-q", "-p", "no:cacheprovider"),
            *("-p", "tests.cores.edge.errors_told", "-k", f"not ({' or '.join(NO_ERRORS)})"),
        ],
        cwd=here.parents[2],
        env={**os.environ, errors_told.TOLD_FILE: str(told_file)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stdout[-2000:]  # one that fails says so by itself
    told = set(told_file.read_text().split())
    docs = (here.parents[2] / "docs" / "errors.md").read_text()
    for error in CLIENT_ERRORS:
        name = error.__new__(error).name
        assert (name in told) != (error in NO_FRAMES), f"no test makes {name} happen"
        assert f"| {error.code} | `{name}` |" in docs, name
    assert told <= {error.__new__(error).name for error in CLIENT_ERRORS}


@pytest.mark.parametrize("opcode", [OPCODE_TEXT, OPCODE_BINARY])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 100_000])
def test_frames_are_those_that_a_websocket_library_reads(opcode: int, size: int) -> None:
    reader = StreamReader()
    reader.feed_data(server_frame(b"x" * size, opcode))
    parsing = Frame.parse(reader.read_exact, mask=False)
    with pytest.raises(StopIteration) as end:
        next(parsing)
    assert (end.value.value.opcode, end.value.value.fin) == (opcode, True)
    assert bytes(end.value.value.data) == b"x" * size


def test_a_hundred_thousand_random_messages_end_no_session_and_start_no_request(seed: int) -> None:
    prng = Prng(seed)
    world = World()
    sessions = [
        world.open(number=1),
        world.open(number=2, binary=False),
        fresh(world),
        fresh(world, True),
    ]
    room = world.room(sessions[0])
    stems = [
        encode_binary(SubscribeRoom(room_id=room)),
        encode_json(Ping()),
        encode_binary(SendMessage(room_id=room, client_seq=1, body="x")),
        encode_json(SnapshotRequest(room_id=room)),
        bytes(range(0x20, 0x33)),
    ]
    for i in range(100_000):
        data = bytearray(prng.bytes(prng.below(24)) if i % 2 else prng.choice(stems))
        if data and i % 2 == 0:
            for _ in range(prng.between(1, 3)):
                data[prng.below(len(data))] = prng.below(256)
        session = sessions[i % 4]
        world.edge.on_frame(session, bytes(data), not session.binary)
        if session.state == "closed":
            world.edge.on_close(session)
            sessions[i % 4] = (
                fresh(world, session.binary)
                if i % 4 > 1
                else world.open(number=i % 4 + 1, binary=session.binary)
            )
        if i % 100 == 0:
            world.tick()
            world.received.clear()
            world.process()
    world.settle()
    assert len(world.edge.sessions) == 4
    assert world.edge.counters["malformed"] > 50_000
    survivor = world.open(number=7)
    world.say(survivor, room, 1, 2)
    world.settle()
    assert len(acks(world.take(survivor))) == 2


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_get_an_answer_or_do_what_they_say(data: bytes, binary: bool) -> None:
    world = World()
    session = world.open(binary=binary)
    world.edge.on_frame(session, data, not binary)
    world.tick(60)
    assert len(world.take(session)) >= 1


# --- a node that is cut off -----------------------------------------------------------------------

CUT_US = 1_700_000_000_000_000


def test_a_node_that_is_cut_off_tells_every_client_since_when_and_until_when() -> None:
    world = World(log_sessions=1)
    old = world.open(number=1)
    world.room(old, "general")
    world.take(old)
    for _ in range(3):
        world.edge.on_replica_status(0, "", CUT_US)  # told once, however often it is heard
    (told,) = world.take(old)
    assert told == NodeState(stale_since=CUT_US)
    new = world.edge.on_open("10.0.0.2", ENCODINGS[True])
    world.send(new, Hello(token=token("bert"), client_id=device(2)))
    welcome, told = world.take(new)
    assert type(welcome) is Welcome and told == NodeState(stale_since=CUT_US)
    world.edge.on_replica_status(0, "", 0)
    assert world.take(old) == world.take(new) == [NodeState(stale_since=None)]


def test_history_says_since_when_it_may_be_old() -> None:
    world = World(log_sessions=1)
    session = world.open(number=1)
    room = world.room(session, "general")
    for cut_us in (0, CUT_US, 0):
        world.edge.on_replica_status(0, "", cut_us)
        world.take(session)
        world.send(session, SnapshotRequest(room_id=room))
        world.tick(3)
        (chunk,) = world.take(session)
        assert chunk.stale_since == (cut_us or None)
