"""Frames between chat clients and edges: both encodings, round trips, golden bytes, documents."""

import importlib
import pkgutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from appliance.base.limits import SEND_MESSAGES_MAX
from appliance.formats import client as formats_client
from appliance.formats import record
from appliance.formats.author import author_id_of, author_name
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.federation import FederationEvent, PlacedMessage
from appliance.formats.client.fields import STATUSES, id_bytes, id_of
from appliance.formats.client.finding import MessageFound
from appliance.formats.client.frame import Frame, Layout, binary_head, encode_binary, encode_json
from appliance.formats.client.history import SnapshotChunk, StoredMessage
from appliance.formats.client.objects import (
    OBJECT_KINDS,
    PRESENCES,
    ObjectEvent,
    ObjectItem,
    ObjectState,
    Profile,
)
from appliance.formats.client.parse import (
    parse_binary,
    parse_binary_edge,
    parse_json,
    parse_json_edge,
)
from appliance.formats.client.records import event_binary, event_of, message_binary
from appliance.formats.client.rooms import ListRooms, RoomItem
from appliance.formats.client.sending import (
    Message,
    MessageAck,
    SendMessage,
    SendMessages,
    parse_sends,
)
from appliance.formats.client.sign_in import ConnectionLimits, Hello
from appliance.formats.client.subscribing import MessageEvent
from appliance.formats.client.table import FRAMES_CLIENT, FRAMES_CLIENT_JSON, FRAMES_EDGE
from appliance.formats.client_errors import (
    CLIENT_ERRORS,
    FieldInvalid,
    FrameMalformed,
    FrameUnknown,
)
from appliance.formats.room_name import room_creator_id, room_id_of, room_name_valid

DOCS = Path(__file__).parents[2] / "docs"
FRAMES = FRAMES_CLIENT + FRAMES_EDGE

ids = st.integers(1, (1 << 128) - 1).map(lambda value: uuid.UUID(int=value))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
some_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
u64s = st.integers(0, (1 << 63) - 1)
u32s = st.integers(0, (1 << 32) - 2)
authors = st.integers(0, (1 << 64) - 1)
VALUES = {
    "room_id": ids,
    "room": texts,
    "client_id": ids,
    "msg_id": ids,
    "parent_id": ids,
    "client_seq": u64s,
    "op": u64s,
    "timestamp": u64s,
    "hash": st.binary(min_size=32, max_size=32).map(bytes.hex),
    "body": texts,
    "kind": st.integers(0, 255),
    "token": texts,
    "name": texts,
    "detail": texts,
    "request": some_texts,
    "since_op": u64s,
    "from_op": u64s,
    "until_op": u64s,
    "last": u32s,
    "epoch": u32s,
    "node": u32s,
    "limit": st.integers(1, 1000),
    "backward": st.booleans(),
    "has_more": st.booleans(),
    "cursor": u64s,
    "stale_since": u64s,
    "spread": u32s,
    "url": texts,
    "created": st.booleans(),
    "after": u64s,
    "next": u64s,
    "error": u32s,
    "temporary": st.booleans(),
    "retry_after": u32s,
    "expected": u64s,
    "expires_at": u64s,
    "message_count": u64s,
    "next_op": u64s,
    "status": st.sampled_from(STATUSES),
    "frame_size_max": u32s,
    "body_size_max": u32s,
    "room_name_size_max": u32s,
    "snapshot_limit_max": u32s,
    "subscriptions_max": u32s,
    "sends_in_flight_max": u32s,
    "present": st.booleans(),
    "changed": st.booleans(),
    "before": ids,
    "version": u64s,
    "signed": texts,
    "state": st.sampled_from(PRESENCES),
    "lamport": u64s,
    "message_id": st.binary(min_size=32, max_size=32).map(bytes.hex),
    **dict.fromkeys(("part", "parts"), u32s),
    **dict.fromkeys(("gap", "late", "closed"), st.booleans()),
    **dict.fromkeys(("may_read", "may_send", "may_import", "may_moderate"), st.booleans()),
    **dict.fromkeys(("site", "sites", "acknowledged"), some_texts),
    **dict.fromkeys(("text", "about", "picture", "emoji"), some_texts),
    **dict.fromkeys(("read", "send", "moderate"), some_texts),
}
OBJECT_VALUES = {"kind": st.sampled_from(OBJECT_KINDS), "cursor": ids, "author": some_texts}
LISTS = {"messages": StoredMessage, "rooms": RoomItem, "items": ObjectItem}


@st.composite
def built(draw: Callable[..., object], of: type) -> Any:
    """An instance of a frame class or of a list item, its optional fields there or not."""
    fields = {}
    optional = {name for name, _, is_optional in Layout(of).fields if is_optional}
    optional |= {"request"} & set(of.__struct_fields__)
    for name in of.__struct_fields__:
        if name in optional and draw(st.booleans()):
            continue
        if (of, name) in ((Profile, "name"), (Hello, "token")):  # absent and empty are one
            fields[name] = draw(some_texts)
            continue
        if of in (ObjectEvent, ObjectItem, ObjectState) and name in OBJECT_VALUES:
            fields[name] = draw(OBJECT_VALUES[name])
            continue
        if of is MessageFound and name in ("said_at", "said_by"):
            fields[name] = draw(u64s if name == "said_at" else some_texts)
            continue
        if name in ("author_id", "author", "said_at", "said_by"):
            continue
        if name == "limits":
            fields[name] = draw(built(ConnectionLimits))
        elif name in LISTS:
            item = PlacedMessage if of is FederationEvent else LISTS[name]
            fields[name] = draw(st.lists(built(item), max_size=4))
        else:
            fields[name] = draw(VALUES[name])
    if "author_id" in of.__struct_fields__:
        author = draw(authors)
        fields |= {"author_id": str(author), "author": author_name(author)}
    return of(**fields)


@pytest.mark.parametrize("of", FRAMES, ids=lambda of: of.__name__)
@given(data=st.data())
def test_every_frame_survives_both_encodings(of: type, data: DataObject) -> None:
    frame = data.draw(built(of))
    from_edge = of in FRAMES_EDGE
    from_json, from_binary = (
        (parse_json_edge, parse_binary_edge) if from_edge else (parse_json, parse_binary)
    )
    assert from_json(encode_json(frame)) == frame
    assert from_binary(encode_binary(frame)) == [frame]


def test_every_frame_of_the_package_has_its_row() -> None:
    for module in pkgutil.iter_modules(formats_client.__path__, formats_client.__name__ + "."):
        importlib.import_module(module.name)
    mine = {
        of for of in Frame.__subclasses__() if of.__module__.startswith(formats_client.__name__)
    }
    assert mine == {*FRAMES, *FRAMES_CLIENT_JSON} and len(mine) == len(FRAMES) + 1


@pytest.mark.parametrize("of", [of for of in FRAMES if of.many], ids=lambda of: of.__name__)
@given(data=st.data())
def test_frames_that_may_be_many_are_many(of: type, data: DataObject) -> None:
    frames = data.draw(st.lists(built(of), min_size=1, max_size=5))
    parse = parse_binary_edge if of in FRAMES_EDGE else parse_binary
    raw = encode_binary(*frames)
    assert raw[:4] == bytes((of.code, 1, len(frames), 0))
    assert parse(raw) == frames


@given(data=st.data())
def test_messages_of_one_frame_of_json_survive_and_are_no_frame_of_binary(
    data: DataObject,
) -> None:
    messages = data.draw(st.lists(built(Message), min_size=1, max_size=5))
    frame = SendMessages(messages=messages)
    assert parse_json(encode_json(frame)) == frame
    with pytest.raises(FrameUnknown):
        parse_binary(b"\0\x01\x01\0" + encode_json(frame))


@pytest.mark.parametrize("count", [0, SEND_MESSAGES_MAX + 1])
def test_a_frame_of_json_has_some_messages_and_not_too_many(count: int) -> None:
    message = Message(room_id=uuid.UUID(int=1), client_seq=1, body="x")
    with pytest.raises(FieldInvalid):
        parse_json(encode_json(SendMessages(messages=[message] * count)))


def test_golden_bytes_of_a_send() -> None:
    frame = SendMessage(
        room_id=uuid.UUID(int=1),
        client_seq=2,
        parent_id=uuid.UUID(int=3),
        msg_id=uuid.UUID(int=0x1234 << 112),
        body="hé",
    )
    assert encode_binary(frame).hex() == (
        "20010100010000000000000000000000000000000200000000000000"
        "0300000000000000000000000000000000000000000000000000000000003412000300000068c3a9"
    )
    assert (
        encode_json(frame)
        == (
            '{"type":"send_message",'
            '"room_id":"00000000-0000-0000-0000-000000000001","client_seq":2,'
            '"parent_id":"00000000-0000-0000-0000-000000000003",'
            '"msg_id":"12340000-0000-0000-0000-000000000000","body":"hé"}'
        ).encode()
    )


def test_golden_bytes_of_an_ack_and_an_error() -> None:
    ack = MessageAck(
        room_id=uuid.UUID(int=1),
        client_seq=2,
        op=3,
        msg_id=uuid.UUID(int=4),
        timestamp=5,
        hash="ab" * 32,
    )
    assert encode_binary(ack).hex() == (
        "210101000100000000000000000000000000000002000000000000000300000000000000"
        "040000000000000000000000000000000500000000000000" + "ab" * 32
    )
    error = ErrorFrame(error=2041, temporary=True, retry_after=50, name="busy", detail="")
    assert encode_binary(error).hex() == (
        "2d010100f90700000132000000" + "00" * 16 + "ff" * 24 + "04006275737900000000"
    )
    assert encode_json(error) == (
        b'{"type":"error","code":2041,"temporary":true,"retry_after":50,"name":"busy","detail":""}'
    )


@given(st.lists(built(SendMessage), min_size=1, max_size=6))
def test_the_quick_parser_of_sends_agrees_with_the_layout(frames: list[SendMessage]) -> None:
    zero = bytes(16)
    assert parse_sends(encode_binary(*frames)) == [
        (
            id_bytes(frame.room_id),
            frame.client_seq,
            id_bytes(frame.parent_id) if frame.parent_id else zero,
            id_bytes(frame.msg_id) if frame.msg_id else zero,
            frame.kind,
            frame.body.encode(),
        )
        for frame in frames
    ]


@given(st.binary(max_size=300))
def test_the_quick_parser_of_sends_refuses_what_the_layout_refuses(tail: bytes) -> None:
    data = b"\x20\x01" + tail.ljust(2, b"\0")
    try:
        items = parse_sends(data)
    except FrameMalformed:
        with pytest.raises((FrameMalformed, FieldInvalid)):
            parse_binary(data)
    else:
        assert len(items) == int.from_bytes(data[2:4], "little")


@given(built(MessageEvent))
def test_events_are_encoded_from_records_as_from_fields(frame: MessageEvent) -> None:
    body = frame.body.encode()
    if frame.kind == record.KIND_FEDERATED:  # clients get the text behind what the sites need
        body = b"\xff" * 64 + body
    elif frame.kind == record.KIND_ROOM_POLICY:  # and of a policy its bits
        frame = msgspec.structs.replace(frame, body="\x02" + "\0" * 7)
        body = frame.body.encode() + b"\xff" * 100
    out = bytearray(
        record.encode(
            room_id=id_bytes(frame.room_id),
            msg_id=id_bytes(frame.msg_id),
            author_id=int(frame.author_id),
            body=body,
            client_id=id_bytes(frame.client_id),
            client_seq=frame.client_seq,
            kind=frame.kind,
            timestamp=frame.timestamp,
            parent_id=id_bytes(frame.parent_id) if frame.parent_id else bytes(16),
        )
    )
    out[record.SEQ : record.SEQ + 8] = frame.op.to_bytes(8, "little")
    for raw in (bytes(out), memoryview(out)):
        assert event_of(raw) == frame
        encoded = binary_head(MessageEvent, 1) + event_binary(raw)
        assert encoded == encode_binary(frame)
        assert message_binary(raw) == event_binary(raw)[16:]


@given(st.binary(max_size=200))
def test_random_bytes_give_a_typed_error_or_frames(data: bytes) -> None:
    for parse in (
        parse_binary,
        parse_binary_edge,
        parse_json,
        parse_json_edge,
    ):
        try:
            parse(data)
        except (FrameMalformed, FrameUnknown, FieldInvalid):
            continue


@given(built(SnapshotChunk), st.data())
def test_a_cut_or_grown_binary_frame_is_malformed(frame: SnapshotChunk, data: DataObject) -> None:
    raw = encode_binary(frame)
    with pytest.raises(FrameMalformed):
        parse_binary_edge(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(FrameMalformed):
        parse_binary_edge(raw + b"\0")


def test_numbers_of_64_bits_stay_below_2_to_the_63() -> None:
    with pytest.raises(FieldInvalid):
        parse_json(b'{"type":"list_rooms","after":9223372036854775808}')
    good = encode_binary(ListRooms(after=1))
    with pytest.raises(FieldInvalid):
        parse_binary(good.replace(b"\x01" + bytes(7), bytes(7) + b"\x80", 1))


def test_every_frame_and_field_is_documented() -> None:
    text = (DOCS / "client-protocol.md").read_text()
    for of in FRAMES:
        tag = of.__struct_config__.tag
        row = next(
            line for line in text.splitlines() if line.startswith(f"| `{tag}` | 0x{of.code:02X} |")
        )
        for name, _, _ in Layout(of).fields:
            shown = "code" if name == "error" else name
            assert f"`{shown}" in row or of is SnapshotChunk, (tag, shown)
    for of in FRAMES_CLIENT_JSON:
        assert f"| `{of.__struct_config__.tag}` | JSON only |" in text
    for name in ConnectionLimits.__struct_fields__:
        assert f"`{name}`" in text


def test_every_error_is_documented_with_its_properties() -> None:
    text = (DOCS / "errors.md").read_text()
    for error in CLIENT_ERRORS:
        name = error.__new__(error).name
        row = next(
            line for line in text.splitlines() if line.startswith(f"| {error.code} | `{name}` |")
        )
        assert (row.split("|")[3].strip() == "yes") is error.temporary, name


# --- names ----------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789-"), min_size=1, max_size=12))
def test_a_short_plain_name_can_be_read_from_its_id(name: str) -> None:
    author_id = author_id_of(name)
    assert author_id < 1 << 63
    assert author_name(author_id) == name


@given(st.text(min_size=1, max_size=60).filter(lambda name: name.isprintable()))
def test_every_name_has_an_id_and_every_id_a_name(name: str) -> None:
    assert author_id_of(author_name(author_id_of(name))) != 0
    assert author_id_of(name) < 1 << 64


@given(authors)
def test_no_two_ids_show_the_same_name(author_id: int) -> None:
    name = author_name(author_id)
    assert name.startswith("user-") or name == "system" or author_id_of(name) == author_id
    assert len(name) <= 21


def test_golden_names() -> None:
    assert author_id_of("anna") == 328784389305206016
    assert author_id_of("a") == 38**11
    assert author_name(author_id_of("Anna Ö")) == f"user-{author_id_of('Anna Ö'):016x}"
    assert author_id_of("Anna Ö") >> 63 == 1
    assert id_of(room_id_of("general")) == uuid.UUID("e3378180-517c-96aa-4ff3-bc6ddd68b19d")
    assert room_creator_id(bytes(16), 1) != room_creator_id(bytes(16), 2)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True),
        ("a b", True),
        ("ä" * 64, True),
        ("ä" * 65, False),
        ("", False),
        (" a", False),
        ("a ", False),
        ("a\n", False),
        ("a\x7f", False),
        ("\ud800", False),
    ],
)
def test_room_names(name: str, valid: bool) -> None:
    assert room_name_valid(name) is valid
