"""Delays with a long tail, in integers: most are short, a few are many times the mean."""

from appliance.base.prng import Prng

_FRACTION = 0xFFFF_FFFF
_LN2_MILLI = 693  # thousandths of the natural logarithm of 2


def exponential(prng: Prng, mean: int) -> int:
    """About exponential around `mean`, at most 23 times as long.

    Half of all values lie below mean * ln 2, half of the others in the next such step, and so on:
    the number of halvings is counted in one half of a random word, the place inside a step is in
    the other.
    """
    word = prng.next_u64()
    high = word >> 32
    halvings = 32 - high.bit_length()
    return mean * _LN2_MILLI * ((halvings << 32) + (word & _FRACTION)) // (1000 << 32)


def ticks_around(prng: Prng, mean: int) -> int:
    """A count of ticks around `mean`, at least 1: when the next fault comes."""
    return 1 + exponential(prng, mean)
