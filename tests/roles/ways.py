"""Every way in, alike: open it, send frames, take frames, see how it ended."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from contextlib import closing, suppress
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple, Protocol

from aioquic.asyncio import connect as connect_quic
from aioquic.h3.connection import FrameType
from aioquic.h3.events import DataReceived, H3Event, WebTransportStreamDataReceived
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode
from websockets.protocol import OPEN, Side
from websockets.protocol import Protocol as WebSocketProtocol

from appliance.formats.client.frame import (
    SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON,
    Frame,
    encode_binary,
    encode_json,
)
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.stream import SIZE_SIZE, framed, size_at
from tests.drivers.network.quic.quic_client import H3Client, configuration
from tests.patience import HUNG_S
from tests.roles.edge_site import insecure

CLOSE_SESSION = b"\x68\x43"  # the type of the capsule that ends a session of WebTransport


class Refused(NamedTuple):
    """What a handshake was answered with."""

    status: int
    fields: dict[str, str]
    body: bytes


class Ended(Exception):
    """The conversation was closed by the node; `code` is the transport's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Way(ABC):
    """One conversation. `binary` is its encoding."""

    name = ""

    def __init__(self, port: int, *, binary: bool) -> None:
        self.port, self.binary = port, binary
        self.subprotocol = SUBPROTOCOL_BINARY if binary else SUBPROTOCOL_JSON
        self.frames: deque[Frame] = deque()
        self.authorization = ""  # of the handshake, where there is one
        self.offers: list[str] = []  # further subprotocols, of WebSockets
        self.refused: Refused | None = None  # the handshake, if it was

    @classmethod
    def speaks(cls, binary: bool) -> bool:
        """Whether it has this encoding."""
        return True

    async def __aenter__(self) -> "Way":
        async with asyncio.timeout(HUNG_S):
            await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, *frames: Frame) -> None:
        if self.binary:
            await self.send_raw(encode_binary(*frames))
        else:
            for frame in frames:
                await self.send_raw(encode_json(frame))

    async def next(self) -> Frame:
        """The next frame; Ended when there is none."""
        async with asyncio.timeout(HUNG_S):
            while not self.frames:
                for data in await self.take_raw():
                    self.frames += (
                        parse_binary_edge(data) if self.binary else [parse_json_edge(data)]
                    )
        return self.frames.popleft()

    @abstractmethod
    async def open(self) -> None:
        """Connect; Ended when it is refused."""

    @abstractmethod
    async def close(self) -> None:
        """Leave nothing open."""

    @abstractmethod
    async def send_raw(self, data: bytes) -> None:
        """Send what is encoded: in binary perhaps several frames, in JSON one."""

    @abstractmethod
    async def take_raw(self) -> list[bytes]:
        """Frames that came, at least one; waits for it."""


class WebSocketTcp(Way):
    """On TCP, by the library for clients."""

    name = "websocket"

    async def open(self) -> None:
        fields = {"Authorization": self.authorization} if self.authorization else None
        try:
            self.socket = await connect_websocket(
                f"wss://127.0.0.1:{self.port}/v1",
                ssl=insecure(),
                subprotocols=[self.subprotocol, *self.offers],
                additional_headers=fields,
                compression=None,
                max_size=None,
            )
        except InvalidStatus as error:
            answer = error.response
            told = {name.lower(): value for name, value in answer.headers.raw_items()}
            self.refused = Refused(answer.status_code, told, bytes(answer.body or b""))
            raise Ended(answer.status_code) from None

    async def close(self) -> None:
        await self.socket.close()

    async def send_raw(self, data: bytes) -> None:
        await self.socket.send(data if self.binary else data.decode())

    async def take_raw(self) -> list[bytes]:
        try:
            data = await self.socket.recv()
        except ConnectionClosed as error:
            raise Ended(error.rcvd.code if error.rcvd else 1006) from None
        return [data.encode() if isinstance(data, str) else data]


class ConversingClient(H3Client):
    """Keeps what comes on streams of WebTransport, too."""

    def on_http(self, event: H3Event) -> None:
        super().on_http(event)
        if isinstance(event, WebTransportStreamDataReceived):
            answer = self.answer(event.stream_id)
            answer.body += event.data
            answer.ended |= event.stream_ended
        elif isinstance(event, DataReceived):
            self.changed.set()

    async def wait_closed(self) -> None:
        """It has said that it goes. The library would stay for some round trips more, to say so
        again to who has not heard, and each conversation would wait for that."""
        if self._timer is not None:
            self._timer.cancel()


def connecting(port: int) -> Any:
    """A connection on QUIC to be, as a context."""
    return connect_quic(
        "127.0.0.1", port, configuration=configuration(), create_protocol=ConversingClient
    )


class OverQuic(Way):
    """What conversations on QUIC have in common."""

    protocol, path = "", ""
    fields: dict[str, str] = {}

    async def open(self) -> None:
        self._connecting = connecting(self.port)
        self.client: Any = await self._connecting.__aenter__()
        self.session_id = await self.connect()
        answer = self.client.answer(self.session_id)
        await self.client.until(lambda: answer.headers or answer.reset is not None)
        if answer.status != 200:
            await self.client.until(lambda: answer.ended or answer.reset is not None)
            told = {name.decode(): value.decode() for name, value in answer.headers.items()}
            self.refused = Refused(answer.status, told, bytes(answer.body))
            raise Ended(answer.status)
        self.after_open()

    async def connect(self) -> int:
        client = self.client
        await client.until(lambda: client.http is not None and client.http.received_settings)
        stream_id = client._quic.get_next_available_stream_id()
        fields = {
            ":method": "CONNECT",
            ":protocol": self.protocol,
            ":scheme": "https",
            ":authority": f"127.0.0.1:{self.port}",
            ":path": self.path,
            **self.fields,
        }
        if self.authorization:
            fields["authorization"] = self.authorization
        if self.offers:
            fields["sec-websocket-protocol"] += ", " + ", ".join(self.offers)
        raw = [(name.encode(), value.encode()) for name, value in fields.items()]
        client.http.send_headers(stream_id, raw)
        client.answer(stream_id)
        client.transmit()
        return stream_id

    def after_open(self) -> None:
        pass

    async def close(self) -> None:
        await self._connecting.__aexit__(None, None, None)


class WebSocketHttp3(OverQuic):
    """RFC 9220."""

    name = "websocket_http3"
    protocol, path = "websocket", "/v1"

    def __init__(self, port: int, *, binary: bool) -> None:
        super().__init__(port, binary=binary)
        self.fields = {
            "sec-websocket-version": "13",
            "sec-websocket-protocol": self.subprotocol,
        }
        self.socket = WebSocketProtocol(Side.CLIENT, state=OPEN, max_size=None)

    async def send_raw(self, data: bytes) -> None:
        if self.binary:
            self.socket.send_binary(data)
        else:
            self.socket.send_text(data)
        self._flush()

    def _flush(self) -> None:
        for part in self.socket.data_to_send():
            self.client.http.send_data(self.session_id, part, end_stream=not part)
        self.client.transmit()

    async def take_raw(self) -> list[bytes]:
        answer = self.client.answer(self.session_id)
        while True:
            if self.socket.close_rcvd is not None:
                raise Ended(self.socket.close_rcvd.code)
            if answer.ended or answer.reset is not None or self.client.terminated:
                raise Ended(1006) from Exception(repr(self.client.terminated))
            await self.client.until(
                lambda: (
                    answer.body
                    or answer.ended
                    or answer.reset is not None
                    or self.client.terminated
                )
            )
            self.socket.receive_data(bytes(answer.body))
            answer.body.clear()
            frames = self.socket.events_received()
            self._flush()
            found = [one.data for one in frames if one.opcode in (Opcode.TEXT, Opcode.BINARY)]
            if found:
                return found


class WebTransport(OverQuic):
    """A session, one stream."""

    name = "webtransport"
    protocol = "webtransport"

    def __init__(self, port: int, *, binary: bool) -> None:
        super().__init__(port, binary=binary)
        self.path = f"/v1/{self.subprotocol}"
        self.inbox = bytearray()

    def after_open(self) -> None:
        http = self.client.http
        self.stream_id = http.create_webtransport_stream(self.session_id)
        # What comes back on it has no frames of HTTP/3, which the library does not note by itself.
        with http._get_or_create_stream(self.stream_id) as stream:
            stream.frame_type, stream.session_id = FrameType.WEBTRANSPORT_STREAM, self.session_id

    async def send_raw(self, data: bytes) -> None:
        self.client._quic.send_stream_data(self.stream_id, framed(data))
        self.client.transmit()

    def send_datagram(self, data: bytes) -> None:
        self.client.http.send_datagram(self.session_id, data)
        self.client.transmit()

    async def take_raw(self) -> list[bytes]:
        stream = self.client.answer(self.stream_id)
        session = self.client.answer(self.session_id)
        while True:
            await self.client.until(lambda: stream.body or session.ended or self.client.terminated)
            self.inbox += stream.body
            stream.body.clear()
            found = []
            while 0 <= (size := size_at(self.inbox, 0)) <= len(self.inbox) - SIZE_SIZE:
                found.append(bytes(self.inbox[SIZE_SIZE : SIZE_SIZE + size]))
                del self.inbox[: SIZE_SIZE + size]
            if found:
                return found
            if session.ended:
                capsule = bytes(session.body)
                assert capsule.startswith(CLOSE_SESSION)
                raise Ended(int.from_bytes(capsule[3:7], "big"))
            if self.client.terminated:
                raise Ended(1006) from Exception(repr(self.client.terminated))


class OverRequests(Way):
    """What conversations in plain HTTP have in common: each part is a request."""

    stream: "Stream | None" = None

    @classmethod
    def speaks(cls, binary: bool) -> bool:
        return not binary

    @abstractmethod
    async def fetch(self, method: str, path: str, body: bytes | None) -> "Fetched":
        """A request that bears the secret, and its whole answer."""

    @property
    def fields(self) -> dict[str, str]:
        return {"tigerchat-session": self.secret} if self.secret else {}

    async def open(self) -> None:
        self.secret, self.next_after = "", 0
        self.closed: int | None = None

    async def send(self, *frames: Frame) -> None:
        await self.send_raw(b"\n".join(encode_json(frame) for frame in frames))

    async def send_raw(self, data: bytes) -> None:
        if self.secret:
            fetched = await self.fetch("POST", "/v1/session/frames", data)
            assert fetched.status == 202, fetched
            return
        fetched = await self.fetch("POST", "/v1/session", data)
        self.secret = fetched.fields.get("tigerchat-session", "")
        self.found = self.told(json.loads(fetched.body))
        assert (fetched.status == 201) == (self.closed is None), fetched

    def told(self, batch: dict[str, Any]) -> list[bytes]:
        """What an answer brought."""
        self.next_after = batch["next"]
        if "closed" in batch:
            self.closed = batch["closed"]["code"]
        return [json.dumps(frame).encode() for frame in batch["frames"]]

    async def take_raw(self) -> list[bytes]:
        while True:
            found, self.found = self.found, []
            if found:
                return found
            if self.closed is not None:
                raise Ended(self.closed)
            self.found = await self.take_more()

    @abstractmethod
    async def take_more(self) -> list[bytes]:
        """Read on."""


class Fetched(NamedTuple):
    """An answer."""

    status: int
    fields: dict[str, str]
    body: bytes


class Stream(Protocol):
    """The body of an answer that goes on."""

    async def read(self) -> bytes:
        """What came next, empty at its end."""


class Polling(OverRequests):
    """Long polls."""

    async def take_more(self) -> list[bytes]:
        fetched = await self.fetch("GET", f"/v1/session/poll?after={self.next_after}", None)
        assert fetched.status == 200, fetched
        return self.told(json.loads(fetched.body))


class Events(OverRequests):
    """One stream of server-sent events."""

    inbox = b""

    async def take_more(self) -> list[bytes]:
        if self.stream is None:
            self.stream = await self.follow(f"/v1/session/events?after={self.next_after}")
        piece = await self.stream.read()
        if not piece:
            raise Ended(1006)
        *events, self.inbox = (self.inbox + piece).split(b"\n\n")
        found = []
        for event in events:
            name, _, data = event.rpartition(b"data: ")
            if name.startswith(b"event: close"):
                self.closed = json.loads(data)["code"]
            elif data and not name:
                found.append(data)
        return found

    @abstractmethod
    async def follow(self, path: str) -> Stream:
        """Begin the stream."""


class ByTcp(OverRequests):
    """HTTP/1.1, each request on a connection of its own."""

    async def fetch(self, method: str, path: str, body: bytes | None) -> Fetched:
        def run() -> Fetched:
            with closing(self._connect()) as connection:
                connection.request(method, path, body, self.fields)
                answer = connection.getresponse()
                fields = {name.lower(): value for name, value in answer.getheaders()}
                return Fetched(answer.status, fields, answer.read())

        return await asyncio.to_thread(run)

    def _connect(self) -> HTTPSConnection:
        return HTTPSConnection("127.0.0.1", self.port, context=insecure(), timeout=HUNG_S)

    async def follow(self, path: str) -> Stream:
        connection = self._connect()
        await asyncio.to_thread(connection.request, "GET", path, None, self.fields)
        self.streaming = connection
        return TcpStream(await asyncio.to_thread(connection.getresponse))

    async def close(self) -> None:
        if self.stream is not None:
            self.streaming.close()
        elif self.secret:
            with suppress(OSError, HTTPException):
                await self.fetch("DELETE", "/v1/session", None)


class TcpStream:
    """Of HTTP/1.1."""

    def __init__(self, answer: HTTPResponse) -> None:
        assert answer.status == 200, answer.read()
        self._answer = answer

    async def read(self) -> bytes:
        try:
            return await asyncio.to_thread(self._answer.read1, 1 << 16)
        except (OSError, HTTPException):
            return b""


class ByHttp3(OverRequests):
    """All requests on one connection."""

    async def open(self) -> None:
        await super().open()
        self._connecting = connecting(self.port)
        self.client: Any = await self._connecting.__aenter__()

    async def fetch(self, method: str, path: str, body: bytes | None) -> Fetched:
        authority = f"127.0.0.1:{self.port}"
        answer = await self.client.fetch(
            path, method=method, body=body, headers=self.fields, authority=authority
        )
        fields = {name.decode(): value.decode() for name, value in answer.headers.items()}
        return Fetched(answer.status, fields, bytes(answer.body))

    async def follow(self, path: str) -> Stream:
        stream_id = await self.client.request(path, headers=self.fields)
        return Http3Stream(self.client, stream_id)

    async def close(self) -> None:
        await self._connecting.__aexit__(None, None, None)


class Http3Stream:
    """Of HTTP/3."""

    def __init__(self, client: Any, stream_id: int) -> None:
        self._client, self._answer = client, client.answer(stream_id)

    async def read(self) -> bytes:
        client, answer = self._client, self._answer
        await client.until(lambda: answer.body or answer.ended or client.terminated)
        piece = bytes(answer.body)
        answer.body.clear()
        return piece


class PollingTcp(ByTcp, Polling):
    name = "long_poll"


class PollingHttp3(ByHttp3, Polling):
    name = "long_poll_http3"


class EventsTcp(ByTcp, Events):
    name = "events"


class EventsHttp3(ByHttp3, Events):
    name = "events_http3"


WAYS: list[type[Way]] = [
    *(WebSocketTcp, WebSocketHttp3, WebTransport),
    *(EventsTcp, EventsHttp3, PollingTcp, PollingHttp3),
]


def plain(frame: Frame) -> dict[str, Any]:
    """A frame as JSON says it."""
    return json.loads(encode_json(frame))
