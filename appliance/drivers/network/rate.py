"""How often something may be done, by a clock that is told."""


class Rate:
    """So many a second, and so many at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at_s = burst, 0.0

    def take(self, now_s: float) -> bool:
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
