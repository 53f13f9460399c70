"""What the library lacks, by its private names: no other module touches one.

    windows        slide: what was taken plus a fixed size. The library doubles them, counted from
                   the highest offset that it has seen
    streams        few at once, in few pieces. The library has room for 128 of each kind, and keeps
                   every piece of a stream that comes in pieces
    identifiers    chosen by us, few, with tokens that a restarted process makes again. The
                   library draws both
    datagrams      few wait. The library's queue has no end
    sizes          of a path are tried (`path_size`). The library sends 1200 bytes at most
    mistakes       that the library forgives: acks of what was not sent, parameters and identifiers
                   that stand twice
    backlog        what waits to be sent can be asked for, and what the other side showed
    refusal        of a connection that is not begun, as one packet
    end            a connection that is over refers to itself, by callbacks in all its parts
    HTTP/3         no dynamic table, heads of a bounded size, GOAWAY; a malformed request breaks
                   its own stream

Each has a contract test, which fails when a new release of the library works in another way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pylsqpack
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var  # type: ignore[attr-defined]
from aioquic.h3.connection import (
    ClosedCriticalStream,
    FrameType,
    H3Connection,
    H3Stream,
    IdError,
    MessageError,
    ProtocolError,
    Setting,
    encode_frame,
)
from aioquic.h3.connection import ErrorCode as Http3Code
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    MAX_STREAM_DATA_FRAME_CAPACITY,
    Limit,
    QuicConnection,
    QuicConnectionError,
    QuicConnectionId,
)
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.events import StreamReset
from aioquic.quic.packet import QuicErrorCode, QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import QuicDeliveryState, QuicPacketBuilder
from aioquic.quic.stream import QuicStream
from aioquic.tls import Alert, Epoch
from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm

from appliance.base.library_faults import LIBRARY_FAULTS
from appliance.base.limits import (
    HTTP_HEAD_SIZE_MAX,
    QUIC_CRYPTO_WAITING_MAX,
    QUIC_DATAGRAMS_MAX,
    QUIC_IDS_ISSUED_MAX,
    QUIC_IDS_MAX,
    QUIC_PIECES_MAX,
    QUIC_STREAM_WINDOW,
    QUIC_STREAMS_MAX,
    QUIC_UNI_STREAMS_MAX,
    QUIC_WINDOW,
)
from appliance.drivers.quic.path_size import SIZE_MIN, PathSize

# Parts of a connection that call it back, or keep something that does.
_CALLING_BACK = (
    "_QuicConnection__frame_handlers",
    "_cryptos",
    "_cryptos_initial",
    "_loss",
    "_spaces",
    "tls",
)
_FULL_MIN = 2  # datagrams at once, beyond which larger ones would be fewer
_PAYLOAD_SIZE_MAX = 3  # a transport parameter: bytes of the largest datagram that is taken
_CLOSE_SIZE = 1 + 3 * 8  # of a frame that closes: its type and three numbers, at most
_REFUSAL_SIZE_MAX = 1200  # bytes of its packet: any network carries it
_KEPT_WHOLE = (FrameType.HEADERS, FrameType.SETTINGS, FrameType.MAX_PUSH_ID)

# errors of a connection that the library does not turn into its end by itself
FAULTS: tuple[type[Exception], ...] = (
    *LIBRARY_FAULTS,
    QuicConnectionError,
    Alert,
    ProtocolError,
    InvalidSignature,
    InvalidTag,
    UnsupportedAlgorithm,
)

NewId = Callable[[], bytes]
ResetToken = Callable[[bytes], bytes]


class _SlidingLimit(Limit):
    """Of the data of a connection: the library may not raise it, only `slide` does."""

    def __init__(self, made: Limit) -> None:
        self._value = made.value
        super().__init__(made.frame_type, made.name, made.value)

    @property
    def value(self) -> int:
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        """What the library doubles stays."""

    def slide(self, value: int, window: int) -> None:
        """Raise it once that tells the peer something new."""
        if value - self._value >= window // 2:
            self._value = value


def _violation(frame_type: int, why: str) -> QuicConnectionError:
    return QuicConnectionError(
        error_code=QuicErrorCode.PROTOCOL_VIOLATION, frame_type=frame_type, reason_phrase=why
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of what one connection keeps; the configuration grants the same windows at first."""

    window: int = QUIC_WINDOW  # bytes
    stream_window: int = QUIC_STREAM_WINDOW  # bytes
    pieces: int = QUIC_PIECES_MAX  # of one stream
    datagrams: int = QUIC_DATAGRAMS_MAX  # that wait to be sent
    path_sizes: tuple[int, ...] = ()  # bytes of datagrams, to be tried beyond the smallest


class BoundedConnection(QuicConnection):
    """One connection, all of whose memory has a bound; of a server that asked for a Retry if the
    identifiers of before are given, else of a client.

    What was received counts as taken, unless it is held: `hold` says so, `release` takes it back.
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        new_id: NewId,
        reset_token: ResetToken,
        original_id: bytes | None = None,
        retry_id: bytes | None = None,
        bounds: Bounds = Bounds(),
    ) -> None:
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=original_id,
            retry_source_connection_id=retry_id,
        )
        self._new_id, self._reset_token, self._bounds = new_id, reset_token, bounds
        self._held: dict[int, int] = {}  # stream -> bytes that the application has and not used
        self._taken_size = 65_527  # bytes of a datagram that the peer takes, unless it says less
        self._path_size = PathSize(bounds.path_sizes)
        self._sized: Any = None  # the path of which that is known
        first = self._host_cids[0]
        first.cid = self.host_cid = self._local_initial_source_connection_id = new_id()
        if not configuration.is_client:
            first.stateless_reset_token = reset_token(first.cid)
        self._local_max_data: _SlidingLimit = _SlidingLimit(self._local_max_data)
        for limit, count in (
            (self._local_max_streams_bidi, QUIC_STREAMS_MAX),
            (self._local_max_streams_uni, QUIC_UNI_STREAMS_MAX),
        ):
            limit.value = limit.sent = count

    # --- what is received

    @property
    def ids(self) -> list[bytes]:
        """Under which the peer may address this connection now."""
        return [known.cid for known in self._host_cids]

    def hold(self, stream_id: int, size: int) -> None:
        """So much of what was received on this stream is not used yet."""
        if size:
            self._held[stream_id] = self._held.get(stream_id, 0) + size

    def release(self, stream_id: int, size: int) -> None:
        """So much of it has been used."""
        left = self._held.get(stream_id, 0) - size
        assert left >= 0
        if left:
            self._held[stream_id] = left
        else:
            self._held.pop(stream_id, None)

    def hold_exactly(self, stream_id: int, size: int) -> None:
        """This is all of the stream that is not used."""
        if size:
            self._held[stream_id] = size
        else:
            self._held.pop(stream_id, None)

    def release_all(self, stream_id: int) -> None:
        """Nobody uses what comes on this stream any more."""
        self._held.pop(stream_id, None)

    @property
    def held(self) -> int:
        """Bytes in memory for this connection, in both directions."""
        waiting = sum(self._held.values())
        for stream in self._streams.values():
            waiting += len(stream.receiver._buffer) + len(stream.sender._buffer)
        return waiting + sum(map(len, self._datagrams_pending))

    @property
    def peer_certificate(self) -> x509.Certificate | None:
        """What the other side showed, if it showed one that can be read."""
        return self.tls._peer_certificate

    def _write_connection_limits(self, builder: Any, space: Any) -> None:
        waiting = sum(self._held.values())
        for stream in self._streams.values():
            receiver = stream.receiver
            if not receiver.is_finished:
                waiting += receiver.highest_offset - receiver._buffer_start
        limit = self._local_max_data
        window = self._bounds.window
        limit.slide(limit.used - waiting + window, window)
        super()._write_connection_limits(builder, space)

    def _write_stream_limits(self, builder: Any, space: Any, stream: QuicStream) -> None:
        if not stream.max_stream_data_local or stream.receiver.is_finished:
            return
        assert stream.stream_id is not None
        taken = stream.receiver._buffer_start - self._held.get(stream.stream_id, 0)
        value = taken + self._bounds.stream_window
        if value - stream.max_stream_data_local >= self._bounds.stream_window // 2:
            stream.max_stream_data_local = value
        if stream.max_stream_data_local_sent == stream.max_stream_data_local:
            return
        frame = builder.start_frame(
            QuicFrameType.MAX_STREAM_DATA,
            capacity=MAX_STREAM_DATA_FRAME_CAPACITY,
            handler=self._on_max_stream_data_delivery,
            handler_args=(stream,),
        )
        frame.push_uint_var(stream.stream_id)
        frame.push_uint_var(stream.max_stream_data_local)
        stream.max_stream_data_local_sent = stream.max_stream_data_local

    def _handle_stream_frame(self, context: Any, frame_type: int, buf: Any) -> None:
        start = buf.tell()
        stream_id = buf.pull_uint_var()
        buf.seek(start)
        super()._handle_stream_frame(context, frame_type, buf)
        stream = self._streams.get(stream_id)
        if stream is not None and len(stream.receiver._ranges) > self._bounds.pieces:
            raise _violation(frame_type, "a stream in too many pieces")

    def _handle_crypto_frame(self, context: Any, frame_type: int, buf: Any) -> None:
        super()._handle_crypto_frame(context, frame_type, buf)
        receiver = self._crypto_streams[context.epoch].receiver
        if (
            len(receiver._buffer) > QUIC_CRYPTO_WAITING_MAX
            or len(receiver._ranges) > QUIC_PIECES_MAX
        ):
            raise QuicConnectionError(
                error_code=QuicErrorCode.CRYPTO_BUFFER_EXCEEDED,
                frame_type=frame_type,
                reason_phrase="too much of the handshake waits",
            )

    def _handle_ack_frame(self, context: Any, frame_type: int, buf: Any) -> None:
        """Who acknowledges what was never sent wants to be sent more than the network bears."""
        start = buf.tell()
        largest = buf.pull_uint_var()
        buf.seek(start)
        if largest >= self._packet_number:
            raise _violation(frame_type, "an ack of a packet that was not sent")
        super()._handle_ack_frame(context, frame_type, buf)

    def _parse_transport_parameters(self, data: bytes, from_session_ticket: bool = False) -> None:
        """Each stands there once: of two, a checker might have seen the other."""
        buf = Buffer(data=data)
        seen: set[int] = set()
        try:
            while not buf.eof():
                kind = buf.pull_uint_var()
                if kind in seen:
                    raise QuicConnectionError(
                        error_code=QuicErrorCode.TRANSPORT_PARAMETER_ERROR,
                        frame_type=QuicFrameType.CRYPTO,
                        reason_phrase="a transport parameter stands twice",
                    )
                seen.add(kind)
                value = buf.pull_bytes(buf.pull_uint_var())
                if kind == _PAYLOAD_SIZE_MAX:
                    self._taken_size = Buffer(data=value).pull_uint_var()
        except BufferReadError:
            """Left to the library, which says what is cut."""
        super()._parse_transport_parameters(data, from_session_ticket)

    # --- its end

    def let_go(self) -> None:
        """It is over, nothing is received or sent: have it freed with the last reference to it.
        Whoever asks still hears that nothing waits, and that no stream can be written."""
        for space in self._spaces.values():  # a packet tells its space what became of it
            space.sent_packets.clear()
        for name in _CALLING_BACK:
            vars(self).pop(name, None)
        self._streams, self._streams_queue = {}, []

    # --- identifiers

    def _handle_new_connection_id_frame(self, context: Any, frame_type: int, buf: Any) -> None:
        """No identifier under two numbers, no number for two identifiers."""
        start = buf.tell()
        sequence, retire = buf.pull_uint_var(), buf.pull_uint_var()
        given = buf.pull_bytes(buf.pull_uint8())
        buf.seek(start)
        if retire > sequence:
            raise QuicConnectionError(
                error_code=QuicErrorCode.FRAME_ENCODING_ERROR,
                frame_type=frame_type,
                reason_phrase="an identifier that retires itself and later ones",
            )
        for known in (self._peer_cid, *self._peer_cid_available):
            if (known.cid == given) != (known.sequence_number == sequence):
                raise _violation(frame_type, "one identifier for one number")
        super()._handle_new_connection_id_frame(context, frame_type, buf)

    def _replenish_connection_ids(self) -> None:
        count = min(QUIC_IDS_MAX, self._remote_active_connection_id_limit)
        while len(self._host_cids) < count and self._host_cid_seq < QUIC_IDS_ISSUED_MAX:
            made = self._new_id()
            self._host_cids.append(
                QuicConnectionId(
                    cid=made,
                    sequence_number=self._host_cid_seq,
                    stateless_reset_token=self._reset_token(made),
                )
            )
            self._host_cid_seq += 1

    # --- what is sent

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]:
        """As the library does; and, where larger datagrams would be fewer, a try of their size."""
        sizes = self._path_size
        if self._network_paths and self._network_paths[0] is not self._sized:
            self._sized = self._network_paths[0]
            sizes = self._path_size = PathSize(self._bounds.path_sizes)
            self._set_size(SIZE_MIN)
        if sizes.on_silence(self._loss._pto_count):
            self._set_size(SIZE_MIN)
        due = super().datagrams_to_send(now=now)
        if len(due) > _FULL_MIN and self._handshake_confirmed and not self._close_event:
            sizes.grant(self._taken_size)
            if self._sized.is_validated and (size := sizes.next()):
                due += self._try_size(size, now)
        return due

    def _try_size(self, size: int, now: float) -> list[tuple[bytes, Any]]:
        """A packet of nothing, in a datagram of that size. Its loss says nothing of congestion."""
        assert self._version is not None
        builder = QuicPacketBuilder(
            host_cid=self.host_cid,
            is_client=self._is_client,
            max_datagram_size=size,
            packet_number=self._packet_number,
            peer_cid=self._peer_cid.cid,
            spin_bit=self._spin_bit,
            version=self._version,
        )
        builder.start_packet(QuicPacketType.ONE_RTT, self._cryptos[Epoch.ONE_RTT])
        frame = builder.start_frame(
            QuicFrameType.PING, handler=self._on_size_tried, handler_args=(self._path_size, size)
        )
        frame.push_bytes(bytes(builder.remaining_buffer_space))  # frames of padding
        assert builder._packet is not None
        builder._packet.in_flight = False
        return self._flush_builder(
            builder=builder,
            network_path=self._sized,
            peer_cid=self._peer_cid.cid,
            now=now,
        )

    def _on_size_tried(self, delivery: QuicDeliveryState, sizes: PathSize, size: int) -> None:
        if delivery is not QuicDeliveryState.ACKED:
            sizes.on_lost(size)
            return
        sizes.on_acked(size)
        if sizes is self._path_size:
            self._set_size(sizes.size)

    def _set_size(self, size: int) -> None:
        """Of datagrams from now on; what was lost goes again in such ones."""
        control: Any = self._loss._cc
        self._max_datagram_size = size
        self._loss._pacer._max_datagram_size = control._max_datagram_size = size

    @property
    def datagram_size(self) -> int:
        """Bytes that a datagram may have, as far as the path is known."""
        return self._path_size.size

    def backlog(self, stream_id: int) -> int:
        """Bytes of this stream that the peer has not acknowledged."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else len(stream.sender._buffer)

    def is_writable(self, stream_id: int) -> bool:
        """Whether more can be sent on this stream: it is neither ended nor stopped."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return False
        sender = stream.sender
        return sender._reset_error_code is None and sender._buffer_fin is None

    def is_readable(self, stream_id: int) -> bool:
        """Whether more may come on this stream."""
        stream = self._streams.get(stream_id)
        return stream is not None and not stream.receiver.is_finished

    @property
    def datagrams_waiting(self) -> int:
        """How many wait to be sent."""
        return len(self._datagrams_pending)

    def offer_datagram(self, data: bytes) -> bool:
        """Send an unreliable datagram if few wait; whether it was taken."""
        largest = self._remote_max_datagram_frame_size or 0
        if len(self._datagrams_pending) >= self._bounds.datagrams or len(data) + 3 > largest:
            return False
        self.send_datagram_frame(data)
        return True


def encode_refusal(*, version: int, source_id: bytes, destination_id: bytes, reason: str) -> bytes:
    """The Initial packet that refuses one (RFC 9000, 5.2.2), sent to `source_id` by
    `destination_id`: it is made without a connection, and without TLS."""
    crypto = CryptoPair()
    crypto.setup_initial(cid=source_id, is_client=False, version=version)
    builder = QuicPacketBuilder(
        host_cid=source_id,
        peer_cid=destination_id,
        version=version,
        is_client=False,
        max_datagram_size=_REFUSAL_SIZE_MAX,
    )
    builder.start_packet(QuicPacketType.INITIAL, crypto)
    text = reason.encode()
    frame = builder.start_frame(QuicFrameType.TRANSPORT_CLOSE, capacity=_CLOSE_SIZE + len(text))
    frame.push_uint_var(QuicErrorCode.CONNECTION_REFUSED)
    frame.push_uint_var(QuicFrameType.PADDING)  # no frame led to it
    frame.push_uint_var(len(text))
    frame.push_bytes(text)
    (datagram,), _ = builder.flush()
    return bytes(datagram)


def _awaited(stream: H3Stream) -> int:
    """Bytes that are or will be kept of what came on a stream, until a frame is whole."""
    if stream.frame_size is None or stream.frame_type not in _KEPT_WHOLE:
        return len(stream.buffer)
    return max(len(stream.buffer), stream.frame_size)


class BoundedHttp3(H3Connection):
    """HTTP/3 and WebTransport over such a connection."""

    def __init__(self, quic: BoundedConnection) -> None:
        super().__init__(quic, enable_webtransport=True)
        self._decoder = pylsqpack.Decoder(0, 0)
        self._malformed: list[int] = []  # requests, not taken yet
        self._broken: set[int] = set()  # of their streams, those on which more may come

    def _get_local_settings(self) -> dict[int, int]:
        return {
            **super()._get_local_settings(),
            Setting.QPACK_MAX_TABLE_CAPACITY: 0,
            Setting.QPACK_BLOCKED_STREAMS: 0,
            Setting.MAX_FIELD_SECTION_SIZE: HTTP_HEAD_SIZE_MAX,
        }

    def handle_event(self, event: Any) -> list[Any]:
        """As the library does; a frame that is waited for is no larger than a head may be."""
        stream_id = getattr(event, "stream_id", -1)
        if isinstance(event, StreamReset):
            self._broken.discard(stream_id)
        found = super().handle_event(event)
        stream = self._stream.get(stream_id)
        if stream is not None and not self._is_done and _awaited(stream) > HTTP_HEAD_SIZE_MAX:
            self._is_done = True
            self._quic.close(
                error_code=Http3Code.H3_EXCESSIVE_LOAD, reason_phrase="a frame is too large"
            )
            return []
        return found

    def _receive_request_or_push_data(
        self, stream: H3Stream, data: bytes, stream_ended: bool
    ) -> list[Any]:
        """A malformed request is the matter of its stream, the library would end all of them."""
        stream_id = stream.stream_id
        if stream_id in self._broken:
            stream.receiving_ended = stream.receiving_ended or stream_ended
            if stream_ended:
                self._broken.discard(stream_id)
            return []
        try:
            return super()._receive_request_or_push_data(stream, data, stream_ended)
        except MessageError:
            stream.buffer, stream.frame_size = b"", None
            if not stream_ended:
                self._broken.add(stream_id)
            self._malformed.append(stream_id)
            return []

    def _receive_stream_data_uni(
        self, stream: H3Stream, data: bytes, stream_ended: bool
    ) -> list[Any]:
        found = super()._receive_stream_data_uni(stream, data, stream_ended)
        shared = (self._peer_encoder_stream_id, self._peer_decoder_stream_id)
        if stream_ended and stream.stream_id in shared:
            raise ClosedCriticalStream("a stream that all requests share has ended")
        return found

    def _check_control_frame_type(self, frame_type: int) -> None:
        super()._check_control_frame_type(frame_type)
        if frame_type == FrameType.CANCEL_PUSH:
            raise IdError("nothing was promised")

    def take_malformed(self) -> list[int]:
        """Streams whose request turned out to be malformed, to be broken off; each is told once."""
        found, self._malformed = self._malformed, []
        return found

    @property
    def speaks_webtransport(self) -> bool:
        """Whether the client has the draft of WebTransport that the library has."""
        return (self._received_settings or {}).get(Setting.ENABLE_WEBTRANSPORT) == 1

    def send_goaway(self, stream_id: int) -> None:
        """No request on this stream or a later one will be answered."""
        assert self._local_control_stream_id is not None
        frame = encode_frame(FrameType.GOAWAY, encode_uint_var(stream_id))
        self._quic.send_stream_data(self._local_control_stream_id, frame)


__all__ = ["FAULTS", "BoundedConnection", "BoundedHttp3", "Http3Code"]
