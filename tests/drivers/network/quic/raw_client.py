"""A client of QUIC that can send anything: bytes in a packet of each kind, hellos and transport
parameters of any shape. It has the library's handshake and keys, and nothing of its manners."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pylsqpack
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, encode_uint_var  # type: ignore[attr-defined]
from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPacketType, encode_long_header_first_byte
from aioquic.tls import Epoch

from tests.drivers.network.quic.quic_client import PATIENCE_S, configuration

INITIAL, HANDSHAKE, ONE_RTT = Epoch.INITIAL, Epoch.HANDSHAKE, Epoch.ONE_RTT
_PACKETS = {INITIAL: QuicPacketType.INITIAL, HANDSHAKE: QuicPacketType.HANDSHAKE}
DATAGRAM_SIZE = 1200
ALPN, GROUPS, SIGNATURES, VERSIONS, KEY_SHARE, PARAMETERS = 16, 10, 13, 43, 51, 57  # of a hello

Change = Callable[[bytes], bytes]


def number(value: int) -> bytes:
    """As QUIC writes numbers, in the fewest bytes."""
    return bytes(encode_uint_var(value))


def numbers(*values: int) -> bytes:
    return b"".join(map(number, values))


class Mannerless(QuicConnection):
    """Its ClientHello and its transport parameters go through a function of the test's."""

    def __init__(self, made: QuicConfiguration, hello: Change, parameters: Change) -> None:
        super().__init__(configuration=made)
        self._change_hello, self._change_parameters = hello, parameters

    def _serialize_transport_parameters(self) -> bytes:
        return self._change_parameters(super()._serialize_transport_parameters())

    def _push_crypto_data(self) -> None:
        written = self._crypto_buffers[INITIAL]
        if written.tell():
            changed = self._change_hello(written.data)
            written.seek(0)
            written.push_bytes(changed)
        super()._push_crypto_data()


class RawClient(QuicConnectionProtocol):
    """One connection. `stage` is how far its handshake goes by itself."""

    def __init__(self, quic: QuicConnection, stage: Epoch) -> None:
        super().__init__(quic)
        self.stage = stage
        self.resets: dict[int, int] = {}  # stream -> code with which the other side broke it off
        self.heard: dict[int, bytearray] = {}
        self.changed = asyncio.Event()
        self._bytes = 0

    def quic_event_received(self, event: quic_events.QuicEvent) -> None:
        if isinstance(event, quic_events.StreamReset):
            self.resets[event.stream_id] = event.error_code
        elif isinstance(event, quic_events.StreamDataReceived):
            self.heard.setdefault(event.stream_id, bytearray()).extend(event.data)

    def datagram_received(self, data: Any, addr: Any) -> None:
        if self.stage is INITIAL and self.quic._retry_count and not self._bytes:
            self._bytes = len(data)  # the handshake of the other side: not looked at
        else:
            super().datagram_received(data, addr)
        self.changed.set()

    def transmit(self) -> None:
        """Nothing of a later stage goes out."""
        keys = self.quic._cryptos.get(HANDSHAKE)
        if self.stage is not HANDSHAKE or keys is None or not keys.send.is_valid():
            super().transmit()

    @property
    def quic(self) -> Any:
        return self._quic

    @property
    def closed(self) -> Any:
        """What the other side ended the connection with."""
        return self.quic._close_event

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def ready(self) -> None:
        """The stage is reached, or the connection has ended."""
        quic = self.quic
        if self.stage is INITIAL:
            await self.until(lambda: self.closed or self._bytes)
        elif self.stage is HANDSHAKE:
            await self.until(
                lambda: self.closed or (HANDSHAKE in quic._cryptos and self._can_send(HANDSHAKE))
            )
        else:
            await self.until(lambda: self.closed or quic._handshake_confirmed)

    def _can_send(self, epoch: Epoch) -> bool:
        return bool(self.quic._cryptos[epoch].send.is_valid())

    # --- what it sends

    def send(self, frames: bytes, epoch: Epoch | None = None, *, bits: int = 0) -> None:
        """One packet with these frames, behind padding where the packet must be large; `bits` are
        set in its first byte."""
        epoch = self.stage if epoch is None else epoch
        quic = self.quic
        packet_number, quic._packet_number = quic._packet_number, quic._packet_number + 1
        tail = struct.pack(">I", packet_number)
        if epoch is ONE_RTT:
            crypto = quic._cryptos[epoch]
            first = 0x43 | bits | (crypto.key_phase << 2)
            head = bytes([first]) + quic._peer_cid.cid + tail
        else:
            is_initial = epoch is INITIAL
            crypto = quic._cryptos_initial[quic._version] if is_initial else quic._cryptos[epoch]
            frames = bytes(DATAGRAM_SIZE if is_initial else 0) + frames
            first = encode_long_header_first_byte(quic._version, _PACKETS[epoch], 3) | bits
            head = struct.pack(">BI", first, quic._version)
            for identifier in (quic._peer_cid.cid, quic.host_cid):
                head += bytes([len(identifier)]) + identifier
            if is_initial:
                head += number(len(quic._peer_token)) + quic._peer_token
            head += struct.pack(">H", 0x4000 | len(frames) + 4 + 16) + tail
        packet = crypto.encrypt_packet(head, frames, packet_number)
        assert self._transport is not None
        self._transport.sendto(packet, quic._network_paths[0].addr)

    def say(self, stream_id: int, data: bytes, *, ended: bool = False, offset: int = 0) -> None:
        """Data of a stream, which the library takes answers on from then on."""
        sender = self.quic._get_or_create_stream_for_send(stream_id).sender
        sender.highest_offset = max(sender.highest_offset, offset + len(data))
        self.send(stream_frame(stream_id, data, offset=offset, ended=ended))


def stream_frame(stream_id: int, data: bytes, *, offset: int = 0, ended: bool = False) -> bytes:
    return bytes([0x0E | ended]) + numbers(stream_id, offset, len(data)) + data


def crypto_frame(data: bytes, offset: int = 0) -> bytes:
    return b"\x06" + numbers(offset, len(data)) + data


def http_frame(kind: int, data: bytes) -> bytes:
    return numbers(kind, len(data)) + data


def fields(*pairs: tuple[str, str]) -> bytes:
    """A HEADERS frame."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    return http_frame(1, pylsqpack.Encoder().encode(0, raw)[1])


# --- hellos


def hello_with(kind: int, data: bytes | None) -> Change:
    """Puts an extension of this kind in place of the one that is there; None takes it away."""

    def change(hello: bytes) -> bytes:
        buf = Buffer(data=hello)
        buf.seek(4 + 2 + 32)
        for size in (1, 2, 1):  # session, ciphers, compression
            count = int.from_bytes(buf.pull_bytes(size), "big")
            buf.seek(buf.tell() + count)
        front = hello[4 : buf.tell()]
        buf.pull_uint16()
        found = b""
        while not buf.eof():
            one = buf.pull_uint16()
            value = buf.pull_bytes(buf.pull_uint16())
            if one == kind:
                if data is None:
                    continue
                value = data
            found += struct.pack(">HH", one, len(value)) + value
        body = front + struct.pack(">H", len(found)) + found
        return b"\x01" + len(body).to_bytes(3, "big") + body

    return change


def parameters_with(kind: int, value: bytes | None, *, twice: bool = False) -> Change:
    """The same for transport parameters; `twice`: beside the one that is there."""

    def change(made: bytes) -> bytes:
        buf, found = Buffer(data=made), b""
        while not buf.eof():
            one = buf.pull_uint_var()
            old = buf.pull_bytes(buf.pull_uint_var())
            if one != kind or twice:
                found += numbers(one, len(old)) + old
        return found if value is None else found + numbers(kind, len(value)) + value

    return change


def as_it_is(made: bytes) -> bytes:
    return made


@asynccontextmanager
async def raw_dial(
    port: int,
    stage: Epoch = ONE_RTT,
    *,
    hello: Change = as_it_is,
    parameters: Change = as_it_is,
    **named: Any,
) -> AsyncIterator[RawClient]:
    """A client whose handshake is at `stage`."""
    loop = asyncio.get_running_loop()
    quic = Mannerless(configuration(**named), hello, parameters)
    transport, client = await loop.create_datagram_endpoint(
        lambda: RawClient(quic, stage), local_addr=("127.0.0.1", 0)
    )
    try:
        client.connect(("127.0.0.1", port))
        await client.ready()
        yield client
    finally:
        client.stage = ONE_RTT
        client.close()
        transport.close()
