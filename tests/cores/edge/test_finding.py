"""Where a message lies, asked for by a frame of a conversation, which goes on meanwhile."""

from typing import Any

import pytest

from appliance.base.limits import (
    MESSAGE_SEARCHES_MAX,
    MESSAGE_SEARCHES_OF_USER_MAX,
    ROOM_WAIT_MS_MAX,
)
from appliance.formats.client.connection import ErrorFrame, Ping, Pong
from appliance.formats.client.fields import id_of
from appliance.formats.client.finding import FindMessage, MessageFound
from appliance.formats.client.sign_in import RefreshToken, Welcome
from appliance.formats.imported import encode_head
from appliance.formats.record import KIND_IMPORTED, KIND_MESSAGE
from tests.cores.edge.test_message_search import ONE, Writer, archived, looked_in, search
from tests.cores.edge.world import TICK_NS, World, errors, token

WAITED = ROOM_WAIT_MS_MAX * 1_000_000 // TICK_NS + 2  # ticks after which an id is called unknown
OF_SECRET = {"*": ["send"], "secret": ["read"]}


def ask(world: World, session: Any, number: int, request: str = "where") -> None:
    world.send(session, FindMessage(msg_id=id_of(archived(number)), request=request))


@pytest.mark.parametrize("binary", [True, False])
def test_a_frame_is_answered_with_the_place_of_the_message(binary: bool) -> None:
    """In a segment that is sealed, and in the open one; what was imported says whose it is."""
    writer = Writer()
    writer.put("general", archived(1))
    writer.fill(ONE)
    writer.put("secret", archived(2), KIND_IMPORTED, encode_head(77, "Ada") + b"said")
    world = writer.world
    session = world.open(binary=binary)
    ask(world, session, 1)
    ask(world, session, 2)
    first, second = world.take(session)
    assert (type(first), first.room, first.op, first.kind) == (
        MessageFound,
        "general",
        2,
        KIND_MESSAGE,
    )
    assert (first.author, first.request, first.said_by) == ("ada", "where", None)
    assert (second.room, second.op, second.said_at, second.said_by) == ("secret", 2, 77, "Ada")


def test_who_may_not_read_there_is_answered_as_if_there_were_no_such_message() -> None:
    writer = Writer()
    writer.put("secret", archived(1))
    world = writer.world
    session = world.open(rights={"general": ["read", "send"], "secret": ["send", "moderate"]})
    for number in (1, 2):  # of a room that may not be read, and of none
        ask(world, session, number)
    world.tick(WAITED)
    first, second = world.take(session)
    assert type(first) is ErrorFrame and first.name == "message_unknown"
    assert first == second


def test_a_conversation_goes_on_while_a_message_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer(rates={"device_rate": 2})
    writer.fill(4 * ONE)
    world = writer.world
    session = world.open()
    numbers = looked_in(monkeypatch)
    ask(world, session, 1)
    world.tick()
    world.send(session, Ping(request="meanwhile"))
    assert Pong(request="meanwhile") in world.take(session)
    assert len(numbers) < 4  # each segment is charged as a message: the rates are waited for
    world.tick(2000)
    assert errors(world.take(session)) == ["message_unknown"]
    assert len(numbers) == 5


def test_what_a_newer_token_allows_is_what_a_search_may_read() -> None:
    """One that is under way finds what may be read now, and nothing that may not be any more."""
    writer = Writer()
    world = writer.world
    for rights, found in (({"general": ["read"]}, MessageFound), ({"random": ["read"]}, None)):
        session = world.open(rights=OF_SECRET)
        ask(world, session, 1)
        world.send(session, RefreshToken(token=token(rights=rights)))
        assert type(world.take(session)[-1]) is Welcome
        writer.put("general", archived(1)) if found else None
        world.tick(WAITED)
        (answer,) = world.take(session)
        assert type(answer) is (found or ErrorFrame)
        world.edge.on_close(session)
        world.tick()


def test_a_room_that_may_be_read_by_now_is_looked_at_again() -> None:
    writer = Writer()
    world = writer.world
    session = world.open(rights=OF_SECRET)
    writer.put("general", archived(1))
    ask(world, session, 1)
    world.tick(3)  # it was passed over
    world.send(session, RefreshToken(token=token(rights={"general": ["read"]})))
    writer.put("general", archived(1))
    world.tick(WAITED)
    _, found = world.take(session)
    assert (found.room, found.op) == ("general", 2)  # the oldest


def test_searches_of_frames_and_of_bearers_are_counted_together() -> None:
    writer = Writer()
    world = writer.world
    sessions = [
        world.open(number=n, name=f"user-{n // MESSAGE_SEARCHES_OF_USER_MAX}")
        for n in range(MESSAGE_SEARCHES_MAX - 1)
    ]
    for session in sessions:
        ask(world, session, 9)
    searching = search(world, archived(9))
    late = world.open(number=50, name="somebody")
    ask(world, late, 9, "late")
    (busy,) = world.take(late)
    assert (busy.name, busy.request) == ("busy", "late")
    searching.close()
    again = search(world, archived(9))
    ask(world, sessions[0], 9, "third")  # would be one of that user too many
    assert [(frame.name, frame.request) for frame in world.take(sessions[0])] == [("busy", "third")]
    world.edge.on_close(sessions[0])  # who leaves ends his search
    world.tick()
    ask(world, late, 9, "late")
    world.tick(WAITED)
    assert errors(world.take(late)) == ["message_unknown"]
    again.close()
    assert world.take(sessions[0]) == []


def test_a_search_in_a_conversation_waits_for_what_comes_a_moment_later() -> None:
    writer = Writer()
    world = writer.world
    session = world.open()
    ask(world, session, 1)
    world.tick(3)
    assert world.take(session) == []
    writer.put("random", archived(1))
    world.tick()
    (found,) = world.take(session)
    assert (found.room, found.op) == ("random", 2)
