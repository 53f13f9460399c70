"""A loop whose time passes when the test says so."""

import asyncio
from collections.abc import Awaitable, Callable


class Clockwork(asyncio.SelectorEventLoop):
    """Timers fire when the test has made their time come."""

    now_s = 100.0

    def time(self) -> float:
        return self.now_s


async def passing(seconds: float) -> None:
    """So much time passes at once."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Clockwork)
    loop.now_s += seconds
    for _ in range(3):
        await asyncio.sleep(0)


def run(story: Callable[[], Awaitable[None]]) -> None:
    """A story to its end, in such a loop."""

    async def whole() -> None:
        await story()

    with asyncio.Runner(loop_factory=Clockwork) as runner:
        runner.run(whole())
