"""The filter of message ids: positions, bytes, and what happens when it is full.

Byte for byte the filter of the one other implementation in use, which knows a single geometry:
capacity 10,000, error rate 0.001. A shorter filter makes that peer lose the whole message, so its
size never changes; ours only forgets the oldest ids when it is over its capacity.

    position b   ->  byte (b // 64) * 8 + 7 - (b % 64) // 8, mask 1 << (b % 8)

that is, 64-bit words, each written big-endian, bits counted from the least significant.
Source: Bloom 1970; Kirsch and Mitzenmacher 2006 for two hashes; MurmurHash3 by Appleby.
"""

import math
from dataclasses import dataclass

import numpy as np

_M32 = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
ROLLOVER_KEEPS = (4, 5)  # of the capacity: the newest ids that a full filter is rebuilt from


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes that follow from a capacity and an error rate."""

    capacity: int
    error_rate: float

    @property
    def bits_per_item(self) -> int:
        return math.ceil(-math.log(self.error_rate) / math.log(2) ** 2)

    @property
    def hashes(self) -> int:
        return round(math.log(2) * self.bits_per_item)

    @property
    def bits(self) -> int:
        """Addressable ones."""
        return self.capacity * self.bits_per_item

    @property
    def size(self) -> int:
        """Bytes: whole words, one more than needed where the bits fill the last."""
        return 8 * (1 + self.bits // 64)


DEFAULT_GEOMETRY = Geometry(capacity=10_000, error_rate=0.001)


def _blocks(data: bytes, state: int) -> int:
    """MurmurHash3 x86 32-bit over whole blocks of 4 bytes."""
    for at in range(0, len(data) & ~3, 4):
        k = (int.from_bytes(data[at : at + 4], "little") * _C1) & _M32
        k = (((k << 15) | (k >> 17)) * _C2) & _M32
        state ^= k
        state = ((state << 13) | (state >> 19)) & _M32
        state = (state * 5 + 0xE6546B64) & _M32
    return state


def _finish(tail: bytes, size: int, state: int) -> int:
    if tail:
        k = (int.from_bytes(tail, "little") * _C1) & _M32
        state ^= (((k << 15) | (k >> 17)) * _C2) & _M32
    state ^= size
    state ^= state >> 16
    state = (state * 0x85EBCA6B) & _M32
    state ^= state >> 13
    state = (state * 0xC2B2AE35) & _M32
    return state ^ (state >> 16)


def _folded(value: int) -> int:
    """Absolute value of the number read as signed."""
    return value if value < 1 << 31 else (1 << 32) - value


def positions(message_id: str, geometry: Geometry) -> tuple[int, ...]:
    """The bits of an id."""
    data = message_id.encode()
    whole = len(data) & ~3
    state = _blocks(data[:whole], 0)  # shared by both hashes
    first = _folded(_finish(data[whole:], len(data), state))
    rest = data[whole:] + b" b"
    if len(rest) >= 4:
        state, rest = _blocks(rest[:4], state), rest[4:]
    second = _folded(_finish(rest, len(data) + 2, state))
    bits = geometry.bits
    return tuple([(first % bits + i * (second % bits)) % bits for i in range(geometry.hashes)])


def contains(data: bytes | bytearray, bits: tuple[int, ...]) -> bool:
    """Whether every bit of `bits` is set in a filter's bytes."""
    for b in bits:
        if not data[(b >> 6 << 3) + 7 - ((b & 63) >> 3)] & (1 << (b & 7)):
            return False
    return True


def false_positive_rate(data: bytes, geometry: Geometry) -> float:
    """Estimate for a filter with this many bits set."""
    ones = int.from_bytes(data, "big").bit_count()
    return float((min(ones, geometry.bits) / geometry.bits) ** geometry.hashes)


class BloomFilter:
    """The ids this participant has; the newest four fifths of its capacity are always in it.

    Invariants: `len(bytes(filter)) == geometry.size` for ever; `count <= geometry.capacity`.
    """

    __slots__ = ("geometry", "_bytes", "_count", "_hashes", "_positions")

    def __init__(self, geometry: Geometry = DEFAULT_GEOMETRY) -> None:
        self.geometry = geometry
        self._hashes = geometry.hashes
        self._bytes = bytearray(geometry.size)
        # bits of the ids in it, in the order of insertion; grows to the capacity, once
        self._positions = np.zeros((0, self._hashes), dtype=np.uint32)
        self._count = 0

    @property
    def count(self) -> int:
        """Ids in it."""
        return self._count

    def insert(self, message_id: str) -> None:
        """Add an id that is not in it yet; rolls over beyond the capacity."""
        bits = positions(message_id, self.geometry)
        if self._count == self.geometry.capacity:
            self._roll_over()
        if self._count == len(self._positions):
            grown = min(self.geometry.capacity, max(64, 2 * self._count))
            fresh = np.zeros((grown, self._hashes), dtype=np.uint32)
            fresh[: self._count] = self._positions
            self._positions = fresh
        self._positions[self._count] = bits
        self._count += 1
        data = self._bytes
        for b in bits:
            data[(b >> 6 << 3) + 7 - ((b & 63) >> 3)] |= 1 << (b & 7)

    def __contains__(self, message_id: str) -> bool:
        return contains(self._bytes, positions(message_id, self.geometry))

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    def _roll_over(self) -> None:
        """Forget the oldest: with the id that follows, the newest four fifths remain."""
        numerator, denominator = ROLLOVER_KEEPS
        kept = self.geometry.capacity * numerator // denominator - 1
        newest = self._positions[self._count - kept : self._count].copy()
        self._positions[:kept] = newest
        self._count = kept
        bits = np.zeros(self.geometry.size * 8, dtype=np.uint8)
        bits[newest.ravel()] = 1
        words = np.packbits(bits, bitorder="little").reshape(-1, 8)[:, ::-1]
        self._bytes[:] = words.tobytes()
