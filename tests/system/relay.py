"""A long way between nodes: a relay for each pair, which holds back all that it is given."""

import asyncio
import contextlib
import threading
from collections import deque
from types import TracebackType

from tests.patience import HUNG_S

_BLOCK_SIZE = 65536


class Relays:
    """Relays in a thread of their own; a context manager that leaves nothing behind.

    `add` gives a port that leads to another one of this machine, `delay_s` away in each direction.
    """

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> "Relays":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(HUNG_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, port: int) -> int:
        """A new port behind which `port` lies."""
        return asyncio.run_coroutine_threadsafe(self._listen(port), self._loop).result(HUNG_S)

    async def _listen(self, port: int) -> int:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

        server = await asyncio.start_server(carry, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction: what comes leaves in order, `delay_s` later; the end too."""
        loop = asyncio.get_running_loop()
        waiting: deque[bytes] = deque()

        def pass_on() -> None:
            data = waiting.popleft()
            if data:
                writer.write(data)
            else:
                writer.close()

        data = b"."
        while data:
            try:
                data = await reader.read(_BLOCK_SIZE)
            except OSError:
                data = b""
            waiting.append(data)
            loop.call_later(self.delay_s, pass_on)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(self.delay_s * 2)  # what is still to leave
