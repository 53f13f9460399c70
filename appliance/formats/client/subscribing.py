"""Rooms that a connection follows, and the messages that it is given."""

from typing import ClassVar

from appliance.formats.client.fields import (
    U8,
    U32,
    U64,
    AuthorId,
    AuthorName,
    Body,
    Id,
    Label,
    SaidAt,
    SaidBy,
    Status,
)
from appliance.formats.client.frame import Frame


class SubscribeRoom(Frame, tag="subscribe_room", kw_only=True):
    code: ClassVar[int] = 0x22
    room_id: Id
    since_op: U64 | None = None
    last: U32 | None = None
    epoch: U32 | None = None
    request: Label | None = None


class Subscribed(Frame, tag="subscribed", kw_only=True):
    code: ClassVar[int] = 0x28
    room_id: Id
    status: Status
    next_op: U64
    epoch: U32
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
    said_at: SaidAt | None = None
    said_by: SaidBy | None = None
    body: Body


class UnsubscribeRoom(Frame, tag="unsubscribe_room", kw_only=True):
    code: ClassVar[int] = 0x31
    room_id: Id
    request: Label | None = None


class Unsubscribed(Frame, tag="unsubscribed", kw_only=True):
    code: ClassVar[int] = 0x32
    room_id: Id
    request: Label | None = None
