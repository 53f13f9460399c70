"""Where a log's clock was corrected: looked for from the newest record back, a few segments a time.

    known: the log is ahead by A as of record n     ... B ─ seam ─ A ... n
    each seam tells what the log was ahead by before it; the one that tells 0 is the first

Each correction adds to what the log is ahead, so that number names them all: what was found for one
holds for good. It is looked for up to a record of which a replica has told with that very number,
never up to where records are still being replayed.
"""

from collections.abc import Callable
from dataclasses import dataclass

SEGMENTS_PER_SCAN = 4


@dataclass(frozen=True, slots=True)
class SeekSeams:
    """Look through some more segments, from record `log_seq` back, for where the clock of a log
    was corrected that is ahead by `ahead_us` there."""

    ahead_us: int
    log_seq: int


class Seams:
    """Invariant: `found` has all seams of a log that is ahead by `ahead_us`, in order, as far back
    as records were kept when it was looked for them; each with what was so before it."""

    def __init__(self) -> None:
        self.ahead_us = 0
        self.found: dict[int, int] = {}
        self._sought_us = 0  # the number that is looked for
        self._number = 0  # the segment that is next
        self._newer: list[tuple[int, int]] = []  # found so far, the newest first

    def seek(
        self,
        ahead_us: int,
        newest: int,
        oldest: int,
        told_in: Callable[[int], list[tuple[int, int]]],
    ) -> None:
        """Look through some more segments, from `newest` back to `oldest`. `told_in` gives the
        seams of one, up to the record that `ahead_us` was told with; what it raises comes
        through, and the next look begins with that segment."""
        if ahead_us == self.ahead_us:
            return
        if ahead_us != self._sought_us:
            self._sought_us, self._number, self._newer = ahead_us, newest, []
        for _ in range(SEGMENTS_PER_SCAN):
            if self._number < oldest:
                self._end({})
                return
            for seam, before_us in reversed(told_in(self._number)):
                self._newer.append((seam, before_us))
                if before_us in (0, self.ahead_us):
                    self._end(self.found if before_us else {})
                    return
            self._number -= 1

    def _end(self, older: dict[int, int]) -> None:
        self.found = older | dict(reversed(self._newer))
        self.ahead_us, self._newer = self._sought_us, []
