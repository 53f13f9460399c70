"""The client port: WebSocket connections, and on the same port plain HTTP for pages and probes.

    first request ──▶ GET /v1 with Upgrade: a WebSocket, parsed by the sans-I/O library
                  └─▶ anything else: plain HTTP, what comes is passed on to its protocol

Messages are handed over whole. What is written comes with its WebSocket head already, so that many
connections share the bytes; the library is asked only for handshake, pongs and closing. Compression
is not offered. Who may come in is said in `entrance`, how much is handled at a time in `turns`.

Frames are found in the input here, and given to the library one by one: it would parse all that
came at once.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from websockets.exceptions import NegotiationError, PayloadTooBig
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from appliance.base.errors import InputError
from appliance.base.limits import (
    CLIENT_FRAME_SIZE_MAX,
    CLIENT_WRITE_HIGH,
    CLIENT_WRITE_LOW,
    HELD_MIN,
    HELLO_MS_MAX,
    HTTP_HEAD_SIZE_MAX,
    HTTP_MS_MAX,
    HTTP_REQUESTS_MAX,
    STRANGER_FRAME_SIZE_MAX,
    TURN_COST_SIZE,
)
from appliance.drivers.network.closings import CLOSE_CODES
from appliance.drivers.network.entrance import Door, Entrance, Visitor
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.turns import Turns
from appliance.formats.client.address import PATH
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON

SUBPROTOCOLS = (Subprotocol(SUBPROTOCOL_BINARY), Subprotocol(SUBPROTOCOL_JSON))
PING_SECONDS = 20.0  # between two pings; silence over two of them ends a connection
CLOSE_SECONDS = 2.0  # for a client to answer our closing
LAST_FRAMES_MAX = 2000  # that it may send before: what was on the way; passed over in 1 ms

_PING = b"\x89\x00"
_MASK_SIZE = 4
_quiet = logging.getLogger("tigerchat.websocket")
_quiet.setLevel(logging.CRITICAL)

MakeHttp = Callable[[Callable[[], None]], asyncio.Protocol]


class Owner(Protocol):
    """Who uses the connections. All are called in the loop, one connection at a time."""

    def on_open(self, connection: "Connection") -> None:
        """The handshake is done; `connection.subprotocol` says which encoding."""

    def on_client_message(self, connection: "Connection", data: bytes, is_text: bool) -> None:
        """A whole message; text is UTF-8."""

    def on_fragment(self, connection: "Connection") -> None:
        """A part of a message, not the last."""

    def on_control(self, connection: "Connection") -> None:
        """A ping, which is answered, or a pong."""

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


class Connection(Visitor):
    """One client, as a visitor of the entrance and a reader in turns.

    States: "greeted" (TLS is not done), "head" (first request is read), "http", "open", "closing",
    "closed".
    """

    def __init__(self, server: "WebSocketServer", address: str) -> None:
        self.state = "greeted"
        self.address = address
        self.subprotocol = ""
        self.user: Any = None  # for the owner
        self.is_welcome = False
        self.turn, self.is_waiting = 0, False
        self._server = server
        self._inbox = bytearray()  # received, not looked at; in state "head" the request so far
        self._deadline: asyncio.TimerHandle | None = None
        self._protocol: ServerProtocol | None = None
        self._http: asyncio.Protocol | None = None
        self._http_requests = 0
        self._message = bytearray()  # the parts of a message so far
        self._is_text = False
        self._blocked = self._reading_paused = False
        self._wanted = True  # the owner takes more
        self._heard = self._probed = True
        self._last_frames = LAST_FRAMES_MAX  # that may come before the client's closing
        self.transport: asyncio.Transport | None = None

    def _end_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._on_late)

    def _on_late(self) -> None:
        assert self.transport is not None
        if self.state in ("head", "http", "closing"):
            self._server.counters["closed_late_" + self.state] += 1
            self.transport.abort()

    def expel(self) -> None:
        """Make room for somebody else."""
        if self.transport is not None:
            self.transport.abort()
        else:
            self._server.door.dismiss(self)

    # --- the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        assert self.transport is not None
        if self.state != "greeted":  # expelled meanwhile
            self.transport.abort()
            return
        self.state = "head"
        self.transport.set_write_buffer_limits(high=CLIENT_WRITE_HIGH, low=CLIENT_WRITE_LOW)
        if hasattr(transport, "set_read_buffer_limits"):  # of TLS: it reads ahead of us
            transport.set_read_buffer_limits(high=HELD_MIN)
        self._end_after(HELLO_MS_MAX / 1000)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self.state == "head":
            self._on_head(data)
        elif self.state == "http":
            assert self._http is not None
            self._http.data_received(data)
        elif self._protocol is not None and self.state != "closed":
            self._inbox += data
            self._server.turns.on_input(self)
            self._note_held()

    def eof_received(self) -> bool:
        if self._http is not None:
            return bool(self._http.eof_received())
        if self._protocol is not None:
            self._protocol.receive_eof()
        return False

    def pause_writing(self) -> None:
        self._blocked = True
        if self._http is not None:
            self._http.pause_writing()
        elif self.state == "open":
            self._server.owner.on_blocked(self)
            self._note_held()

    def resume_writing(self) -> None:
        self._blocked = False
        if self._http is not None:
            self._http.resume_writing()
        elif self.state == "open":
            self._server.owner.on_writable(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        was, self.state = self.state, "closed"
        self._server.counters["ended_" + was] += 1
        self._server.forget(self)
        self._inbox.clear()
        if self._http is not None:
            self._http.connection_lost(error)
        if was in ("open", "closing") and self.subprotocol:
            self._server.owner.on_closed(self)

    # --- the first request

    def _on_head(self, data: bytes) -> None:
        assert self.transport is not None
        self._inbox += data
        end = self._inbox.find(b"\r\n\r\n", 0, HTTP_HEAD_SIZE_MAX)
        if end < 0:
            if len(self._inbox) > HTTP_HEAD_SIZE_MAX:
                self._server.counters["head_too_large"] += 1
                self.transport.abort()
            return
        head = bytes(self._inbox)
        self._inbox.clear()
        if _wants_websocket(head):
            self._upgrade(head[: end + 4], head[end + 4 :])
        else:
            self._pass_on(head)

    def _pass_on(self, head: bytes) -> None:
        """This is plain HTTP from now on, and stays a stranger's; each request has its time."""
        self.state = "http"
        self._server.counters["http"] += 1
        self._http = self._server.make_http(self._on_answered)
        self._end_after(HTTP_MS_MAX / 1000)
        self._http.connection_made(self.transport)  # type: ignore[arg-type]
        self._http.data_received(head)

    def _on_answered(self) -> None:
        """A request was answered."""
        assert self.transport is not None
        self._http_requests += 1
        if self._http_requests >= HTTP_REQUESTS_MAX:
            self.transport.close()
        elif self.state == "http":
            self._end_after(HTTP_MS_MAX / 1000)

    def _upgrade(self, head: bytes, rest: bytes) -> None:
        """Answer the handshake before anything behind it is parsed: that may be broken."""
        assert self.transport is not None
        protocol = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            select_subprotocol=_select,
            max_size=STRANGER_FRAME_SIZE_MAX,
            logger=_quiet,
        )
        protocol.receive_data(head)
        events = protocol.events_received()
        if events and isinstance(events[0], Request):
            protocol.send_response(self._answer(protocol, events[0]))
        self._protocol = protocol
        if protocol.state is not OPEN:
            self._server.counters["handshake_refused"] += 1
            self._expect_end()
            self._flush()
            self.transport.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self.subprotocol = str(protocol.subprotocol)
        self.state = "open"
        self._flush()
        self._server.on_open(self)
        if rest:
            self._inbox += rest
            self._server.turns.on_input(self)

    def _answer(self, protocol: ServerProtocol, request: Request) -> Any:
        """The response to a handshake: one from a page of another site is refused."""
        host, origin = (request.headers.get_all(name) for name in ("Host", "Origin"))
        hosts = self._server.hosts
        if (
            len(host) != 1
            or len(origin) > 1
            or not hosts.may_ask(host[0])
            or not hosts.may_connect(origin[0] if origin else None, host[0])
        ):
            self._server.counters["origin_refused"] += 1
            return protocol.reject(HTTPStatus.FORBIDDEN, "not a page of this site\n")
        return protocol.accept(request)

    # --- input, by turns

    def advance(self, cost_max: int) -> tuple[int, bool]:
        """Handle frames up to that cost: what they cost, and whether there are more."""
        assert self.transport is not None
        cost = start = 0
        if self.transport.is_closing():  # the client is gone: nobody is answered any more
            self._inbox.clear()
            return cost, False
        while cost < cost_max and self._wanted and self.state == "open":
            size = self._frame_size(start)
            if size == 0:
                break
            frame = bytes(memoryview(self._inbox)[start : start + size])
            start += size
            cost += 1 + size // TURN_COST_SIZE
            self._receive(frame)
        self._flush()
        del self._inbox[:start]
        if self.state != "open":
            self._receive_last()
            return cost, False
        if not self.is_welcome and len(self._inbox) > 2 * STRANGER_FRAME_SIZE_MAX:
            self._server.owner.on_oversize(self)
            return cost, False
        return cost, self._wanted and self._frame_size(0) > 0

    def _frame_size(self, start: int) -> int:
        """Bytes of the frame at `start` of the inbox; 0 while it is not whole. One that will be
        refused for what its head says is as long as what came of it."""
        inbox = self._inbox
        came = len(inbox) - start
        if came < 2:
            return 0
        size = inbox[start + 1] & 0x7F
        head = 2
        if size >= 126:
            head = 4 if size == 126 else 10
            if came < head:
                return 0
            size = int.from_bytes(inbox[start + 2 : start + head], "big")
        assert self._protocol is not None
        size_max = self._protocol.max_message_size
        assert size_max is not None
        if size > size_max or not inbox[start + 1] & 0x80:
            return came
        size += head + _MASK_SIZE
        return size if came >= size else 0

    def _receive(self, raw: bytes) -> None:
        protocol = self._protocol
        assert protocol is not None
        protocol.receive_data(raw)
        for event in protocol.events_received():
            if self.state == "open":
                self._on_frame(event)
        if isinstance(protocol.parser_exc, PayloadTooBig) and self.state == "open":
            self._server.owner.on_oversize(self)

    def _receive_last(self) -> None:
        """The connection ends: only the client's own closing is waited for, behind what it had sent
        before. The library would answer all of that."""
        assert self._protocol is not None and self.transport is not None
        start = 0
        while self._last_frames > 0 and (size := self._frame_size(start)) > 0:
            self._last_frames -= 1
            if self._inbox[start] & 0x0F == Opcode.CLOSE:
                self._protocol.receive_data(bytes(memoryview(self._inbox)[start : start + size]))
                self._protocol.events_received()
                self._flush()
            start += size
        del self._inbox[:start]
        if self._last_frames <= 0:
            self._server.counters["closed_flooding"] += 1
            self._inbox.clear()
            self.transport.abort()

    def _on_frame(self, frame: Any) -> None:
        opcode, owner = frame.opcode, self._server.owner
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            self._is_text = opcode is Opcode.TEXT
            if frame.fin:
                self._on_message(bytes(frame.data))
                return
            self._message = bytearray(frame.data)
            owner.on_fragment(self)
        elif opcode is Opcode.CONT:
            self._message += frame.data
            if frame.fin:
                data, self._message = bytes(self._message), bytearray()
                self._on_message(data)
                return
            owner.on_fragment(self)
        elif opcode is not Opcode.CLOSE:
            owner.on_control(self)

    def _on_message(self, data: bytes) -> None:
        if self._is_text and not data.isascii():
            try:
                str(data, "utf-8")
            except UnicodeDecodeError:
                self.close(1007, "text that is not UTF-8")
                return
        self._server.owner.on_client_message(self, data, self._is_text)

    def _flush(self) -> None:
        """Send what the library wants to: handshake, pongs, closing."""
        assert self._protocol is not None and self.transport is not None
        parts = self._protocol.data_to_send()
        data = b"".join(parts)
        if data and not self.transport.is_closing():
            self.transport.write(data)
        if b"" in parts and not self.transport.is_closing():
            self.transport.close()  # its end of the stream
        if self._protocol.close_expected() and self.state == "open":
            self._expect_end()

    def _expect_end(self) -> None:
        self.state = "closing"
        self._end_after(CLOSE_SECONDS)

    def on_turn(self) -> None:
        """It waits for its turn, or does no more: then nothing is read into memory meanwhile."""
        self._update_reading()

    def _update_reading(self) -> None:
        assert self.transport is not None
        paused = (self.is_waiting or not self._wanted) and self.state == "open"
        if paused != self._reading_paused and not self.transport.is_closing():
            self._reading_paused = paused
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # --- for the owner

    @property
    def blocked(self) -> bool:
        return self._blocked

    @property
    def held(self) -> int:
        """Bytes in memory for this connection, in both directions."""
        assert self.transport is not None
        return len(self._inbox) + len(self._message) + self.transport.get_write_buffer_size()

    def _note_held(self) -> None:
        """Whoever holds much is looked at, until it holds less."""
        if self._blocked or len(self._inbox) + len(self._message) >= HELD_MIN:
            self._server.heavy[self] = None

    def welcome(self) -> None:
        """The client has said who it is: it is no stranger, and may send larger frames."""
        if not self.is_welcome and self._protocol is not None:
            self.is_welcome = True
            self._protocol.max_message_size = CLIENT_FRAME_SIZE_MAX
            self._server.entrance.welcome(self)

    def write(self, frames: list[bytes]) -> None:
        """Send whole frames, joined; dropped when the connection is ending."""
        assert self.transport is not None
        if self.state == "open" and not self.transport.is_closing():
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def read_on(self, wanted: bool) -> None:
        """Stop or go on handling and reading what the client sends."""
        if wanted == self._wanted:
            return
        self._wanted = wanted
        if self.state == "open":
            self._update_reading()
            if wanted and self._inbox:
                self._server.turns.on_input(self)

    def end(self, error: InputError) -> None:
        """Close after `error` was answered."""
        self.close(CLOSE_CODES[type(error)], error.name)

    def close(self, code: int, reason: str) -> None:
        """Say goodbye; the connection is gone soon, whether the client answers or not."""
        if self.state != "open" or self._protocol is None:
            return
        self._server.counters[f"closed_{code}"] += 1
        with contextlib.suppress(Exception):
            self._protocol.send_close(code, reason)
        self._flush()
        if self.state == "open":
            self._expect_end()
        self._update_reading()

    def probe(self) -> None:
        """A ping if the client was heard since the last one, else the end; not while blocked, and
        not before its hello, which has a deadline of its own."""
        if self.state != "open" or self._blocked or self._reading_paused or not self.is_welcome:
            return
        assert self.transport is not None
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
    if method != b"GET" or path != PATH.encode():
        return False
    return any(
        name.strip().lower() == b"upgrade" and b"websocket" in value.lower()
        for name, _, value in (line.partition(b":") for line in lines[1:])
    )


class WebSocketServer:
    """All connections of the port."""

    def __init__(
        self,
        owner: Owner,
        *,
        make_http: MakeHttp,
        hosts: Hosts,
        connections_max: int,
        connections_per_address_max: int,
        address_connect_rate: int,
        counters: Counter[str],
    ) -> None:
        """`make_http` gives the protocol of a plain HTTP connection; it calls back after each
        answer."""
        self.owner, self.make_http, self.hosts, self.counters = owner, make_http, hosts, counters
        self.entrance = Entrance(
            visitors_max=connections_max,
            visitors_per_address_max=connections_per_address_max,
            address_rate=address_connect_rate,
            counters=counters,
        )
        self.door = Door(self.entrance, lambda address: Connection(self, address))
        self.turns = Turns()
        self.heavy: dict[Connection, None] = {}  # those that hold much, or did a moment ago
        self._open: dict[Connection, None] = {}
        self._prober: asyncio.TimerHandle | None = None

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, shared: bool
    ) -> None:
        """Bind, `shared` with other edges of the node; ConfigurationError when that cannot be."""
        await self.door.open(host, port, tls=tls, shared=shared)
        self._probe_all()

    @property
    def port(self) -> int:
        return self.door.port

    def count(self) -> int:
        """WebSocket connections."""
        return len(self._open)

    def on_open(self, connection: Connection) -> None:
        self._open[connection] = None
        self.owner.on_open(connection)

    def forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self.heavy.pop(connection, None)
        self.entrance.forget(connection)

    def held(self) -> list[tuple[Connection, int]]:
        """Connections that hold much, and how much; the others are looked at no more."""
        rows = [(connection, connection.held) for connection in self.heavy]
        self.heavy = {connection: None for connection, size in rows if size >= HELD_MIN}
        return [(connection, size) for connection, size in rows if size >= HELD_MIN]

    def _probe_all(self) -> None:
        for connection in list(self._open):
            connection.probe()
        self._prober = asyncio.get_running_loop().call_later(PING_SECONDS, self._probe_all)

    async def close(self, seconds: float = 1.0) -> None:
        """Stop listening; give the connections that long to end."""
        if self._prober is not None:
            self._prober.cancel()
        self.door.close()
        await self.entrance.emptied(seconds)
        for visitor in list(self.entrance.visitors):
            visitor.expel()
