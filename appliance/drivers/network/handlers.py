"""The connections of a server of asyncio's streams, each served in a task, and their end."""

import asyncio
from collections.abc import Awaitable, Callable

from appliance.drivers.network.stream_end import end

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Handlers:
    """`serve` goes to `start_server` in the place of what was given here; then `end`.

    The library asks the task of a connection how it ended, and takes one that was cancelled for a
    bug that it prints. So those that are cancelled here end as if they had come to their end.
    """

    def __init__(self, serve: Serve) -> None:
        """`serve` closes its connection however it ends."""
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends or is ended."""
        if self._ending:  # it was accepted, and its task had not begun
            return await end(writer)
        own = asyncio.current_task()
        assert own is not None
        self._tasks.add(own)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            self._tasks.discard(own)

    async def end(self) -> None:
        """Cancel all connections and wait until each has ended; who comes after it is sent away."""
        self._ending = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
