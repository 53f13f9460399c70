"""What a restored log is read from: spans of committed records, each with what vouches for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import record_hash

Range = tuple[int, int]  # first, and the one after the last


@dataclass(slots=True)
class Span:
    """Records that follow each other in the log; `doubtful` are positions of which no signature and
    no hash says that they are whole."""

    records: bytes | bytearray
    digests: list[bytes]
    doubtful: list[Range]

    def tail(self, skipped: int) -> "Span":
        """Without the first `skipped`."""
        left = [(max(0, a - skipped), b - skipped) for a, b in self.doubtful if b > skipped]
        return Span(self.records[skipped * RECORD_SIZE :], self.digests[skipped:], left)

    def head(self, count: int) -> "Span":
        """The first `count`."""
        left = [(a, min(b, count)) for a, b in self.doubtful if a < count]
        return Span(self.records[: count * RECORD_SIZE], self.digests[:count], left)


class LogSource(Protocol):
    """One volume, or one archive's files of a shard."""

    name: str
    findings: list[str]  # what is wrong there, in words
    first_log_seq: int  # of the records that it should have
    last_log_seq: int

    def span(self, log_seq: int) -> Span | None:
        """Records from `log_seq` on, as many as are read at once; None: it has none there."""

    def next_from(self, log_seq: int) -> int | None:
        """The first place from `log_seq` on of which it may have something."""


def digests_of(records: bytes | bytearray | memoryview) -> list[bytes]:
    """The hash of each record."""
    view = memoryview(records)
    return [record_hash(view[at : at + RECORD_SIZE]) for at in range(0, len(view), RECORD_SIZE)]


def read_best(sources: Sequence[LogSource], log_seq: int) -> Span | None:
    """The records from `log_seq` on, each from a source that vouches for it where there is one."""
    best: Span | None = None
    for source in sources:
        found = source.span(log_seq)
        if found is None:
            continue
        if not found.doubtful and (best is None or len(found.digests) >= len(best.digests)):
            return found
        best = best or found
    if best is not None:
        doubtful = [_repair(best, doubt, sources, log_seq) for doubt in best.doubtful]
        best.doubtful = [left for parts in doubtful for left in parts]
    return best


def _repair(span: Span, doubt: Range, sources: Sequence[LogSource], log_seq: int) -> list[Range]:
    """Put what another source vouches for in place of doubtful records; what is left of them."""
    first, end = doubt
    for source in sources:
        other = source.span(log_seq + first)
        if other is None:
            continue
        whole = min([len(other.digests), end - first, *(a for a, _ in other.doubtful)])
        if whole == 0:
            continue
        records = bytearray(span.records)
        at = first * RECORD_SIZE
        records[at : at + whole * RECORD_SIZE] = other.records[: whole * RECORD_SIZE]
        span.records = records
        span.digests[first : first + whole] = other.digests[:whole]
        if first + whole == end:
            return []
        return _repair(span, (first + whole, end), sources, log_seq)
    return [doubt]
