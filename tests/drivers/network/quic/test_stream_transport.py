"""A stream as a transport: what waited while nobody read comes first, and the end comes last."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.drivers.network.quic.stream_transport import StreamTransport


class Carrier:
    """The connection below: how much is held, and which streams are finished."""

    def __init__(self) -> None:
        self.held = 0
        self.quic: Any = SimpleNamespace(hold=self._hold, release=self._release)
        self.finished = False

    def _hold(self, stream_id: int, size: int) -> None:
        self.held += size

    def _release(self, stream_id: int, size: int) -> None:
        assert size <= self.held
        self.held -= size

    def wake(self) -> None:
        """Nothing is sent here."""

    def send_data(self, stream_id: int, data: bytes, *, ended: bool = False) -> None:
        """Nobody reads it."""

    def finish(self, stream_id: int) -> None:
        self.held, self.finished = 0, True


class Reader(asyncio.Protocol):
    """Notes what it is given; stops to read after each piece while `stops`."""

    def __init__(self, transport: StreamTransport) -> None:
        self.transport, self.got, self.ended, self.stops = transport, b"", False, False

    def data_received(self, data: bytes) -> None:
        self.got += data
        if self.stops:
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self.ended = True


def opened() -> tuple[Carrier, StreamTransport, Reader]:
    carrier = Carrier()
    transport = StreamTransport(carrier, 0)  # type: ignore[arg-type]
    reader = transport.protocol = Reader(transport)
    return carrier, transport, reader


async def turn() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("stops", [False, True])
def test_nothing_overtakes_what_came_while_nobody_read(stops: bool) -> None:
    async def story() -> None:
        carrier, transport, reader = opened()
        reader.stops = stops
        transport.pause_reading()
        transport.on_data(b"one ", False)
        transport.resume_reading()
        transport.on_data(b"two ", False)  # before the loop has come to what waited
        for _ in range(4):
            await turn()
            transport.resume_reading()
        transport.on_data(b"three", False)
        for _ in range(4):
            await turn()
            transport.resume_reading()
        assert reader.got == b"one two three"
        assert carrier.held == 0

    asyncio.run(story())


def test_an_end_that_came_while_nobody_read_is_told_behind_what_waited() -> None:
    async def story() -> None:
        for data in (b"last", b""):
            carrier, transport, reader = opened()
            transport.pause_reading()
            transport.on_data(data, True)
            assert not reader.ended
            transport.resume_reading()
            await turn()
            assert (reader.got, reader.ended, carrier.finished) == (data, True, True)

    asyncio.run(story())


def test_what_waited_is_dropped_when_the_stream_is_closed_meanwhile() -> None:
    async def story() -> None:
        carrier, transport, reader = opened()
        transport.pause_reading()
        transport.on_data(b"late", False)
        transport.resume_reading()
        transport.close()
        await turn()
        await turn()
        assert reader.got == b"" and carrier.held == 0

    asyncio.run(story())
