"""Rooms: made, listed, closed, opened again, called by another name, with rights of their own."""

from typing import ClassVar

import msgspec

from appliance.formats.client.fields import U64, Flag, Id, Label, PageSize, Text
from appliance.formats.client.frame import Frame


class CreateRoom(Frame, tag="create_room", kw_only=True):
    code: ClassVar[int] = 0x29
    name: Text
    request: Label | None = None


class RoomAnswer(Frame, tag="room", kw_only=True):
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


class CloseRoom(Frame, tag="close_room", kw_only=True):
    code: ClassVar[int] = 0x36
    room_id: Id
    closed: Flag = True
    request: Label | None = None


class RenameRoom(Frame, tag="rename_room", kw_only=True):
    code: ClassVar[int] = 0x3C
    room_id: Id
    name: Text
    request: Label | None = None


class RoomRightsRequest(Frame, tag="room_rights_request", kw_only=True):
    """Sets who may do so, as `room_limits.whom_of` reads it, and asks for what there is then; what
    is absent stays. Without any it only asks."""

    code: ClassVar[int] = 0x3D
    room_id: Id
    read: Text | None = None
    send: Text | None = None
    moderate: Text | None = None
    request: Label | None = None


class RoomRightsAnswer(Frame, tag="room_rights", kw_only=True):
    code: ClassVar[int] = 0x3E
    room_id: Id
    read: Text
    send: Text
    moderate: Text
    request: Label | None = None


class RoomStateRequest(Frame, tag="room_state_request", kw_only=True):
    code: ClassVar[int] = 0x37
    room_id: Id
    request: Label | None = None


class RoomState(Frame, tag="room_state", kw_only=True):
    """Whether a room is closed, and what this connection may do there now: what both its token and
    the room's policy allow."""

    code: ClassVar[int] = 0x3B
    room_id: Id
    closed: Flag
    may_read: Flag
    may_send: Flag
    may_import: Flag
    may_moderate: Flag
    name: Text
    request: Label | None = None


class RoomItem(msgspec.Struct, kw_only=True):
    """A room in a list of rooms."""

    room_id: Id
    message_count: U64
    name: Text


class RoomsPage(Frame, tag="rooms", kw_only=True):
    code: ClassVar[int] = 0x2C
    next: U64 | None = None
    request: Label | None = None
    rooms: list[RoomItem]
