"""The product's WebSocket passes every case of the Autobahn test suite that needs no compression,
over TCP and inside a stream of HTTP/3. `make autobahn PYTHON2=...` runs the original."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import pytest
import uvloop
from aioquic.h3.connection import FrameUnexpected

from appliance.base.limits import CLIENT_FRAME_SIZE_MAX
from tests.drivers.network.autobahn_cases import (
    CASE_COUNT,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    Case,
    Event,
    Heard,
    every_case,
    frame,
)
from tests.drivers.network.echo_site import Echo, echo_port, large_messages
from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.quic.quic_client import H3Client, dial
from tests.drivers.network.site import make_node
from tests.patience import HUNG_S, within

SECTIONS = ("1", "2", "3", "4", "5", "6", "7", "9", "10")
SCALES = {"tcp": 8, "http3": 64}  # of what section 9 sends; all of it when the tests are soaked
LISTENS_S = 0.05  # for what must not come
HELLO = (
    b"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: tigerchat.v1.json\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


class Wire(Protocol):
    """Bytes behind a handshake, both ways."""

    async def send(self, data: bytes) -> None:
        """As one piece, if what is below has pieces."""

    async def receive(self) -> bytes:
        """What came; empty at the end."""


Dial = Callable[[], AbstractAsyncContextManager[Wire]]


class OverTcp:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # the server may have ended it
            self._writer.write(data)
            await self._writer.drain()
        await asyncio.sleep(0)  # that both sides run

    async def receive(self) -> bytes:
        try:
            return await self._reader.read(1 << 16)
        except ConnectionError:
            return b""


class OverHttp3:
    def __init__(self, client: H3Client, stream_id: int) -> None:
        self._client, self._stream_id = client, stream_id
        self._answer = client.answer(stream_id)

    async def send(self, data: bytes) -> None:
        self.write(data, ended=False)
        await asyncio.sleep(0)

    def write(self, data: bytes, *, ended: bool) -> None:
        with contextlib.suppress(FrameUnexpected):  # the server may have ended the stream
            self._client.http.send_data(self._stream_id, data, ended)  # type: ignore[union-attr]
            self._client.transmit()

    async def receive(self) -> bytes:
        answer = self._answer
        await self._client.until(lambda: answer.body or answer.ended or answer.reset is not None)
        data = bytes(answer.body)
        answer.body.clear()
        return data


@asynccontextmanager
async def tcp_port(tmp_path: Any) -> AsyncIterator[Dial]:
    async with echo_port() as port:

        @asynccontextmanager
        async def connect() -> AsyncIterator[Wire]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 101 " in head and b"xtensions" not in head
            yield OverTcp(reader, writer)
            writer.close()

        yield connect


@asynccontextmanager
async def http3_port(tmp_path: Any) -> AsyncIterator[Dial]:
    node = make_node(tmp_path, 0)
    async with open_port(node, echo, owner=Echo()) as port, dial(port.port) as client:
        await client.until(lambda: client.http is not None and client.http.received_settings)

        @asynccontextmanager
        async def connect() -> AsyncIterator[Wire]:
            asked = {
                ":protocol": "websocket",
                "sec-websocket-version": "13",
                "sec-websocket-protocol": "tigerchat.v1.json",
                "sec-websocket-extensions": "permessage-deflate",
            }
            stream_id = client._quic.get_next_available_stream_id()
            base = {":method": "CONNECT", ":scheme": "https", ":authority": "127.0.0.1"}
            fields = base | {":path": "/v1"} | asked
            raw = [(name.encode(), value.encode()) for name, value in fields.items()]
            client.http.send_headers(stream_id, raw)  # type: ignore[union-attr]
            client.transmit()
            answer = client.answer(stream_id)
            await client.until(lambda: answer.headers)
            assert answer.status == 200 and b"sec-websocket-extensions" not in answer.headers
            wire = OverHttp3(client, stream_id)
            yield wire
            wire.write(b"", ended=True)
            await client.until(lambda: answer.ended or answer.reset is not None)
            del client.answers[stream_id]

        yield connect


PORTS = {"tcp": tcp_port, "http3": http3_port}


class Listener:
    """Keeps what the server says in frames, and finds fault with any that it may not send."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._inbox = bytearray()
        self.events: list[Event] = []
        self.closing: bytes | None = None
        self.ended = False
        self._changed = asyncio.Event()

    async def listen(self) -> None:
        try:
            while data := await self._wire.receive():
                self._inbox += data
                self._take()
                self._changed.set()
        finally:
            self.ended = True
            self._changed.set()

    def _take(self) -> None:
        inbox = self._inbox
        while len(inbox) >= 2:
            head, size, start = inbox[0], inbox[1], 2
            assert size < 128, "a server does not mask"
            if size >= 126:
                start = 4 if size == 126 else 10
                size = int.from_bytes(inbox[2:start], "big")
            if len(inbox) < start + size:
                return
            data = bytes(memoryview(inbox)[start : start + size])
            del inbox[: start + size]
            assert self.closing is None, "nothing comes behind a close"
            assert head & 0xF0 == 0x80, "one final frame without reserved bits"
            if head & 0x0F == CLOSE:
                self.closing = data
            elif head & 0x0F != PING:
                self.events.append(Event(head & 0x0F, data))

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition() and not self.ended:
            self._changed.clear()
            await self._changed.wait()


async def fault_of(case: Case, dial: Dial) -> str:
    """What is wrong with how the server takes it; nothing if it passes."""
    async with dial() as wire:
        listener = Listener(wire)
        listening = asyncio.create_task(listener.listen())
        try:
            async with within(HUNG_S):
                fault = await _run(case, wire, listener)
        finally:
            listening.cancel()
            (ended,) = await asyncio.gather(listening, return_exceptions=True)
        return repr(ended) if isinstance(ended, AssertionError) else fault


async def _run(case: Case, wire: Wire, listener: Listener) -> str:
    for step in case.sent:
        if isinstance(step, Heard):
            count = step.count
            await listener.until(lambda count=count: len(listener.events) >= count)
        else:
            await wire.send(step)
    if case.fails:
        await listener.until(lambda: listener.closing is not None)
        if listener.closing is not None:
            await wire.send(frame(CLOSE, listener.closing))  # it need not wait for us
        await listener.until(lambda: False)
        code = int.from_bytes((listener.closing or b"\0\0")[:2], "big")
        if code not in case.fails:
            return f"ended with {code}"
    else:
        await listener.until(lambda: len(listener.events) >= len(case.heard))
        if not case.heard:
            await asyncio.sleep(LISTENS_S)
        await wire.send(frame(CLOSE, case.closing))
        await listener.until(lambda: False)
        if listener.closing != case.closing:
            return f"closed with {listener.closing!r}"
    awaited = case.heard[: len(listener.events)] if case.breaks_off else case.heard
    if tuple(listener.events) != awaited:
        return f"heard {[(one.opcode, one.data[:20]) for one in listener.events[:5]]}"
    return ""


async def faults_of(transport: str, section: str, scale: int, folder: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    with large_messages():
        async with PORTS[transport](folder) as dial:
            for case in every_case(scale):
                if case.id.split(".")[0] == section and (fault := await fault_of(case, dial)):
                    found[case.id] = fault
    return found


def test_there_are_301_cases_with_numbers_of_their_own() -> None:
    numbers = [case.id for case in every_case(64)]
    assert len(numbers) == len(set(numbers)) == CASE_COUNT
    assert {number.split(".")[0] for number in numbers} == set(SECTIONS)


@pytest.mark.parametrize("transport", PORTS)
@pytest.mark.parametrize("section", SECTIONS)
def test_every_case_passes(section: str, transport: str, tmp_path: Any) -> None:
    assert uvloop.run(faults_of(transport, section, SCALES[transport], tmp_path)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("transport", PORTS)
def test_every_large_case_passes_in_its_whole_size(transport: str, tmp_path: Any) -> None:
    assert uvloop.run(faults_of(transport, "9", 1, tmp_path)) == {}


def test_a_ping_is_answered_before_what_came_behind_it(tmp_path: Any) -> None:
    async def story() -> None:
        async with tcp_port(tmp_path) as dial, dial() as wire:
            listener = Listener(wire)
            listening = asyncio.create_task(listener.listen())
            await wire.send(frame(PING, b"first") + frame(TEXT, b"second"))
            async with within(HUNG_S):
                await listener.until(lambda: len(listener.events) == 2)
            assert listener.events == [Event(PONG, b"first"), Event(TEXT, b"second")]
            listening.cancel()

    uvloop.run(story())


def endless(size: int) -> Iterator[bytes]:
    """A message that has no last fragment."""
    yield frame(TEXT, b"x" * size, fin=False)
    for _ in range(2 * (CLIENT_FRAME_SIZE_MAX // size)):
        yield frame(CONT, b"x" * size, fin=False)


Hostile = tuple[int, Iterator[bytes]]  # the code it ends with, what is sent


def hostile() -> dict[str, Hostile]:
    too_large = b"\x82\xff" + (1 << 40).to_bytes(8, "big")
    return {
        "a frame that is not masked": (1002, iter([b"\x81\x05hello"])),
        "a ping that is not masked": (1002, iter([b"\x89\x00"])),
        "a frame that is larger than one may be": (1009, iter([too_large])),
        "a size of 64 bits": (1009, iter([b"\x82\xff" + b"\xff" * 8])),
        "fragments without end": (1009, endless(65_536)),
        "pings amid them": (1009, (part + frame(PING) for part in endless(65_536))),
    }


@pytest.mark.parametrize("transport", PORTS)
def test_what_no_client_may_send_ends_its_conversation_with_the_code_for_it(
    transport: str, tmp_path: Any
) -> None:
    async def story() -> dict[str, int]:
        ends: dict[str, int] = {}
        async with PORTS[transport](tmp_path) as dial:
            for name, (_, sent) in hostile().items():
                async with dial() as wire:
                    listener = Listener(wire)
                    listening = asyncio.create_task(listener.listen())
                    for piece in sent:
                        if listener.closing is not None or listener.ended:
                            break
                        await wire.send(piece)
                    async with within(HUNG_S):
                        await listener.until(lambda found=listener: found.closing is not None)
                    ends[name] = int.from_bytes((listener.closing or b"")[:2], "big")
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        return ends

    assert uvloop.run(story()) == {name: code for name, (code, _) in hostile().items()}
