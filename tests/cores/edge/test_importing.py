"""What was said elsewhere is imported by who has the right, at what the site takes."""

from typing import Any
from uuid import UUID

import pytest

from appliance.base import limits
from appliance.cores.edge.session import Session
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.geometry import SMALL
from appliance.formats.imported import encode_head
from appliance.formats.record import KIND_IMPORTED
from tests.cores.edge.world import World, errors

THEN_US = 852_076_800_123_000
BODY = encode_head(THEN_US, "Ada Lovelace").decode() + "what she said"
IMPORTER = {"*": ["read", "moderate", "import"]}


def message(room_id: UUID, seq: int, body: str = BODY, kind: int = KIND_IMPORTED) -> SendMessage:
    return SendMessage(room_id=room_id, client_seq=seq, body=body, kind=kind)


def opened(
    rights: dict[str, list[str]] = IMPORTER, binary: bool = True, **named: Any
) -> tuple[World, Session, UUID]:
    world = World(**named)
    session = world.open(rights=rights, binary=binary)
    return world, session, world.room(session)


@pytest.mark.parametrize("binary", [True, False])
def test_an_imported_message_has_its_author_and_time_as_fields_in_a_page(binary: bool) -> None:
    world, session, room_id = opened(binary=binary)
    world.send(session, message(room_id, 1))
    world.settle()
    assert [type(frame) for frame in world.take(session)] == [MessageAck]
    reader = world.open(number=2, name="bert", binary=False)
    world.send(reader, SnapshotRequest(room_id=room_id, from_op=2))
    (page,) = world.take(reader)
    assert type(page) is SnapshotChunk
    (stored,) = page.messages
    assert (stored.said_at, stored.said_by, stored.body, stored.author) == (
        THEN_US,
        "Ada Lovelace",
        "what she said",
        "anna",
    )


@pytest.mark.parametrize("rights", [{"*": ["read", "send", "moderate"]}, {"*": ["moderate"]}])
def test_without_the_right_nothing_is_imported(rights: dict[str, list[str]]) -> None:
    world, session, room_id = opened(rights)
    world.send(session, message(room_id, 1))
    world.settle()
    assert errors(world.take(session)) == ["forbidden"]
    assert len(world.ops(room_id)) == 1  # the room's own


def test_the_right_to_import_is_none_to_send() -> None:
    world, session, room_id = opened()
    world.send(session, message(room_id, 1, kind=0))
    world.settle()
    assert errors(world.take(session)) == ["forbidden"]


def test_an_admin_may_import_and_send() -> None:
    world, session, room_id = opened({"*": ["admin"]})
    world.send(session, message(room_id, 1))
    world.send(session, message(room_id, 2, "said now", kind=0))
    world.settle()
    assert [type(frame) for frame in world.take(session)] == [MessageAck] * 2


@pytest.mark.parametrize("body", ["", "no head", "12 Ada", "-1 Ada\ntext"])
def test_a_body_without_author_and_time_is_refused(body: str) -> None:
    world, session, room_id = opened()
    world.send(session, message(room_id, 1, body))
    world.settle()
    assert errors(world.take(session)) == ["field_invalid"]


def test_imports_go_at_what_the_site_takes_and_people_at_their_rates() -> None:
    world, session, room_id = opened({"*": ["admin"]}, rates={"device_rate": 10, "room_rate": 10})
    count = 3 * SMALL.records_max
    world.send(session, *[message(room_id, seq) for seq in range(1, count + 1)])
    world.settle()
    acks = world.take(session)
    assert [type(frame) for frame in acks] == [MessageAck] * count
    writer = world.open(number=2, name="bert")
    world.send(writer, *[message(room_id, seq, "now", kind=0) for seq in range(1, count + 1)])
    world.settle()
    said = world.take(writer)
    assert sum(type(frame) is ErrorFrame and frame.name == "rate_limited" for frame in said) > 0


def test_an_import_that_waits_leaves_a_request_for_people() -> None:
    world, session, room_id = opened({"*": ["admin"]}, log_sessions=1)
    many = 2 * limits.LOG_SESSION_BATCHES_MAX * SMALL.records_max
    world.send(session, *[message(room_id, seq) for seq in range(1, many + 1)])
    refused = errors(world.take(session))
    assert set(refused) == {"busy"}
    more = range(many + 1, many + 1 + SMALL.records_max)  # in the place of what went meanwhile
    world.send(session, *[message(room_id, seq) for seq in more])
    writer = world.open(number=2, name="bert")
    world.send(writer, *[message(room_id, seq, "now", kind=0) for seq in range(1, 4)])
    world.settle()
    assert [type(frame) for frame in world.take(writer)] == [MessageAck] * 3
