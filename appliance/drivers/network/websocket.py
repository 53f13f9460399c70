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
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from websockets.exceptions import NegotiationError, PayloadTooBig
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN, Protocol, Side
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
    KIB,
    STRANGER_FRAME_SIZE_MAX,
    TLS_RECORD_SIZE,
    TURN_COST_SIZE,
    TURNED_AWAY_MS_MAX,
)
from appliance.drivers.network.accepting import Listener
from appliance.drivers.network.bearer_token import token_in
from appliance.drivers.network.closings import CLOSE_CODES, HTTP_STATUSES
from appliance.drivers.network.entrance import Entrance, Visitor, address_of
from appliance.drivers.network.http_requests import HEAD_END, only_probe
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.owner import WEBSOCKET, ChatConnection, Owner
from appliance.drivers.network.proxies import FORWARDED_FIELD, NOBODY, Proxies
from appliance.drivers.network.refusal import Refusal, refusal_of
from appliance.drivers.network.refusals import (
    HTTP,
    MALFORMED,
    OTHER_SITE,
    WEBSOCKET_HTTP3,
    WEBSOCKET_TCP,
)
from appliance.drivers.network.turns import Turns
from appliance.formats.client.address import PATH
from appliance.formats.client.frame import SUBPROTOCOLS
from appliance.formats.client_errors import RateLimited

_SUBPROTOCOLS = tuple(map(Subprotocol, SUBPROTOCOLS))
PING_SECONDS = 20.0  # between two pings; silence over two of them ends a connection
AGAIN_MS = 1_000  # until a client of which there are too many may come again
CLOSE_SECONDS = 2.0  # for a client to answer our closing
LAST_FRAMES_MAX = 2000  # that it may send before: what was on the way; passed over in 1 ms

_PING = b"\x89\x00"
_MASK_SIZE = 4
_quiet = logging.getLogger("tigerchat.websocket")
_quiet.setLevel(logging.CRITICAL)


class _Library(ServerProtocol):
    """The sans-I/O library for one connection; a function of ours that it were given to select
    would be bound to it, and keep it for the collector."""

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol:
        for subprotocol in _SUBPROTOCOLS:
            if subprotocol in subprotocols:
                return subprotocol
        raise NegotiationError(f"offer subprotocol {' or '.join(SUBPROTOCOLS)}")


class PlainHttp:
    """The requests of a connection: their number, and the time that each may take. Those of a
    conversation whose client has said who it is are limited in neither."""

    def __init__(self, connection: "Connection", entrance: Entrance) -> None:
        self._connection: Connection | None = connection
        self._entrance = entrance
        self._requests = 0  # answered, of a stranger
        self._conversing = 0  # requests of a conversation that are under way
        self._is_of_guest = False  # the one that will be answered next

    def welcome(self) -> None:
        """As of a `Bearer`."""
        self._conversing += 1
        self._is_of_guest = True
        if self._connection is not None:
            self._connection.end_after(None)
            self._entrance.welcome(self._connection)

    def address_for(self, forwarded: Sequence[str]) -> str:
        return "" if self._connection is None else self._connection.address_for(forwarded)

    def leave(self) -> None:
        self._conversing -= 1
        if self._connection is not None and not self._conversing:
            self._connection.end_after(HTTP_MS_MAX / 1000)

    def on_lost(self) -> None:
        """The connection is gone; requests may be under way that have not heard of it."""
        self._connection = None

    def on_answered(self) -> None:
        """A request was answered."""
        if self._connection is None:
            return
        self._requests += not self._is_of_guest
        self._is_of_guest = False
        if self._requests >= HTTP_REQUESTS_MAX:
            self._connection.finish_http()
        elif not self._conversing:
            self._connection.end_after(HTTP_MS_MAX / 1000)


MakeHttp = Callable[[PlainHttp], asyncio.Protocol]


class Connection(Visitor):
    """One client, as a visitor of the entrance and a reader in turns.

    States: "greeted" (TLS is not done), "head" (first request is read), "http", "open", "closing",
    "closed".
    """

    framing = WEBSOCKET

    def __init__(self, server: "WebSocketServer", address: str) -> None:
        self.state = "greeted"
        self.address = address
        self.transport_name = WEBSOCKET_TCP
        self.subprotocol = ""
        self.user: Any = None  # for the owner
        self.admitted: Any = None  # as whom, by the owner
        self.is_welcome = False
        self.turn, self.is_waiting = 0, False
        self._server = server
        self._inbox = bytearray()  # received, not looked at; in state "head" the request so far
        self._deadline: asyncio.TimerHandle | None = None
        self._protocol: Protocol | None = None
        self._http: asyncio.Protocol | None = None
        self._plain: PlainHttp | None = None  # its requests
        self._message = bytearray()  # the parts of a message so far
        self._is_text = False
        self._blocked = self._reading_paused = False
        self._wanted = True  # the owner takes more
        self._heard = self._probed = True
        self._last_frames = LAST_FRAMES_MAX  # that may come before the client's closing
        self.transport: asyncio.Transport | None = None
        self._on_welcome: Callable[[], None] | None = None  # if it is not a visitor itself

    @classmethod
    def over(
        cls,
        server: "WebSocketServer",
        transport: asyncio.Transport,
        *,
        address: str,
        subprotocol: str,
        admitted: Any,
        on_welcome: Callable[[], None],
    ) -> "Connection":
        """One whose handshake was done elsewhere, on `transport`, by whom the owner has `admitted`;
        `on_welcome` is told when the client has said who it is."""
        made = cls(server, address)
        made.transport_name = WEBSOCKET_HTTP3
        made.transport, made.subprotocol = transport, subprotocol
        made.admitted = admitted
        made._on_welcome = on_welcome
        made._protocol = Protocol(
            Side.SERVER, state=OPEN, max_size=STRANGER_FRAME_SIZE_MAX, logger=_quiet
        )
        made.state = "open"
        server.on_open(made)
        return made

    def end_after(self, seconds: float | None) -> None:
        """Be gone by then, unless it is called again; None: it has time."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None and self.state != "closed":
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._on_late)

    def _on_late(self) -> None:
        assert self.transport is not None
        if self.state in ("head", "http", "closing"):
            self._server.counters["closed_late_" + self.state] += 1
            self.transport.abort()

    def address_for(self, forwarded: Sequence[str]) -> str:
        """For whom a request with these fields X-Forwarded-For counts, which nobody but a known
        proxy is asked for. Raises FieldInvalid."""
        host = self._server.proxies.client_of(forwarded) if self.is_proxy else None
        return self.address if host is None else address_of(host)

    def _attribute(self, forwarded: Sequence[str]) -> None:
        """This connection is one of that client's from now on; of the proxy's own, where that names
        none. Raises InputError."""
        if not self.is_proxy:
            return
        host = self._server.proxies.client_of(forwarded)
        address = self.address if host is None else address_of(host)
        now_s = asyncio.get_running_loop().time()
        if self._server.entrance.attribute(self, address, now_s):
            raise RateLimited(f"too many connections of {address}, or too fast", AGAIN_MS)
        self._server.counters["forwarded"] += host is not None

    def expel(self) -> None:
        """Make room for somebody else."""
        if self.transport is not None:
            self.transport.abort()
        else:
            self._server.listener.dismiss(self)

    # --- the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        assert self.transport is not None
        if self.state != "greeted":  # expelled meanwhile
            self.transport.abort()
            return
        self.state = "head"
        self._server.entrance.advance(self, asyncio.get_running_loop().time())
        self.transport.set_write_buffer_limits(high=CLIENT_WRITE_HIGH, low=CLIENT_WRITE_LOW)
        if hasattr(transport, "set_read_buffer_limits"):  # of TLS: never less than a record
            transport.set_read_buffer_limits(high=2 * TLS_RECORD_SIZE, low=TLS_RECORD_SIZE + KIB)
        self.end_after((HELLO_MS_MAX if self.refusal is None else TURNED_AWAY_MS_MAX) / 1000)

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
        self._server.plain_count -= was == "http"
        self._server.forget(self)
        self._inbox.clear()
        if self._http is not None:
            self._http.connection_lost(error)
            self._http = None  # it holds this one, and the transport with its buffers
        if self._plain is not None:
            self._plain.on_lost()
        if self._protocol is not None:
            self._protocol.parser.close()  # it refers to itself by that
            _let_go(self._protocol)
        if was in ("open", "closing") and self.subprotocol:
            self._server.owner.on_closed(self)

    # --- the first request

    def _on_head(self, data: bytes) -> None:
        assert self.transport is not None
        self._inbox += data
        end = self._inbox.find(HEAD_END, 0, HTTP_HEAD_SIZE_MAX)
        if end < 0:
            if len(self._inbox) > HTTP_HEAD_SIZE_MAX:
                self._server.counters["head_too_large"] += 1
                self.transport.abort()
            return
        head = bytes(self._inbox)
        self._inbox.clear()
        self.comes_by = self.transport_name if _wants_websocket(head) else HTTP
        if self.refusal is not None:
            self._turn_away(self.refusal, head)
        elif self.comes_by != HTTP:
            self._upgrade(head[: end + len(HEAD_END)], head[end + len(HEAD_END) :])
        else:
            self._pass_on(head)

    def _turn_away(self, error: InputError, head: bytes) -> None:
        """Answer the first request and be gone: with the error, unless it is one that a node with
        room for nobody answers as well as any other."""
        assert self.transport is not None
        if probe := only_probe(head):
            self._server.entrance.probed(self)
            self._pass_on(probe)
            return
        told = refusal_of(error, HTTP_STATUSES)
        fields = (*told.fields, ("content-length", str(len(told.text))), ("connection", "close"))
        lines = [f"HTTP/1.1 {told.status} {HTTPStatus(told.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in fields]
        self._expect_end()
        self.transport.write("\r\n".join([*lines, "", told.text]).encode())
        self.transport.close()

    def _pass_on(self, head: bytes) -> None:
        """This is plain HTTP from now on, and stays a stranger's; each request has its time."""
        self.state = "http"
        self._server.counters["http"] += 1
        self._server.plain_count += 1
        self._plain = PlainHttp(self, self._server.entrance)
        self._http = self._server.make_http(self._plain)
        self.end_after((HTTP_MS_MAX if self.refusal is None else TURNED_AWAY_MS_MAX) / 1000)
        self._http.connection_made(self.transport)  # type: ignore[arg-type]
        self._http.data_received(head)

    def finish_http(self) -> None:
        """No further request is answered."""
        assert self.transport is not None
        self.transport.close()

    def _upgrade(self, head: bytes, rest: bytes) -> None:
        """Answer the handshake before anything behind it is parsed: that may be broken."""
        assert self.transport is not None
        protocol = _Library(
            subprotocols=_SUBPROTOCOLS,
            max_size=STRANGER_FRAME_SIZE_MAX,
            logger=_quiet,
        )
        protocol.receive_data(head)
        events = protocol.events_received()
        why = MALFORMED
        if events and isinstance(events[0], Request):
            response, why = self._answer(protocol, events[0])
            protocol.send_response(response)
        self._protocol = protocol
        if protocol.state is not OPEN:
            self._server.on_refused(self.transport_name, why)
            self._expect_end()
            self._flush()
            self.transport.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self.subprotocol = str(protocol.subprotocol)
        self.state = "open"
        self._server.entrance.advance(self, asyncio.get_running_loop().time())
        self._flush()
        self._server.on_open(self)
        if rest:
            self._inbox += rest
            self._server.turns.on_input(self)

    def _answer(self, protocol: ServerProtocol, request: Request) -> tuple[Any, str]:
        """The response to a handshake, and why it is refused, if so: from a page of another site,
        or with a token that is not good."""
        host, origin = (request.headers.get_all(name) for name in ("Host", "Origin"))
        hosts = self._server.hosts
        if (
            len(host) != 1
            or len(origin) > 1
            or not hosts.may_ask(host[0])
            or not hosts.may_connect(origin[0] if origin else None, host[0])
        ):
            self._server.counters["origin_refused"] += 1
            return protocol.reject(HTTPStatus.FORBIDDEN, "not a page of this site\n"), OTHER_SITE
        response = protocol.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return response, MALFORMED
        authorizations, offers = (
            request.headers.get_all(name) for name in ("Authorization", "Sec-WebSocket-Protocol")
        )
        offered = [name.strip() for offer in offers for name in offer.split(",")]
        try:
            self._attribute(request.headers.get_all(FORWARDED_FIELD))
            self.admitted = self._server.admitted(self.address, authorizations, offered)
        except InputError as error:
            return _rejected(protocol, refusal_of(error, HTTP_STATUSES)), error.name
        return response, ""

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
        if raw[0] & 0x0F == Opcode.CLOSE:
            protocol.current_size = None  # it may come amid a message, which is given up then
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
                self._protocol.current_size = None
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
        self.end_after(CLOSE_SECONDS)

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
        if self.held >= HELD_MIN:
            self._server.heavy[self] = None

    def welcome(self) -> None:
        """The client has said who it is: it is no stranger, and may send larger frames."""
        if not self.is_welcome and self._protocol is not None:
            self.is_welcome = True
            self._protocol.max_message_size = CLIENT_FRAME_SIZE_MAX
            if self._on_welcome is None:
                self._server.entrance.welcome(self)
            else:
                self._on_welcome()

    def write(self, frames: list[bytes]) -> None:
        """Send whole frames, joined; dropped when the connection is ending."""
        assert self.transport is not None
        if self._protocol is not None and self._protocol.writes and self._protocol.state is OPEN:
            self._flush()  # pongs: a ping is answered before what came behind it
        if self.state == "open" and not self.transport.is_closing():
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            if len(data) <= CLIENT_WRITE_HIGH:
                self.transport.write(data)
            else:  # TLS keeps room for the largest piece that it was ever given
                for start in range(0, len(data), CLIENT_WRITE_HIGH):
                    self.transport.write(data[start : start + CLIENT_WRITE_HIGH])
            self._note_held()

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


def _let_go(protocol: Protocol) -> None:
    """What the library remembers of an error refers to the library and to us, by its traceback."""
    errors: list[BaseException | None] = [protocol.handshake_exc, protocol.parser_exc]
    while errors:
        error = errors.pop()
        if error is not None:
            error.__traceback__ = None
            errors += [error.__cause__, error.__context__]


def _rejected(protocol: ServerProtocol, refusal: Refusal) -> Any:
    response = protocol.reject(HTTPStatus(refusal.status), refusal.text)
    for name, value in refusal.fields:
        if name in response.headers:  # the library's own
            del response.headers[name]
        response.headers[name] = value
    return response


def _wants_websocket(head: bytes) -> bool:
    lines = head.split(HEAD_END, 1)[0].split(b"\r\n")
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
        proxies: Proxies = NOBODY,
    ) -> None:
        """`make_http` gives the protocol of a plain HTTP connection, which tells of each answer."""
        self.owner, self.make_http, self.hosts, self.counters = owner, make_http, hosts, counters
        self.proxies = proxies
        self.entrance = Entrance(
            visitors_max=connections_max,
            visitors_per_address_max=connections_per_address_max,
            address_rate=address_connect_rate,
            counters=counters,
        )
        self.listener = Listener(self.entrance, lambda address: Connection(self, address), proxies)
        self.turns = Turns()
        self.heavy: dict[ChatConnection, None] = {}  # those that hold much, or did a moment ago
        self.plain_count = 0  # connections of plain HTTP
        self._open: dict[ChatConnection, None] = {}
        self._prober: asyncio.TimerHandle | None = None

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, shared: bool
    ) -> None:
        """Bind, `shared` with other edges of the node; ConfigurationError when that cannot be."""
        await self.listener.open(host, port, tls=tls, shared=shared)
        self._probe_all()

    @property
    def port(self) -> int:
        return self.listener.port

    def count(self) -> int:
        """Connections that are conversations, whatever carries them."""
        return len(self._open)

    def conversations(self) -> list[ChatConnection]:
        """Those connections."""
        return list(self._open)

    def counts(self) -> dict[str, int]:
        """The same, by what carries them; and other connections of TCP that speak HTTP."""
        by_name = Counter(connection.transport_name for connection in self._open)
        return {**by_name, HTTP: self.plain_count}

    def admitted(self, address: str, authorizations: Sequence[str], offered: Iterable[str]) -> Any:
        """As whom the owner admits a client whose handshake has these fields `Authorization`, and
        offers these subprotocols; None: it brings no token yet. Raises InputError."""
        try:
            token = token_in(authorizations, offered)
            return None if token is None else self.owner.admit(address, token)
        except InputError:
            self.counters["token_refused"] += 1
            raise

    def on_open(self, connection: ChatConnection) -> None:
        self._open[connection] = None
        self.owner.on_open(connection)

    def on_refused(self, transport_name: str, why: str) -> None:
        """The handshake of a client that wanted a conversation was refused."""
        self.counters["handshake_refused"] += 1
        self.entrance.refusals.count(transport_name, why)

    def forget(self, connection: ChatConnection) -> None:
        self._open.pop(connection, None)
        self.heavy.pop(connection, None)
        if isinstance(connection, Visitor):
            self.entrance.forget(connection)

    def held(self) -> list[tuple[ChatConnection, int]]:
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
        self.listener.close()
        await self.entrance.emptied(seconds)
        for visitor in [*self.entrance.visitors, *self.entrance.turned_away]:
            visitor.expel()
