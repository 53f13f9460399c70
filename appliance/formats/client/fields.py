"""Kinds of fields: how each stands in JSON (a type that msgspec checks) and in a binary frame."""

from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID, SafeUUID

import msgspec

from appliance.base.limits import SNAPSHOT_LIMIT_MAX
from appliance.formats.author import author_name

NUMBER_MAX = (1 << 63) - 1  # of all numbers in frames, so that every language can hold them
_Meta = msgspec.Meta


class Kind(NamedTuple):
    """How a field stands in a binary frame: a fixed struct code, or a size and that many bytes."""

    code: str  # struct code of the value; of its size if `varies`
    varies: bool = False
    absent: Any = None  # what stands for None
    pack: Any = None  # value of the frame -> value of the struct
    unpack: Any = None  # the other way; for a derived field (code "") from the author_id, if at all


def id_bytes(value: UUID) -> bytes:
    """The 16 bytes of a record: the u128 little-endian."""
    return value.int.to_bytes(16, "little")


def id_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes of a record; half the cost of the class's own constructor."""
    value = UUID.__new__(UUID)
    object.__setattr__(value, "int", int.from_bytes(raw, "little"))
    object.__setattr__(value, "is_safe", SafeUUID.unknown)
    return value


STATUSES = ("recovered", "gap", "reset")

Id = Annotated[UUID, Kind("16s", absent=bytes(16), pack=id_bytes, unpack=id_of)]
U8 = Annotated[int, _Meta(ge=0, le=0xFF), Kind("B")]
U32 = Annotated[int, _Meta(ge=0, le=0xFFFF_FFFE), Kind("I", absent=0xFFFF_FFFF)]
U64 = Annotated[int, _Meta(ge=0, le=NUMBER_MAX), Kind("Q", absent=0xFFFF_FFFF_FFFF_FFFF)]
PageSize = Annotated[int, _Meta(ge=1, le=SNAPSHOT_LIMIT_MAX), Kind("I")]
Flag = Annotated[bool, Kind("B", pack=int, unpack=(False, True).__getitem__)]
Hash = Annotated[
    str, _Meta(pattern="^[0-9a-f]{64}$"), Kind("32s", pack=bytes.fromhex, unpack=bytes.hex)
]
AuthorId = Annotated[str, _Meta(pattern="^[0-9]{1,20}$"), Kind("Q", pack=int, unpack=str)]
AuthorName = Annotated[str, Kind("", unpack=lambda text: author_name(int(text)))]
# of imported messages, in JSON alone: in binary they stand in the body
SaidAt = Annotated[int, _Meta(ge=0, le=NUMBER_MAX), Kind("")]
SaidBy = Annotated[str, Kind("")]
Status = Annotated[
    Literal["recovered", "gap", "reset"],
    Kind("B", pack=STATUSES.index, unpack=STATUSES.__getitem__),
]
Text = Annotated[str, _Meta(max_length=4096), Kind("H", varies=True, absent="")]
Label = Annotated[str, _Meta(max_length=64), Kind("H", varies=True, absent="")]
Body = Annotated[str, Kind("I", varies=True)]
