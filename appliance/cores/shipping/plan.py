"""How a range of records is cut into files, and time into periods."""

from collections.abc import Iterable
from typing import NamedTuple

SECOND_US = 1_000_000


class Part(NamedTuple):
    """Records of one file; both ends are in it."""

    first_log_seq: int
    last_log_seq: int


def parts(
    first_log_seq: int, last_log_seq: int, segment_records: int, seams: Iterable[int] = ()
) -> list[Part]:
    """The files of a range: cut where segments end, and before the records of `seams`, at which
    the clock was corrected, so that times rise within each file."""
    found, cuts = [], sorted(seams)
    while first_log_seq <= last_log_seq:
        segment_end = -(-first_log_seq // segment_records) * segment_records
        seam = next((seam for seam in cuts if seam > first_log_seq), last_log_seq + 1)
        end = min(last_log_seq, segment_end, seam - 1)
        found.append(Part(first_log_seq, end))
        first_log_seq = end + 1
    return found


def sealed_parts(
    first_log_seq: int, log_seq: int, segment_records: int, seams: Iterable[int] = ()
) -> list[Part]:
    """Those from `first_log_seq` on whose segment is full when `log_seq` is the newest record."""
    last = log_seq // segment_records * segment_records
    return parts(first_log_seq, last, segment_records, seams)


def period_start(time_us: int, period_us: int) -> int:
    """Start of the period that holds `time_us`, when nothing was shipped before it."""
    assert period_us % SECOND_US == 0
    return time_us // period_us * period_us


def period_end(start_us: int, period_us: int) -> int:
    """End of the period that starts then: the next whole multiple of its length.

    So periods fall back into step after the length was changed.
    """
    return (start_us // period_us + 1) * period_us
