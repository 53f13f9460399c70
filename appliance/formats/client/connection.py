"""What concerns the connection itself: life signs, the state of its node, errors."""

import struct
from typing import ClassVar

import msgspec

from appliance.formats.client.fields import NUMBER_MAX, U32, U64, Flag, Id, Label, Text
from appliance.formats.client.frame import HEAD_SIZE, Frame, encode_binary
from appliance.formats.client.sending import SendItem


class ErrorFrame(Frame, tag="error", kw_only=True):
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


class Ping(Frame, tag="ping", kw_only=True):
    code: ClassVar[int] = 0x2F
    request: Label | None = None


class Pong(Frame, tag="pong", kw_only=True):
    code: ClassVar[int] = 0x30
    request: Label | None = None


class NodeState(Frame, tag="node_state", kw_only=True):
    """Unasked: since when (us since the epoch) this node may lack what the site has committed;
    absent when it lacks nothing again."""

    code: ClassVar[int] = 0x33
    stale_since: U64 | None = None


class NextNode(Frame, tag="next_node", kw_only=True):
    """Unasked, right before the error with which a node sends a client away: where to go on.
    `spread`: milliseconds up to which to wait first, by chance, since others are sent there too."""

    code: ClassVar[int] = 0x3A
    spread: U32 = 0
    url: Text


_ERROR = struct.Struct("<IBI16sQ")  # of an error frame, behind its head: up to client_seq


def errors_of_items(error: ErrorFrame, items: list[SendItem]) -> list[bytes]:
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
