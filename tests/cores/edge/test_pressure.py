"""Clients that go too fast, read nothing, or are refused again and again: what they are given, what
is held for them, and when they are closed."""

import gc
import uuid
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.base import limits
from appliance.cores.edge.expiries import Expiries
from appliance.cores.edge.patience import Patience
from appliance.cores.edge.session import Sends, Session
from appliance.formats.client.connection import ErrorFrame, Ping
from appliance.formats.client.frame import encode_binary, encode_json
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.rooms import CreateRoom, ListRooms
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import Hello, RefreshToken
from appliance.formats.client.subscribing import SubscribeRoom, UnsubscribeRoom
from tests.cores.edge.world import ENCODINGS, START_US, World, acks, device, errors, token

DEFAULTS = {"device_rate": 200, "user_rate": 400, "room_rate": 50_000, "address_rate": 50_000}
MISSING = uuid.UUID(int=12345)
PING = encode_binary(Ping())
NOW_S = START_US // 1_000_000


def fill(world: World, session: Session, room: uuid.UUID, count: int, size: int = 2000) -> None:
    for first in range(1, count + 1, 7):
        world.say(session, room, first, min(7, count + 1 - first), size)
        world.settle()
    world.take(session)


# --- every frame counts


def small_frames(room: uuid.UUID) -> dict[str, bytes]:
    one = encode_binary
    return {
        "ping": PING,
        "hello": one(Hello(token=token(), client_id=device(1))),
        "refresh_token": one(RefreshToken(token=token())),
        "create_room": one(CreateRoom(name="general")),
        "list_rooms": one(ListRooms(limit=1)),
        "subscribe_room": one(SubscribeRoom(room_id=room)),
        "unsubscribe_room": one(UnsubscribeRoom(room_id=room)),
        "snapshot_request": one(SnapshotRequest(room_id=room, limit=1)),
        "send_message": one(SendMessage(room_id=room, client_seq=1, body="x")),
        "kind refused": one(SendMessage(room_id=room, client_seq=1, body="x", kind=4)),
        "malformed": b"\x2f",
        "unknown": b"\x99\x01\x01\x00",
    }


@pytest.mark.parametrize("name", small_frames(MISSING))
def test_every_frame_is_counted_also_one_that_is_refused(name: str) -> None:
    world = World(rates=DEFAULTS)
    session = world.open()
    room = world.room(session)
    data = small_frames(room)[name]
    for _ in range(500):
        world.edge.on_frame(session, data, False)
        world.step()
        if name == "snapshot_request":
            world.publish()
    assert {"rate_limited", "refused_too_often"} & set(errors(world.take(session)))


@pytest.mark.parametrize("what", ["on_control", "on_fragment"])
def test_pings_and_parts_of_messages_are_counted(what: str) -> None:
    world = World(rates=DEFAULTS)
    session = world.open()
    for _ in range(500):
        getattr(world.edge, what)(session)
    assert not session.listens(world.now_ns)


def test_a_ping_before_hello_ends_the_connection() -> None:
    world = World()
    session = world.edge.on_open("10.0.0.1", ENCODINGS[True])
    world.edge.on_control(session)
    assert errors(world.take(session)) == ["hello_required"]
    assert world.closed[session.number] == "hello_required"


def test_a_hello_counts_for_its_user() -> None:
    world = World(rates={"user_rate": 5})
    names = []
    for number in range(20):
        session = world.edge.on_open("10.0.0.1", ENCODINGS[True])
        world.send(session, Hello(token=token("bob"), client_id=device(number)))
        names += errors(world.take(session))
    assert names == ["rate_limited"] * 10  # what passes at once at five a second


# --- refusals


def test_who_was_too_fast_is_not_read_from_for_a_moment() -> None:
    world = World(rates=DEFAULTS)
    session = world.open()
    for _ in range(1000):
        if session.listens(world.now_ns):
            world.edge.on_frame(session, PING, False)
    assert errors(world.take(session)) == ["rate_limited"]
    world.tick(limits.HOLD_MS_MAX // 10 + 1)
    assert session.listens(world.now_ns)


def test_frame_after_frame_refused_is_read_slowly_and_then_closed() -> None:
    world = World(rates=DEFAULTS)
    session = world.open()
    sent = 0
    for _ in range(1000):
        while session.listens(world.now_ns) and session.state != "closed":
            world.edge.on_frame(session, b"\x2f", False)
            sent += 1
        world.tick()
        if session.state == "closed":
            break
    assert world.closed[session.number] == "refused_too_often"
    assert errors(world.take(session))[-1] == "refused_too_often"
    # the rates let 400 at once and 200 a second pass; the refused ones are not free
    assert sent < 1000
    assert world.edge.counters["error_refused_too_often"] == 1


def large_frames(room: uuid.UUID) -> dict[str, tuple[dict[str, Any], bytes, int]]:
    """What costs as much as many frames to refuse: rights of the sender, the frame, how many."""
    of_room = SendMessage(room_id=room, client_seq=1, body="x")
    elsewhere = SendMessage(room_id=MISSING, client_seq=1, body="x")
    torn = encode_binary(*[of_room] * 4000) + b"\x20"
    return {
        "no right to send": ({"*": ["read"]}, encode_binary(*[of_room] * 4000), 4000),
        "no right to send there": ({"a*": ["send"]}, encode_binary(*[of_room] * 4000), 4000),
        "no such room": ({"*": ["send"]}, encode_binary(*[elsewhere] * 4000), 4000),
        "too many for the rate": ({"*": ["send"]}, encode_binary(*[of_room] * 4000), 4000),
        "malformed": ({}, b"\x99" * 900_000, 900_000 // limits.TURN_COST_SIZE),
        "malformed messages": ({"*": ["send"]}, torn, len(torn) // limits.TURN_COST_SIZE),
    }


@pytest.mark.parametrize("name", large_frames(MISSING))
def test_a_refused_frame_counts_by_what_it_costs(name: str) -> None:
    world = World(rates=DEFAULTS)
    room = world.room(world.open(number=2, name="maker"))
    rights, data, weight = large_frames(room)[name]
    session = world.open(rights=rights)
    world.rooms_here = name != "no such room"
    began_ns, sent = world.now_ns, 0
    for _ in range(100):
        while session.listens(world.now_ns):
            world.edge.on_frame(session, data, False)
            sent += 1
            seconds = (world.now_ns - began_ns) / 1e9
            # as many as the rate of a device lets pass, or one for each time it is not read from
            allowed = max(200 * seconds / weight, seconds * 1000 / limits.HOLD_MS_MAX)
            assert sent <= 2 + 400 / weight + allowed
        world.settle()
    assert session.state == "ready"


def test_who_makes_a_mistake_now_and_then_is_never_closed() -> None:
    patience, now_ns = Patience(), 0
    for _ in range(10_000):
        assert not patience.on_refusal(now_ns, 0)
        now_ns += 1_000_000_000 // limits.REFUSALS_RATE


def test_who_waits_as_it_is_told_sends_all_and_is_never_closed() -> None:
    """A device with more to say than its rate allows, one message a frame, as the page does."""
    world = World(rates=DEFAULTS)
    session = world.open(binary=False)
    room = world.room(session)
    stored, seq = 0, 1
    for _ in range(1000):
        while session.listens(world.now_ns) and seq <= 1000 and seq - stored <= 64:
            world.send(session, SendMessage(room_id=room, client_seq=seq, body="x"))
            seq += 1
        world.settle()
        answers = world.take(session)
        stored += len(acks(answers))
        refused = [frame.client_seq for frame in answers if type(frame) is ErrorFrame]
        seq = min([seq, *refused])
        if stored == 1000:
            break
    assert stored == 1000
    assert session.number not in world.closed


# --- nobody reads


def test_nothing_is_made_for_a_client_that_takes_nothing() -> None:
    world = World()
    writer, reader = world.open(number=1), world.open(number=2)
    room = world.room(writer)
    fill(world, writer, room, 280)
    page = encode_binary(SnapshotRequest(room_id=room, limit=1000))
    for _ in range(400):
        world.edge.on_frame(reader, page, False)  # in one read, before any output is taken
    assert reader.out_size <= limits.SESSION_OUT_MAX + limits.CHUNK_FRAME_SIZE_MAX + 65_536
    assert not reader.listens(world.now_ns)


def test_what_a_blocked_client_asks_for_waits_and_is_answered_later() -> None:
    world = World()
    writer, reader = world.open(number=1), world.open(number=2)
    room = world.room(writer)
    fill(world, writer, room, 20)
    world.edge.on_blocked(reader)
    assert not reader.listens(world.now_ns)
    world.send(reader, SnapshotRequest(room_id=room, request="later"))
    world.tick(5)
    assert world.take(reader) == []
    world.edge.on_writable(reader)
    (chunk,) = world.take(reader)
    assert (chunk.request, len(chunk.messages)) == ("later", 21)
    assert reader.listens(world.now_ns)


@pytest.mark.parametrize("messages, pages", [(10, limits.HISTORY_PAGES), (30, 1)])
def test_few_pages_of_history_are_made_in_a_beat_and_all_in_the_end(
    messages: int, pages: int
) -> None:
    """A page of 30 such messages is a large one, the last of its beat."""
    world = World()
    writer = world.open(number=1)
    room = world.room(writer)
    fill(world, writer, room, messages)
    world.send(writer, SubscribeRoom(room_id=room))  # now the room is looked up
    readers = [world.open(number=10 + i) for i in range(10)]
    page = encode_binary(SnapshotRequest(room_id=room, limit=1000))
    for reader in readers:
        world.edge.on_frame(reader, page, False)
    assert sum(reader.out_size > 0 for reader in readers) == pages
    world.edge.beat()
    assert sum(reader.out_size > 0 for reader in readers) == 2 * pages
    for reader in readers:
        (chunk,) = world.take(reader)
        assert len(chunk.messages) == messages + 1


def test_history_is_charged_by_its_bytes() -> None:
    world = World(rates={"device_rate": 200})
    writer = world.open(number=1)
    room = world.room(writer)
    world.edge._charges._admission.limited = False
    fill(world, writer, room, 140)
    world.edge._charges._admission.limited = True
    reader, taken = world.open(number=2), 0
    for _ in range(1000):
        world.send(reader, SnapshotRequest(room_id=room, limit=200))
        frames = world.take(reader)
        if errors(frames):
            break
        taken += sum(len(message.body) for message in frames[0].messages)
    burst = 200 * limits.RATE_BURST_MS // 1000
    assert taken < burst * limits.HISTORY_CHARGE_SIZE


# --- what waits


def test_behind_a_room_that_nobody_knows_one_message_waits_as_it_came() -> None:
    world = World()
    session = world.open()
    world.rooms_here = False
    frames = [SendMessage(room_id=MISSING, client_seq=i, body="x" * 2000) for i in range(9)]
    data = encode_binary(*frames)
    world.edge.on_frame(session, data, False)
    assert not session.listens(world.now_ns)
    (waiting,) = session.waiting
    assert waiting.items is None and waiting.data == data  # not parsed
    world.step()
    world.process()
    assert errors(world.take(session)) == ["room_unknown"] * 9
    assert session.listens(world.now_ns)


@pytest.mark.parametrize("rights", [{"*": ["send"]}, {"*": ["read"]}], ids=["unknown", "forbidden"])
def test_messages_that_were_refused_are_gone_at_once(rights: dict[str, list[str]]) -> None:
    """Not when the collector comes, once in ten thousands of objects: each frame has a MiB."""
    world = World()
    session = world.open(rights=rights)
    world.rooms_here = False
    frames = [SendMessage(room_id=MISSING, client_seq=i, body="x" * 2000) for i in range(9)]
    data = encode_binary(*frames)
    gc.collect()
    gc.disable()
    try:
        world.edge.on_frame(session, data, False)
        world.step()
        world.process()
        assert len(errors(world.take(session))) == 9
        assert [left for left in gc.get_objects() if type(left) is Sends] == []
    finally:
        gc.enable()


def test_without_a_right_to_send_nothing_waits() -> None:
    world = World()
    session = world.open(rights={"*": ["read"]})
    world.lookups_answered = False
    data = encode_binary(SendMessage(room_id=MISSING, client_seq=1, body="x"))
    world.edge.on_frame(session, data, False)
    assert errors(world.take(session)) == ["forbidden"]
    assert not session.waiting


def test_a_text_that_is_too_long_does_not_wait() -> None:
    world = World()
    session = world.open(binary=False)
    world.lookups_answered = False
    text = encode_json(SendMessage(room_id=MISSING, client_seq=1, body="x" * 900_000))
    world.edge.on_frame(session, text, True)
    assert errors(world.take(session)) == ["body_too_large"]
    assert not session.waiting


def test_a_frame_of_too_many_messages_is_refused_whole() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    sends = [SendMessage(room_id=room, client_seq=i + 1, body="") for i in range(4097)]
    world.edge.on_frame(session, encode_binary(*sends), False)
    assert errors(world.take(session)) == ["field_invalid"]


def test_before_welcome_a_frame_is_small() -> None:
    world = World()
    session = world.edge.on_open("10.0.0.1", ENCODINGS[False])
    long = Hello(token="x" * limits.STRANGER_FRAME_SIZE_MAX, client_id=device(1))
    world.edge.on_frame(session, encode_json(long), True)
    assert errors(world.take(session)) == ["frame_too_large"]
    assert world.closed[session.number] == "frame_too_large"


def test_refused_messages_are_named_one_by_one_in_both_encodings() -> None:
    for binary in (True, False):
        world = World()
        session = world.open(binary=binary, rights={"*": ["read"]})
        room = world.room(world.open(number=9, name="bob"))
        for seqs in ((1, 2, 3), (4,)):
            frames = [SendMessage(room_id=room, client_seq=i, body="x") for i in seqs]
            world.send(session, *frames)
        answers = world.take(session)
        named = [(frame.name, frame.room_id, frame.client_seq) for frame in answers]
        assert named == [("forbidden", room, seq) for seq in (1, 2, 3, 4)]
        assert world.edge.counters["error_forbidden"] == 4


# --- memory


def test_who_holds_most_is_closed_first_until_user_and_edge_are_within_bounds() -> None:
    world = World()
    size = limits.USER_HELD_MAX // 10
    anna = [world.open(number=i) for i in range(12)]
    bob = world.open(number=50, name="bob")
    held = [(session, size) for session in anna] + [(bob, size - 1)]
    world.edge.on_held(held)
    world.step()
    closed = [session for session in (*anna, bob) if session.number in world.closed]
    assert len(closed) == 2 and bob not in closed
    assert all(world.closed[session.number] == "held_too_much" for session in closed)
    world.edge.on_held([(bob, limits.CONNECTION_HELD_MAX + 1)])
    assert errors(world.take(bob)) == ["held_too_much"]


def test_of_all_that_is_held_the_largest_goes_first() -> None:
    world = World()
    sessions = [world.open(number=i, name=f"user-{i}") for i in range(100)]
    held = [(session, limits.CONNECTION_HELD_MAX - i * 1024) for i, session in enumerate(sessions)]
    world.edge.on_held(held)
    world.step()
    left = sum(size for session, size in held if session.number not in world.closed)
    assert left <= limits.EDGE_HELD_MAX
    assert sessions[0].number in world.closed
    assert sessions[-1].number not in world.closed


def test_a_user_has_so_many_connections_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USER_CONNECTIONS_MAX", 3)
    world = World()
    sessions = [world.open(number=i) for i in range(3)]
    over = world.edge.on_open("10.0.0.1", ENCODINGS[True])
    world.send(over, Hello(token=token(), client_id=device(7)))
    assert errors(world.take(over)) == ["connections_too_many"]
    assert world.closed[over.number] == "connections_too_many"
    world.open(number=8, name="bob")
    world.edge.on_close(sessions[0])
    world.open(number=9)
    for session in list(world.edge.sessions.values()):
        world.edge.on_close(session)
    assert world.edge._sign_in.users == {}


def test_nothing_is_kept_of_sessions_that_are_gone_nor_of_their_refreshes() -> None:
    world = World()
    session = world.open()
    for i in range(500):
        fresh = token(exp=NOW_S + 3600 + i)
        world.send(session, RefreshToken(token=fresh))
    gone = [world.open(number=i) for i in range(20)]
    for other in gone:
        world.edge.on_close(other)
    assert len(world.edge._connections._expiries) == 1
    world.edge.on_close(session)
    assert len(world.edge._connections._expiries) == 0


def test_expiries_are_told_once_and_not_before_their_time() -> None:
    expiries = Expiries()
    expiries.put(1, 10_500_000)
    expiries.put(2, 20_000_000)
    expiries.put(2, 12_000_000)
    assert expiries.due(10_400_000) == []
    assert expiries.due(11_000_000) == [1]
    assert expiries.due(11_900_000) == []
    assert expiries.due(60_000_000) == [2]
    expiries.put(3, 30_000_000)  # already past
    assert expiries.due(61_000_000) == [3]
    assert len(expiries) == 0


# --- whose device it is


def test_nobody_uses_up_what_another_users_device_may_send() -> None:
    """A device's id is shown to every reader."""
    world = World(rates=DEFAULTS)
    victim = world.open(number=1, name="victim", address="10.0.0.1")
    room = world.room(victim)
    for name in ("mallory", "mallet"):
        thief = world.open(number=1, name=name, address="10.0.0.2")
        for _ in range(400):
            world.edge.on_frame(thief, PING, False)
    world.say(victim, room, 1, 40)
    world.settle()
    assert len(acks(world.take(victim))) == 40


# --- keys that are taken away


def test_a_key_that_is_gone_ends_the_sessions_that_came_with_it() -> None:
    world = World()
    session = world.open()
    world.edge.on_keys()
    assert session.state == "ready"  # another key was added
    world.tokens.keys = {}
    world.edge.on_keys()
    assert errors(world.take(session)) == ["token_key_unknown"]
    assert world.closed[session.number] == "token_key_unknown"


def test_a_key_that_was_replaced_under_its_name_ends_them_too() -> None:
    world = World()
    session = world.open()
    world.tokens.keys = {"k1": Ed25519PrivateKey.generate().public_key()}
    world.edge.on_keys()
    assert errors(world.take(session)) == ["token_key_unknown"]
    assert world.closed[session.number] == "token_key_unknown"
