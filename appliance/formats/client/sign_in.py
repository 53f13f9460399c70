"""Who is there: hello and its answer, and the token of a session made new."""

from typing import ClassVar

import msgspec

from appliance.formats.client.fields import U32, U64, AuthorId, AuthorName, Id, Label, Text
from appliance.formats.client.frame import Frame


class Hello(Frame, tag="hello", kw_only=True):
    code: ClassVar[int] = 0x26
    token: Text | None = None  # absent: that of the handshake
    client_id: Id
    request: Label | None = None


class ConnectionLimits(msgspec.Struct, kw_only=True):
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
    limits: ConnectionLimits
    request: Label | None = None


class RefreshToken(Frame, tag="refresh_token", kw_only=True):
    code: ClassVar[int] = 0x2E
    token: Text
    request: Label | None = None
