"""Wall and monotonic clocks of one machine: offset, drift, steps. Integer arithmetic only."""

EPOCH_US = 1_800_000_000_000_000  # what the wall clocks show, about, when a world begins
LIE_US = 3_600_000_000  # how wrong a lying clock is
MONOTONIC_BASE_NS = 1_000_000_000  # a monotonic clock never shows zero


class Clock:
    """Reads virtual time through this machine's error: `offset_us` now, growing by `drift_ppm`."""

    __slots__ = ("offset_us", "drift_ppm", "boot_ns", "lying")

    def __init__(self, *, offset_us: int, drift_ppm: int, boot_ns: int) -> None:
        self.offset_us, self.drift_ppm, self.lying = offset_us, drift_ppm, False
        self.boot_ns = MONOTONIC_BASE_NS + boot_ns

    def realtime_us(self, now_us: int) -> int:
        """The wall clock in microseconds since the epoch."""
        return EPOCH_US + now_us + self.offset_us + now_us * self.drift_ppm // 1_000_000

    def monotonic_ns(self, now_us: int) -> int:
        """The monotonic clock: never steps, but drifts like the wall clock."""
        return self.boot_ns + now_us * 1000 + now_us * self.drift_ppm // 1000

    def lie(self) -> None:
        """Be wrong by an hour, one way or the other."""
        self.offset_us += LIE_US if self.offset_us >= 0 else -LIE_US
        self.lying = True

    def step(self, delta_us: int) -> None:
        """An administrator or a time daemon sets the wall clock."""
        self.offset_us += delta_us
