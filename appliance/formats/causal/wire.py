"""Fields of an encoded message, found without understanding them.

Looked at before a parser builds anything: the number of fields is capped, wire types are compared,
and a field can be cut out while every other byte stays as it came.
Source: Protocol Buffers, "Encoding".
"""

from collections.abc import Iterator

from appliance.base.errors import CausalRefused

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
VARINT_SIZE_MAX = 10  # bytes
FIELD_NUMBER_MAX = (1 << 29) - 1
_U64_MAX = (1 << 64) - 1

# (number, wire type, where the field begins, where its value begins, where it ends)
Field = tuple[int, int, int, int, int]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends); raises `CausalRefused` for a cut or overlong one."""
    value = shift = 0
    end = len(data)
    while True:
        if at >= end:
            raise CausalRefused("truncated", "a varint ends past the message")
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            break
        shift += 7
        if shift >= 7 * VARINT_SIZE_MAX:
            raise CausalRefused("varint", f"a varint of more than {VARINT_SIZE_MAX} bytes")
    if value > _U64_MAX:
        raise CausalRefused("varint", "a varint of more than 64 bits")
    return value, at


def fields_of(data: bytes) -> Iterator[Field]:
    """Every field of the outermost message, in the order of its bytes."""
    at, end = 0, len(data)
    while at < end:
        start = at
        octet = data[at]
        if octet < 0x80:
            tag, at = octet, at + 1
        else:
            tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number <= FIELD_NUMBER_MAX:
            raise CausalRefused("field_number", f"field number {number}")
        if wire_type == LENGTH:
            size, at = read_varint(data, at)
            value, at = at, at + size
        elif wire_type == VARINT:
            value = at
            _, at = read_varint(data, at)
        elif wire_type == FIXED64:
            value, at = at, at + 8
        elif wire_type == FIXED32:
            value, at = at, at + 4
        else:
            raise CausalRefused("wire_type", f"field {number} has wire type {wire_type}")
        if at > end:
            raise CausalRefused("truncated", f"field {number} ends past the message")
        yield number, wire_type, start, value, at


def without_field(data: bytes, dropped: int) -> bytes:
    """The same bytes but for every field of this number."""
    cuts = [(start, end) for number, _, start, _, end in fields_of(data) if number == dropped]
    if not cuts:
        return data
    kept, at = [], 0
    for start, end in cuts:
        kept.append(data[at:start])
        at = end
    kept.append(data[at:])
    return b"".join(kept)
