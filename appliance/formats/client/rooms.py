"""Rooms: made, and listed."""

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
