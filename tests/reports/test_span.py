"""Chains of rooms over borders: what joins, what breaks, what losses excuse."""

from __future__ import annotations

import numpy as np
import pytest

from appliance.reports.span import SPAN, Lost, join

ZERO = bytes(32)


def span(
    room: bytes, seqs: tuple[int, int], log_seqs: tuple[int, int], prev: bytes, last: bytes
) -> np.ndarray:
    row = np.zeros(1, SPAN)
    row["room_id"], row["prev_hash"], row["last_hash"] = room * 16, prev, last
    row["first_seq"], row["last_seq"] = seqs
    row["first_log_seq"], row["last_log_seq"] = log_seqs
    return row


FIRST = span(b"a", (1, 3), (1, 9), ZERO, b"3" * 32)
OTHER = span(b"b", (1, 1), (2, 2), ZERO, b"o" * 32)


def joined(*spans: np.ndarray, lost: Lost | None = None):
    return join(np.concatenate(spans), lost or Lost(), from_start=True)


def test_spans_that_name_each_other_become_one_a_room() -> None:
    out, breaks = joined(FIRST, OTHER, span(b"a", (4, 5), (12, 14), b"3" * 32, b"5" * 32))
    assert breaks == []
    assert sorted(out["last_seq"].tolist()) == [1, 5]
    assert sorted(out["last_log_seq"].tolist()) == [2, 14]


@pytest.mark.parametrize(
    "wrong",
    [
        span(b"a", (4, 4), (12, 12), b"x" * 32, b"4" * 32),  # names another record
        span(b"a", (5, 5), (12, 12), b"3" * 32, b"5" * 32),  # skips a number
        span(b"a", (3, 3), (12, 12), b"3" * 32, b"3" * 32),  # says a number twice
        span(b"c", (2, 2), (12, 12), b"3" * 32, b"3" * 32),  # a room that begins in its middle
        span(b"c", (1, 1), (12, 12), b"3" * 32, b"3" * 32),  # a room whose first names something
    ],
)
def test_a_span_that_does_not_follow_breaks_where_it_lies(wrong: np.ndarray) -> None:
    _, breaks = joined(FIRST, OTHER, wrong)
    assert [one.row for one in breaks] == [2]


def test_a_room_skips_at_most_as_many_records_as_were_lost_between() -> None:
    later = span(b"a", (6, 6), (20, 20), b"5" * 32, b"6" * 32)
    assert joined(FIRST, later, lost=Lost(((15, 16),)))[1] == []
    assert joined(FIRST, later, lost=Lost(((15, 15),)))[1] != []
    assert joined(FIRST, later, lost=Lost(((21, 30),)))[1] != [], "lost after it"


def test_a_loss_excuses_no_chain_that_skips_nothing() -> None:
    later = span(b"a", (4, 4), (20, 20), b"x" * 32, b"4" * 32)
    assert joined(FIRST, later, lost=Lost(((15, 16),)))[1] != []


def test_lost_ranges_join_and_count() -> None:
    lost = Lost().with_range(5, 9).with_range(10, 12).with_range(20, 20).with_range(9, 8)
    assert lost.ranges == ((5, 12), (20, 20))
    assert lost.record_count == 9
    assert lost.before(np.array([1, 4, 13, 19, 21])).tolist() == [0, 0, 8, 8, 9]
