"""What is said to other nodes and never stored: who types, who is there, what is told of rooms that
are shared with other sites. A JSON object a line.

It may be lost, and come late or twice: who is there is said again every few seconds, each time
whole, and what is not said again is forgotten.
"""

from typing import Annotated

import msgspec

from appliance.base.limits import (
    FEDERATED_AUTHOR_SIZE_MAX,
    LIVE_HOPS_MAX,
    LIVE_MESSAGE_SIZE_MAX,
    PEOPLE_MAX,
    POSITIONS_TOLD_MAX,
    SHARING_SITES_MAX,
    SITE_NAME_SIZE_MAX,
)

PROTOCOL = "tigerchat.live.v1"  # agreed on by ALPN: the port is that of the objects
ONLINE, AWAY, OFFLINE = "online", "away", "offline"

_Meta = msgspec.Meta
Room = Annotated[str, _Meta(min_length=1, max_length=128)]
User = Annotated[str, _Meta(min_length=1, max_length=300, pattern="^[^ ]+@[0-9]+$")]
State = Annotated[str, _Meta(pattern="^(online|away)$")]
Number = Annotated[int, _Meta(ge=0, le=(1 << 63) - 1)]


class Typing(msgspec.Struct, tag="typing", tag_field="kind"):
    """`user` types in `room`, or has stopped."""

    room: Room
    user: User
    types: bool


class Present(msgspec.Struct, tag="present", tag_field="kind"):
    """Who is in `room` by that edge: all of them."""

    room: Room
    edge: Annotated[str, _Meta(min_length=1, max_length=64)]
    users: Annotated[dict[User, State], _Meta(max_length=PEOPLE_MAX)]


RoomId = Annotated[str, _Meta(pattern="^[0-9a-f]{32}$")]  # bytes of the record, in hexadecimal
SiteName = Annotated[str, _Meta(max_length=SITE_NAME_SIZE_MAX)]
SiteNames = Annotated[list[SiteName], _Meta(max_length=SHARING_SITES_MAX)]


class Position(msgspec.Struct, array_like=True):
    """Where a message of a shared room stands in the order that all its sites have."""

    op: Number
    site: SiteName  # where it was said
    lamport: Number
    message_id: Annotated[str, _Meta(pattern="^[0-9a-f]{64}$")]
    time_us: Number  # when, by that site
    part: Number
    parts: Number
    gap: bool  # something that it names could not be had
    late: bool
    held: SiteNames  # other sites in whose log it is; of messages of this site alone


class Positions(msgspec.Struct, tag="places", tag_field="kind"):
    """What the node tells that carries `room`; `edge`: who asked for it, empty: for everybody."""

    room: RoomId
    site: SiteName  # this one
    sites: SiteNames  # the others that share the room
    edge: Annotated[str, _Meta(max_length=64)]
    places: Annotated[list[Position], _Meta(max_length=POSITIONS_TOLD_MAX)]


class PositionsWanted(msgspec.Struct, tag="places_wanted", tag_field="kind"):
    """An edge asks whoever carries `room` for the places of ops `first` to `last`."""

    room: RoomId
    edge: Annotated[str, _Meta(min_length=1, max_length=64)]
    first: Number
    last: Number


class TypingAfar(msgspec.Struct, tag="typing_afar", tag_field="kind"):
    """Somebody types at a site with which `room` is shared: `author` is name@site."""

    room: RoomId
    author: Annotated[str, _Meta(max_length=FEDERATED_AUTHOR_SIZE_MAX + SITE_NAME_SIZE_MAX + 1)]
    types: bool


Said = Typing | Present | Positions | PositionsWanted | TypingAfar
OF_THIS_SITE = (
    Positions,
    PositionsWanted,
    TypingAfar,
)  # neither told to linked sites nor heard of them


class Live(msgspec.Struct):
    """As it goes between nodes."""

    origin: Number  # chance, of each start of the node's objects
    number: Number  # counted by the origin
    hops: Annotated[int, _Meta(ge=0, le=LIVE_HOPS_MAX)]
    said: Said


_LIVE = msgspec.json.Decoder(Live)
_encode = msgspec.json.Encoder().encode


def encode_live(live: Live) -> bytes:
    line = _encode(live) + b"\n"
    assert len(line) <= LIVE_MESSAGE_SIZE_MAX
    return line


def parse_live(line: bytes) -> Live | None:
    """None: it is no such message."""
    if len(line) > LIVE_MESSAGE_SIZE_MAX:
        return None
    try:
        return _LIVE.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError):
        return None


def parse_said(value: object) -> Said | None:
    """Of a local process: the object of its request."""
    try:
        said: Said = msgspec.convert(value, Said)
    except msgspec.ValidationError:
        return None
    return said


def plain_said(said: Said) -> dict[str, object]:
    """The object that a local process is told."""
    plain: dict[str, object] = msgspec.to_builtins(said)
    return plain


def users_of(said: Said) -> list[str]:
    """Who is spoken for."""
    if isinstance(said, Typing):
        return [said.user]
    return list(said.users) if isinstance(said, Present) else []
