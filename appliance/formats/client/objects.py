"""What goes on without a quorum: topics, pins, reactions, read markers, profiles, who is there."""

from typing import Annotated, ClassVar, Literal

import msgspec

from appliance.base.limits import REACTION_SIZE_MAX
from appliance.formats.client.fields import U64, Flag, Id, Kind, Label, Text
from appliance.formats.client.frame import Frame

OBJECT_KINDS = (
    "topic",
    "description",
    "avatar",
    "pin",
    "reaction",
    "read_marker",
    "profile",
    "presence",
    "typing",
)
ObjectKind = Annotated[
    Literal[
        "topic",
        "description",
        "avatar",
        "pin",
        "reaction",
        "read_marker",
        "profile",
        "presence",
        "typing",
    ],
    Kind("B", pack=OBJECT_KINDS.index, unpack=OBJECT_KINDS.__getitem__),
]
PRESENCES = ("online", "away", "offline")
PresenceState = Annotated[
    Literal["online", "away", "offline"],
    Kind("B", pack=PRESENCES.index, unpack=PRESENCES.__getitem__),
]
Emoji = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=REACTION_SIZE_MAX),
    Kind("H", varies=True, absent=""),
]
# an author of this site by the name alone, one of another site as name@number
Author = Annotated[str, msgspec.Meta(max_length=300), Kind("H", varies=True, absent="")]


class Topic(Frame, tag="topic", kw_only=True):
    """Right: moderate."""

    code: ClassVar[int] = 0x40
    room_id: Id
    text: Text
    request: Label | None = None


class Description(Frame, tag="description", kw_only=True):
    """Right: moderate."""

    code: ClassVar[int] = 0x4B
    room_id: Id
    text: Text
    request: Label | None = None


class Pin(Frame, tag="pin", kw_only=True):
    """Right: moderate."""

    code: ClassVar[int] = 0x41
    room_id: Id
    msg_id: Id
    present: Flag = True
    request: Label | None = None


class Reaction(Frame, tag="reaction", kw_only=True):
    """One's own. Right: send."""

    code: ClassVar[int] = 0x42
    room_id: Id
    msg_id: Id
    present: Flag = True
    emoji: Emoji
    request: Label | None = None


class ReadMarker(Frame, tag="read_marker", kw_only=True):
    """One's own; it never goes back. Right: read."""

    code: ClassVar[int] = 0x43
    room_id: Id
    op: U64
    request: Label | None = None


class Profile(Frame, tag="profile", kw_only=True):
    """One's own, as a whole: what is absent is empty from now on."""

    code: ClassVar[int] = 0x44
    name: Text | None = None
    about: Text | None = None
    picture: Text | None = None
    request: Label | None = None


class Presence(Frame, tag="presence", kw_only=True):
    """One's own, in all rooms that the connection follows, until it ends."""

    code: ClassVar[int] = 0x45
    state: PresenceState
    request: Label | None = None


class Typing(Frame, tag="typing", kw_only=True):
    """One's own. Right: send."""

    code: ClassVar[int] = 0x46
    room_id: Id
    present: Flag = True
    request: Label | None = None


ObjectWish = Topic | Description | Pin | Reaction | ReadMarker | Profile | Presence | Typing


class ObjectAck(Frame, tag="object_ack", kw_only=True):
    """`changed` is false where all was so already."""

    code: ClassVar[int] = 0x47
    changed: Flag
    request: Label | None = None


class ObjectEvent(Frame, tag="object_event", kw_only=True):
    code: ClassVar[int] = 0x48
    room_id: Id | None = None  # absent of a profile
    kind: ObjectKind
    present: Flag = True
    msg_id: Id | None = None
    op: U64 | None = None
    timestamp: U64 | None = None
    author: Author | None = None
    text: Text | None = None
    about: Text | None = None
    picture: Text | None = None


class ObjectItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What holds now, inside an object_state: as an object_event, but the room is named once."""

    kind: ObjectKind
    msg_id: Id | None = None
    op: U64 | None = None
    timestamp: U64 | None = None
    author: Author | None = None
    text: Text | None = None
    about: Text | None = None
    picture: Text | None = None


class ObjectState(Frame, tag="object_state", kw_only=True):
    """Behind `subscribed`, whenever events may have been missed, and in answer to
    object_request."""

    code: ClassVar[int] = 0x49
    room_id: Id
    before: Id | None = None  # of the request that asked for older reactions
    cursor: Id | None = None  # there are reactions to messages older than this one
    request: Label | None = None
    items: list[ObjectItem]


class ObjectRequest(Frame, tag="object_request", kw_only=True):
    """Reactions to messages older than `before`. Right: read."""

    code: ClassVar[int] = 0x4A
    room_id: Id
    before: Id
    request: Label | None = None
