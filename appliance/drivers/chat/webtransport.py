"""A conversation by WebTransport: one QUIC connection, one session, one stream of frames behind
their sizes.

    TCP ──▶ whose key is it? ──▶ QUIC, the same key ──▶ CONNECT ──▶ the stream

The node's certificate is judged as for every other way, by TCP; QUIC must then show the same key,
in whatever certificate: it is of another one every week.

A process that is killed closes nothing here. So while there may be answers to wait for, silence is
broken by probes: a machine that has nobody at that port says so at once, and an edge that was
started again says that it knows of nothing.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from appliance.base.errors import ConfigurationError
from appliance.base.library_faults import described
from appliance.base.limits import MIB
from appliance.drivers.chat.carrier import OnData
from appliance.drivers.chat.connection import FRAME_SIZE_MAX, THROWN_OUT
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import ConnectionLost, ThrownOut, TurnedAway
from appliance.drivers.chat.refusal import refusal_in
from appliance.drivers.quic.library import FAULTS, BoundedConnection
from appliance.formats.client.address import PATH
from appliance.formats.client.stream import SIZE_SIZE, framed, size_at

Value = TypeVar("Value")
_DATAGRAM_SIZE_MAX = 65_536  # that we take; WebTransport asks for datagrams to be allowed
_HELD_MAX = 4 * MIB  # bytes of frames that wait while nobody reads; then datagrams are not taken
_IDLE_S = 45.0
_ID_SIZE, _RESET_TOKEN_SIZE = 8, 16  # bytes
_PROBE_S = 0.5  # of silence, and between two probes
_PROBED_S = 10.0  # so long after the last frame that was sent
_CLOSE_SESSION = b"\x68\x43"  # the type of the capsule that ends a session
_CODE_AT, _REASON_AT = 3, 7  # behind type and length
_REFUSAL_SIZE_MAX = 64 * 1024


class Connection(asyncio.DatagramProtocol):
    """A `Carrier`."""

    def __init__(
        self, endpoint: Endpoint, subprotocol: str, on_data: OnData, expected: bytes
    ) -> None:
        """`expected` is the public key that QUIC must show (SPKI, DER)."""
        loop = asyncio.get_running_loop()
        self.endpoint = endpoint
        self.lost: asyncio.Future[str] = loop.create_future()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._path = f"{PATH}/{subprotocol}"
        self._on_data, self._expected, self._loop = on_data, expected, loop
        self._quic = BoundedConnection(
            configuration=QuicConfiguration(
                is_client=True,
                alpn_protocols=H3_ALPN,
                verify_mode=ssl.CERT_NONE,  # its key is compared instead
                server_name=endpoint.host,
                idle_timeout=_IDLE_S,
                max_datagram_frame_size=_DATAGRAM_SIZE_MAX,
            ),
            new_id=lambda: os.urandom(_ID_SIZE),
            reset_token=lambda _: os.urandom(_RESET_TOKEN_SIZE),
        )
        self._http: H3Connection | None = None
        self._session_id = self._stream_id = -1
        self._status = 0  # of the answer to CONNECT
        self._told = bytearray()  # of the stream of CONNECT
        self._inbox = bytearray()
        self._is_paused = self._is_woken = False
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._prober: asyncio.TimerHandle | None = None
        self._heard_s = self._sent_s = 0.0  # loop times of the newest datagram, and frame
        self._peer: Any = None

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no subclass
        self._peer = transport.get_extra_info("peername")
        self._quic.connect(self._peer, now=self._loop.time())
        self._transmit()

    def datagram_received(self, data: bytes, _: Any) -> None:
        if self._is_paused and len(self._inbox) > _HELD_MAX:
            return
        self._heard_s = now_s = self._loop.time()
        self._library(lambda: self._quic.receive_datagram(data, self._peer, now=now_s))
        self._on_events()
        if not self._is_woken:  # once for all that are read in this turn of the loop
            self._is_woken = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._is_woken = False
        self._transmit()

    def error_received(self, error: Exception) -> None:
        """Nobody listens there any more, as the network says."""
        self._end(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error or "closed"))

    def _on_timer(self) -> None:
        self._timer = None
        self._library(lambda: self._quic.handle_timer(now=self._loop.time()))
        self._on_events()
        self._transmit()

    def _probe(self) -> None:
        """Again and again while answers may be due."""
        self._prober = None
        now_s = self._loop.time()
        if self.lost.done() or now_s - self._sent_s > _PROBED_S:
            return
        if now_s - self._heard_s >= _PROBE_S:
            self._library(lambda: self._quic.send_ping(0))
            self._transmit()
        self._prober = self._loop.call_later(_PROBE_S, self._probe)

    def _transmit(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        now_s = self._loop.time()
        for data, _ in self._library(lambda: self._quic.datagrams_to_send(now=now_s)) or ():
            self._transport.sendto(data)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._quic.get_timer()
        if due is not None and not self.lost.done():
            self._timer = self._loop.call_at(due, self._on_timer)

    def _library(self, call: Callable[[], Value]) -> Value | None:
        """What the library lets out of a call is the end of this connection, and of nothing
        else."""
        try:
            return call()
        except FAULTS as error:
            self._end(f"the library of QUIC failed: {described(error)}")
            return None

    # --- what comes

    def _on_events(self) -> None:
        while (event := self._quic.next_event()) is not None:
            if isinstance(event, quic_events.ConnectionTerminated):
                self._end(event.reason_phrase or f"closed: {event.error_code:#x}")
            elif isinstance(event, quic_events.HandshakeCompleted):
                self._on_handshake()
            elif isinstance(event, quic_events.ProtocolNegotiated):
                self._http = H3Connection(self._quic, enable_webtransport=True)
            elif isinstance(event, quic_events.StreamDataReceived) and (
                event.stream_id == self._stream_id
            ):
                self._inbox += event.data  # no frames of HTTP/3
                self._cut()
            elif self._http is not None:
                self._on_http_event(self._http, event)

    def _on_http_event(self, http: H3Connection, event: quic_events.QuicEvent) -> None:
        for found in self._library(lambda: http.handle_event(event)) or ():
            self._on_http(found)
        self._ask()

    def _on_handshake(self) -> None:
        shown = self._quic.peer_certificate
        if shown is None or _key_of(shown) != self._expected:
            self._end("QUIC shows another key there than TCP: is it another node?")
            self._quic.close(reason_phrase="another key")

    def _ask(self) -> None:
        """For the session, once it is known that there are any."""
        http = self._http
        if self._session_id >= 0 or http is None or not http.received_settings:
            return
        host = self.endpoint.url.partition("://")[2].removesuffix(PATH)
        self._session_id = self._quic.get_next_available_stream_id()
        fields = {
            ":method": "CONNECT",
            ":protocol": "webtransport",
            ":scheme": "https",
            ":authority": host,
            ":path": self._path,
            "sec-webtransport-http3-draft02": "1",
        }
        raw = [(name.encode(), value.encode()) for name, value in fields.items()]
        http.send_headers(self._session_id, raw)

    def _on_http(self, event: H3Event) -> None:
        if not isinstance(event, HeadersReceived | DataReceived):
            return
        if event.stream_id != self._session_id:
            return
        if isinstance(event, HeadersReceived):
            self._status = int(dict(event.headers).get(b":status", b"0"))
            if self._status == 200 and not self.ready.done():
                assert self._http is not None
                self._stream_id = self._http.create_webtransport_stream(self._session_id)
                self.ready.set_result(None)
        elif len(self._told) < _REFUSAL_SIZE_MAX:
            self._told += event.data
        if event.stream_ended:
            self._on_ended()

    def _on_ended(self) -> None:
        """The session is over, or was refused."""
        told = bytes(self._told)
        if self._status == 200:
            if told.startswith(_CLOSE_SESSION):
                code, reason = (
                    int.from_bytes(told[_CODE_AT:_REASON_AT], "big"),
                    told[_REASON_AT:].decode(errors="replace"),
                )
                self._end(f"closed by the node: {code} {reason}")
            self._end("closed by the node")
            return
        answer = refusal_in(told)
        if answer is not None and answer.temporary and not self.ready.done():
            self.ready.set_exception(TurnedAway(answer))
        self._end(f"refused: HTTP {self._status} {told[:200].decode(errors='replace').strip()}")

    def _cut(self) -> None:
        while not self._is_paused and not self.lost.done():
            size = size_at(self._inbox, 0)
            if size > FRAME_SIZE_MAX:
                self._end(f"a frame of {size} bytes")
                self.abort()
            if size < 0 or len(self._inbox) - SIZE_SIZE < size:
                return
            frame = bytes(memoryview(self._inbox)[SIZE_SIZE : SIZE_SIZE + size])
            del self._inbox[: SIZE_SIZE + size]
            self._on_data(frame)

    def _end(self, reason: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionLost(f"{self.endpoint.url}, by QUIC: {reason}"))
        if not self.lost.done():
            self.lost.set_result(reason)
        for handle in (self._timer, self._prober):
            if handle is not None:
                handle.cancel()
        self._timer = self._prober = None
        if self._transport is not None:
            self._transport.close()

    # --- the client's side

    def send(self, data: bytes) -> None:
        if self._stream_id >= 0 and not self.lost.done():
            self._sent_s = self._loop.time()
            self._quic.send_stream_data(self._stream_id, framed(data))
            self._transmit()
            if self._prober is None:
                self._prober = self._loop.call_later(_PROBE_S, self._probe)

    def pause(self) -> None:
        self._is_paused = True

    @property
    def paused(self) -> bool:
        return self._is_paused

    def resume(self) -> None:
        self._is_paused = False
        self._cut()

    def abort(self) -> None:
        self._quic.close(reason_phrase="")
        self._transmit()
        self._end("closed")

    async def close(self, timeout_s: float = 1.0) -> None:
        if self._stream_id >= 0 and not self.lost.done():
            self._quic.send_stream_data(self._stream_id, b"", end_stream=True)
            self._transmit()
            await asyncio.wait([self.lost], timeout=timeout_s)
        self.abort()


def _key_of(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


async def _proved(endpoint: Endpoint) -> tuple[bytes, Any]:
    """The public key of whoever is at `endpoint`, whom its TLS trusts, and the address. OSError
    when it does not, or nobody is."""
    _, writer = await asyncio.open_connection(
        endpoint.host, endpoint.port, ssl=endpoint.tls, server_hostname=endpoint.host
    )
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    address = writer.get_extra_info("peername")[:2]
    writer.transport.abort()
    return _key_of(x509.load_der_x509_certificate(shown)), address


async def dial(
    endpoint: Endpoint, subprotocol: str, on_data: OnData, timeout_s: float
) -> Connection:
    """A connection on which frames may be sent. Raises ConnectionLost; ConfigurationError where
    there can be none."""
    if endpoint.tls is None:
        raise ConfigurationError(
            f"{endpoint.url}: QUIC is there only where clients speak TLS: use another transport"
        )
    loop, connection = asyncio.get_running_loop(), None
    try:
        async with asyncio.timeout(timeout_s):
            key, address = await _proved(endpoint)
            made = connection = Connection(endpoint, subprotocol, on_data, key)
            await loop.create_datagram_endpoint(lambda: made, remote_addr=address)
            await made.ready
    except TimeoutError:
        _give_up(connection)
        reason = (
            f"{endpoint.url}: no answer by QUIC in {timeout_s:g} s: is its UDP port let through?"
        )
        raise ConnectionLost(reason) from None
    except OSError as error:  # ssl.SSLError among them
        _give_up(connection)
        kind = ThrownOut if isinstance(error, THROWN_OUT) else ConnectionLost
        raise kind(f"{endpoint.url}: {error}") from None
    except ConnectionLost:
        _give_up(connection)
        raise
    return made


def _give_up(connection: Connection | None) -> None:
    if connection is None:
        return
    connection.abort()
    if connection.ready.done() and not connection.ready.cancelled():
        connection.ready.exception()  # it was told, or is told now
