"""Ticks of a core, counted when they matter: an idle process sleeps until something is due.

    core     idle() ──▶ so many of its next ticks only count
    clock    ├──┼──┼──┼──┤ wakes with the tick after these; all five are counted then
    input       │ ▲        what has passed is counted before it; it may make the end come sooner

What the core sees is what a timer for every tick would have shown it: the same counts before each
input, and whatever is due with the tick that makes it due.
"""

import asyncio
from collections.abc import Callable

PLANNED_S_MAX = 0.25  # what is done beside the core at each wake-up waits no longer
_ROUNDING = 1e-6  # of a tick: loops give times as floats


class Ticks:
    """Of one core, whose tick takes `tick_s`. `start`, then around each input `catch_up` and
    `plan`; `stop`.

    `idle()` tells with how many of the next ticks nothing will be due. `count(ticks)` counts them;
    `woke()` follows when the last of them was waited for, not when an input came before. After a
    stall one tick is caught up, the others are forgotten.
    """

    def __init__(
        self,
        tick_s: float,
        *,
        idle: Callable[[], int],
        count: Callable[[int], None],
        woke: Callable[[], None],
    ) -> None:
        self._tick_s, self._planned_max = tick_s, max(1, int(PLANNED_S_MAX / tick_s))
        self._idle, self._count, self._woke = idle, count, woke
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._counted_s = 0.0  # when the newest tick that is counted ended
        self._planned = 1  # ticks from then until the loop wakes
        self.late = 0  # wake-ups that came a tick or more behind their time

    def start(self) -> None:
        """In the loop: time begins, with a tick at once."""
        self._loop = asyncio.get_running_loop()
        self._counted_s = self._loop.time() - self._tick_s
        self._wake()

    def stop(self) -> None:
        """No tick more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def catch_up(self) -> None:
        """Before an input: count what has passed, up to the tick that is waited for."""
        if self._planned > 1 and self._loop is not None:
            passed = min(self._passed(), self._planned - 1)
            if passed > 0:
                self._pass(passed)

    def plan(self) -> None:
        """After an input: wake sooner if something is due sooner now."""
        if self._planned > 1 and self._loop is not None:
            wanted = self._idle() + 1
            if wanted < self._planned:
                self._arm(max(1, wanted))

    def _passed(self) -> int:
        assert self._loop is not None
        return int((self._loop.time() - self._counted_s) / self._tick_s + _ROUNDING)

    def _pass(self, ticks: int) -> None:
        self._counted_s += ticks * self._tick_s
        self._planned -= ticks
        self._count(ticks)

    def _arm(self, ticks: int) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        self._planned = ticks
        self._timer = self._loop.call_at(self._counted_s + ticks * self._tick_s, self._wake)

    def _wake(self) -> None:
        """What was planned has passed."""
        if self._loop is None:
            return
        now_s, ticks = self._loop.time(), self._planned
        late = self._passed() > ticks
        if late:
            self.late += 1
            self._counted_s = now_s
        else:
            self._counted_s += ticks * self._tick_s
        self._arm(1)  # before what an operating system may refuse
        self._count(ticks + late)
        self._woke()
        if self._loop is not None:
            wanted = min(self._idle() + 1, self._planned_max)
            if wanted > 1:
                self._arm(wanted)
