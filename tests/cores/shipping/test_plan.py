"""Ranges are cut where segments end; periods follow each other, whatever their length becomes."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.cores.shipping.plan import (
    SECOND_US,
    Part,
    parts,
    period_end,
    period_start,
    sealed_parts,
)


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 100))
def test_parts_cover_a_range_once_and_cross_no_segment(
    first: int, count: int, segment: int
) -> None:
    found = parts(first, first + count - 1, segment)
    covered = [n for part in found for n in range(part.first_log_seq, part.last_log_seq + 1)]
    assert covered == list(range(first, first + count))
    for part in found:
        assert (part.first_log_seq - 1) // segment == (part.last_log_seq - 1) // segment


def test_an_idle_range_has_no_part_and_only_full_segments_are_sealed() -> None:
    assert parts(5, 4, 100) == []
    assert sealed_parts(51, 250, 100) == [Part(51, 100), Part(101, 200)]
    assert sealed_parts(201, 299, 100) == []
    assert sealed_parts(201, 300, 100) == [Part(201, 300)]


@given(st.integers(1, 10**10), st.integers(1, 10**5))
def test_a_period_ends_at_the_next_whole_multiple_and_the_next_starts_there(
    start_s: int, length_s: int
) -> None:
    start, length = start_s * SECOND_US, length_s * SECOND_US
    end = period_end(start, length)
    assert start < end <= start + length
    assert end % length == 0
    assert period_end(end, length) == end + length
    assert period_start(end, length) == end
