"""Kinds of floods that a client of QUIC may pour over an edge, each allowed by itself."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator

from aioquic.quic.connection import QuicConnectionError

from appliance.base.limits import HTTP_HEAD_SIZE_MAX, QUIC_STREAM_WINDOW
from tests.drivers.network.quic.raw_client import (
    INITIAL,
    RawClient,
    crypto_frame,
    fields,
    http_frame,
    number,
    numbers,
    raw_dial,
    stream_frame,
)

PACKETS_AT_ONCE = 16
PAYLOAD = 1000  # bytes of frames in a packet
REFUSED_S = 0.05  # between two times that an edge was asked which does not want this client
Packets = Callable[[RawClient], Iterator[bytes]]

PAGE = fields((":method", "GET"), (":scheme", "https"), (":authority", "127.0.0.1"), (":path", "/"))


def filled(frame: bytes) -> bytes:
    """As many of one frame as fit into a packet."""
    return frame * (PAYLOAD // len(frame))


def streams_of(client: RawClient) -> Iterator[int]:
    """Numbers of streams, as many as the edge allows; the last one again until it allows more."""
    wanted = 0
    while True:
        if wanted < client.quic._remote_max_streams_bidi:
            wanted += 1
        yield 4 * (wanted - 1)


def streams(client: RawClient) -> Iterator[bytes]:
    """Each with a request for a page, whose answer nobody reads."""
    for stream_id in streams_of(client):
        yield stream_frame(stream_id, PAGE, ended=True)


def resets(client: RawClient) -> Iterator[bytes]:
    """Requests that are given up at once."""
    for stream_id in streams_of(client):
        reset = b"\x04" + numbers(stream_id, 0x10C, len(PAGE))
        yield stream_frame(stream_id, PAGE) + reset + b"\x05" + numbers(stream_id, 0x10C)


def path_challenges(client: RawClient) -> Iterator[bytes]:
    while True:
        yield b"".join(b"\x1a" + os.urandom(8) for _ in range(PAYLOAD // 9))


def identifiers(client: RawClient) -> Iterator[bytes]:
    """New ones that retire all before them."""
    for sequence in itertools.count(int(client.quic._host_cid_seq)):
        yield b"\x18" + numbers(sequence, sequence) + b"\x08" + os.urandom(24)


def retirements(client: RawClient) -> Iterator[bytes]:
    """Of identifiers of the edge, each of which is answered with a new one."""
    own = int(client.quic._peer_cid.sequence_number)
    for sequence in itertools.count():
        if sequence != own:
            yield b"\x19" + number(sequence) + bytes(4)


def crypto(client: RawClient) -> Iterator[bytes]:
    """Pieces of a handshake behind a gap that is never filled."""
    for offset in itertools.cycle(range(40, 30_000, 40)):
        yield crypto_frame(bytes(20), offset)


def growing_offsets(client: RawClient) -> Iterator[bytes]:
    """Streams without a begin, in few bytes as long as the edge allows."""
    quic = client.quic
    reach = quic._remote_max_stream_data_bidi_remote
    taken = range(0, 4 * (quic._remote_max_data // reach), 4)
    for offset in itertools.cycle(range(reach // 200, reach, reach // 200)):
        yield b"".join(stream_frame(stream_id, b"x", offset=offset) for stream_id in taken)


def pieces(client: RawClient) -> Iterator[bytes]:
    """Streams of which every second byte is missing."""
    for place in itertools.count(1):
        for stream_id in range(0, 64, 4):
            at = 2 * place % QUIC_STREAM_WINDOW
            yield b"".join(stream_frame(stream_id, b"x", offset=at + 2 * n) for n in range(50))


def header_tables(client: RawClient) -> Iterator[bytes]:
    """Heads that are begun and never whole, which is all that a stream may hold of one."""
    begun = http_frame(1, b"")[:1] + number(HTTP_HEAD_SIZE_MAX - 8)
    for at in itertools.chain(range(0, HTTP_HEAD_SIZE_MAX - 16, PAYLOAD), itertools.repeat(0)):
        for stream_id in range(0, 128, 4):
            data = begun + bytes(PAYLOAD - len(begun)) if at == 0 else bytes(PAYLOAD)
            yield stream_frame(stream_id, data, offset=at)


def table_instructions(client: RawClient) -> Iterator[bytes]:
    """For the table of fields that the edge does not have: cancellations and capacities of zero."""
    encoder, decoder = b"\x02" + b"\x20" * PAYLOAD, b"\x03" + b"\x40" * PAYLOAD
    offset = 0
    while True:
        for stream_id, data in ((10, encoder), (14, decoder)):
            yield stream_frame(stream_id, data if offset == 0 else data[1:], offset=offset)
        offset += PAYLOAD + (offset == 0)


def datagrams(client: RawClient) -> Iterator[bytes]:
    """Of a session that is not there."""
    while True:
        yield b"\x31" + number(PAYLOAD) + number(0) + bytes(PAYLOAD - 1)


def pings(client: RawClient) -> Iterator[bytes]:
    while True:
        yield filled(b"\x01")


def windows(client: RawClient) -> Iterator[bytes]:
    """Claims to be blocked, and windows that grow a byte at a time."""
    for size in itertools.count(1 << 20):
        yield filled(b"\x10" + number(size) + b"\x14" + number(size) + b"\x16" + number(32))


FLOODS: dict[str, Packets] = {
    made.__name__: made
    for made in (
        *(streams, resets, path_challenges, identifiers, retirements, crypto),
        *(growing_offsets, pieces),
        *(header_tables, table_instructions, datagrams, pings, windows),
    )
}


async def pour(port: int, packets: Packets, poured: "Poured") -> None:
    """Until it is cancelled; a connection that the edge ends is followed by another."""
    while True:
        try:
            async with raw_dial(port) as client:
                poured.connections += client.closed is None
                for frames in packets(client):
                    if client.closed:
                        break
                    client.send(frames)
                    poured.packets += 1
                    if poured.packets % PACKETS_AT_ONCE == 0:
                        client.transmit()  # what is due by good manners, such as acks
                        await asyncio.sleep(0)
        except (ConnectionError, QuicConnectionError, TimeoutError):
            await asyncio.sleep(REFUSED_S)
        await asyncio.sleep(REFUSED_S)


async def pour_half_open(port: int, poured: "Poured") -> None:
    """Handshakes that are begun and left."""
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                await stack.enter_async_context(raw_dial(port, INITIAL))
                poured.connections += 1
                poured.packets += 1
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(REFUSED_S)


class Poured:
    """How much."""

    def __init__(self) -> None:
        self.packets = self.connections = 0
