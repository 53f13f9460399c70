"""Several messages in one frame: the same answers in both encodings."""

from random import Random
from typing import Any
from uuid import UUID

import pytest

from appliance.base import limits
from appliance.cores.edge.session import Session
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import encode_binary, encode_json
from appliance.formats.client.sending import Message, MessageAck, SendMessage, SendMessages
from appliance.formats.room_name import room_id_of
from tests.cores.edge.world import World, errors

RIGHTS = {"gen*": ["read", "send", "moderate"], "read*": ["read"], "gone*": ["send"]}
SIZES = (0, 1, 2048, 2049, 5000)
KINDS = (0, 0, 0, 0, 10, 99)


def opened(binary: bool) -> tuple[World, Session, list[UUID]]:
    world = World()
    maker = world.open(number=9, name="maker")
    rooms = [world.room(maker, name) for name in ("general", "generous", "read-only")]
    return world, world.open(rights=RIGHTS, binary=binary), [*rooms, id_of(room_id_of("gone"))]


def answers(world: World, session: Session) -> list[tuple[Any, ...]]:
    """Without what a node draws by itself."""
    world.settle()
    found: list[tuple[Any, ...]] = []
    for frame in world.take(session):
        if isinstance(frame, MessageAck):
            found.append((frame.room_id, frame.client_seq, frame.op))
        else:
            assert isinstance(frame, ErrorFrame)
            found.append((frame.room_id, frame.client_seq, frame.name, frame.expected))
    return sorted(found, key=str)


@pytest.mark.parametrize("seed", range(40))
def test_a_frame_of_json_is_answered_as_one_of_binary(seed: int) -> None:
    random = Random(seed)
    worlds = [opened(binary) for binary in (True, False)]
    for _ in range(4):
        chosen = random.sample(range(4), k=random.randint(1, 4))
        messages = [
            (random.choice(chosen), seq, "x" * random.choice(SIZES), random.choice(KINDS))
            for seq in range(1, random.randint(2, 12))
        ]
        told = []
        for world, session, rooms in worlds:
            said = [
                {"room_id": rooms[room], "client_seq": seq, "body": body, "kind": kind}
                for room, seq, body, kind in messages
            ]
            if session.binary:
                world.send(session, *(SendMessage(**fields) for fields in said))
            else:
                world.send(session, SendMessages(messages=[Message(**fields) for fields in said]))
            told.append(answers(world, session))
        assert told[0] == told[1], f"seed {seed}"
        assert len(told[0]) == len(messages)
    (one, _, rooms), (other, _, _) = worlds
    assert [one.ops(room) for room in rooms[:3]] == [other.ops(room) for room in rooms[:3]]


def test_messages_that_wait_for_their_room_count_as_memory_of_their_client() -> None:
    world, session, rooms = opened(binary=False)
    world.lookups_answered = False
    body = "x" * limits.BODY_SIZE_MAX
    world.send(
        session,
        SendMessages(messages=[Message(room_id=rooms[3], client_seq=1, body=body)] * 100),
    )
    assert session.held > 100 * limits.BODY_SIZE_MAX
    assert not session.listens(world.now_ns)


def test_one_field_that_is_not_right_refuses_the_frame_and_stores_nothing() -> None:
    world, session, rooms = opened(binary=False)
    message = Message(room_id=rooms[0], client_seq=1, body="x")
    good = encode_json(SendMessages(messages=[message] * 3))
    world.edge.on_frame(session, good[:-2] + b',"kind":256}]}', True)
    world.settle()
    assert errors(world.take(session)) == ["field_invalid"]
    assert len(world.ops(rooms[0])) == 1  # the room's own


def refused_at(binary: bool) -> list[int]:
    """When frames were read of a client who sends nothing but messages that it may not send."""
    world = World(rates={"device_rate": 200, "user_rate": 400})
    room_id = world.room(world.open(number=9, name="maker"))
    session = world.open(rights={"*": ["read"]}, binary=binary)
    several = range(limits.SEND_MESSAGES_MAX)
    if binary:
        one = SendMessage(room_id=room_id, client_seq=1, body="x")
        data = encode_binary(*(one for _ in several))
    else:
        message = Message(room_id=room_id, client_seq=1, body="x")
        data = encode_json(SendMessages(messages=[message for _ in several]))
    moments = []
    for _ in range(100):
        while session.listens(world.now_ns):
            world.edge.on_frame(session, data, not binary)
            moments.append(world.now_ns)
        world.settle()
    assert len(moments) > 5
    return moments


def test_refused_messages_cost_a_client_of_json_as_much_of_its_rate() -> None:
    assert refused_at(binary=False) == refused_at(binary=True)
