"""Which messages were acknowledged, by name, and which of them are found again.

A name is the same on the wire, on disk and here: the round, the sender in it, and the number of the
message: `0007-02-0000001234`. A sender numbers its messages from 0 on, without a gap.
"""

import re
from collections.abc import Iterable

import numpy as np

NAME = re.compile(rb"\d{4}-\d\d-\d{10}")
PREFIX_SIZE = len(b"0007-02-")
NAMED_MAX = 5  # of what is lost


def prefix_of(number: int, sender: int) -> bytes:
    """How the names of a sender of a round begin."""
    assert number < 10_000 and sender < 100
    return b"%04d-%02d-" % (number, sender)


class Ledger:
    """Prefix -> how many messages, numbered from 0, were acknowledged."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def add(self, prefix: bytes, count: int) -> None:
        assert prefix not in self._counts
        self._counts[prefix] = count

    @property
    def size(self) -> int:
        return sum(self._counts.values())

    def lost(self, found: Iterable[bytes]) -> list[bytes]:
        """Names that were acknowledged and are not among those found; these may have others."""
        seen = {prefix: np.zeros(count, dtype=bool) for prefix, count in self._counts.items()}
        for name in found:
            column = seen.get(name[:PREFIX_SIZE])
            if column is not None and (number := int(name[PREFIX_SIZE:])) < len(column):
                column[number] = True
        return [
            b"%b%010d" % (prefix, number)
            for prefix, column in seen.items()
            for number in np.flatnonzero(~column)
        ]


def told(lost: list[bytes]) -> str:
    """The first of them, for people."""
    names = ", ".join(name.decode() for name in lost[:NAMED_MAX])
    return names + (" ..." if len(lost) > NAMED_MAX else "")
