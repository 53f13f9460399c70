"""Names of rooms whose first record is dropped: the body of an audit record in shard 0, a line of
JSON. A room's id is the digest of its name, so who reads it can check it.

    {"act":{"do":"name_rooms","rooms":[NAME,...]},"at_us":...,"node":NAME}

Other audit records are none: a reader gets no names for them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.room_name import room_name_valid

_ACT = "name_rooms"


def encode_room_names(names: Iterable[str], *, node: str, at_us: int) -> Iterator[bytes]:
    """Bodies of audit records that hold all of them, as few as their size allows."""
    empty = len(_body([], node, at_us))
    taken: list[str] = []
    size = empty
    for name in names:
        assert room_name_valid(name)
        more = len(msgspec.json.encode(name)) + 1
        if size + more > BODY_SIZE_MAX:
            yield _body(taken, node, at_us)
            taken, size = [], empty
        taken.append(name)
        size += more
    if taken:
        yield _body(taken, node, at_us)


def _body(names: list[str], node: str, at_us: int) -> bytes:
    return msgspec.json.encode({"act": {"do": _ACT, "rooms": names}, "at_us": at_us, "node": node})


def decode_room_names(body: bytes) -> list[str]:
    """The names that an audit record holds, if it is such a one."""
    if _ACT.encode() not in body:  # nearly all records: they are not parsed
        return []
    try:
        act: Any = msgspec.json.decode(body, type=dict[str, Any]).get("act")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    if type(act) is not dict or act.get("do") != _ACT or type(act.get("rooms")) is not list:
        return []
    return [name for name in act["rooms"] if type(name) is str and room_name_valid(name)]
