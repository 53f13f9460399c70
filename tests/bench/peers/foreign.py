"""Who else took the cores while something was measured, and what follows from it.

Busy time is that of the whole machine by /proc/stat, interrupts left out; what is the bench's own
is the time of its processes: all servers, all generators, itself. The rest is foreign.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Row = dict[str, Any]
FOREIGN_CORES_MAX = 0.25  # more than a quarter of a core disturbs
TRIES = 4  # of a measurement that is disturbed


class Moment(NamedTuple):
    """Clocks, read together; seconds."""

    at: float
    busy: float  # of all cores, since they started
    own: float  # of the bench's processes, since they started


def foreign_cores(begin: Moment, end: Moment) -> float:
    """Cores that were busy with others, on average."""
    assert end.at > begin.at
    others = (end.busy - begin.busy) - (end.own - begin.own)
    return max(0.0, others) / (end.at - begin.at)


def watched(measure: Callable[[], Row], now: Callable[[], Moment]) -> Row:
    """The row of one measurement, marked if it was disturbed."""
    begin = now()
    row = measure()
    cores = foreign_cores(begin, now())
    return row | {"foreign_cores": round(cores, 2), "disturbed": cores > FOREIGN_CORES_MAX}


def until_undisturbed(
    measure: Callable[[], Row], now: Callable[[], Moment], tries: int = TRIES
) -> list[Row]:
    """Rows of one measurement, made again while it is disturbed, so many times at most. All but the
    last are disturbed, and that one may be."""
    rows: list[Row] = []
    while len(rows) < tries:
        rows.append(watched(measure, now))
        if not rows[-1]["disturbed"]:
            break
    return rows


def that_count(rows: list[Row]) -> list[Row]:
    """Without those that were disturbed."""
    return [row for row in rows if not row.get("disturbed")]
