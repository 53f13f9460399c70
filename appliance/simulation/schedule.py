"""Virtual time: a heap of events, in microseconds, taken in the order of time, then of arrival."""

import heapq
from collections.abc import Callable
from typing import Any

TICK_US = 10_000  # a replica's tick
EVENTS_MAX = 200_000  # waiting events: more means that something multiplies

Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]


class Schedule:
    """What will happen, and what time it is. `now_us` only grows."""

    __slots__ = ("now_us", "_heap", "_arrivals")

    def __init__(self) -> None:
        self.now_us = 0
        self._heap: list[Event] = []
        self._arrivals = 0  # breaks ties, so that callbacks are never compared

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def happened(self) -> int:
        """Events so far."""
        return self._arrivals - len(self._heap)

    def at(self, time_us: int, callback: Callable[..., None], *arguments: Any) -> None:
        """Call `callback` with `arguments` at `time_us`, not before now."""
        assert time_us >= self.now_us
        assert len(self._heap) < EVENTS_MAX
        self._arrivals += 1
        heapq.heappush(self._heap, (time_us, self._arrivals, callback, arguments))

    def after(self, delay_us: int, callback: Callable[..., None], *arguments: Any) -> None:
        """Call `callback` with `arguments` in `delay_us`."""
        self.at(self.now_us + delay_us, callback, *arguments)

    def step(self) -> None:
        """Jump to the next event and run it."""
        time_us, _, callback, arguments = heapq.heappop(self._heap)
        assert time_us >= self.now_us
        self.now_us = time_us
        callback(*arguments)

    def run_until(self, end_us: int) -> None:
        """Run every event before `end_us`."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] < end_us:
            self.now_us, _, callback, arguments = pop(heap)
            callback(*arguments)
        self.now_us = max(self.now_us, end_us)

    def run_through(self, end_us: int) -> None:
        """Run every event before `end_us`, and those at it."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.step()
        self.now_us = max(self.now_us, end_us)
