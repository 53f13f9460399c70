"""Stored messages of a room, page by page, in both directions."""

from typing import ClassVar

import msgspec

from appliance.formats.client.fields import (
    U8,
    U64,
    AuthorId,
    AuthorName,
    Body,
    Flag,
    Id,
    Label,
    PageSize,
    SaidAt,
    SaidBy,
)
from appliance.formats.client.frame import Frame


class SnapshotRequest(Frame, tag="snapshot_request", kw_only=True):
    code: ClassVar[int] = 0x24
    room_id: Id
    from_op: U64 | None = None
    until_op: U64 | None = None
    limit: PageSize = 100
    backward: Flag = False
    request: Label | None = None


class StoredMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
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
    said_at: SaidAt | None = None
    said_by: SaidBy | None = None
    body: Body


class SnapshotChunk(Frame, tag="snapshot_chunk", kw_only=True):
    code: ClassVar[int] = 0x25
    room_id: Id
    has_more: Flag
    cursor: U64
    stale_since: U64 | None = None  # us since the epoch; else all that was committed was looked at
    request: Label | None = None
    messages: list[StoredMessage]
