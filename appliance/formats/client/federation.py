"""Rooms that are shared with other sites: where their messages stand, and who has them."""

from typing import ClassVar

import msgspec

from appliance.formats.client.fields import U32, U64, Flag, Hash, Id, Label, Text
from appliance.formats.client.frame import Frame


class PlacedMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message of a shared room: its place, (lamport, message_id), is the same at all sites."""

    op: U64
    site: Label  # where it was said
    lamport: U64
    message_id: Hash
    timestamp: U64  # when it was said, by its site
    part: U32 = 0
    parts: U32 = 1
    gap: Flag = False  # something that it answers to could not be had
    late: Flag = False  # it came when later ones had been shown without it
    acknowledged: Text | None = None  # sites in whose log it is, apart by spaces


class FederationEvent(Frame, tag="federation_event", kw_only=True):
    """Unasked with each new message and acknowledgement, and as the answer to a request."""

    code: ClassVar[int] = 0x50
    room_id: Id
    site: Label | None = None  # the name of this site; absent: the room is not shared
    sites: Text | None = None  # the others, apart by spaces
    messages: list[PlacedMessage]


class FederationRequest(Frame, tag="federation_request", kw_only=True):
    """Places of messages, both ops included. Right: read."""

    code: ClassVar[int] = 0x51
    room_id: Id
    from_op: U64
    until_op: U64
    request: Label | None = None
