"""Frames between a chat client and an edge: each is one class, its fields written once.

JSON is one object a frame, read and written by msgspec. The binary layout follows from the same
class: its fields in order, little-endian, without padding, what varies in size behind its size.

    binary frame:  code u8 | version u8 | count u16 | ...
        send_message, message_ack, message_event    count times the whole frame
        snapshot_chunk, rooms                       the frame's own fields, then count list items
        all others                                  count = 1

Ids are u128: UUID text in JSON, 16 bytes in records and binary frames. An absent integer is all
ones in binary, an absent id is zero, an absent text empty. `docs/client-protocol.md` tells the
meaning.
"""

import functools
import operator
import struct
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_type_hints
from uuid import UUID, SafeUUID

import msgspec
import numpy as np

from appliance.base.limits import SEND_ITEMS_MAX, SNAPSHOT_LIMIT_MAX
from appliance.formats.author import author_name
from appliance.formats.client_errors import FieldInvalid, FrameMalformed, FrameUnknown
from appliance.formats.record import RECORD

SUBPROTOCOL_JSON = "tigerchat.v1.json"
SUBPROTOCOL_BINARY = "tigerchat.v1.binary"
BINARY_VERSION = 1
ITEMS_MAX = 65_535  # count is a u16

_HEAD = struct.Struct("<BBH")
HEAD_SIZE = _HEAD.size
NUMBER_MAX = (1 << 63) - 1  # of all numbers in frames, so that every language can hold them
_Meta = msgspec.Meta


# --- kinds of fields ------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How a field stands in a binary frame: a fixed struct code, or a size and that many bytes."""

    code: str  # struct code of the value; of its size if `varies`
    varies: bool = False
    absent: Any = None  # what stands for None
    pack: Any = None  # value of the frame -> value of the struct
    unpack: Any = None  # the other way; for a derived field (code "") from the author_id


def id_bytes(value: UUID) -> bytes:
    """The 16 bytes of a record: the u128 little-endian."""
    return value.int.to_bytes(16, "little")


def id_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes of a record; half the cost of the class's own constructor."""
    value = UUID.__new__(UUID)
    object.__setattr__(value, "int", int.from_bytes(raw, "little"))
    object.__setattr__(value, "is_safe", SafeUUID.unknown)
    return value


STATUSES = ("recovered", "gap", "reset")

Id = Annotated[UUID, Kind("16s", absent=bytes(16), pack=id_bytes, unpack=id_of)]
U8 = Annotated[int, _Meta(ge=0, le=0xFF), Kind("B")]
U32 = Annotated[int, _Meta(ge=0, le=0xFFFF_FFFE), Kind("I", absent=0xFFFF_FFFF)]
U64 = Annotated[int, _Meta(ge=0, le=NUMBER_MAX), Kind("Q", absent=0xFFFF_FFFF_FFFF_FFFF)]
PageSize = Annotated[int, _Meta(ge=1, le=SNAPSHOT_LIMIT_MAX), Kind("I")]
Flag = Annotated[bool, Kind("B", pack=int, unpack=(False, True).__getitem__)]
Hash = Annotated[
    str, _Meta(pattern="^[0-9a-f]{64}$"), Kind("32s", pack=bytes.fromhex, unpack=bytes.hex)
]
AuthorId = Annotated[str, _Meta(pattern="^[0-9]{1,20}$"), Kind("Q", pack=int, unpack=str)]
AuthorName = Annotated[str, Kind("", unpack=lambda text: author_name(int(text)))]
Status = Annotated[
    Literal["recovered", "gap", "reset"],
    Kind("B", pack=STATUSES.index, unpack=STATUSES.__getitem__),
]
Text = Annotated[str, _Meta(max_length=4096), Kind("H", varies=True, absent="")]
Label = Annotated[str, _Meta(max_length=64), Kind("H", varies=True, absent="")]
Body = Annotated[str, Kind("I", varies=True)]


class Frame(msgspec.Struct, tag_field="type", omit_defaults=True):
    """One frame. `code` is its number in binary; a class's tag is its name in JSON."""

    code: ClassVar[int] = 0
    many: ClassVar[bool] = False


# --- frames ---------------------------------------------------------------------------------------


class SendMessage(Frame, tag="send_message", kw_only=True):
    code: ClassVar[int] = 0x20
    many: ClassVar[bool] = True
    room_id: Id
    client_seq: U64
    parent_id: Id | None = None
    msg_id: Id | None = None
    kind: U8 = 0
    body: Body


class MessageAck(Frame, tag="message_ack", kw_only=True):
    code: ClassVar[int] = 0x21
    many: ClassVar[bool] = True
    room_id: Id
    client_seq: U64
    op: U64
    msg_id: Id
    timestamp: U64
    hash: Hash


class SubscribeRoom(Frame, tag="subscribe_room", kw_only=True):
    code: ClassVar[int] = 0x22
    room_id: Id
    since_op: U64 | None = None
    last: U32 | None = None
    epoch: U32 | None = None
    request: Label | None = None


class MessageEvent(Frame, tag="message_event", kw_only=True):
    code: ClassVar[int] = 0x23
    many: ClassVar[bool] = True
    room_id: Id
    op: U64
    msg_id: Id
    author_id: AuthorId
    author: AuthorName
    parent_id: Id | None = None
    timestamp: U64
    client_id: Id
    client_seq: U64
    kind: U8
    body: Body


class SnapshotRequest(Frame, tag="snapshot_request", kw_only=True):
    code: ClassVar[int] = 0x24
    room_id: Id
    from_op: U64 | None = None
    until_op: U64 | None = None
    limit: PageSize = 100
    backward: Flag = False
    request: Label | None = None


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message inside a snapshot_chunk: as a message_event, but the room is named once."""

    op: U64
    msg_id: Id
    author_id: AuthorId
    author: AuthorName
    parent_id: Id | None = None
    timestamp: U64
    client_id: Id
    client_seq: U64
    kind: U8
    body: Body


class SnapshotChunk(Frame, tag="snapshot_chunk", kw_only=True):
    code: ClassVar[int] = 0x25
    room_id: Id
    has_more: Flag
    cursor: U64
    stale_since: U64 | None = None  # us since the epoch; else all that was committed was looked at
    request: Label | None = None
    messages: list[Message]


class Hello(Frame, tag="hello", kw_only=True):
    code: ClassVar[int] = 0x26
    token: Text
    client_id: Id
    request: Label | None = None


class Limits(msgspec.Struct, kw_only=True):
    """What a connection may do at most, told once."""

    frame_size_max: U32
    body_size_max: U32
    room_name_size_max: U32
    snapshot_limit_max: U32
    subscriptions_max: U32
    sends_in_flight_max: U32


class Welcome(Frame, tag="welcome", kw_only=True):
    code: ClassVar[int] = 0x27
    author_id: AuthorId
    author: AuthorName
    client_id: Id
    expires_at: U64
    node: U32
    epoch: U32
    limits: Limits
    request: Label | None = None


class Subscribed(Frame, tag="subscribed", kw_only=True):
    code: ClassVar[int] = 0x28
    room_id: Id
    status: Status
    next_op: U64
    epoch: U32
    request: Label | None = None


class CreateRoom(Frame, tag="create_room", kw_only=True):
    code: ClassVar[int] = 0x29
    name: Text
    request: Label | None = None


class Room(Frame, tag="room", kw_only=True):
    code: ClassVar[int] = 0x2A
    room_id: Id
    created: Flag
    name: Text
    request: Label | None = None


class ListRooms(Frame, tag="list_rooms", kw_only=True):
    code: ClassVar[int] = 0x2B
    after: U64 | None = None
    limit: PageSize = 100
    request: Label | None = None


class RoomItem(msgspec.Struct, kw_only=True):
    """A room in a list of rooms."""

    room_id: Id
    message_count: U64
    name: Text


class Rooms(Frame, tag="rooms", kw_only=True):
    code: ClassVar[int] = 0x2C
    next: U64 | None = None
    request: Label | None = None
    rooms: list[RoomItem]


class Error(Frame, tag="error", kw_only=True):
    code: ClassVar[int] = 0x2D
    error: U32 = msgspec.field(name="code")
    temporary: Flag
    retry_after: U32 | None = None
    room_id: Id | None = None
    client_seq: U64 | None = None
    expected: U64 | None = None
    cursor: U64 | None = None
    name: Label
    detail: Text
    request: Label | None = None


class RefreshToken(Frame, tag="refresh_token", kw_only=True):
    code: ClassVar[int] = 0x2E
    token: Text
    request: Label | None = None


class Ping(Frame, tag="ping", kw_only=True):
    code: ClassVar[int] = 0x2F
    request: Label | None = None


class Pong(Frame, tag="pong", kw_only=True):
    code: ClassVar[int] = 0x30
    request: Label | None = None


class UnsubscribeRoom(Frame, tag="unsubscribe_room", kw_only=True):
    code: ClassVar[int] = 0x31
    room_id: Id
    request: Label | None = None


class Unsubscribed(Frame, tag="unsubscribed", kw_only=True):
    code: ClassVar[int] = 0x32
    room_id: Id
    request: Label | None = None


class NodeState(Frame, tag="node_state", kw_only=True):
    """Unasked: since when (us since the epoch) this node may lack what the site has committed;
    absent when it lacks nothing again."""

    code: ClassVar[int] = 0x33
    stale_since: U64 | None = None


FRAMES_CLIENT: tuple[type[Frame], ...] = (
    SendMessage,
    SubscribeRoom,
    SnapshotRequest,
    Hello,
    CreateRoom,
    ListRooms,
    RefreshToken,
    Ping,
    UnsubscribeRoom,
)
FRAMES_EDGE: tuple[type[Frame], ...] = (
    MessageAck,
    MessageEvent,
    SnapshotChunk,
    Welcome,
    Subscribed,
    Room,
    Rooms,
    Error,
    Pong,
    Unsubscribed,
    NodeState,
)
assert len({frame.code for frame in FRAMES_CLIENT + FRAMES_EDGE}) == 20


# --- JSON -----------------------------------------------------------------------------------------


class _Loose(msgspec.Struct):
    """What an error answer repeats of a frame that could not be understood."""

    request: Any = None
    room_id: Any = None
    client_seq: Any = None


def _union(frames: tuple[type[Frame], ...]) -> Any:
    return functools.reduce(operator.or_, frames)


encode_json = msgspec.json.Encoder(uuid_format="canonical").encode  # one frame -> bytes
_JSON_CLIENT = msgspec.json.Decoder(_union(FRAMES_CLIENT))
_JSON_EDGE = msgspec.json.Decoder(_union(FRAMES_EDGE))
_JSON_LOOSE = msgspec.json.Decoder(_Loose)


def _parse_json(decoder: msgspec.json.Decoder, data: bytes | str) -> Frame:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        if "$.type`" in str(error) or "required field `type`" in str(error):
            raise FrameUnknown(str(error)) from None
        raise FieldInvalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FrameMalformed(f"not JSON in UTF-8: {error}") from None
    except RecursionError:
        raise FrameMalformed("nested too deeply") from None


def parse_json(data: bytes | str) -> Frame:
    """The client's frame in one JSON object. Raises FrameMalformed, FrameUnknown, FieldInvalid."""
    return _parse_json(_JSON_CLIENT, data)


def parse_json_edge(data: bytes | str) -> Frame:
    """The edge's frame, for clients. Raises as `parse_json`."""
    return _parse_json(_JSON_EDGE, data)


_ERROR = struct.Struct("<IBI16sQ")  # of an error frame, behind its head: up to client_seq


def errors_of_items(error: "Error", items: "list[SendItem]") -> list[bytes]:
    """One binary `error` frame for each item, which it names: all else is encoded once."""
    raw = encode_binary(error)
    code, temporary, retry_after, _, _ = _ERROR.unpack_from(raw, HEAD_SIZE)
    tail = raw[HEAD_SIZE + _ERROR.size :]
    head = raw[:HEAD_SIZE]
    return [
        head
        + _ERROR.pack(code, temporary, retry_after, room_id, min(client_seq, NUMBER_MAX))
        + tail
        for room_id, client_seq, *_ in items
    ]


def named_in(data: bytes | str) -> dict[str, Any]:
    """`request`, `room_id`, `client_seq` of a JSON frame that was refused, as far as they are
    right."""
    try:
        loose = _JSON_LOOSE.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    named = {}
    for name, kind in (("request", Label), ("room_id", Id), ("client_seq", U64)):
        try:
            named[name] = msgspec.convert(getattr(loose, name), kind)
        except msgspec.ValidationError:
            continue
    return named


# --- binary ---------------------------------------------------------------------------------------


class Layout:
    """The binary layout of a class of frames or list items, derived from its fields."""

    def __init__(self, of: type) -> None:
        self.fields: list[tuple[str, Kind, bool]] = []
        self.nested: dict[str, tuple[type, Layout]] = {}
        self.list_name = ""
        self.list_of: Layout | None = None
        hints = get_type_hints(of, include_extras=True)
        for name in of.__struct_fields__:  # type: ignore[attr-defined]
            self._add(name, hints[name])

    def _add(self, name: str, hint: Any) -> None:
        assert not self.list_name  # the list stands last: its items follow the fields
        if getattr(hint, "__origin__", None) is list:
            self.list_name, self.list_of = name, Layout(get_args(hint)[0])
            return
        if isinstance(hint, type):
            self.nested[name] = (hint, Layout(hint))
            self.fields.append((name, Kind(""), False))
            return
        optional = any(part is type(None) for part in get_args(hint))
        if optional:
            hint = get_args(hint)[0]
        kind = next(part for part in get_args(hint) if isinstance(part, Kind))
        assert not optional or kind.absent is not None
        self.fields.append((name, kind, optional))

    def struct(self) -> struct.Struct:
        """The fields up to and with the size of a last one that varies: for hot frames."""
        assert all(not kind.varies for _, kind, _ in self.fields[:-1])
        return struct.Struct("<" + "".join(kind.code for _, kind, _ in self.fields))

    def encode(self, frame: Any, out: list[bytes]) -> None:
        """Append the fields of `frame`."""
        for name, kind, optional in self.fields:
            value = getattr(frame, name)
            if name in self.nested:
                self.nested[name][1].encode(value, out)
            elif kind.varies:
                text = "" if value is None else value
                raw = text.encode()
                out += (struct.pack("<" + kind.code, len(raw)), raw)
            elif kind.code:
                if optional and value is None:
                    value = kind.absent
                elif kind.pack is not None:
                    value = kind.pack(value)
                out.append(struct.pack("<" + kind.code, value))

    def decode(self, data: bytes, offset: int, named: dict[str, Any]) -> int:
        """Read the fields at `offset` into `named`; the offset behind them.

        Raises struct.error where `data` ends early, UnicodeError on text that is none, ValueError
        on a value that has no meaning.
        """
        for name, kind, optional in self.fields:
            if name in self.nested:
                inner: dict[str, Any] = {}
                offset = self.nested[name][1].decode(data, offset, inner)
                named[name] = inner
                continue
            if not kind.code:
                named[name] = kind.unpack(named["author_id"])
                continue
            value: Any
            (value,) = struct.unpack_from("<" + kind.code, data, offset)
            offset += struct.calcsize("<" + kind.code)
            if kind.varies:
                if offset + value > len(data):
                    raise struct.error("text ends early")
                end = offset + value
                value, offset = data[offset:end].decode(), end
            if optional and value == kind.absent:
                continue
            named[name] = kind.unpack(value) if kind.unpack is not None else value
        return offset


LAYOUTS = {frame: Layout(frame) for frame in FRAMES_CLIENT + FRAMES_EDGE}
_BY_CODE_CLIENT = {frame.code: frame for frame in FRAMES_CLIENT}
_BY_CODE_EDGE = {frame.code: frame for frame in FRAMES_EDGE}


def binary_head(frame: type[Frame], count: int) -> bytes:
    """The four bytes before `count` items."""
    return _HEAD.pack(frame.code, BINARY_VERSION, count)


def encode_binary(*frames: Frame) -> bytes:
    """One binary frame; several frames only of a kind that may be many."""
    first = frames[0]
    layout = LAYOUTS[type(first)]
    items = getattr(first, layout.list_name) if layout.list_name else frames
    assert all(type(frame) is type(first) for frame in frames)
    assert len(frames) == 1 or first.many
    out = [binary_head(type(first), len(items))]
    for frame in frames:
        layout.encode(frame, out)
    if layout.list_of is not None:
        for item in items:
            layout.list_of.encode(item, out)
    return b"".join(out)


def binary_code(data: bytes) -> int:
    """The code of a binary frame; raises FrameMalformed when there is none."""
    if len(data) < _HEAD.size or data[1] != BINARY_VERSION:
        raise FrameMalformed("a binary frame starts with code, version 1 and a count")
    return data[0]


def _parse_binary(by_code: dict[int, type[Frame]], data: bytes) -> list[Frame]:
    frame = by_code.get(binary_code(data))
    if frame is None:
        raise FrameUnknown(f"no frame has code {data[0]:#04x}")
    layout, count = LAYOUTS[frame], _HEAD.unpack_from(data)[2]
    if count != 1 and not frame.many and not layout.list_name:
        raise FrameMalformed(f"{count} items where one is allowed")
    try:
        rows, offset = _rows(layout, data, 1 if layout.list_name else count, _HEAD.size)
        if layout.list_of is not None:
            rows[0][layout.list_name], offset = _rows(layout.list_of, data, count, offset)
    except (struct.error, UnicodeError, ValueError, IndexError) as error:
        raise FrameMalformed(f"code {data[0]:#04x}: {error}") from None
    if offset != len(data):
        raise FrameMalformed(f"{len(data) - offset} bytes follow the last item")
    try:
        return [
            msgspec.convert({"type": frame.__struct_config__.tag, **_named(frame, row)}, frame)
            for row in rows
        ]
    except msgspec.ValidationError as error:
        raise FieldInvalid(str(error)) from None


def _rows(layout: Layout, data: bytes, count: int, offset: int) -> tuple[list[dict], int]:
    rows = []
    for _ in range(count):
        row: dict[str, Any] = {}
        offset = layout.decode(data, offset, row)
        rows.append(row)
    return rows, offset


def _named(frame: type[Frame], row: dict[str, Any]) -> dict[str, Any]:
    """Fields under their names in JSON: those of `error` differ from its attributes."""
    if frame is not Error:
        return row
    return {("code" if name == "error" else name): value for name, value in row.items()}


def parse_binary(data: bytes) -> list[Frame]:
    """The client's frames in one binary frame; FrameMalformed, FrameUnknown or FieldInvalid."""
    return _parse_binary(_BY_CODE_CLIENT, data)


def parse_binary_edge(data: bytes) -> list[Frame]:
    """The edge's frames, for clients. Raises as `parse_binary`."""
    return _parse_binary(_BY_CODE_EDGE, data)


# --- the hot frames: no object per message --------------------------------------------------------

_SEND = LAYOUTS[SendMessage].struct()
_EVENT = LAYOUTS[MessageEvent].struct()
SEND_ITEM_SIZE = _SEND.size  # bytes of an item before its body

ACK_ITEM = np.dtype(
    [
        ("room_id", "V16"),
        ("client_seq", "<u8"),
        ("op", "<u8"),
        ("msg_id", "V16"),
        ("timestamp", "<u8"),
        ("hash", "V32"),
    ]
)
assert ACK_ITEM.itemsize == LAYOUTS[MessageAck].struct().size
assert list(ACK_ITEM.names or ()) == [name for name, _, _ in LAYOUTS[MessageAck].fields]

SendItem = tuple[bytes, int, bytes, bytes, int, bytes]


def first_room(data: bytes) -> bytes | None:
    """The room of the first item of a send_message frame, None if there is no whole one."""
    end = _HEAD.size + 16
    return data[_HEAD.size : end] if len(data) >= _HEAD.size + SEND_ITEM_SIZE else None


def parse_sends(data: bytes) -> list[SendItem]:
    """(room_id, client_seq, parent_id, msg_id, kind, body) of each item of a send_message frame.

    `data` is known to start with code and version. Absent ids are zero; bodies are not checked.
    """
    count = _HEAD.unpack_from(data)[2]
    size = len(data)
    offset, unpack = _HEAD.size, _SEND.unpack_from
    items: list[SendItem] = []
    append = items.append
    if count * SEND_ITEM_SIZE > size:
        raise FrameMalformed(f"{count} items do not fit a frame of {size} bytes")
    if count > SEND_ITEMS_MAX:
        raise FieldInvalid(f"{count} messages in a frame, at most {SEND_ITEMS_MAX} are allowed")
    for _ in range(count):
        if offset + SEND_ITEM_SIZE > size:
            raise FrameMalformed("the last item ends early")
        room_id, client_seq, parent_id, msg_id, kind, body_size = unpack(data, offset)
        offset += SEND_ITEM_SIZE
        end = offset + body_size
        append((room_id, client_seq, parent_id, msg_id, kind, data[offset:end]))
        offset = end
    if offset != size:
        raise FrameMalformed("the items' sizes do not add up to the frame's")
    return items


_RECORD_PARTS = struct.Struct("<16s16sQ8x16sQI")
_RECORD_TAIL = struct.Struct("<16sQ32xI4xQ")
_PARTS_END = _RECORD_PARTS.size
_TAIL_START = RECORD.fields["client_id"][1]  # type: ignore[index]
assert _PARTS_END == RECORD.fields["body"][1]  # type: ignore[index]


def event_binary(record: bytes | memoryview) -> bytes:
    """A committed record as one item of a message_event frame."""
    room, msg, author, parent, timestamp, size = _RECORD_PARTS.unpack_from(record)
    client, client_seq, flags, op = _RECORD_TAIL.unpack_from(record, _TAIL_START)
    return (
        _EVENT.pack(
            room, op, msg, author, parent, timestamp, client, client_seq, flags & 0xFF, size
        )
        + record[_PARTS_END : _PARTS_END + size]
    )


def message_binary(record: bytes | memoryview) -> bytes:
    """A committed record as one item of a snapshot_chunk: the event without its room."""
    return event_binary(record)[16:]


def _message_fields(record: bytes | memoryview) -> dict[str, Any]:
    _, msg, author, parent, timestamp, size = _RECORD_PARTS.unpack_from(record)
    client, client_seq, flags, op = _RECORD_TAIL.unpack_from(record, _TAIL_START)
    body = bytes(record[_PARTS_END : _PARTS_END + size]).decode(errors="replace")
    return {
        "op": op,
        "msg_id": id_of(msg),
        "author_id": str(author),
        "author": author_name(author),
        "parent_id": id_of(parent) if any(parent) else None,
        "timestamp": timestamp,
        "client_id": id_of(client),
        "client_seq": client_seq,
        "kind": flags & 0xFF,
        "body": body,
    }


def event_of(record: bytes | memoryview) -> MessageEvent:
    """A committed record as a frame: what a JSON subscriber gets."""
    return MessageEvent(room_id=id_of(bytes(record[:16])), **_message_fields(record))


def message_of(record: bytes | memoryview) -> Message:
    """A committed record as a message of a snapshot_chunk."""
    return Message(**_message_fields(record))
