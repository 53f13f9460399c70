"""Which ids a client may give to its messages."""

from uuid import UUID

import pytest

from appliance.base.limits import MESSAGE_ID_AGE_US_MAX, MESSAGE_ID_AHEAD_US_MAX
from appliance.cores.edge import message_id
from appliance.drivers.chat.client import new_message_id
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.imported import encode_head
from appliance.formats.record import KIND_IMPORTED, KIND_MESSAGE
from tests.cores.edge.world import START_US, World, acks, errors

DAY_US = 86_400_000_000
ALL = {"*": ["read", "send", "moderate", "import"]}


def made(off_us: int, version: int = 7, variant: int = 2, number: int = 1) -> UUID:
    """An id of a time so far from the node's clock."""
    made_ms = (START_US + off_us) // 1000
    return UUID(int=made_ms << 80 | version << 76 | variant << 62 | number)


def sent(msg_id: UUID | None, kind: int, binary: bool) -> list[MessageAck | ErrorFrame]:
    """What a client is answered that has every right."""
    world = World()
    session = world.open(rights=ALL, binary=binary)
    room_id = world.room(session)
    world.edge.on_tick(world.now_ns, START_US)
    body = encode_head(1, "Ada").decode() + "said"
    world.send(
        session, SendMessage(room_id=room_id, client_seq=1, body=body, msg_id=msg_id, kind=kind)
    )
    world.settle()
    frames = [f for f in world.take(session) if isinstance(f, MessageAck | ErrorFrame)]
    assert len(world.ops(room_id)) == 1 + len(acks(frames))  # the room's own is the first
    return frames


OLD, AHEAD = -MESSAGE_ID_AGE_US_MAX, MESSAGE_ID_AHEAD_US_MAX


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("msg_id", "of_people", "of_archives"),
    [
        (None, "", ""),
        (made(0), "", ""),
        (made(OLD), "", ""),
        (made(AHEAD), "", ""),
        (made(OLD - 1000), "30 d 0 h behind this node's clock", "30 d 0 h behind"),
        (made(AHEAD + 1000), "2 d 0 h ahead of this node's clock", "2 d 0 h ahead"),
        (made(-START_US), "behind this node's clock", "behind"),
        (made(-400 * DAY_US, version=8), "a token with the right import", ""),
        (made(0, version=8), "a token with the right import", ""),
        (made(0, version=4), "no UUIDv7", "no UUIDv7"),
        (made(0, version=1), "no UUIDv7", "no UUIDv7"),
        (made(0, variant=0), "no UUIDv7", "no UUIDv7"),
        (made(0, version=8, variant=3), "no UUIDv7", "no UUIDv7"),
        (UUID(int=77), "no UUIDv7", "no UUIDv7"),
        (UUID(int=(1 << 128) - 1), "no UUIDv7", "no UUIDv7"),
    ],
)
def test_an_id_is_taken_or_refused_by_what_it_is_and_when(
    msg_id: UUID | None, of_people: str, of_archives: str, binary: bool
) -> None:
    for kind, why in ((KIND_MESSAGE, of_people), (KIND_IMPORTED, of_archives)):
        (answer,) = sent(msg_id, kind, binary)
        if not why:
            assert isinstance(answer, MessageAck)
            assert msg_id is None or answer.msg_id == msg_id
            continue
        assert isinstance(answer, ErrorFrame)
        assert (answer.name, answer.error, answer.temporary) == ("msg_id_invalid", 2050, False)
        assert why in answer.detail and answer.client_seq == 1
        assert "make" in answer.detail or "set it" in answer.detail  # what to do


def test_those_behind_a_refused_one_are_gaps_and_it_can_be_sent_under_a_new_id() -> None:
    world = World()
    session = world.open()
    room_id = world.room(session)
    messages = [
        SendMessage(room_id=room_id, client_seq=1 + i, body="x", msg_id=msg_id)
        for i, msg_id in enumerate((made(0), UUID(int=4), made(0, number=2)))
    ]
    world.send(session, *messages)
    world.settle()
    frames = world.take(session)
    assert acks(frames) == [(1, 2)]
    assert sorted(errors(frames)) == ["msg_id_invalid", "sequence_gap"]
    again = SendMessage(room_id=room_id, client_seq=2, body="x", msg_id=made(0, number=3))
    world.send(session, again)
    world.settle()
    assert acks(world.take(session)) == [(2, 3)]


def test_a_client_of_ours_is_taken_though_its_clock_is_a_day_off() -> None:
    msg_id = new_message_id()
    made_us = (msg_id.int >> 80) * 1000
    for off_us in (-DAY_US, 0, DAY_US):
        message_id.check_message_id(msg_id.bytes[::-1], KIND_MESSAGE, made_us + off_us)
