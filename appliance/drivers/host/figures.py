"""What this process uses, for its status."""

from typing import Any

import psutil


class Figures:
    """Reads the process' own figures; one instance for each process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call has nothing to compare with

    def read(self) -> dict[str, Any]:
        """Memory in bytes, CPU seconds since start, CPU percent since the call before."""
        with self._process.oneshot():
            times = self._process.cpu_times()
            return {
                "pid": self._process.pid,
                "rss": self._process.memory_info().rss,
                "cpu_seconds": round(times.user + times.system, 3),
                "cpu_percent": self._process.cpu_percent(),
                "threads": self._process.num_threads(),
                "files": self._process.num_fds(),
                "started": self._process.create_time(),
            }
