"""How long tests wait for what has to happen."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

HUNG_S = 480.0  # whatever takes so long hangs, however busy the machine is: no claim about speed


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """What must happen by then: who waits for longer has failed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise AssertionError(f"has not happened within {seconds:g} s") from None
