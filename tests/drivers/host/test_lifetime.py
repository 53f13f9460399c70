"""The end of a role: nothing goes on by itself when the first thing is closed."""

import asyncio

import pytest

from appliance.drivers.host.lifetime import Lifetime
from tests import clockwork
from tests.clockwork import passing


def test_beats_stop_then_tasks_end_then_all_is_closed_the_newest_first() -> None:
    said: list[str] = []

    async def works() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            said.append("task")

    async def closes() -> None:
        await asyncio.sleep(0)
        said.append("server")

    async def story() -> None:
        life = Lifetime(lambda: said.append("timer"))
        life.opened(lambda: said.append("volume"), closes)
        life.task(asyncio.ensure_future(works()))
        await asyncio.sleep(0)
        await life.close()

    clockwork.run(story)
    assert said == ["timer", "task", "server", "volume"]


@pytest.mark.parametrize("how", ["still", "close"])
def test_no_beat_runs_in_the_turn_in_which_it_ends_or_later(how: str) -> None:
    async def story() -> None:
        beats: list[str] = []
        life = Lifetime()
        life.every(1.0, lambda: beats.append("x"))
        await passing(1.0)
        assert beats == ["x", "x"]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, clockwork.Clockwork)
        loop.now_s += 5.0  # it is due now
        if how == "still":
            life.still()
        else:
            await life.close()
        await passing(5.0)
        assert beats == ["x", "x"]

    clockwork.run(story)


def test_a_beat_that_fails_is_not_the_last() -> None:
    async def story() -> None:
        life, beats, lost = Lifetime(), [], []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: lost.append(context["exception"]))

        def turn() -> None:
            beats.append("x")
            if len(beats) == 2:
                raise OSError("no")

        life.every(1.0, turn)
        for _ in range(3):
            await passing(1.0)
        assert (len(beats), len(lost)) == (4, 1)

    clockwork.run(story)


def test_a_beat_that_ends_the_role_is_its_last() -> None:
    async def story() -> None:
        life, beats = Lifetime(), []

        def turn() -> None:
            beats.append("x")
            life.still()

        life.every(1.0, turn)
        await passing(5.0)
        assert beats == ["x"]

    clockwork.run(story)


def test_what_begins_when_it_is_over_ends_at_once() -> None:
    async def story() -> None:
        life, stopped = Lifetime(), []
        life.still()
        life.goes_on(lambda: stopped.append("x"))
        life.every(1.0, lambda: stopped.append("beat"))
        task = asyncio.ensure_future(asyncio.sleep(3600))
        life.task(task)
        await life.close()
        assert task.cancelled() and set(stopped) == {"x"}

    clockwork.run(story)


def test_what_fails_to_close_keeps_nothing_else_open() -> None:
    async def story() -> None:
        life, closed = Lifetime(), []

        def fails() -> None:
            raise OSError("no")

        life.opened(lambda: closed.append("volume"), fails, lambda: closed.append("server"))
        with pytest.raises(OSError, match="no"):
            await life.close()
        assert closed == ["server", "volume"]

    clockwork.run(story)
