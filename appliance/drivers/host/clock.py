"""Time and chance, read in one place: cores get them as arguments."""

import os
import time

monotonic_ns = time.monotonic_ns


def realtime_us() -> int:
    """Microseconds since the epoch; may jump when the operator or NTP sets the clock."""
    return time.time_ns() // 1000


def seed() -> int:
    """64 bits from the operating system, for a generator of ours."""
    return int.from_bytes(os.urandom(8), "little")
