"""A client of HTTP/3 for tests: the library's own, with every event in reach."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DatagramReceived, DataReceived, H3Event, HeadersReceived
from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration

PATIENCE_S = 30.0
FLOW = 8 << 20


class Answer:
    """What came on one stream."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.ended = False
        self.reset: int | None = None  # the code

    @property
    def status(self) -> int:
        return int(self.headers[b":status"])


class H3Client(QuicConnectionProtocol):
    """One connection. `takes` is False while it shall not read."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.http: H3Connection | None = None
        self.answers: dict[int, Answer] = {}
        self.datagrams: list[bytes] = []
        self.terminated: quic_events.ConnectionTerminated | None = None
        self.goaway = False
        self.changed = asyncio.Event()

    def quic_event_received(self, event: quic_events.QuicEvent) -> None:
        if isinstance(event, quic_events.ProtocolNegotiated):
            self.http = H3Connection(self._quic, enable_webtransport=True)
        elif isinstance(event, quic_events.ConnectionTerminated):
            self.terminated = event
        elif isinstance(event, quic_events.StreamReset):
            self.answer(event.stream_id).reset = event.error_code
        if self.http is not None:
            for found in self.http.handle_event(event):
                self.on_http(found)
        self.changed.set()

    def on_http(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            answer = self.answer(event.stream_id)
            answer.headers |= dict(event.headers)
            answer.ended |= event.stream_ended
        elif isinstance(event, DataReceived):
            answer = self.answer(event.stream_id)
            answer.body += event.data
            answer.ended |= event.stream_ended
        elif isinstance(event, DatagramReceived):
            self.datagrams.append(event.data)

    def answer(self, stream_id: int) -> Answer:
        return self.answers.setdefault(stream_id, Answer())

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def request(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        authority: str = "127.0.0.1",
    ) -> int:
        """Send one; the stream's number."""
        await self.until(lambda: self.http is not None)
        stream_id = self._quic.get_next_available_stream_id()
        fields = {
            ":method": method,
            ":scheme": "https",
            ":authority": authority,
            ":path": path,
            **(headers or {}),
        }
        raw = [(name.encode(), value.encode()) for name, value in fields.items()]
        self.http.send_headers(stream_id, raw, end_stream=body is None)
        if body is not None:
            self.http.send_data(stream_id, body, end_stream=True)
        self.transmit()
        self.answer(stream_id)
        return stream_id

    async def fetch(self, path: str, **named: Any) -> Answer:
        """A request and its whole answer."""
        answer = self.answer(await self.request(path, **named))
        await self.until(lambda: answer.ended or answer.reset is not None or self.terminated)
        return answer


def configuration(**named: Any) -> QuicConfiguration:
    return QuicConfiguration(
        **{
            "is_client": True,
            "alpn_protocols": ["h3"],
            "verify_mode": ssl.CERT_NONE,
            "max_datagram_frame_size": 65536,
            "max_data": FLOW,
            "max_stream_data": FLOW,
            **named,
        }
    )


@asynccontextmanager
async def dial(port: int, host: str = "127.0.0.1", **named: Any) -> AsyncIterator[H3Client]:
    """A connection whose handshake is done."""
    async with connect(
        host, port, configuration=configuration(**named), create_protocol=H3Client
    ) as client:
        assert isinstance(client, H3Client)
        yield client
