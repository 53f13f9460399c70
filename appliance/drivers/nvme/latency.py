"""The newest latencies, in a ring, and their percentiles."""

from appliance.base.limits import IO_SAMPLES


def percentile(ordered: list[int], per_cent: int) -> int:
    """The value below which `per_cent` of `ordered` lies; 0 for an empty list."""
    if not ordered:
        return 0
    return ordered[min(len(ordered) - 1, len(ordered) * per_cent // 100)]


class Latency:
    """Microseconds of the newest `IO_SAMPLES` events, and how many there were in all."""

    __slots__ = ("count", "_ring")

    def __init__(self) -> None:
        self.count = 0
        self._ring = [0] * IO_SAMPLES

    def add(self, nanoseconds: int) -> None:
        self._ring[self.count % IO_SAMPLES] = nanoseconds // 1000
        self.count += 1

    def figures(self) -> dict[str, int]:
        """Count, p50, p99 and the largest, in microseconds."""
        ordered = sorted(self._ring[: min(self.count, IO_SAMPLES)])
        return {
            "count": self.count,
            "p50_us": percentile(ordered, 50),
            "p99_us": percentile(ordered, 99),
            "max_us": ordered[-1] if ordered else 0,
        }
