"""Figures that every process has of itself."""

from msgspec import UNSET, UnsetType

from appliance.formats.status.part import Part


class Turns(Part, frozen=True, kw_only=True):
    """How the loop of a process has turned since its start."""

    seconds_late: int = 0  # that a stall swallowed
    weather: int = 0  # what the machine refused
    ticks_late: int | UnsetType = UNSET  # of who has ticks


class ProcessFigures(Part, frozen=True, kw_only=True):
    """What a process uses, as the kernel counts; at most a second old."""

    pid: int = 0
    rss: int = 0  # bytes
    cpu_seconds: float = 0.0  # since its start
    cpu_percent: float = 0.0  # of late
    threads: int = 0
    files: int = 0  # descriptors
    started: float = 0.0  # seconds since the epoch


class Latencies(Part, frozen=True, kw_only=True):
    """How long something took, the newest times of it."""

    count: int = 0  # ever since the start
    recent: int | UnsetType = UNSET  # those that the rest is about; an old program does not tell
    p50_us: int
    p99_us: int
    max_us: int = 0
