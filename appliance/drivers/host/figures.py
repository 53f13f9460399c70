"""What this process uses, for its status."""

import psutil

from appliance.drivers.host import clock
from appliance.formats.status.process import ProcessFigures

FRESH_NS = 1_000_000_000  # others ask several times a second, and reading takes most of a status


class Figures:
    """Reads the process' own figures; one instance for each process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call has nothing to compare with
        self._known = ProcessFigures()
        self._fresh_until_ns = 0

    def read(self) -> ProcessFigures:
        """They are at most a second old."""
        now_ns = clock.monotonic_ns()
        if now_ns >= self._fresh_until_ns:
            self._known, self._fresh_until_ns = self._read(), now_ns + FRESH_NS
        return self._known

    def _read(self) -> ProcessFigures:
        with self._process.oneshot():
            times = self._process.cpu_times()
            return ProcessFigures(
                pid=self._process.pid,
                rss=self._process.memory_info().rss,
                cpu_seconds=round(times.user + times.system, 3),
                cpu_percent=self._process.cpu_percent(),
                threads=self._process.num_threads(),
                files=self._process.num_fds(),
                started=self._process.create_time(),
            )
