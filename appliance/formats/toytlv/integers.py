"""Integers and floats in as few bytes as they need."""

import struct
from collections.abc import Callable

from appliance.base.errors import PacketRefused

WORD = (1 << 64) - 1
_BYTE_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_FLOAT = struct.Struct(">d")

# total length of a zipped pair -> bytes of the first half; the others never occur
FIRST_HALF = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 8: 4, 9: 8, 10: 8, 12: 8, 16: 8}


def zip_int(number: int) -> bytes:
    """Little-endian without high zero bytes; zero is empty. `number` fits 64 bits."""
    assert 0 <= number <= WORD
    return number.to_bytes((number.bit_length() + 7) >> 3, "little")


def unzip_int(data: bytes) -> int:
    """The number of at most 8 bytes; zeros at the end are tolerated."""
    if len(data) > 8:
        raise PacketRefused("bad_integer", f"{len(data)} bytes, at most 8")
    return int.from_bytes(data, "little")


def zigzag(number: int) -> int:
    """A signed number of 64 bits as an unsigned one, small where its size is small."""
    assert -(1 << 63) <= number < 1 << 63
    return (number << 1) ^ (number >> 63) if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def zip_signed(number: int) -> bytes:
    return zip_int(zigzag(number))


def unzip_signed(data: bytes) -> int:
    return unzigzag(unzip_int(data))


def zip_float(number: float) -> bytes:
    """The 64 bits of a double in reversed order, zipped: round numbers are short."""
    return _FLOAT.pack(number).translate(_BYTE_REVERSED).rstrip(b"\0")


def unzip_float(data: bytes) -> float:
    if len(data) > 8:
        raise PacketRefused("bad_integer", f"a float of {len(data)} bytes, at most 8")
    value: float = _FLOAT.unpack(data.ljust(8, b"\0").translate(_BYTE_REVERSED))[0]
    return value


# bits of a number -> bytes that a half of a pair takes by itself
_WIDTH = bytes([0] + [1] * 8 + [2] * 8 + [4] * 16 + [8] * 32)
_LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}  # of struct, by bytes


def _size(first: int, second: int) -> int:
    """What two halves take together."""
    if second:
        first = max(first, second)  # a second half needs a first one as wide
    if first > 1:
        second = max(second, 1)  # else the length would be that of two narrow halves
    return first + second


def _form(size: int) -> struct.Struct:
    """A pair of so many bytes; one of 0 or 1 lacks halves, which are 0."""
    first = FIRST_HALF[size]
    return struct.Struct("<" + "".join(_LETTERS[half] for half in (first, size - first) if half))


Packs = Callable[[int, int], bytes]
Unpacks = Callable[[bytes, int], tuple[int, int]]
_PACKS: dict[int, Packs] = {size: _form(size).pack for size in FIRST_HALF if size > 1}
_PACKS |= {0: lambda big, little: b"", 1: lambda big, little: big.to_bytes(1, "little")}
_ZIPS = [[_PACKS[_size(one, two)] for two in _WIDTH] for one in _WIDTH]
# size of a zipped pair -> what reads one from an offset on; struct.error, IndexError: it is cut off
PAIRS: dict[int, Unpacks] = {size: _form(size).unpack_from for size in FIRST_HALF if size > 1}
PAIRS |= {0: lambda data, at: (0, 0), 1: lambda data, at: (data[at], 0)}


def zip_pair(big: int, little: int) -> bytes:
    """Two numbers of 64 bits. The total length tells where the first one ends."""
    assert 0 <= big <= WORD and 0 <= little <= WORD
    return _ZIPS[big.bit_length()][little.bit_length()](big, little)


def unzip_pair(data: bytes) -> tuple[int, int]:
    unpack = PAIRS.get(len(data))
    if unpack is None:
        raise PacketRefused("bad_pair", f"a zipped pair of {len(data)} bytes")
    return unpack(data, 0)
