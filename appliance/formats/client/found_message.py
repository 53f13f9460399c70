"""Where a message lies: the answer to `GET /v1/messages/<msg_id>`, as JSON."""

import msgspec

from appliance.formats.client.fields import U8, U64, AuthorId, AuthorName, Id, SaidAt, SaidBy


class FoundMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Its room, its number there, and whose it is; as a message_event, but without its text."""

    room_id: Id
    room: str
    op: U64
    msg_id: Id
    author_id: AuthorId
    author: AuthorName
    timestamp: U64
    kind: U8
    said_at: SaidAt | None = None
    said_by: SaidBy | None = None
