"""Timeouts that count ticks. Nothing else in the core knows of time."""

from collections.abc import Iterable

from appliance.base.prng import Prng


class Timeout:
    """Fires `after` ticks since its last start or reset; stays silent while stopped."""

    __slots__ = ("after", "elapsed", "running", "attempts")

    def __init__(self, after: int) -> None:
        assert after > 0
        self.after = after
        self.elapsed = 0
        self.running = False
        self.attempts = 0

    def start(self, after: int | None = None) -> None:
        """Run from zero."""
        if after is not None:
            assert after > 0
            self.after = after
        self.elapsed = 0
        self.attempts = 0
        self.running = True

    def stop(self) -> None:
        """Be silent until the next start."""
        self.running = False
        self.elapsed = 0
        self.attempts = 0

    def reset(self) -> None:
        """Begin again; the attempts go on counting."""
        assert self.running
        self.elapsed = 0

    def fired(self) -> bool:
        """Count one tick; True when the time is up. The caller then resets, backs off or stops."""
        assert self.after > 0
        if not self.running:
            return False
        self.elapsed += 1
        return self.elapsed >= self.after

    @property
    def due(self) -> bool:
        """Whether the time is up, without counting."""
        return self.running and self.elapsed >= self.after

    def backoff(self, *, base: int, most: int, prng: Prng) -> None:
        """Begin again with a doubled, jittered period: equal periods of several members must not
        resonate.
        """
        assert 0 < base <= most
        self.attempts += 1
        full = min(most, base * 2 ** min(self.attempts, 16))
        self.after = max(1, prng.between((full + 1) // 2, full))
        assert 0 < self.after <= most
        self.elapsed = 0


def count_tick(timeouts: Iterable[Timeout]) -> bool:
    """Count one tick of all that run; whether any is due. One pass, because most ticks end here."""
    due = False
    for timeout in timeouts:
        if timeout.running:
            timeout.elapsed += 1
            if timeout.elapsed >= timeout.after:
                due = True
    return due
