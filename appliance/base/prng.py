"""Seeded random integers with an implementation of our own, so that a seed means the same for ever.

xoshiro256** by Blackman and Vigna (public domain), seeded by splitmix64. Integer arithmetic only.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1


def _splitmix64(state: int) -> tuple[int, int]:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return state, z ^ (z >> 31)


class Prng:
    """Deterministic generator; equal seeds give equal sequences on every machine."""

    __slots__ = ("_a", "_b", "_c", "_d")

    def __init__(self, seed: int) -> None:
        state = seed & _MASK
        state, self._a = _splitmix64(state)
        state, self._b = _splitmix64(state)
        state, self._c = _splitmix64(state)
        state, self._d = _splitmix64(state)

    def next_u64(self) -> int:
        """Uniform over 0 .. 2^64 - 1."""
        b = self._b
        x = (b * 5) & _MASK
        result = (((x << 7) | (x >> 57)) & _MASK) * 9 & _MASK
        t = (b << 17) & _MASK
        c = self._c ^ self._a
        d = self._d ^ b
        self._b = b ^ c
        self._a ^= d
        self._c = c ^ t
        self._d = ((d << 45) | (d >> 19)) & _MASK
        return result

    def below(self, bound: int) -> int:
        """Uniform over 0 .. bound - 1 (bias below 2^-32 for bounds under 2^32)."""
        assert 0 < bound <= 1 << 32
        return ((self.next_u64() >> 32) * bound) >> 32

    def between(self, low: int, high: int) -> int:
        """Uniform over low .. high, both included."""
        assert low <= high
        return low + self.below(high - low + 1)

    def chance(self, numerator: int, denominator: int) -> bool:
        """True with probability numerator / denominator."""
        return self.below(denominator) < numerator

    def choice(self, items: Sequence[T]) -> T:
        """One of a non-empty sequence."""
        return items[self.below(len(items))]

    def shuffle(self, items: list[T]) -> None:
        """Fisher and Yates, in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def exponential(self, mean: int) -> int:
        """Integer with about the given mean and a geometric tail, at most 20 times the mean."""
        assert mean >= 0
        value = 0
        while value < 20 * mean and not self.chance(1, mean + 1):
            value += 1
        return value

    def bytes(self, size: int) -> bytes:
        """`size` random bytes."""
        out = bytearray()
        while len(out) < size:
            out += self.next_u64().to_bytes(8, "little")
        return bytes(out[:size])

    def fork(self) -> "Prng":
        """An independent generator derived from this one."""
        return Prng(self.next_u64())
