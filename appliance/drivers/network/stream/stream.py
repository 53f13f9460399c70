"""One stream: bytes to a codec, bytes from it, and the deadlines of both directions."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from appliance.base.errors import PacketRefused
from appliance.base.limits import MIB, STREAM_WAITING_MAX
from appliance.drivers.network.tls import spki_digest

_TICK_S = 0.5  # how often deadlines are looked at
_PLAIN = "plain"  # the name of whoever is at the other end of a stream without TLS


@dataclass(frozen=True)
class Bounds:
    """Of each stream of one kind."""

    waiting_max: int = STREAM_WAITING_MAX  # bytes
    silence_ms_max: int = 60_000  # since the peer's last byte
    stall_ms_max: int = 30_000  # while something waits and nothing leaves


BOUNDS = Bounds()


class Codec(Protocol):
    """What speaks on one stream."""

    def on_bytes(self, data: bytes) -> None:
        """The next bytes of the peer. PacketRefused closes the stream with its reason."""

    def on_writable(self) -> None:
        """Less than half of what may wait is waiting."""

    def on_closed(self, reason: str) -> None:
        """The stream is gone; nothing is called after this."""


class Stream(asyncio.Protocol):
    """One connection. A codec exists from the moment the peer is known until `on_closed`."""

    def __init__(
        self,
        make_codec: "MakeCodec",
        pins: dict[bytes, str] | None,
        bounds: Bounds,
        counters: Counter[str],
        on_gone: Callable[["Stream"], None],
    ) -> None:
        self.peer, self.reason = "", ""
        self.bytes_in = self.bytes_out = 0
        self._make_codec, self._pins, self._bounds = make_codec, pins, bounds
        self._counters, self._on_gone = counters, on_gone
        self._codec: Codec | None = None
        self._open = self._full = False
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0  # bytes that had left at the last look
        self._heard_at = self._left_at = 0.0

    # --- for the codec

    @property
    def waiting(self) -> int:
        """Bytes that were sent and have not left."""
        return int(self._transport.get_write_buffer_size()) if self._open else 0

    @property
    def protocol(self) -> str:
        """What both ends agreed to speak (ALPN); empty for the one protocol of the port."""
        tls = self._transport.get_extra_info("ssl_object") if self._open else None
        return (tls.selected_alpn_protocol() or "") if tls is not None else ""

    def send(self, data: bytes) -> bool:
        """Send all of it, in order. False when the stream is closed, or closes by too much."""
        if not self._open or self.reason:
            return False
        if self.waiting + len(data) > self._bounds.waiting_max:
            self.abort("overflow")
            return False
        self.bytes_out += len(data)
        self._transport.write(data)
        self._full = self._full or self.waiting > self._bounds.waiting_max // 2
        return True

    def pause_reading(self) -> None:
        """Let the peer wait. Its silence is not held against it meanwhile."""
        if self._open and not self.reason:
            self._transport.pause_reading()
            self._heard_at = float("inf")

    def resume_reading(self) -> None:
        if self._open and not self.reason:
            self._transport.resume_reading()
            self._heard_at = asyncio.get_running_loop().time()

    def close(self, reason: str) -> None:
        """Close once what was sent has left, or at the latest when it stalls."""
        if not self.reason:
            self.reason = reason
            if self._open:
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Close now; what waits is lost."""
        self.reason = self.reason or reason
        if self._open:
            self._transport.abort()

    # --- the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._open = True
        tune(transport)
        transport.set_write_buffer_limits(high=MIB)  # type: ignore[attr-defined]
        self.peer = self._identify()
        codec = self._make_codec(self) if self.peer else None
        if codec is None:
            self.abort("refused" if self.peer else "pin")
            return
        self._codec = codec
        loop = asyncio.get_running_loop()
        self._heard_at = self._left_at = loop.time()
        self._timer = loop.call_later(_TICK_S, self._poll)

    def _identify(self) -> str:
        """The name of the peer's owner; empty for a stranger."""
        if self._pins is None:
            return _PLAIN
        tls = self._transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        try:
            return self._pins.get(spki_digest(certificate), "") if certificate is not None else ""
        except ssl.SSLError:  # no key that can be read
            return ""

    def data_received(self, data: bytes) -> None:
        if self.reason or self._codec is None:
            return
        self.bytes_in += len(data)
        if self._heard_at != float("inf"):
            self._heard_at = asyncio.get_running_loop().time()
        try:
            self._codec.on_bytes(data)
        except PacketRefused as refusal:
            self._counters["refused_" + refusal.reason] += 1
            self.close(refusal.reason)

    def resume_writing(self) -> None:
        self._tell_writable()

    def eof_received(self) -> bool:
        self.reason = self.reason or "peer_closed"
        return False  # the transport closes itself

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._open = False
        self.reason = self.reason or ("lost" if error is not None else "closed")
        self._counters["closed_" + self.reason] += 1
        codec, self._codec = self._codec, None
        if codec is not None:
            codec.on_closed(self.reason)
        self._on_gone(self)

    def cut_short(self) -> None:
        """Whoever made its transport has given up, which closes that without a word to us: where
        it had been told of already, its end is told here."""
        if self._open:
            self.reason = self.reason or "handshake_timeout"
            self.connection_lost(None)

    # --- deadlines

    def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        waiting = self.waiting
        left = self.bytes_out - waiting
        if left > self._left or not waiting:
            self._left, self._left_at = left, now
        if now - self._left_at > self._bounds.stall_ms_max / 1000:
            self.abort("stalled")
        elif now - self._heard_at > self._bounds.silence_ms_max / 1000:
            self.abort("silent")
        else:
            self._tell_writable()
            self._timer = loop.call_later(_TICK_S, self._poll)

    def _tell_writable(self) -> None:
        if self._full and self._codec is not None and not self.reason:
            if self.waiting <= self._bounds.waiting_max // 2:
                self._full = False
                self._codec.on_writable()


# Makes the codec of a stream whose peer is known; None turns it away.
MakeCodec = Callable[[Stream], Codec | None]


def tune(transport: asyncio.BaseTransport) -> None:
    """No delay: what is sent is whole packets."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
