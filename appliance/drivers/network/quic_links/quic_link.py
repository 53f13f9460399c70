"""One QUIC connection between two sites."""

import hashlib
from dataclasses import dataclass

from aioquic.quic import events as quic
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from appliance.base.errors import CausalRefused
from appliance.base.limits import (
    LINK_DATAGRAM_SIZE_MAX,
    LINK_DATAGRAMS_MAX,
    LINK_STREAM_BACKLOG_MAX,
)
from appliance.base.signature import SigningKey
from appliance.drivers.network.quic_links import authentication
from appliance.drivers.quic.library import BoundedConnection
from appliance.formats.causal import link as frames
from appliance.formats.causal.message import stored_form

_PROTOCOL_ERROR = 1  # code of a close; the reason is in its phrase


@dataclass(slots=True, frozen=True)
class Identity:
    """This site: its name, its signing key, and SHA-256 of the public key of its certificate."""

    site: str
    key: SigningKey
    fingerprint: bytes


@dataclass(slots=True, frozen=True)
class Up:
    """The other side is this site, proved."""

    site: str


@dataclass(slots=True, frozen=True)
class Received:
    """Frames, each kind octet and body."""

    found: tuple[bytes, ...]


@dataclass(slots=True, frozen=True)
class Down:
    """The connection ended; nothing follows. `fault`: for a log, how the library failed."""

    reason: str
    fault: str = ""


LinkEvent = Up | Received | Down


class QuicLink:
    """`expected` is (site, fingerprint) of whom we dialled, None where we listen.

    Invariants: no frame of the peer is passed on before `site` is set; at most LINK_DATAGRAMS_MAX
    datagrams and LINK_STREAM_BACKLOG_MAX bytes of the stream wait.
    """

    __slots__ = (
        *("connection", "identity", "keys", "expected", "site", "ended", "dropped", "address"),
        "is_encrypted",
        *("_nonce", "_stream", "_reader", "_read_from"),
    )

    def __init__(
        self,
        connection: BoundedConnection,
        identity: Identity,
        keys: dict[str, bytes],
        nonce: bytes,
        expected: tuple[str, bytes] | None,
    ) -> None:
        self.connection, self.identity, self.keys = connection, identity, keys
        self.expected = expected
        self.site, self.ended = "", ""
        self.is_encrypted = False  # the handshake is over
        self.dropped = 0  # frames that found no room
        self._nonce = nonce
        self._stream = -1
        self._reader = frames.FrameReader()
        self._read_from = -1  # the one stream of the peer that is read

    def send(self, frame: bytes) -> bool:
        """Whether the frame was taken. Small ones go as datagrams, which may be lost."""
        if not self.site or self.ended:
            return False
        if len(frame) > LINK_DATAGRAM_SIZE_MAX and frame[0] == frames.MESSAGE:
            frame = bytes([frames.MESSAGE]) + stored_form(frame[1:])  # without its filter
        if len(frame) <= LINK_DATAGRAM_SIZE_MAX and frame[0] == frames.MESSAGE:
            taken = self.connection.offer_datagram(frame)
            self.dropped += not taken
            return taken
        return self._send_on_stream(frame)

    def _send_on_stream(self, frame: bytes) -> bool:
        if self._stream < 0:
            self._stream = self.connection.get_next_available_stream_id()
        elif self.backlog > LINK_STREAM_BACKLOG_MAX:
            self.dropped += 1
            return False
        size = len(frame).to_bytes(frames.SIZE_SIZE, "big")
        self.connection.send_stream_data(self._stream, size + frame)
        return True

    @property
    def backlog(self) -> int:
        """Bytes of the stream that the peer has not acknowledged."""
        return self.connection.backlog(self._stream)

    @property
    def is_busy(self) -> bool:
        """Whether a quarter of what may wait is waiting."""
        waiting = self.connection.datagrams_waiting
        return 4 * waiting > LINK_DATAGRAMS_MAX or 4 * self.backlog > LINK_STREAM_BACKLOG_MAX

    def close(self, reason: str) -> None:
        if not self.ended:
            self.ended = reason
            self.connection.close(error_code=_PROTOCOL_ERROR, reason_phrase=reason[:100])

    def events(self) -> list[LinkEvent]:
        """What has happened since the last call."""
        found: list[LinkEvent] = []
        while (event := self.connection.next_event()) is not None:
            try:
                found += self._on_event(event)
            except CausalRefused as error:
                self.close(error.reason)
        return found

    def _on_event(self, event: quic.QuicEvent) -> list[LinkEvent]:
        if isinstance(event, quic.HandshakeCompleted):
            self.is_encrypted = True
            if self.expected is None:
                self._send_on_stream(frames.encode(frames.Challenge(self._nonce)))
            elif self._peer_fingerprint() != self.expected[1]:
                raise CausalRefused("pin", f"another key than that of {self.expected[0]}")
        elif isinstance(event, quic.StreamDataReceived):
            return self._on_stream_data(event)
        elif isinstance(event, quic.DatagramFrameReceived):
            if self.site and not self.ended:
                return [Received((event.data,))] if event.data else []
        elif isinstance(event, quic.ConnectionTerminated):
            self.ended = self.ended or "ended"  # the peer's words are no name for a counter
            return [Down(self.ended)]
        return []

    def _on_stream_data(self, event: quic.StreamDataReceived) -> list[LinkEvent]:
        if self.ended:
            return []
        if self._read_from < 0:
            self._read_from = event.stream_id
        if event.stream_id != self._read_from:
            raise CausalRefused("streams", "more than one stream")
        found = self._reader.feed(event.data)
        out: list[LinkEvent] = []
        while found and not self.site:
            out.append(Up(self._authenticate(frames.decode(found.pop(0)))))
        if found:
            out.append(Received(tuple(found)))
        if event.end_stream:
            raise CausalRefused("stream_end", "the stream was ended")
        return out

    def _authenticate(self, frame: frames.Frame) -> str:
        """The first frame of the peer: a challenge where we dialled, a proof where we listen."""
        if self.expected is None:
            if not isinstance(frame, frames.Proof):
                raise CausalRefused("proof_required", "the first frame must be a proof")
            fingerprint = self.identity.fingerprint
            self.site = authentication.check(frame, self.keys, self._nonce, fingerprint)
            return self.site
        if not isinstance(frame, frames.Challenge):
            raise CausalRefused("challenge_required", "the first frame must be a challenge")
        site, fingerprint = self.expected
        if self._peer_fingerprint() != fingerprint:
            raise CausalRefused("pin", f"another key than that of {site}")
        proof = authentication.prove(
            self.identity.site, self.identity.key, frame.nonce, fingerprint
        )
        self._send_on_stream(frames.encode(proof))
        self.site = site
        return site

    def _peer_fingerprint(self) -> bytes:
        certificate = self.connection.peer_certificate
        if certificate is None:
            return b""
        try:
            key = certificate.public_key()
        except (ValueError, UnsupportedAlgorithm):
            return b""
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).digest()
