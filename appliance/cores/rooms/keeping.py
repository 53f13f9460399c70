"""Which segments are old enough to go: by the time of the newest record in each.

oldest ... | all older than the cutoff | one record is younger ... open
           `keep` points here ──────────▲
"""

from collections.abc import Callable
from typing import NamedTuple

DAY_US = 86_400 * 1_000_000


class Kept(NamedTuple):
    """What a shard keeps now, as its primary tells, and what limits what may go."""

    oldest: int  # segment
    segment_records: int
    log_seq: int  # newest record
    shipped: int  # newest record that is shipped
    ships: bool  # else what is not shipped may go
    corrected: bool = False  # the clock was, once: times of the log go back there


def keep(
    kept: Kept, newest_us: Callable[[int], int | None], now_us: int, retention_days: float
) -> int:
    """The oldest segment to keep: `kept.oldest` when nothing may go.

    `newest_us(segment)` is the time of the newest record of a sealed segment, None when it cannot
    be read now: then it is kept, and what is newer too. The open segment always stays, and with
    `ships` all that is not shipped. What was written before the clock was corrected may bear a
    time that has not come yet, or has come meanwhile: it is as old as what follows at least. So in
    a log that was `corrected` all segments are looked at.
    """
    if not retention_days:
        return kept.oldest
    cutoff_us = now_us - int(retention_days * DAY_US)
    end = (kept.shipped if kept.ships else kept.log_seq) // kept.segment_records
    oldest = kept.oldest
    for segment in range(kept.oldest, end):
        newest = newest_us(segment)
        if newest is None or not kept.corrected and newest >= cutoff_us:
            break
        if newest < cutoff_us:
            oldest = segment + 1
    return oldest
