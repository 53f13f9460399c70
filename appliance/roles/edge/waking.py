"""When an edge wakes of itself: with each tick while clients say something, or the log is asked;
else with every tenth, and less often while nobody is connected. What comes from replicas wakes it
anyway, and needs no tick.
"""

import asyncio
from collections.abc import Callable

from appliance.base.limits import TICK_MS
from appliance.drivers.host.beat import Beat

QUIET_TICKS = 10  # between two wake-ups of an edge from which nobody wants anything
DESERTED_TICKS = 25  # the same where nobody is connected
STIRRED_S = 1.0  # after a word of a client others may follow, and what it led to may wait for ticks


class Waking:
    """Drives the `beat` of an edge. `rest_ticks` tells after how many ticks to wake again: 1 while
    something waits that ticks move on; `count` and `woke` are as in `Ticks`. `stir` comes before
    anything that a client does."""

    def __init__(
        self,
        beat: Beat,
        *,
        rest_ticks: Callable[[], int],
        count: Callable[[int], None],
        woke: Callable[[], None],
    ) -> None:
        self._rest_ticks, self._count, self._woke = rest_ticks, count, woke
        self._ticks = beat.ticks(
            TICK_MS / 1000, idle=self._idle, count=self._on_ticks, woke=self._wake
        )
        self._stirred_s = 0.0
        self._counted = self._counted_before = 0  # ticks; of these at the last wake-up

    def start(self) -> None:
        self._ticks.start()

    def stir(self) -> None:
        """A client does something: let time be now, and the next tick be the next."""
        self._stirred_s = asyncio.get_running_loop().time()
        self._ticks.catch_up()
        self._ticks.plan()

    def catch_up(self) -> None:
        """Before anything that ticks count from: let those before it be over."""
        self._ticks.catch_up()

    def plan(self) -> None:
        """The log is asked, or something else waits for ticks."""
        self._ticks.plan()

    def is_each(self, ticks: int) -> bool:
        """In `woke`: whether so many ticks are full again."""
        return self._counted // ticks > self._counted_before // ticks

    def _idle(self) -> int:
        quiet_s = asyncio.get_running_loop().time() - self._stirred_s
        return 0 if quiet_s < STIRRED_S else self._rest_ticks() - 1

    def _on_ticks(self, ticks: int) -> None:
        self._counted += ticks
        self._count(ticks)

    def _wake(self) -> None:
        self._woke()
        self._counted_before = self._counted
