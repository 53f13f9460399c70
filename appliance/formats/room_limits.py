"""Who may do what in a room, beside what tokens say: the body of an audit record in shard 0, a line
of JSON.

    {"act":{"do":"limit_room","room":NAME,"send":WHOM,...,"number":N},"who":AUTHOR}
    {"act":{...},"who":AUTHOR,"said_us":...}      the same, stated anew before its record is dropped

`room` is the name that the room was made under, `number` one more than that of the newest act of
this kind on the room that its writer knew. "read", "send" and "moderate" stand there where not
everybody may whom a token allows: WHOM is "moderators", or a list of users' names. An act says all
there is to say: what it leaves out is for all. Other audit records are none.
"""

from typing import Any, NamedTuple

import msgspec

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.author import AUTHOR_NAME_SIZE_MAX
from appliance.formats.client.rights import ADMIN, IMPORT, MODERATE, READ, SEND
from appliance.formats.room_name import room_name_valid

_ACT = "limit_room"
_NUMBER_MAX = (1 << 63) - 1
_USER = "="  # begins the line of a user, who may have any name

ALL, MODERATORS = "all", "moderators"
Whom = str | tuple[str, ...]  # ALL, MODERATORS, or names of users


class Limits(NamedTuple):
    """Of those whom a token allows."""

    read: Whom = ALL
    send: Whom = ALL
    moderate: Whom = ALL  # never MODERATORS

    def bits(self, bits: int, author: str) -> int:
        """What is left of the rights of a token. Who has all of them there keeps them: else a room
        could be left to nobody."""
        if bits & ADMIN == ADMIN:
            return bits
        if not _includes(self.moderate, author, False):
            bits &= ~MODERATE
        moderates = bool(bits & MODERATE)
        if not _includes(self.read, author, moderates):
            bits &= ~READ
        if not _includes(self.send, author, moderates):
            bits &= ~(SEND | IMPORT)
        return bits


UNLIMITED = Limits()


def _includes(whom: Whom, author: str, moderates: bool) -> bool:
    return whom == ALL or moderates if isinstance(whom, str) else author in whom


class Limiting(NamedTuple):
    """An act. `said_us`: when it was said, in us since the epoch; 0: when it was committed."""

    room: str
    limits: Limits
    number: int
    who: str
    said_us: int = 0


def whom_of(text: str, *, moderate: bool = False) -> Whom | None:
    """As a frame says it: "all", "moderators", or users, each in a line behind "="; None: that
    says nobody. `moderate`: of the right to moderate, which is no matter of moderators."""
    if text == ALL or (text == MODERATORS and not moderate):
        return text
    lines = text.split("\n")
    if not all(line.startswith(_USER) and _is_user(line[1:]) for line in lines):
        return None
    return tuple(sorted({line[1:] for line in lines}))


def whom_text(whom: Whom) -> str:
    """The other way."""
    return whom if isinstance(whom, str) else "\n".join(_USER + name for name in whom)


def whom_words(text: str) -> str:
    """What `whom_text` gave, for people."""
    return ", ".join(line.removeprefix(_USER) for line in text.split("\n"))


def _is_user(name: str) -> bool:
    return name.isprintable() and 1 <= len(name.encode()) <= AUTHOR_NAME_SIZE_MAX


def encode_limiting(limiting: Limiting) -> bytes:
    """Body of an audit record; longer than a record takes if there are too many users."""
    room, limits, number, who, said_us = limiting
    assert room_name_valid(room)
    assert 1 <= number <= _NUMBER_MAX
    assert limits.moderate != MODERATORS
    limited = {right: whom for right, whom in limits._asdict().items() if whom != ALL}
    said = {"act": {"do": _ACT, "room": room, **limited, "number": number}, "who": who}
    return msgspec.json.encode(said | ({"said_us": said_us} if said_us else {}))


def fits(limiting: Limiting) -> bool:
    """Whether a record has room for it, also when it is stated anew."""
    return len(encode_limiting(limiting._replace(said_us=_NUMBER_MAX))) <= BODY_SIZE_MAX


def decode_limiting(body: bytes) -> Limiting | None:
    """What an audit record says of a room's rights, if it does."""
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
    room, number = (act.get(field, "") for field in ("room", "number"))
    if type(room) is not str or not room_name_valid(room):
        return None
    for count, least in ((number, 1), (said_us, 0)):
        if type(count) is not int or not least <= count <= _NUMBER_MAX:
            return None
    whoms = [_whom(act.get(right, ALL), right) for right in Limits._fields]
    known = [whom for whom in whoms if whom is not None]
    if len(known) != len(whoms):
        return None
    return Limiting(room, Limits(*known), number, who, said_us)


def _whom(found: Any, right: str) -> Whom | None:
    if type(found) is str:
        return found if found == ALL or (found == MODERATORS and right != "moderate") else None
    if type(found) is not list or not found or not all(_is_name(name) for name in found):
        return None
    return tuple(sorted(set(found)))


def _is_name(found: Any) -> bool:
    return type(found) is str and _is_user(found)
