"""Ticks are counted as time passes, and wake a process only for what is due."""

import asyncio
import time

from appliance.drivers.host.ticks import Ticks
from tests import clockwork
from tests.clockwork import Clockwork, run

TICK_S = 0.01


class Core:
    """It counts; nothing is due for `left` ticks."""

    def __init__(self, left: int) -> None:
        self.left, self.counted, self.wakes = left, 0, 0
        self.ticks = Ticks(TICK_S, idle=lambda: self.left, count=self.count, woke=self.woke)

    def count(self, ticks: int) -> None:
        self.counted += ticks

    def woke(self) -> None:
        self.wakes += 1

    @property
    def seen(self) -> tuple[int, int]:
        return self.counted, self.wakes


async def passing(ticks: float) -> None:
    await clockwork.passing(ticks * TICK_S)


def test_what_passes_is_counted_by_few_wake_ups() -> None:
    async def story() -> None:
        core = Core(left=9)
        core.ticks.start()
        assert core.seen == (1, 1)
        for _ in range(100):
            await passing(1)
        assert core.seen == (101, 11)
        core.ticks.stop()
        await passing(50)
        assert core.seen == (101, 11)

    run(story)


def test_before_an_input_all_is_counted_but_the_tick_that_is_waited_for() -> None:
    async def story() -> None:
        core = Core(left=9)
        core.ticks.start()
        await passing(5.5)
        core.ticks.catch_up()
        assert core.seen == (6, 1)
        core.ticks.catch_up()
        assert core.seen == (6, 1), "once"
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Clockwork)
        loop.now_s += 5 * TICK_S
        core.ticks.catch_up()
        assert core.seen == (10, 1), "what is due is due in its turn"
        await passing(0)
        assert core.seen == (11, 2)
        assert core.ticks.late == 0

    run(story)


def test_an_input_can_make_the_next_wake_up_come_sooner_and_never_later() -> None:
    async def story() -> None:
        core = Core(left=9)
        core.ticks.start()
        core.left = 100
        core.ticks.plan()
        core.left = 2
        core.ticks.plan()
        await passing(2)
        assert core.seen == (1, 1)
        await passing(1)
        assert core.seen == (4, 2)
        core.left = 100
        await passing(10)
        assert core.seen[1] == 3
        core.left = 0
        core.ticks.plan()
        await passing(1)
        assert core.seen[1] == 4

    run(story)


def test_of_a_stall_one_tick_is_caught_up() -> None:
    async def story() -> None:
        core = Core(left=4)
        core.ticks.start()
        await passing(60)
        assert core.seen == (1 + 5 + 1, 2)
        assert core.ticks.late == 1
        await passing(5)
        assert core.seen == (12, 3)

    run(story)


def test_no_beat_comes_after_a_stop_though_one_is_due_in_the_same_turn() -> None:
    async def stop_twenty_times() -> None:
        for _ in range(20):
            stopped = False
            beats: list[bool] = []
            ticks = Ticks(
                0.001,
                idle=lambda: 0,
                count=lambda _: beats.append(stopped),  # noqa: B023
                woke=lambda: beats.append(stopped),  # noqa: B023
            )
            ticks.start()
            due_s = time.monotonic() + 0.003
            while time.monotonic() < due_s:  # the next one is due, and waits for the loop
                pass
            ticks.stop()
            stopped = True
            await asyncio.sleep(0.005)
            assert beats and not any(beats)

    asyncio.run(stop_twenty_times())
