"""Every error a chat client can be answered with: class, stable code, what the client does then.

The name on the wire is the class name in snake_case. A class of its own exists where a client
reacts differently; what merely reads differently is in `detail`. `docs/errors.md` explains each to
people.
"""

from appliance.base.errors import InputError


class FrameMalformed(InputError):
    """Broken JSON or binary layout. The client has a bug; the connection lives."""

    code = 2001


class FrameTooLarge(InputError):
    """The frame is larger than `limits.frame_size_max`: send less at once. The connection ends."""

    code = 2002
    ends_connection = True


class FrameUnknown(InputError):
    """No such frame type: speak an older version of the protocol."""

    code = 2003


class FieldInvalid(InputError):
    """A field is missing, of the wrong type or out of its range."""

    code = 2004


class EncodingMismatch(InputError):
    """A text frame on the binary subprotocol, or the other way round. The connection ends."""

    code = 2005
    ends_connection = True


class HelloRequired(InputError):
    """The first frame was not `hello`."""

    code = 2006
    ends_connection = True


class HelloRepeated(InputError):
    """A second `hello`: use `refresh_token`, or another connection for another device."""

    code = 2007


class HelloLate(InputError):
    """No valid `hello` came in time. The connection ends."""

    code = 2008
    ends_connection = True


class TokenInvalid(InputError):
    """Malformed, forged, or of an algorithm, issuer, audience, author that is refused."""

    code = 2010
    ends_stranger = True


class TokenKeyUnknown(InputError):
    """No public key has the token's `kid`: perhaps keys are being rotated, try again or sign in
    anew."""

    code = 2011
    ends_stranger = True
    temporary = True
    retry_after_ms = 2000


class TokenExpired(InputError):
    """`exp` is past: get a new token. A session whose token expires ends with this."""

    code = 2012
    ends_stranger = True


class TokenNotYetValid(InputError):
    """`nbf` or `iat` lies ahead: the clocks of issuer and node differ, try again."""

    code = 2013
    ends_stranger = True
    temporary = True
    retry_after_ms = 2000


class TokenRevoked(InputError):
    """An operator took the token back, or all that its user had: sign in anew."""

    code = 2014
    ends_stranger = True


class Forbidden(InputError):
    """The token's rights, or the room's policy, do not allow this."""

    code = 2020


class RoomUnknown(InputError):
    """No such room: the shard's log has said so, not a replica that may be behind."""

    code = 2021


class RoomNameInvalid(InputError):
    """Room names are 1 to 128 bytes of printable UTF-8 without spaces at their ends."""

    code = 2022


class BodyTooLarge(InputError):
    """A body has at most 2048 bytes of UTF-8: make several messages of it."""

    code = 2023


class KindRefused(InputError):
    """This kind of record is not for clients to send."""

    code = 2024


class DuplicateExpired(InputError):
    """Older than the last 64 of this device and room, or than all that is remembered of its author:
    it was stored once, or may have been, and its ack is forgotten."""

    code = 2025


class SequenceGap(InputError):
    """Not the next client_seq of this device and room: go on from `expected`."""

    code = 2026

    def __init__(self, expected: int) -> None:
        super().__init__(f"the next client_seq of this device and room is {expected}")
        self.expected = expected


class LimitReached(InputError):
    """The shard holds as many rooms or devices as it may: try later, or ask the operator."""

    code = 2027
    temporary = True
    retry_after_ms = 60_000


class StorageFull(InputError):
    """No extent is free: the operator must keep fewer segments or add space."""

    code = 2028
    temporary = True
    retry_after_ms = 60_000


class RoomClosed(InputError):
    """The room is closed: it takes no messages until a moderator opens it again."""

    code = 2029


class SubscriptionsTooMany(InputError):
    """The connection follows `limits.subscriptions_max` rooms already."""

    code = 2030


class SubscriptionUnknown(InputError):
    """The connection does not follow this room."""

    code = 2031


class SubscriptionTooSlow(InputError):
    """Too far behind for too long: the connection ends; subscribe again from `cursor`."""

    code = 2032
    ends_connection = True
    temporary = True

    def __init__(self, detail: str, cursor: int) -> None:
        super().__init__(detail)
        self.cursor = cursor


class RoomNameTaken(InputError):
    """Another room has this name, or had it once: old names go on leading to their rooms."""

    code = 2033


class RateLimited(InputError):
    """Faster than device, user, room or address may be: wait `retry_after` milliseconds."""

    code = 2040
    ends_stranger = True
    temporary = True

    def __init__(self, detail: str, retry_after_ms: int) -> None:
        super().__init__(detail)
        self.retry_after_ms = retry_after_ms


class Busy(InputError):
    """More is in flight than is bounded here: wait `retry_after` milliseconds, send again."""

    code = 2041
    temporary = True
    retry_after_ms = 50


class Unavailable(InputError):
    """This node cannot answer now (starting, syncing, or its replica is gone): try another."""

    code = 2042
    temporary = True
    retry_after_ms = 500


class Closing(InputError):
    """The node stops or the session ended in good order: connect again, to another node."""

    code = 2043
    ends_connection = True
    temporary = True


class RefusedTooOften(InputError):
    """Frame after frame was refused: a client with a bug, or one that does not wait. The connection
    ends."""

    code = 2044
    ends_connection = True


class HeldTooMuch(InputError):
    """What the node holds for this connection, or this user, is too much: read what was asked for.
    The connection ends."""

    code = 2045
    ends_connection = True
    temporary = True
    retry_after_ms = 1000


class ConnectionsTooMany(InputError):
    """The user has as many connections to this node as one may: close some. The connection
    ends."""

    code = 2046
    ends_stranger = True
    temporary = True
    retry_after_ms = 1000


class GoElsewhere(InputError):
    """The operator keeps this node out of the directory: connect to one that `detail` or the
    directory names. The connection ends."""

    code = 2047
    ends_connection = True
    temporary = True


class NodeFull(InputError):
    """This node has as many connections as it can serve: connect to another one, or come again. The
    connection ends."""

    code = 2048
    ends_stranger = True
    temporary = True
    retry_after_ms = 1000


class MsgIdInvalid(InputError):
    """The msg_id is no UUIDv7 of about now: set the clock that made it, or leave it out."""

    code = 2050


class MsgIdTaken(InputError):
    """A message of another user, or of another room, has this msg_id: send it under a new one."""

    code = 2051


class MessageUnknown(InputError):
    """No message that the token may read has this msg_id, as far as this node knows."""

    code = 2052


class ObjectRefused(InputError):
    """The objects do not take this: too long, too many, or this site has none; `detail` says it."""

    code = 2060


class ObjectsFull(InputError):
    """The objects of this node have no room: nothing of it was kept. Tell the operator; another
    node may take it."""

    code = 2061
    temporary = True
    retry_after_ms = 1000


CLIENT_ERRORS = (
    FrameMalformed,
    FrameTooLarge,
    FrameUnknown,
    FieldInvalid,
    EncodingMismatch,
    HelloRequired,
    HelloRepeated,
    HelloLate,
    TokenInvalid,
    TokenKeyUnknown,
    TokenExpired,
    TokenNotYetValid,
    TokenRevoked,
    Forbidden,
    RoomUnknown,
    RoomNameInvalid,
    BodyTooLarge,
    KindRefused,
    DuplicateExpired,
    SequenceGap,
    LimitReached,
    StorageFull,
    RoomClosed,
    SubscriptionsTooMany,
    SubscriptionUnknown,
    SubscriptionTooSlow,
    RoomNameTaken,
    RateLimited,
    Busy,
    Unavailable,
    Closing,
    RefusedTooOften,
    HeldTooMuch,
    ConnectionsTooMany,
    GoElsewhere,
    NodeFull,
    MsgIdInvalid,
    MsgIdTaken,
    MessageUnknown,
    ObjectRefused,
    ObjectsFull,
)
assert len({error.code for error in CLIENT_ERRORS}) == len(CLIENT_ERRORS)
