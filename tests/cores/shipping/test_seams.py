"""Where the clock was corrected: found by steps, wherever it lies, and for good."""

import pytest

from appliance.base.prng import Prng
from appliance.cores.shipping.seams import SEGMENTS_PER_SCAN, Seams

RECORDS = 10  # of a segment


class Log:
    """Seams by record, each with what was so before it; segments can be away for a while."""

    def __init__(self, seams: list[int]) -> None:
        self.seams = {seam: 100 * n for n, seam in enumerate(seams)}
        self.away: set[int] = set()
        self.read: list[int] = []

    def ahead(self, last: int) -> int:
        return 100 * sum(seam <= last for seam in self.seams)

    def seek(self, seams: Seams, last: int, oldest: int = 0) -> None:
        """One look, as of record `last`."""

        def told_in(number: int) -> list[tuple[int, int]]:
            if number in self.away:
                raise LookupError(number)
            self.read.append(number)
            return [
                (seam, before)
                for seam, before in self.seams.items()
                if (seam - 1) // RECORDS == number and seam <= last
            ]

        seams.seek(self.ahead(last), (last - 1) // RECORDS, oldest, told_in)

    def found(self, seams: Seams, last: int, oldest: int = 0) -> dict[int, int]:
        for _ in range(1000):
            if seams.ahead_us == self.ahead(last):
                return seams.found
            before = len(self.read)
            self.seek(seams, last, oldest)
            assert len(self.read) - before <= SEGMENTS_PER_SCAN
        raise AssertionError("it never ends")


@pytest.mark.parametrize("seed", range(60))
def test_all_are_found_however_they_lie_and_whenever_it_is_looked(seed: int) -> None:
    prng = Prng(seed)
    places = {1 + prng.below(400) for _ in range(prng.below(7))}
    log, seams = Log(sorted(places)), Seams()
    for last in sorted({1 + prng.below(420) for _ in range(4)}):
        found = log.found(seams, last)
        assert found == {seam: before for seam, before in log.seams.items() if seam <= last}
        assert list(found) == sorted(found)


def test_behind_the_first_one_and_before_what_is_known_nothing_is_read() -> None:
    log, seams = Log([205, 355]), Seams()
    log.found(seams, 300)
    assert sorted(log.read) == list(range(20, 30))
    log.read.clear()
    assert log.found(seams, 400) == {205: 0, 355: 100}
    assert sorted(log.read) == list(range(35, 40))


def test_what_is_not_kept_any_more_is_not_looked_for() -> None:
    log, seams = Log([15, 205]), Seams()
    assert log.found(seams, 400, oldest=10) == {205: 100}
    assert min(log.read) == 10


def test_a_segment_that_is_away_is_where_the_next_look_begins() -> None:
    log, seams = Log([15]), Seams()
    log.away = {22}
    for _ in range(20):
        try:
            log.seek(seams, 400)
        except LookupError:
            assert seams.ahead_us == 0
    assert min(log.read) == 23
    log.away.clear()
    assert log.found(seams, 400) == {15: 0}
    assert len(log.read) == len(set(log.read))
