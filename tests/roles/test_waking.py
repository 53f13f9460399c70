"""An edge wakes seldom while nobody wants anything, and with each tick while somebody does."""

import logging

from appliance.base.limits import TICK_MS
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.lifetime import Lifetime
from appliance.roles.edge.waking import DESERTED_TICKS, QUIET_TICKS, STIRRED_S, Waking
from tests.clockwork import passing, run

TICK_S = TICK_MS / 1000


class Edge:
    def __init__(self) -> None:
        self.rest, self.counted, self.wakes, self.fulls = QUIET_TICKS, 0, 0, 0
        beat = Beat("edge", logging.getLogger("tigerchat.waking"), Lifetime())
        self.waking = Waking(beat, rest_ticks=lambda: self.rest, count=self.count, woke=self.woke)

    def count(self, ticks: int) -> None:
        self.counted += ticks

    def woke(self) -> None:
        self.wakes += 1
        self.fulls += self.waking.is_each(25)


async def ticks(count: int) -> None:
    for _ in range(count):
        await passing(TICK_S)


def test_a_client_makes_it_wake_with_each_tick_until_all_was_quiet_for_a_while() -> None:
    async def story() -> None:
        edge = Edge()
        edge.waking.start()
        await ticks(100)
        assert (edge.counted, edge.wakes) == (101, 1 + 100 // QUIET_TICKS)
        assert edge.fulls == 4, "once in 25 ticks, however many are counted at once"
        await ticks(4)
        before = edge.wakes
        edge.waking.stir()
        assert (edge.counted, edge.wakes) == (105, before), "time is now, before its word is heard"
        stirred = round(STIRRED_S / TICK_S)
        await ticks(stirred)
        assert edge.wakes >= before + stirred - 1
        before = edge.wakes
        await ticks(100)
        assert edge.wakes <= before + 100 // QUIET_TICKS + 2

    run(story)


def test_it_wakes_with_each_tick_while_the_log_is_asked() -> None:
    async def story() -> None:
        edge = Edge()
        edge.waking.start()
        await ticks(3)
        edge.rest = 1
        edge.waking.catch_up()
        edge.waking.plan()
        before = edge.wakes
        await ticks(50)
        assert edge.wakes == before + 50

    run(story)


def test_it_wakes_less_often_while_nobody_is_connected_and_at_once_for_who_comes() -> None:
    async def story() -> None:
        edge = Edge()
        edge.rest = DESERTED_TICKS
        edge.waking.start()
        await ticks(4 * DESERTED_TICKS)
        assert edge.wakes == 1 + 4
        await ticks(DESERTED_TICKS // 2)
        counted = edge.counted
        edge.waking.stir()
        assert edge.counted == counted + DESERTED_TICKS // 2, "time is now, before it is heard"
        edge.rest = QUIET_TICKS
        before = edge.wakes
        await ticks(10)
        assert edge.wakes >= before + 9

    run(story)
