"""The end of a server of streams: connections that are cut short are no errors, bugs are."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from appliance.drivers.network.handlers import Handlers
from appliance.drivers.network.stream_end import end
from tests.patience import HUNG_S, within

Story = Callable[[Handlers, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Served:
    """What `serve` has begun and ended, and of what the loop was told."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.told: list[BaseException | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun += 1
        try:
            if await reader.read(1) == b"!":
                raise KeyError("a bug")
        finally:
            self.ended += 1
            await end(writer)

    def on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.told.append(context.get("exception"))

    async def run(self, story: Story) -> None:
        asyncio.get_running_loop().set_exception_handler(self.on_error)
        handlers = Handlers(self.serve)
        async with within(HUNG_S), await asyncio.start_server(handlers.serve, "127.0.0.1", 0) as s:
            port = s.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while not self.begun:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await story(handlers, reader, writer)
            await end(writer)


runs = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@runs
def test_a_connection_that_is_cut_short_is_no_error(run: Callable[..., None]) -> None:
    async def story(
        handlers: Handlers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await handlers.end()
        assert await reader.read() == b""

    served = Served()
    run(served.run(story))
    assert served.begun == served.ended == 1 and served.told == []


@runs
def test_a_bug_is_told(run: Callable[..., None]) -> None:
    async def story(
        handlers: Handlers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"!")
        assert await reader.read() == b""
        await handlers.end()

    served = Served()
    run(served.run(story))
    assert [type(error) for error in served.told] == [KeyError]


@runs
def test_who_comes_after_the_end_is_sent_away_unheard(run: Callable[..., None]) -> None:
    async def story(
        handlers: Handlers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await handlers.end()
        host, port = writer.get_extra_info("peername")
        late, its_writer = await asyncio.open_connection(host, port)
        assert await late.read() == b""
        await end(its_writer)

    served = Served()
    run(served.run(story))
    assert served.begun == 1 and served.told == []
