"""Which sealed segments have a snapshot file on this node: the newest ones that fit.

    existing 3 4 5, newest sealed 7, place for 4   ──▶   drop 3, make 6 and 7

What follows from the log alone is the same on every node: names, contents but for the signature,
and, where nodes have the same bound, which files there are.
"""

from collections.abc import Collection
from typing import NamedTuple


class Choice(NamedTuple):
    """Numbers of segments, ascending; what is dropped goes before anything is made."""

    drop: list[int]
    make: list[int]


def choose(existing: Collection[int], *, newest: int, oldest: int, count_max: int) -> Choice:
    """What to do about the files that exist. `newest`: the newest sealed segment, -1 for none;
    `oldest`: the oldest that the site's retention keeps, for what must be gone is gone here too."""
    first = max(oldest, newest + 1 - count_max)
    drop = sorted(number for number in existing if number < first)
    make = [number for number in range(first, newest + 1) if number not in set(existing)]
    return Choice(drop, make)
