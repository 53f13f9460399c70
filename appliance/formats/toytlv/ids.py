"""Ids in all their forms.

    text       b0b-af0-3         hexadecimal: source, packet number, field number (left out if 0)
    zipped     0b0b0000 0300af00 on the wire: a zipped pair of source and progress
    key        16 bytes          in the store: big-endian, so that keys sort as ids do
    packed     64 bits           source 20, packet number 32, field 7, type of the field 5

`b0b-af0-3` is field 3 of the object that packet af0 of source b0b made. So is `b0b-af0-72`, where
people type it: the first protocol writes the field's type, an S, beside its number.
"""

from typing import NamedTuple

from appliance.base.errors import IdOutOfBounds, PacketRefused, TextRefused
from appliance.formats.toytlv.integers import unzip_pair, zip_pair

FIELD_BITS = 12
FIELD_MASK = (1 << FIELD_BITS) - 1
PROGRESS_MASK = (1 << 52) - 1  # what is serialized of a progress
BLOCK_BITS = 28  # ids that agree above these bits are one block: 65,536 packets
BLOCK_MASK = (1 << BLOCK_BITS) - 1

# What we create stays within these, so that it can be written as text and packed.
SOURCE_MAX = (1 << 20) - 1
SEQUENCE_MAX = (1 << 32) - 1
FIELD_MAX = FIELD_MASK
PACKED_FIELD_MAX = 127
_TYPE_BITS = 5
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


class Id(NamedTuple):
    """`progress` is the packet number << 12 | the field number."""

    source: int
    progress: int

    @property
    def sequence(self) -> int:
        return self.progress >> FIELD_BITS

    @property
    def field(self) -> int:
        return self.progress & FIELD_MASK

    def with_field(self, field: int) -> "Id":
        assert 0 <= field <= FIELD_MASK and not self.progress & FIELD_MASK
        return Id(self.source, self.progress | field)

    @property
    def object(self) -> "Id":
        """The object that a field belongs to."""
        return Id(self.source, self.progress & ~FIELD_MASK)

    @property
    def block(self) -> "Id":
        return Id(self.source, self.progress & ~BLOCK_MASK)

    def __str__(self) -> str:
        field = f"-{self.field:x}" if self.field else ""
        return f"{self.source:x}-{self.sequence:x}{field}"


ID0 = Id(0, 0)


def make_id(source: int, sequence: int, field: int = 0) -> Id:
    """An id within the bounds of what we create; IdOutOfBounds outside of them."""
    for name, value, most in (
        ("source", source, SOURCE_MAX),
        ("packet number", sequence, SEQUENCE_MAX),
        ("field", field, FIELD_MAX),
    ):
        if not 0 <= value <= most:
            raise IdOutOfBounds(f"{name} {value:x} of an id lies outside of 0 to {most:x}")
    return Id(source, sequence << FIELD_BITS | field)


# --- text -----------------------------------------------------------------------------------------


def parse_id(text: str) -> Id:
    """The id that `text` is, all of it. TextRefused when it is none, IdOutOfBounds when too big."""
    parts = text.split("-")
    if len(parts) > 3 or not all(part and set(part) <= _HEXADECIMAL for part in parts):
        raise TextRefused(f"{text[:60]!r} is no id: hexadecimal numbers, such as b0b-af0-3")
    numbers = [int(part, 16) if len(part) <= 16 else 1 << 64 for part in parts]
    if len(numbers) == 1:
        return make_id(0, 0, numbers[0])
    return make_id(*numbers)


# --- bytes ----------------------------------------------------------------------------------------


def zip_id(id: Id) -> bytes:
    return zip_pair(id[0], id[1] & PROGRESS_MASK)


def unzip_id(data: bytes) -> Id:
    source, progress = unzip_pair(data)
    if progress > PROGRESS_MASK:
        raise PacketRefused("bad_id", f"progress {progress:x} is wider than 52 bits")
    return Id(source, progress)


def key_of_id(id: Id) -> bytes:
    """16 bytes that sort as the ids do."""
    return (id[0] << 64 | id[1] & PROGRESS_MASK).to_bytes(16, "big")


def id_of_key(key: bytes) -> Id:
    assert len(key) == 16
    word = int.from_bytes(key, "big")
    return Id(word >> 64, word & (1 << 64) - 1)


# --- one word -------------------------------------------------------------------------------------


def pack_id(id: Id, letter: str = "A") -> int:
    """The id as one word of 64 bits, as the first protocol had it; `letter` is the field's type.

    Raises IdOutOfBounds when source, packet number or field do not fit 20, 32 and 7 bits.
    """
    assert len(letter) == 1 and "A" <= letter <= "Z"
    if id.source > SOURCE_MAX or id.sequence > SEQUENCE_MAX or id.field > PACKED_FIELD_MAX:
        raise IdOutOfBounds(f"{id} has no packed form: 20 bits of source, 32 of packet, 7 of field")
    field = id.field << _TYPE_BITS | ord(letter) - ord("A") if id.field else 0
    return id.source << 44 | id.sequence << FIELD_BITS | field


def unpack_id(word: int) -> tuple[Id, str]:
    """The id and the letter of the field's type; the letter is empty where there is no field."""
    if not 0 <= word < 1 << 64:
        raise IdOutOfBounds(f"{word:x} is wider than 64 bits")
    field, kind = word >> _TYPE_BITS & PACKED_FIELD_MAX, word & (1 << _TYPE_BITS) - 1
    if kind > 25 or (kind and not field):
        raise IdOutOfBounds(f"type {kind} of field {field} is no letter of a field")
    id = make_id(word >> 44, word >> FIELD_BITS & SEQUENCE_MAX, field)
    return id, chr(ord("A") + kind) if field else ""


def first_field(id: Id) -> tuple[Id, str] | None:
    """The field that the first protocol means by an id, and the letter of its type.

    It has number and type in the 12 bits where ids of today have a number alone: `8e-82f0-32` is
    field 1, an S, of the object 8e-82f0. None: it names no field there.
    """
    number, kind = id.field >> _TYPE_BITS, id.field & (1 << _TYPE_BITS) - 1
    if not number or kind > 25:
        return None
    return id.object.with_field(number), chr(ord("A") + kind)


def typed_field(id: Id) -> tuple[Id, str]:
    """The field that people mean by an id, and the letter of its type, empty where it has none.

    As the first protocol reads it where it names a field there, else as today: fields from 32 on
    are not told by ids alone.
    """
    return first_field(id) or (id, "")
