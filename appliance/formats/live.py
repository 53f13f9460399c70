"""What is said to other nodes and never stored: who types, who is there. A JSON object a line.

It may be lost, and come late or twice: who is there is said again every few seconds, each time
whole, and what is not said again is forgotten.
"""

from typing import Annotated

import msgspec

from appliance.base.limits import LIVE_HOPS_MAX, LIVE_MESSAGE_SIZE_MAX, PEOPLE_MAX

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


Said = Typing | Present


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
        return msgspec.convert(value, Said)
    except msgspec.ValidationError:
        return None


def plain_said(said: Said) -> dict[str, object]:
    """The object that a local process is told."""
    plain: dict[str, object] = msgspec.to_builtins(said)
    return plain


def users_of(said: Said) -> list[str]:
    return [said.user] if isinstance(said, Typing) else list(said.users)
