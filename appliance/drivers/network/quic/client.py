"""One QUIC connection of a client: a visitor of the entrance, with HTTP/3 in its streams.

    handshake ──▶ requests: each answered by the application, the connection stays a stranger's
              └─▶ sessions: once one has said who it is, the connection is a guest's

A stranger has so much time for its handshake and first request, and then for each further one.
"""

import asyncio
import logging
from collections.abc import Sequence

from aioquic.buffer import encode_uint_var
from aioquic.h3.events import (
    DatagramReceived,
    DataReceived,
    H3Event,
    HeadersReceived,
    WebTransportStreamDataReceived,
)
from aioquic.quic import events as quic_events

from appliance.base.library_faults import described
from appliance.base.limits import HELLO_MS_MAX, HTTP_MS_MAX, HTTP_REQUESTS_MAX, QUIC_WRITE_MAX
from appliance.drivers.network.entrance import Visitor
from appliance.drivers.network.quic.exchange import Exchange
from appliance.drivers.network.quic.request import Request, parse_request
from appliance.drivers.network.quic.sessions import open_session
from appliance.drivers.network.quic.sockets import Peer, Source, UdpSocket
from appliance.drivers.network.quic.streams import ClientPort, StreamUser
from appliance.drivers.network.quic.webtransport import Session
from appliance.drivers.network.refusals import QUIC
from appliance.drivers.quic.library import (
    FAULTS,
    BoundedConnection,
    BoundedHttp3,
    Http3Code,
)

_log = logging.getLogger("tigerchat.quic")
_ONE_WAY = 2  # bit of a stream's number
_CANCELLED_SPARE = 100  # requests that a client may give up before it is asked how many it means


class Client(Visitor):
    """See above. `users` are the streams that are in use."""

    comes_by = QUIC

    def __init__(self, port: ClientPort, quic: BoundedConnection, address: str) -> None:
        self.address = address
        self.quic = quic
        self.initial_id = b""
        self.known_ids: set[bytes] = set(quic.ids)
        self.users: dict[int, StreamUser] = {}
        self.http: BoundedHttp3 | None = None
        self._port = port
        self._peer: Peer = ()
        self._source: Source = []
        self._socket: UdpSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0  # of it: uvloop's handle has no `when` if it is due at once
        self._deadline: asyncio.TimerHandle | None = None
        self._guests = 0  # sessions that have said who they are
        self._requests = self._cancelled = 0
        self._requests_of_guests = 0
        self._next_stream_id = 0  # of the first request that has not come
        self._is_draining = False

    # --- life

    def begin(self) -> None:
        """It was admitted."""
        self._end_after(HELLO_MS_MAX / 1000)

    def expel(self) -> None:
        """Make room for somebody else."""
        self.close(Http3Code.H3_EXCESSIVE_LOAD, "make room")
        self.flush()
        self._port.forget(self)

    def close(self, code: int = Http3Code.H3_NO_ERROR, reason: str = "") -> None:
        """End the connection, with a code of HTTP/3."""
        self.quic.close(error_code=code, reason_phrase=reason)
        self.wake()

    def drain(self) -> None:
        """Say that nothing new will be answered."""
        if self.http is not None and not self._is_draining:
            self.http.send_goaway(self._next_stream_id)
            self.wake()
        self._is_draining = True

    def on_forgotten(self) -> None:
        """The port has dropped it."""
        for handle in (self._timer, self._deadline):
            if handle is not None:
                handle.cancel()
        users, self.users = self.users, {}
        for stream_id, user in users.items():
            self.quic.release_all(stream_id)
            user.on_gone()
        self.quic.let_go()

    def welcome(self) -> None:
        """A session, or who makes a request, has said who it is: this is no stranger any more."""
        self._guests += 1
        self._requests_of_guests += 1
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._port.entrance.welcome(self)

    def address_for(self, forwarded: Sequence[str]) -> str:
        """No proxy is known by QUIC: what a request says of another client is not heard."""
        return self.address

    def leave(self) -> None:
        """Such a session or request has ended."""
        self._guests -= 1
        if not self._guests:
            self._end_after(HTTP_MS_MAX / 1000)

    def probe(self) -> None:
        """Have it show that it lives, if it has a session."""
        if self._guests:
            self.quic.send_ping(0)
            self.wake()

    def _end_after(self, seconds: float) -> None:
        if not self._port.is_known(self):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._on_late)

    def _on_late(self) -> None:
        self._port.counters["quic_closed_late"] += 1
        self._deadline = None
        self.close()

    # --- datagrams

    def receive(self, data: bytes, peer: Peer, source: Source, sock: UdpSocket) -> None:
        """A datagram that bears one of its identifiers."""
        self._peer, self._source, self._socket = peer, source, sock
        now_s = asyncio.get_running_loop().time()
        try:
            self.quic.receive_datagram(data, peer, now=now_s)
        except FAULTS as error:
            self._on_fault(error)
            return
        self._drain_events()
        for user in list(self.users.values()):
            user.on_progress()
        self.wake()

    def wake(self) -> None:
        """Something is to be sent, unless it is forgotten: then nobody sends it."""
        if self._port.is_known(self):
            self._port.wake(self)

    def flush(self) -> None:
        """Send what is due, and look again when more is."""
        if not self._port.is_known(self):
            return
        now_s = asyncio.get_running_loop().time()
        assert self._socket is not None
        try:
            due = self.quic.datagrams_to_send(now=now_s)
        except FAULTS as error:
            self._on_fault(error)
            return
        for data, peer in due:
            if not self._socket.send(data, peer, self._source):
                is_try = len(data) > self.quic.datagram_size
                self._port.counters["quic_too_large" if is_try else "quic_send_failed"] += 1
        self._drain_events()
        self._arm()

    def _arm(self) -> None:
        if not self._port.is_known(self):
            return
        due = self.quic.get_timer()
        if due is None:
            return
        if self._timer is not None:
            if self._timer_due_s <= due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._on_timer)
        self._timer_due_s = due

    def _on_timer(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        due = self.quic.get_timer()
        if due is not None and due <= now_s:
            try:
                self.quic.handle_timer(now=now_s)
            except FAULTS as error:
                self._on_fault(error)
                return
        self.flush()

    def _on_fault(self, error: Exception) -> None:
        """What this client sent has led the library into an error that it lets out: it is no more
        than this connection's end. There is nobody left to say goodbye."""
        self._port.counters["quic_library_failed"] += 1
        _log.warning("the library of QUIC failed: %s", described(error))
        self._port.forget(self)

    # --- what the connection says

    def _drain_events(self) -> None:
        while self._port.is_known(self) and (event := self.quic.next_event()) is not None:
            self._on_event(event)

    def _on_event(self, event: quic_events.QuicEvent) -> None:
        if isinstance(event, quic_events.ConnectionIdIssued):
            self.known_ids.add(event.connection_id)
            self._port.learn(self, event.connection_id)
        elif isinstance(event, quic_events.ConnectionIdRetired):
            self.known_ids.discard(event.connection_id)
            self._port.unlearn(event.connection_id)
        elif isinstance(event, quic_events.ProtocolNegotiated):
            try:
                self.http = BoundedHttp3(self.quic)
            except FAULTS as error:
                self._on_fault(error)
        elif isinstance(event, quic_events.ConnectionTerminated):
            self._port.counters[f"quic_ended_{event.error_code:#x}"[:24]] += 1
            self._port.forget(self)
        elif self.http is not None:
            try:
                told = self.http.handle_event(event)
            except FAULTS as error:
                self._on_fault(error)
                return
            for found in told:
                self._on_http(found)
            for stream_id in self.http.take_malformed():
                self._on_malformed(stream_id)
            if isinstance(event, quic_events.StreamReset | quic_events.StopSendingReceived):
                self._on_given_up(event.stream_id)

    def _on_http(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            if event.stream_id not in self.users:
                self._on_request(event)
            elif event.stream_ended:  # trailers
                self.users[event.stream_id].on_data(b"", True)
        elif isinstance(event, DataReceived):
            user = self.users.get(event.stream_id)
            if user is not None:
                user.on_data(event.data, event.stream_ended)
        elif isinstance(event, WebTransportStreamDataReceived):
            self._on_webtransport(event)
        elif isinstance(event, DatagramReceived):
            self._port.counters["quic_datagrams"] += 1
            session = self.users.get(event.stream_id)
            if isinstance(session, Session):
                session.on_datagram(event.data)

    def _on_webtransport(self, event: WebTransportStreamDataReceived) -> None:
        session = self.users.get(event.session_id)
        if isinstance(session, Session) and not event.stream_id & _ONE_WAY:
            session.on_stream(event.stream_id, event.data, event.stream_ended)
        else:
            self.reset(event.stream_id, Http3Code.H3_STREAM_CREATION_ERROR)

    def _on_request(self, event: HeadersReceived) -> None:
        stream_id = event.stream_id
        if self._is_draining and stream_id >= self._next_stream_id:
            self.reset(stream_id, Http3Code.H3_REQUEST_REJECTED)
            return
        self._next_stream_id = max(self._next_stream_id, stream_id + 4)
        request = parse_request(event.headers)
        if request is None:
            self._on_malformed(stream_id)
            return
        self._requests += 1
        self._port.counters["http3"] += 1
        self._serve(stream_id, request, event.stream_ended)

    def _serve(self, stream_id: int, request: Request, ended: bool) -> None:
        if request.method == "CONNECT":
            assert self.http is not None
            speaks = self.http.speaks_webtransport
            open_session(self, stream_id, request, self._port.services, speaks)
            return
        exchange = Exchange(self, stream_id, request, self._peer)
        self.users[stream_id] = exchange
        if ended:
            exchange.on_data(b"", True)
        exchange.start(self._port.services.app)

    def _on_malformed(self, stream_id: int) -> None:
        """The request is none, which may show when it was begun already."""
        self._port.counters["quic_request_malformed"] += 1
        user = self.users.pop(stream_id, None)
        if user is not None:
            user.on_gone()
        self.reset(stream_id, Http3Code.H3_MESSAGE_ERROR)

    def _on_given_up(self, stream_id: int) -> None:
        """The client has reset the stream, or wants no answer."""
        user = self.users.pop(stream_id, None)
        if user is None:
            return
        self._cancelled += 1
        self.quic.release_all(stream_id)
        user.on_gone()
        self.reset(stream_id, Http3Code.H3_REQUEST_CANCELLED)
        if self._cancelled > _CANCELLED_SPARE and 2 * self._cancelled > self._requests:
            self._port.counters["quic_closed_cancelling"] += 1
            self.close(Http3Code.H3_EXCESSIVE_LOAD, "most requests are given up")

    # --- for users of streams

    @property
    def is_full(self) -> bool:
        """Whether too much waits on this connection to write more."""
        return self.quic.held > QUIC_WRITE_MAX

    def send_headers(
        self, stream_id: int, headers: list[tuple[bytes, bytes]], *, ended: bool = False
    ) -> None:
        assert self.http is not None
        if self.quic.is_writable(stream_id):
            self.http.send_headers(stream_id, headers, end_stream=ended)
            self.wake()

    def send_data(self, stream_id: int, data: bytes, *, ended: bool = False) -> None:
        assert self.http is not None
        if self.quic.is_writable(stream_id) and (data or ended):
            self.http.send_data(stream_id, data, end_stream=ended)
            self.wake()

    def send_raw(self, stream_id: int, data: bytes, *, ended: bool = False) -> None:
        if self.quic.is_writable(stream_id):
            self.quic.send_stream_data(stream_id, data, ended)
            self.wake()

    def send_capsule(self, stream_id: int, kind: int, value: bytes) -> None:
        capsule = encode_uint_var(kind) + encode_uint_var(len(value)) + value
        self.send_data(stream_id, capsule, ended=True)

    def refuse(
        self,
        stream_id: int,
        status: int,
        text: str = "",
        fields: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Answer a request with a status, fields and a text, and be done with it."""
        body = text.encode()
        headers = [(b":status", str(status).encode()), (b"content-length", b"%d" % len(body))]
        headers += [(name.encode(), value.encode()) for name, value in fields]
        self.send_headers(stream_id, headers, ended=not body)
        if body:
            self.send_data(stream_id, body, ended=True)
        self.finish(stream_id)

    def finish(self, stream_id: int) -> None:
        """The answer is complete: what the client still sends on this stream is not read."""
        self.users.pop(stream_id, None)
        self.quic.release_all(stream_id)
        if self.quic.is_readable(stream_id):
            self.quic.stop_stream(stream_id, Http3Code.H3_NO_ERROR)
        if not self._guests:
            self._end_after(HTTP_MS_MAX / 1000)
        strange = self._requests - self._requests_of_guests
        if strange >= HTTP_REQUESTS_MAX and not self._guests:
            self.drain()
        self.wake()

    def reset(self, stream_id: int, code: int) -> None:
        """Break a stream off, in both directions."""
        self.users.pop(stream_id, None)
        self.quic.release_all(stream_id)
        if self.quic.is_writable(stream_id):
            self.quic.reset_stream(stream_id, code)
        if self.quic.is_readable(stream_id):
            self.quic.stop_stream(stream_id, code)
        self.wake()
