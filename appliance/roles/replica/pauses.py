"""What a replica does when nothing comes: its ticks; and what is told once it was left in peace for
a moment, sooner than with the next tick, and not at all if what comes meanwhile tells it by the
way."""

import asyncio
from collections.abc import Callable

from appliance.cores.vsr.replica import Replica
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.ticks import Ticks

QUIET_S = 0.001


class Pauses:
    """`start`, then around each event `catch_up` and `plan`, as for its `ticks`. While there is
    something to be told, `core` hears a moment after the event that nothing came, and `perform`
    does what it wants then. Over with `life`."""

    def __init__(
        self, ticks: Ticks, life: Lifetime, core: Replica, perform: Callable[[], None]
    ) -> None:
        self._ticks, self._life, self._core, self._perform = ticks, life, core, perform
        self._timer: asyncio.TimerHandle | None = None
        self.start, self.catch_up = ticks.start, ticks.catch_up
        life.goes_on(self._stop)

    @property
    def late(self) -> int:
        """As that of `Ticks`."""
        return self._ticks.late

    def plan(self) -> None:
        """What is waited for already is waited for once."""
        self._ticks.plan()
        if self._timer is None and self._core.commit_is_untold and not self._life.is_still:
            self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._passed)

    def _passed(self) -> None:
        self._timer = None
        self._core.on_quiet()
        self._perform()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
