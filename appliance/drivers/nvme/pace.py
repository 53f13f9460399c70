"""How fast a counter grows: over the last day, or since this process began."""

from collections import deque

DAY_S = 86_400.0
_EVERY_S = 600.0  # between two samples
_SAMPLES = int(DAY_S / _EVERY_S) + 1
_SECONDS_MIN = 60.0  # of less nothing is said


class Pace:
    """Samples of a counter, on a clock that only goes forward."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def per_second(self, now_s: float, count: int) -> float:
        """Keep a sample if it is time; the growth since the oldest one, 0 while that is young."""
        if not self._samples or now_s - self._samples[-1][0] >= _EVERY_S:
            self._samples.append((now_s, count))
        begin_s, begin = self._samples[0]
        if now_s - begin_s < _SECONDS_MIN:
            return 0.0
        return max(0, count - begin) / (now_s - begin_s)
