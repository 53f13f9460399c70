"""The curves of the past: an hour by the second, a day by ten seconds, in two rings of rows.

    poll ──▶ row of the second ──ten of them──▶ row of the step: their mean, and the most

Polls may be rarer than seconds, as while nobody watches: each second since the poll before has then
what this poll tells, a rate being the mean over all of them. Beyond SPREAD_S_MAX that would be a
story: what lies between is a gap. A second poll in a second adds nothing; the next one's rates are
since the first.
"""

from collections.abc import Iterable

import numpy as np

from appliance.cores.console.curve_figures import Figures
from appliance.formats.curves import (
    CURVES_MAX,
    CURVES_SECOND,
    CURVES_STEP,
    DAY_STEPS,
    HOUR_S,
    SECONDS_AT,
    STEP_S,
    STEPS_AT,
    Curve,
    Kept,
    empty,
    encode_head,
    encode_row,
)

SPREAD_S_MAX = 10  # polls that are further apart leave a gap
DAY_S = DAY_STEPS * STEP_S
HEAD_AT = 0


class Curves:
    """Of one console. Feed it polls; write what `take` names to the file.

    Invariants: the row of second s is `s % HOUR_S`, that of the step that holds it `s // STEP_S %
    DAY_STEPS`, so neither ring grows or is out of order; no row is of a time after the newest poll;
    a column is given to another curve only when all that it held is more than a day old.
    """

    def __init__(self, cluster: bytes) -> None:
        self.cluster = cluster
        self.left_out = 0  # curves of the newest poll that have no column
        self._counts: dict[Curve, tuple[int, int]] = {}
        self._counted_ms = 0
        self.restore(empty())
        self._unwritten = {HEAD_AT}  # offsets in the file

    def restore(self, kept: Kept) -> None:
        """As a file gave it, before the first poll."""
        self.columns, self.seconds, self.steps = dict(kept.columns), kept.seconds, kept.steps
        self.newest = max(int(rows["second"].max()) for rows in (self.seconds, self.steps))
        self._last = np.zeros(CURVES_MAX, np.int64)  # second of the newest figure, by column
        unnamed = np.setdiff1d(np.arange(CURVES_MAX), np.array([*self.columns.values()], int))
        for rows, name in ((self.seconds, "value"), (self.steps, "mean")):
            written = np.flatnonzero(rows["second"])
            rows[name][np.ix_(written, unnamed)] = np.nan  # of a head that a power cut took back
            known = ~np.isnan(rows[name][written])
            times = np.where(known, rows["second"][written].astype(np.int64)[:, None], 0)
            self._last = np.maximum(self._last, times.max(axis=0, initial=0))
        self._unwritten = set[int]()
        self._follows = False  # the next poll, on one of this console, in time

    # --- polls

    def on_poll(self, figures: Figures, *, now_ms: int, wall_ms: int) -> None:
        """`now_ms` is of a clock that only goes forward, `wall_ms` milliseconds since the epoch."""
        second = wall_ms // 1000
        if second < self.newest:
            self._forget_after(second)
        if second == self.newest:
            return
        row = self._row(figures, second, now_ms)
        is_near = self._follows and second - self.newest <= SPREAD_S_MAX
        self._follows = True
        for each in range(self.newest + 1 if is_near else second, second + 1):
            if each // STEP_S != self.newest // STEP_S:
                self.sum_up()
            slot = each % HOUR_S
            self.seconds["second"][slot], self.seconds["value"][slot] = each, row
            self._unwritten.add(SECONDS_AT + slot * CURVES_SECOND.itemsize)
            self.newest = each

    def _row(self, figures: Figures, second: int, now_ms: int) -> np.ndarray:
        """Of all columns."""
        row, self.left_out = [np.nan] * CURVES_MAX, 0
        for curve, value in (*self._rates(figures.counts, now_ms), *figures.values.items()):
            column = self._column(curve, second)
            if column is None:
                self.left_out += 1
            else:
                row[column] = value
        found = np.array(row, np.float32)
        self._last[~np.isnan(found)] = second
        return found

    def _rates(
        self, counts: dict[Curve, tuple[int, int]], now_ms: int
    ) -> Iterable[tuple[Curve, float]]:
        """A second, since the poll before; NaN where nothing was counted then, or counting began
        anew."""
        before, passed_ms = self._counts, now_ms - self._counted_ms
        self._counts, self._counted_ms = counts, now_ms
        for curve, (life, count) in counts.items():
            life_before, count_before = before.get(curve, (life, count + 1))
            is_on = life == life_before and count >= count_before and passed_ms > 0
            yield curve, (count - count_before) * 1000 / passed_ms if is_on else np.nan

    def _column(self, curve: Curve, second: int) -> int | None:
        """Its own, or one of which nothing is left of the last day; None: there is none."""
        if (column := self.columns.get(curve)) is not None:
            return column
        column = int(self._last.argmin()) if len(self.columns) == CURVES_MAX else self._free()
        if self._last[column] > max(0, second - DAY_S):
            return None
        for other in [other for other, at in self.columns.items() if at == column]:
            del self.columns[other]
        self.columns[curve] = column
        self._last[column] = second
        self._unwritten.add(HEAD_AT)
        return column

    def _free(self) -> int:
        taken = set(self.columns.values())
        return next(column for column in range(CURVES_MAX) if column not in taken)

    def sum_up(self) -> None:
        """The step that holds the newest second, as far as it is known."""
        start = self.newest - self.newest % STEP_S
        times = np.arange(start, start + STEP_S)
        rows = self.seconds[times % HOUR_S]
        here = (rows["second"] == times) & (times > 0)
        if not here.any():
            return  # no poll yet, or seconds that a power cut took: what the step holds is more
        values = np.where(here[:, None], rows["value"], np.float32(np.nan))
        slot = start // STEP_S % DAY_STEPS
        self.steps["second"][slot] = start
        self.steps["mean"][slot], self.steps["most"][slot] = summed_up(values[None])
        self._unwritten.add(STEPS_AT + slot * CURVES_STEP.itemsize)

    def _forget_after(self, second: int) -> None:
        """The clock was set back: what is of later has not been."""
        for rows, start in ((self.seconds, SECONDS_AT), (self.steps, STEPS_AT)):
            later = np.flatnonzero(rows["second"] > second)
            rows[later] = np.zeros((), rows.dtype)
            self._unwritten.update((start + later * rows.dtype.itemsize).tolist())
        self._last = np.minimum(self._last, second)
        self.newest = min(second, int(self.seconds["second"].max()))
        self._follows = False

    # --- the file

    def take(self) -> set[int]:
        """Offsets of what the file has not yet, which is as good as written then."""
        self.sum_up()
        taken, self._unwritten = self._unwritten, set()
        return taken

    def put_back(self, offsets: set[int]) -> None:
        """They could not be written."""
        self._unwritten |= offsets

    def pieces(self, offsets: set[int]) -> list[tuple[int, bytes]]:
        """Offsets and bytes that the file has there from now on; rows side by side as one."""
        found: list[tuple[int, bytearray]] = []
        for offset in sorted(offsets):
            raw = self._encoded(offset)
            if found and found[-1][0] + len(found[-1][1]) == offset:
                found[-1][1].extend(raw)
            else:
                found.append((offset, bytearray(raw)))
        return [(offset, bytes(raw)) for offset, raw in found]

    def _encoded(self, offset: int) -> bytes:
        if offset == HEAD_AT:
            return encode_head(self.cluster, self.columns)
        if offset >= STEPS_AT:
            return encode_row(self.steps[(offset - STEPS_AT) // CURVES_STEP.itemsize])
        return encode_row(self.seconds[(offset - SECONDS_AT) // CURVES_SECOND.itemsize])


def summed_up(values: np.ndarray, most: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and most of what is known in each group: groups, rows in each, columns. `most` has what
    the rows' most are, where it is not they themselves. NaN: nothing is known."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0).sum(axis=1, dtype=np.float64)
    highest = np.where(known, values if most is None else most, -np.inf).max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count, total / count, np.nan)
    return mean.astype(np.float32), np.where(count, highest, np.nan).astype(np.float32)
