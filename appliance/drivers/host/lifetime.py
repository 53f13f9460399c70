"""The end of what a process does for long, in one order.

    timers, and whatever else goes on by itself    stopped at once, also when it halts
    tasks                                          cancelled, and waited for
    links, servers, stores, files                  closed, the newest first

So nothing that goes on by itself is left when the first of the last row is closed: what is closed
is used by nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any


class Lifetime:
    """Of one role: it says what it has begun when it begins it. `still` may be called at any time,
    and again; `close` once, in the loop.
    """

    def __init__(self, *stops: Callable[[], None]) -> None:
        self.asked = asyncio.Event()  # the role is told to end
        self.is_still = False
        self._stops = [*stops]
        self._tasks: list[asyncio.Task[Any]] = []
        self._opened = AsyncExitStack()

    def goes_on(self, stop: Callable[[], None]) -> None:
        """Something goes on by itself until `stop`."""
        if self.is_still:
            stop()
        self._stops.append(stop)

    def every(self, period_s: float, call: Callable[[], None]) -> None:
        """`call` now, and again after each period."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def turn() -> None:
            nonlocal timer
            if not self.is_still:
                timer = loop.call_later(period_s, turn)
                call()

        def stop() -> None:
            if timer is not None:
                timer.cancel()

        self.goes_on(stop)
        turn()

    def task(self, task: "asyncio.Task[Any]") -> None:
        """A task that is to be cancelled; who looks at its end says so itself."""
        if self.is_still:
            task.cancel()
        self._tasks.append(task)

    def opened(self, *closes: Callable[[], Awaitable[None] | None]) -> None:
        """Something is open until it is closed so; what was opened last is named last."""
        for close in closes:
            self._opened.push_async_callback(_closed, close)

    def still(self) -> None:
        """Nothing goes on by itself any more."""
        self.is_still = True
        for stop in self._stops:
            stop()

    async def close(self) -> None:
        """End everything. What fails to close keeps nothing else open, and its error is raised."""
        self.still()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._opened.aclose()


async def _closed(close: Callable[[], Awaitable[None] | None]) -> None:
    waiting = close()
    if waiting is not None:
        await waiting
