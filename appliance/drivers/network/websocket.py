"""The client port: WebSocket connections, and on the same port plain HTTP for pages and probes.

    first request ──▶ GET /v1 with Upgrade: a WebSocket, parsed by the sans-I/O library
                  └─▶ anything else: the transport goes to an HTTP protocol, bytes and all

Messages are handed over whole. What is written comes with its WebSocket head already, so that many
connections share the bytes; the library is asked only for handshake, pongs and closing. Compression
is not offered.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from websockets.exceptions import NegotiationError, PayloadTooBig
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from appliance.base.errors import ConfigurationError
from appliance.base.limits import (
    CLIENT_FRAME_SIZE_MAX,
    CLIENT_WRITE_HIGH,
    CLIENT_WRITE_LOW,
    HELLO_MS_MAX,
    HTTP_HEAD_SIZE_MAX,
)

PATH = b"/v1"
SUBPROTOCOLS = (Subprotocol("tigerchat.v1.binary"), Subprotocol("tigerchat.v1.json"))
PING_SECONDS = 20.0  # between two pings; silence over two of them ends a connection
CLOSE_SECONDS = 2.0  # for a client to answer our closing

_PING = b"\x89\x00"
_quiet = logging.getLogger("tigerchat.websocket")
_quiet.setLevel(logging.CRITICAL)


class Owner(Protocol):
    """Who uses the connections. All are called in the loop, one connection at a time."""

    def on_open(self, connection: "Connection") -> None:
        """The handshake is done; `connection.subprotocol` says which encoding."""

    def on_client_message(self, connection: "Connection", data: bytes, is_text: bool) -> None:
        """A whole message."""

    def on_oversize(self, connection: "Connection") -> None:
        """A message is too large; what is written now goes out before the connection ends."""

    def on_blocked(self, connection: "Connection") -> None:
        """More is waiting to be sent than is good; write no more than needed."""

    def on_writable(self, connection: "Connection") -> None:
        """What was waiting has been sent."""

    def on_closed(self, connection: "Connection") -> None:
        """The connection, which was open, is gone."""


def _select(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol:
    for subprotocol in SUBPROTOCOLS:
        if subprotocol in offered:
            return subprotocol
    raise NegotiationError("offer subprotocol tigerchat.v1.json or tigerchat.v1.binary")


class Connection(asyncio.Protocol):
    """One client. States: "head" (first request is read), "open", "closing", "closed"."""

    def __init__(self, server: "WebSocketServer") -> None:
        self.state = "head"
        self.address = ""
        self.subprotocol = ""
        self.user: Any = None  # for the owner
        self._server = server
        self._head = bytearray()
        self._deadline: asyncio.TimerHandle | None = None
        self._protocol: ServerProtocol | None = None
        self._fragments: list[bytes] = []
        self._is_text = False
        self._blocked = self._reading_paused = False
        self._heard = self._probed = True

    # --- the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if not self._server.admit(self):
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=CLIENT_WRITE_HIGH, low=CLIENT_WRITE_LOW)
        self._deadline = asyncio.get_running_loop().call_later(HELLO_MS_MAX / 1000, self._on_late)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self.state == "head":
            self._on_head(data)
        elif self._protocol is not None and self.state != "closed":
            self._protocol.receive_data(data)
            self._advance()

    def eof_received(self) -> bool:
        if self._protocol is not None:
            self._protocol.receive_eof()
        return False

    def pause_writing(self) -> None:
        self._blocked = True
        if self.state == "open":
            self._server.owner.on_blocked(self)

    def resume_writing(self) -> None:
        self._blocked = False
        if self.state == "open":
            self._server.owner.on_writable(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        was, self.state = self.state, "closed"
        if was != "closed":
            self._server.counters["ended_" + was] += 1
        self._server.forget(self)
        if was in ("open", "closing") and self.subprotocol:
            self._server.owner.on_closed(self)

    def _on_late(self) -> None:
        if self.state in ("head", "closing"):
            self._server.counters["closed_late_" + self.state] += 1
            self.transport.abort()

    # --- the first request

    def _on_head(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" not in self._head:
            if len(self._head) > HTTP_HEAD_SIZE_MAX:
                self._server.counters["head_too_large"] += 1
                self.transport.abort()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        head = bytes(self._head)
        self._head.clear()
        if _wants_websocket(head):
            end = head.index(b"\r\n\r\n") + 4
            self._upgrade(head[:end], head[end:])
        else:
            self._hand_over(head)

    def _hand_over(self, head: bytes) -> None:
        """From now on this is somebody else's connection."""
        self.state = "closed"
        self._server.forget(self)
        self._server.counters["http"] += 1
        protocol = self._server.make_http()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(head)

    def _upgrade(self, head: bytes, rest: bytes) -> None:
        """Answer the handshake before anything behind it is parsed: that may be broken."""
        protocol = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            select_subprotocol=_select,
            max_size=CLIENT_FRAME_SIZE_MAX,
            logger=_quiet,
        )
        protocol.receive_data(head)
        events = protocol.events_received()
        if events and isinstance(events[0], Request):
            protocol.send_response(protocol.accept(events[0]))
        self._protocol = protocol
        if protocol.state is not OPEN:
            self._server.counters["handshake_refused"] += 1
            self.state = "closing"
            self._flush()
            self.transport.close()
            return
        self.subprotocol = str(protocol.subprotocol)
        self.state = "open"
        self._flush()
        self._server.owner.on_open(self)
        if rest:
            protocol.receive_data(rest)
        self._advance()

    # --- messages

    def _advance(self) -> None:
        protocol = self._protocol
        assert protocol is not None
        for event in protocol.events_received():
            if self.state == "open":
                self._on_frame(event)
        if isinstance(protocol.parser_exc, PayloadTooBig) and self.state == "open":
            self._server.owner.on_oversize(self)
        self._flush()

    def _on_frame(self, frame: Any) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            self._is_text = opcode is Opcode.TEXT
            if frame.fin:
                self._server.owner.on_client_message(self, bytes(frame.data), self._is_text)
            else:
                self._fragments = [bytes(frame.data)]
        elif opcode is Opcode.CONT:
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                data, self._fragments = b"".join(self._fragments), []
                self._server.owner.on_client_message(self, data, self._is_text)

    def _flush(self) -> None:
        """Send what the library wants to: handshake, pongs, closing."""
        assert self._protocol is not None
        for data in self._protocol.data_to_send():
            if data:
                self.transport.write(data)
            elif not self.transport.is_closing():
                self.transport.close()  # its end of the stream
        if self._protocol.close_expected() and self.state == "open":
            self._expect_end()

    def _expect_end(self) -> None:
        self.state = "closing"
        self._deadline = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._on_late)

    # --- for the owner

    @property
    def blocked(self) -> bool:
        return self._blocked

    def write(self, frames: list[bytes]) -> None:
        """Send whole frames, joined; dropped when the connection is ending."""
        if self.state == "open" and not self.transport.is_closing():
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def read_on(self, wanted: bool) -> None:
        """Stop or go on reading from the client."""
        if wanted == self._reading_paused and not self.transport.is_closing():
            self._reading_paused = not wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def close(self, code: int, reason: str) -> None:
        """Say goodbye; the connection is gone soon, whether the client answers or not."""
        if self.state != "open" or self._protocol is None:
            return
        self._server.counters[f"closed_{code}"] += 1
        self.read_on(True)
        with contextlib.suppress(Exception):
            self._protocol.send_close(code, reason)
        self._flush()
        if self.state == "open":
            self._expect_end()

    def probe(self) -> None:
        """A ping if the client was heard since the last one, else the end; not while blocked."""
        if self.state != "open" or self._blocked or self._reading_paused:
            return
        if not self._heard and not self._probed:
            self._server.counters["closed_silent"] += 1
            self.transport.abort()
            return
        self._probed = self._heard
        self._heard = False
        self.transport.write(_PING)


def _wants_websocket(head: bytes) -> bool:
    lines = head.split(b"\r\n\r\n", 1)[0].split(b"\r\n")
    method, _, rest = lines[0].partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    if method != b"GET" or path != PATH:
        return False
    return any(
        name.strip().lower() == b"upgrade" and b"websocket" in value.lower()
        for name, _, value in (line.partition(b":") for line in lines[1:])
    )


class WebSocketServer:
    """Listens, counts and bounds connections."""

    def __init__(
        self,
        owner: Owner,
        *,
        make_http: Callable[[], asyncio.Protocol],
        connections_max: int,
        connections_per_address_max: int,
        counters: Counter[str],
    ) -> None:
        self.owner, self.make_http, self.counters = owner, make_http, counters
        self._connections: dict[Connection, None] = {}
        self._per_address: Counter[str] = Counter()
        self._max, self._per_address_max = connections_max, connections_per_address_max
        self._server: asyncio.Server | None = None
        self._prober: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None  # once it closes: set when all are gone

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, shared: bool
    ) -> None:
        """Bind, `shared` with other edges of the node; ConfigurationError when that cannot be."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self),
                host,
                port,
                ssl=tls,
                backlog=1024,
                reuse_port=shared,
                ssl_handshake_timeout=HELLO_MS_MAX / 1000 if tls else None,
            )
        except OSError as error:
            raise ConfigurationError(
                f"client_port {port} on {host} cannot be bound ({error.strerror or error}): "
                "stop what uses it, or choose another client_port in site.toml"
            ) from error
        self._probe_all()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def count(self) -> int:
        return len(self._connections)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in, unless there are too many."""
        self.counters["accepted"] += 1
        if len(self._connections) >= self._max:
            self.counters["too_many_connections"] += 1
            return False
        if self._per_address[connection.address] >= self._per_address_max:
            self.counters["too_many_of_address"] += 1
            return False
        self._connections[connection] = None
        self._per_address[connection.address] += 1
        return True

    def forget(self, connection: Connection) -> None:
        if self._connections.pop(connection, self) is None:
            self._per_address[connection.address] -= 1
            if not self._per_address[connection.address]:
                del self._per_address[connection.address]
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    def _probe_all(self) -> None:
        for connection in list(self._connections):
            connection.probe()
        self._prober = asyncio.get_running_loop().call_later(PING_SECONDS, self._probe_all)

    async def close(self, seconds: float = 1.0) -> None:
        """Stop listening; give the connections that long to end."""
        if self._prober is not None:
            self._prober.cancel()
        if self._server is None:
            return
        self._server.close()
        self._emptied = asyncio.Event()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._emptied.wait()
        for connection in list(self._connections):
            connection.transport.abort()
