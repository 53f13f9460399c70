"""The first place at which two logs differ, found by marks of ever fewer places."""

import hashlib

from hypothesis import example, given
from hypothesis import strategies as st

from appliance.cores.federation.difference import DifferenceSearch
from appliance.formats.causal.link import MARKS_MAX, mark_positions

LOGS = st.lists(st.integers(0, 3), max_size=700)


def marks(log: list[int], first: int, last: int) -> list[str]:
    """As a site tells them: only as far as it has entries."""
    span = [position for position in mark_positions(first, last) if position <= len(log)]
    return [hashlib.sha256(bytes(log[first:position])).hexdigest() for position in span]


def search(own: list[int], other: list[int]) -> tuple[int | None, int]:
    """(place, questions)."""
    found, questions = DifferenceSearch(max(len(own), len(other))), 0
    while not found.found:
        questions += 1
        if not found.take(marks(own, *found.span), marks(other, *found.span)):
            return None, questions
    return found.span[0], questions


@given(LOGS, LOGS, LOGS)
@example([], [], [1])
@example([0] * 600, [1], [2])
def test_it_is_the_first_place_whatever_follows(
    equal: list[int], mine: list[int], theirs: list[int]
) -> None:
    own, other = equal + mine, equal + theirs
    if own == other:
        return
    shorter = min(len(own), len(other))
    expected = next((i for i in range(shorter) if own[i] != other[i]), shorter)
    position, questions = search(own, other)
    assert position == expected
    assert questions <= 3, "sixteen places are left of 4096, then one"


def test_equal_logs_are_told_apart_from_ones_that_differ() -> None:
    assert search([1] * 100, [1] * 100) == (None, 1)


def test_ranges_are_marked_in_at_most_sixteen_steps_up_to_their_end() -> None:
    for size in range(1, 70):
        span = mark_positions(5, 5 + size)
        assert span == sorted(set(span)) and len(span) == min(size, MARKS_MAX)
        assert span[0] > 5 and span[-1] == 5 + size
    assert mark_positions(5, 5) == []
