"""Chains of rooms over borders: what a run of records says about each room, and whether runs join.

    span    the first and the last record of a room in a run, and what they name
    chain   spans of a room in the order of the log: each begins where the one before ended

Where records were lost, to quarantine or to a missing file, a room may skip at most as many of its
own as were lost between its two spans. Elsewhere nothing may be skipped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SPAN = np.dtype(
    [
        ("room_id", "V16"),
        ("first_seq", "<u8"),
        ("first_log_seq", "<u8"),
        ("prev_hash", "V32"),  # that the first record names
        ("last_seq", "<u8"),
        ("last_log_seq", "<u8"),
        ("last_hash", "V32"),  # of the last record
    ]
)
NO_SPANS = np.zeros(0, SPAN)

Array = np.ndarray


class Break(NamedTuple):
    """Where spans do not join: the row of the later one, and why."""

    row: int
    reason: str


class Lost(NamedTuple):
    """Ranges of log_seq that are not in the tables, in order, both ends inclusive."""

    ranges: tuple[tuple[int, int], ...] = ()

    def with_range(self, first: int, last: int) -> Lost:
        """These and one more, which lies behind them; neighbours become one."""
        if last < first:
            return self
        if self.ranges and self.ranges[-1][1] + 1 == first:
            return Lost((*self.ranges[:-1], (self.ranges[-1][0], last)))
        assert not self.ranges or self.ranges[-1][1] < first
        return Lost((*self.ranges, (first, last)))

    def before(self, log_seqs: Array) -> Array:
        """For each log_seq, which is not lost itself, how many before it are lost."""
        if not self.ranges:
            return np.zeros(len(log_seqs), np.int64)
        firsts = np.array([first for first, _ in self.ranges], np.int64)
        counts = np.array([last - first + 1 for first, last in self.ranges], np.int64)
        total = np.concatenate(([0], np.cumsum(counts)))
        return total[np.searchsorted(firsts, log_seqs.astype(np.int64))]

    @property
    def record_count(self) -> int:
        """Records lost."""
        return sum(last - first + 1 for first, last in self.ranges)


def by_room(room_ids: Array) -> tuple[Array, Array]:
    """(order that puts equal rooms together and keeps theirs, True where a room begins)."""
    words = np.ascontiguousarray(room_ids).view("<u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    words = words[order]
    begins = np.ones(len(order), bool)
    if len(order) > 1:
        begins[1:] = (words[1:] != words[:-1]).any(axis=1)
    return order, begins


def words_of(hashes: Array) -> Array:
    """Hashes of 32 bytes as rows of four numbers, to compare whole columns."""
    return np.ascontiguousarray(hashes).view("<u8").reshape(-1, 4)


def join(spans: Array, lost: Lost, *, from_start: bool) -> tuple[Array, list[Break]]:
    """(one span a room, breaks in order) of spans in the order of the log.

    With `from_start` they begin with the first record of the log: a room's first span must then
    begin its chain. Without, what a room's first span follows is for the caller to know.
    """
    if not len(spans):
        return spans, []
    order, begins = by_room(spans["room_id"])
    rows = spans[order]
    ends = np.append(begins[1:], True)
    breaks = _breaks(rows, begins, lost, from_start)
    out = rows[begins]
    for name in ("last_seq", "last_log_seq", "last_hash"):
        out[name] = rows[name][ends]
    found = [Break(int(order[at]), reason) for at, reason in breaks]
    return out, sorted(found)


def _breaks(rows: Array, begins: Array, lost: Lost, from_start: bool) -> list[tuple[int, str]]:
    """(row, reason) of each row that does not follow the one before of its room."""
    seq = rows["first_seq"].astype(np.int64)
    expected = np.where(begins, 1, np.roll(rows["last_seq"].astype(np.int64), 1) + 1)
    skipped = seq - expected
    before = np.where(begins[:, None], np.uint64(0), np.roll(words_of(rows["last_hash"]), 1, 0))
    named = (words_of(rows["prev_hash"]) == before).all(axis=1)
    start = np.where(begins, 0, np.roll(lost.before(rows["last_log_seq"]), 1))
    excused = (skipped > 0) & (skipped <= lost.before(rows["first_log_seq"]) - start)
    good = ((skipped == 0) & named) | excused
    if not from_start:
        good |= begins
    reasons = []
    for at in np.flatnonzero(~good):
        if skipped[at] == 0:
            reason = f"number {seq[at]} of its room does not name the record before it"
        else:
            reason = f"is number {seq[at]} of its room after {expected[at] - 1}"
        reasons.append((int(at), reason))
    return reasons
