"""The time of the edge, as all its parts read it."""


class Clock:
    """Written by the edge on each tick, by nobody else."""

    __slots__ = ("now_ns", "now_us")

    def __init__(self) -> None:
        self.now_ns = 0  # monotonic
        self.now_us = 0  # since the epoch
