"""The newest latencies, in a ring, and their percentiles."""

import time
from collections import deque

from appliance.base.limits import IO_SAMPLES, LATENCY_AGE_S_MAX
from appliance.formats.status.process import Latencies

_MARKS_EVERY_S = 1.0


def percentile(ordered: list[int], per_cent: int) -> int:
    """The value below which `per_cent` of `ordered` lies; 0 for an empty list."""
    if not ordered:
        return 0
    return ordered[min(len(ordered) - 1, len(ordered) * per_cent // 100)]


class Latency:
    """Microseconds of the newest `IO_SAMPLES` events, and how many there were in all.

    What is older than LATENCY_AGE_S_MAX tells nothing of now and is left out. No event is dated,
    as that would cost each of them: whoever asks for figures leaves a mark of how many there were.
    """

    __slots__ = ("count", "_marks", "_ring")

    def __init__(self) -> None:
        self.count = 0
        self._marks: deque[tuple[float, int]] = deque()  # (when, count): a second apart at least
        self._ring = [0] * IO_SAMPLES

    def add(self, nanoseconds: int) -> None:
        self._ring[self.count % IO_SAMPLES] = nanoseconds // 1000
        self.count += 1

    def _recent(self, now: float) -> int:
        """How many of the newest events count; a mark is left for later."""
        marks = self._marks
        if not marks or now - marks[-1][0] >= _MARKS_EVERY_S:
            marks.append((now, self.count))
        while len(marks) > 1 and now - marks[1][0] >= LATENCY_AGE_S_MAX:
            marks.popleft()
        aged = marks[0][1] if now - marks[0][0] >= LATENCY_AGE_S_MAX else 0
        return min(self.count - aged, IO_SAMPLES)

    def figures(self, now: float | None = None) -> Latencies:
        """Count of all, how many of them are recent, and p50, p99 and the largest of these, in
        microseconds. `now`: of the clock that only goes forward, for tests."""
        recent = self._recent(time.monotonic() if now is None else now)
        end = self.count % IO_SAMPLES
        begin = end - recent
        kept = self._ring[max(0, begin) : end]
        if begin < 0:
            kept = self._ring[begin:] + kept
        ordered = sorted(kept)
        return Latencies(
            count=self.count,
            recent=recent,
            p50_us=percentile(ordered, 50),
            p99_us=percentile(ordered, 99),
            max_us=ordered[-1] if ordered else 0,
        )
