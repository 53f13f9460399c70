"""A message that is looked for by its id, and where it lies."""

from typing import ClassVar

from appliance.formats.client.fields import (
    U8,
    U64,
    AuthorId,
    AuthorName,
    Id,
    Label,
    Text,
)
from appliance.formats.client.frame import Frame


class FindMessage(Frame, tag="find_message", kw_only=True):
    code: ClassVar[int] = 0x34
    msg_id: Id
    request: Label | None = None


class MessageFound(Frame, tag="message_found", kw_only=True):
    """Fields as of `found_message.FoundMessage`; no body comes with it, so `said_at` and `said_by`
    stand in both encodings."""

    code: ClassVar[int] = 0x35
    room_id: Id
    op: U64
    msg_id: Id
    author_id: AuthorId
    author: AuthorName
    timestamp: U64
    kind: U8
    said_at: U64 | None = None
    said_by: Text | None = None
    room: Text
    request: Label | None = None
