"""The clocks and the chance that the roles around the log, such as replica and edge, hand to their
cores.

They are not the only place where time is read: other roles, drivers and commands call `time` for
their deadlines, dates and figures. What never does is base, formats, cores and simulation, which
are given the time: `tools/tidy.py` refuses the import there.
"""

import os
import time

monotonic_ns = time.monotonic_ns


def realtime_us() -> int:
    """Microseconds since the epoch; may jump when the operator or NTP sets the clock."""
    return time.time_ns() // 1000


def seed() -> int:
    """64 bits from the operating system, for a generator of ours."""
    return int.from_bytes(os.urandom(8), "little")
