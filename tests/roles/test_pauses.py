"""A replica that is left in peace for a moment tells what is committed; not after its life."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.ticks import Ticks
from appliance.roles.replica.pauses import Pauses


class Core:
    """As much of a replica as is asked."""

    commit_is_untold = True

    def __init__(self) -> None:
        self.heard = 0

    def on_quiet(self) -> None:
        self.heard += 1
        self.commit_is_untold = False


class Peace:
    """Pauses of one core; what it wants is performed as often as `performed` was set."""

    def __init__(self, core: Core, life: Lifetime) -> None:
        self.performed = asyncio.Event()
        ticks = Ticks(60.0, idle=lambda: 0, count=lambda ticks: None, woke=lambda: None)
        self.pauses = Pauses(ticks, life, cast(Any, core), self.performed.set)


def run(test: Callable[[Core, Lifetime], Any]) -> None:
    async def in_loop() -> None:
        await test(Core(), Lifetime())

    asyncio.run(in_loop())


def test_it_is_heard_once_however_often_it_was_planned_and_again_when_more_is_due() -> None:
    async def test(core: Core, life: Lifetime) -> None:
        peace = Peace(core, life)
        for _ in range(3):
            peace.pauses.plan()
        await peace.performed.wait()
        peace.pauses.plan()  # nothing is due
        core.commit_is_untold = True
        peace.performed.clear()
        peace.pauses.plan()
        await peace.performed.wait()
        assert core.heard == 2

    run(test)


def test_nothing_is_told_once_the_role_is_still() -> None:
    async def test(core: Core, life: Lifetime) -> None:
        planned, late = Peace(core, life), Peace(core, life)
        planned.pauses.plan()
        life.still()
        late.pauses.plan()
        other = Peace(core, Lifetime())
        other.pauses.plan()  # armed last, so it is the last one that comes
        await other.performed.wait()
        assert core.heard == 1

    run(test)
