"""A room that gets another name: the body of an audit record in shard 0, a line of JSON.

    {"act":{"do":"rename_room","room":NAME,"name":NEW,"number":N},"who":AUTHOR}
    {"act":{...},"who":AUTHOR,"said_us":...}     the same, stated anew before its record is dropped

`room` is the name that the room was made under, of which its id is the digest; it stays. `number`
is one more than that of the newest renaming of the room that its writer knew. Other audit records
are none: a reader gets None for them.
"""

from typing import Any, NamedTuple

import msgspec

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.room_name import room_name_valid

_ACT = "rename_room"
_NUMBER_MAX = (1 << 63) - 1


class Renaming(NamedTuple):
    """`said_us`: when it was said, in us since the epoch; 0: when its record was committed."""

    room: str
    name: str
    number: int
    who: str
    said_us: int = 0


def encode_renaming(renaming: Renaming) -> bytes:
    """Body of an audit record."""
    room, name, number, who, said_us = renaming
    assert room_name_valid(room)
    assert room_name_valid(name)
    assert 1 <= number <= _NUMBER_MAX
    said = {"act": {"do": _ACT, "room": room, "name": name, "number": number}, "who": who}
    body = msgspec.json.encode(said | ({"said_us": said_us} if said_us else {}))
    assert len(body) <= BODY_SIZE_MAX
    return body


def decode_renaming(body: bytes) -> Renaming | None:
    """What an audit record says of a room's name, if it does."""
    if _ACT.encode() not in body:  # nearly all records: they are not parsed
        return None
    try:
        said: Any = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    act: Any = said.get("act")
    who, said_us = said.get("who"), said.get("said_us", 0)
    if not isinstance(act, dict) or act.get("do") != _ACT or type(who) is not str:
        return None
    room, name, number = (act.get(field, "") for field in ("room", "name", "number"))
    for given in (room, name):
        if type(given) is not str or not room_name_valid(given):
            return None
    for count, least in ((number, 1), (said_us, 0)):
        if type(count) is not int or not least <= count <= _NUMBER_MAX:
            return None
    return Renaming(room, name, number, who, said_us)
