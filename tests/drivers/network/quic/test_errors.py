"""Every mistake of a client in QUIC is answered with the code that the RFC names.

RFC 9000 (transport), RFC 9001 (TLS), RFC 9221 (datagrams); those of HTTP/3 are in
`test_errors_http3`. Each case is one connection to one port, which serves on.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import uvloop

from appliance.base.limits import QUIC_STREAM_WINDOW, QUIC_STREAMS_MAX, QUIC_UNI_STREAMS_MAX
from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.quic.raw_client import (
    ALPN,
    GROUPS,
    HANDSHAKE,
    INITIAL,
    KEY_SHARE,
    ONE_RTT,
    PARAMETERS,
    SIGNATURES,
    VERSIONS,
    Change,
    RawClient,
    as_it_is,
    crypto_frame,
    hello_with,
    number,
    numbers,
    parameters_with,
    raw_dial,
    stream_frame,
)
from tests.drivers.network.site import TestNode, make_node

FLOW_CONTROL, STREAM_LIMIT, STREAM_STATE, FINAL_SIZE = 0x3, 0x4, 0x5, 0x6
FRAME_ENCODING, PARAMETER, ID_LIMIT, VIOLATION = 0x7, 0x8, 0x9, 0xA
CRYPTO_BUFFER = 0xD
ALERT = 0x100  # plus the number of TLS's alert
MOST = (1 << 62) - 1


class Case(NamedTuple):
    """`frames`: what is sent at `stage`, one packet each; a function makes them for a client."""

    name: str
    code: int
    frames: list[bytes] | Callable[[RawClient], list[bytes]]
    stage: Any = ONE_RTT
    bits: int = 0


def truncated() -> Iterator[Case]:
    """Each frame, cut before its end."""
    whole = {
        "ack": (0x02, numbers(0, 0, 0, 0)),
        "ack of many": (0x02, numbers(3, 0, 1, 0, 0)),
        "ack with ecn": (0x03, numbers(0, 0, 0, 0, 0, 0, 0)),
        "reset_stream": (0x04, numbers(0, 0, 0)),
        "stop_sending": (0x05, numbers(0, 0)),
        "crypto": (0x06, numbers(0, 8) + bytes(8)),
        "stream": (0x0A, numbers(0, 8) + bytes(8)),
        "max_data": (0x10, number(1 << 30)),
        "max_stream_data": (0x11, numbers(0, 1 << 30)),
        "max_streams of two ways": (0x12, number(1 << 20)),
        "max_streams of one way": (0x13, number(1 << 20)),
        "data_blocked": (0x14, number(1 << 20)),
        "stream_data_blocked": (0x15, numbers(0, 1 << 20)),
        "streams_blocked of two ways": (0x16, number(1 << 20)),
        "streams_blocked of one way": (0x17, number(1 << 20)),
        "new_connection_id": (0x18, numbers(9, 0, 8) + bytes(24)),
        "retire_connection_id": (0x19, number(300)),
        "path_challenge": (0x1A, bytes(8)),
        "path_response": (0x1B, bytes(8)),
        "connection_close": (0x1C, numbers(0, 0, 5) + b"abcde"),
        "connection_close of an application": (0x1D, numbers(0, 5) + b"abcde"),
        "datagram with its size": (0x31, number(4) + b"abcd"),
    }
    for name, (kind, rest) in whole.items():
        yield Case(f"a cut {name}", FRAME_ENCODING, [bytes(8) + number(kind) + rest[:-1]])


def misplaced() -> Iterator[Case]:
    """Frames that may not be in packets of the handshake (RFC 9000, table 3)."""
    ones = {
        "reset_stream": b"\x04" + numbers(0, 0, 0),
        "stop_sending": b"\x05" + numbers(0, 0),
        "stream": stream_frame(0, b"x"),
        "max_data": b"\x10" + number(5),
        "max_stream_data": b"\x11" + numbers(0, 5),
        "max_streams": b"\x12" + number(5),
        "data_blocked": b"\x14" + number(5),
        "new_connection_id": b"\x18" + numbers(1, 0, 8) + bytes(24),
        "retire_connection_id": b"\x19" + number(0),
        "path_challenge": b"\x1a" + bytes(8),
        "path_response": b"\x1b" + bytes(8),
        "connection_close of an application": b"\x1d" + numbers(0, 0),
        "handshake_done": b"\x1e",
        "datagram": b"\x31" + number(4) + b"abcd",
    }
    for name, frame in ones.items():
        yield Case(f"{name} in an initial packet", VIOLATION, [frame], INITIAL)
        yield Case(f"{name} in a handshake packet", VIOLATION, [bytes(8) + frame], HANDSHAKE)


def new_id(sequence: int, retire: int = 0, size: int = 8, byte: int = 0) -> bytes:
    return b"\x18" + numbers(sequence, retire) + bytes([size]) + bytes([byte]) * (size + 16)


def own_id(client: RawClient) -> list[bytes]:
    """Retires the identifier by which the packet itself is addressed."""
    return [b"\x19" + number(client.quic._peer_cid.sequence_number) + bytes(4)]


def id_again(client: RawClient) -> list[bytes]:
    """An identifier that the other side has, under a further number."""
    known = client.quic._host_cids[1].cid
    return [b"\x18" + numbers(next_id(client), 0) + bytes([len(known)]) + known + bytes(16)]


def next_id(client: RawClient) -> int:
    return int(client.quic._host_cid_seq)


STREAMS = [
    Case("data beyond the window of a stream", FLOW_CONTROL,
         [stream_frame(0, b"x", offset=QUIC_STREAM_WINDOW)]),
    Case("data of four streams beyond the window of the connection", FLOW_CONTROL,
         [stream_frame(4 * n, b"x", offset=QUIC_STREAM_WINDOW - 1) for n in range(4)]),
    Case("the end of a reset stream beyond its window", FLOW_CONTROL,
         [b"\x04" + numbers(0, 0, QUIC_STREAM_WINDOW + 1)]),
    Case("ends of reset streams beyond the window of the connection", FLOW_CONTROL,
         [b"\x04" + numbers(4 * n, 0, QUIC_STREAM_WINDOW) for n in range(4)]),
    Case("one stream of two ways too many", STREAM_LIMIT,
         [stream_frame(4 * QUIC_STREAMS_MAX, b"x")]),
    Case("one stream of one way too many", STREAM_LIMIT,
         [stream_frame(2 + 4 * QUIC_UNI_STREAMS_MAX, b"x")]),
    Case("a reset of one stream too many", STREAM_LIMIT,
         [b"\x04" + numbers(4 * QUIC_STREAMS_MAX, 0, 0)]),
    Case("a stop of one stream too many", STREAM_LIMIT,
         [b"\x05" + numbers(4 * QUIC_STREAMS_MAX, 0)]),
    Case("data on a stream that only we send on", STREAM_STATE, [stream_frame(3, b"x")]),
    Case("data on a stream of ours that is not there", STREAM_STATE, [stream_frame(1, b"x")]),
    Case("a reset of a stream that only we send on", STREAM_STATE, [b"\x04" + numbers(3, 0, 0)]),
    Case("a stop of a stream that only the client sends on", STREAM_STATE,
         [b"\x05" + numbers(2, 0)]),
    Case("a stop of a stream of ours that is not there", STREAM_STATE, [b"\x05" + numbers(401, 0)]),
    Case("a window for a stream that only the client sends on", STREAM_STATE,
         [b"\x11" + numbers(2, 5)]),
    Case("a window for a stream of ours that is not there", STREAM_STATE,
         [b"\x11" + numbers(401, 5)]),
    Case("blocked on a stream that only we send on", STREAM_STATE, [b"\x15" + numbers(3, 5)]),
    Case("data behind the end", FINAL_SIZE,
         [stream_frame(2, b"\x21b", ended=True) + stream_frame(2, b"x", offset=2)]),
    Case("another end", FINAL_SIZE,
         [stream_frame(0, b"x", offset=9, ended=True), stream_frame(0, b"", offset=5, ended=True)]),
    Case("an end before what came", FINAL_SIZE,
         [stream_frame(0, b"abcd"), stream_frame(0, b"", offset=2, ended=True)]),
    Case("a reset that ends before what came", FINAL_SIZE,
         [stream_frame(0, b"abcd"), b"\x04" + numbers(0, 0, 2)]),
    Case("a reset that ends elsewhere than the end", FINAL_SIZE,
         [stream_frame(0, b"x", offset=9, ended=True), b"\x04" + numbers(0, 0, 20)]),
    Case("a stream longer than numbers reach", FRAME_ENCODING,
         [b"\x0e" + numbers(0, MOST, 1) + b"x"]),
    Case("more streams of two ways than there are", FRAME_ENCODING,
         [b"\x12" + number((1 << 60) + 1)]),
    Case("more streams of one way than there are", FRAME_ENCODING,
         [b"\x13" + number((1 << 60) + 1)]),
    Case("blocked at more streams of two ways than there are", FRAME_ENCODING,
         [b"\x16" + number((1 << 60) + 1)]),
    Case("blocked at more streams of one way than there are", FRAME_ENCODING,
         [b"\x17" + number((1 << 60) + 1)]),
]  # fmt: skip
PACKETS = [
    Case("a frame of no kind", FRAME_ENCODING, [b"\x21" + bytes(8)]),
    Case("a frame of no kind in an initial packet", FRAME_ENCODING, [b"\x21"], INITIAL),
    Case("a frame of no kind in a handshake packet", FRAME_ENCODING, [bytes(8) + b"\x21"],
         HANDSHAKE),
    Case("half of a kind", FRAME_ENCODING, [bytes(8) + b"\x40"]),
    Case("a packet without a frame", VIOLATION, [b""]),
    Case("a first reserved bit", VIOLATION, [b"\x01" + bytes(8)], ONE_RTT, 0x08),
    Case("a second reserved bit", VIOLATION, [b"\x01" + bytes(8)], ONE_RTT, 0x10),
    Case("a reserved bit of an initial packet", VIOLATION, [b"\x01"], INITIAL, 0x04),
    Case("a reserved bit of a handshake packet", VIOLATION, [b"\x01" + bytes(8)], HANDSHAKE, 0x08),
    Case("an ack of a packet that was never sent", VIOLATION,
         [b"\x02" + numbers(100_000, 0, 0, 0)]),
    Case("an ack of a packet that was never sent, in a handshake packet", VIOLATION,
         [b"\x02" + numbers(100_000, 0, 0, 0)], HANDSHAKE),
    Case("an ack below zero", FRAME_ENCODING, [b"\x02" + numbers(0, 0, 0, 7)]),
    Case("an ack of a range below zero", FRAME_ENCODING, [b"\x02" + numbers(1, 0, 1, 0, 5, 0)]),
    Case("a token of a client", VIOLATION, [b"\x07" + number(4) + b"abcd"]),
    Case("a handshake that the client says is done", VIOLATION, [b"\x1e" + bytes(8)]),
    Case("an identifier without bytes", FRAME_ENCODING, [new_id(9, size=0)]),
    Case("an identifier of 21 bytes", FRAME_ENCODING, [new_id(9, size=21)]),
    Case("an identifier that retires itself and later ones", FRAME_ENCODING,
         lambda client: [new_id(next_id(client), next_id(client) + 1)]),
    Case("two identifiers under one number", VIOLATION,
         lambda client: [new_id(client.quic._host_cids[1].sequence_number, byte=1)]),
    Case("one identifier under two numbers", VIOLATION, id_again),
    Case("more identifiers than we keep", ID_LIMIT,
         lambda client: [new_id(next_id(client) + n, byte=n) for n in range(9)]),
    Case("the retirement of an identifier that was never given", VIOLATION,
         [b"\x19" + number(5000) + bytes(8)]),
    Case("the retirement of the identifier in use", VIOLATION, own_id),
    Case("a handshake longer than numbers reach", FRAME_ENCODING,
         [b"\x06" + numbers(MOST, 1) + b"x"]),
    Case("a handshake far ahead", CRYPTO_BUFFER, [crypto_frame(b"x", 1 << 20)]),
    Case("a handshake far ahead, in an initial packet", CRYPTO_BUFFER,
         [crypto_frame(b"x", 1 << 20)], INITIAL),
    Case("a datagram larger than we take", VIOLATION, [b"\x30" + bytes(1201)]),
    Case("a datagram with its size, larger than we take", VIOLATION,
         [b"\x31" + number(1201) + bytes(1201)]),
]  # fmt: skip
MESSAGES = [
    Case("a second hello", ALERT + 10, [crypto_frame(b"\x01\x00\x00\x04abcd")]),
    Case("an update of keys by TLS", ALERT + 10, [crypto_frame(b"\x18\x00\x00\x01\x00")]),
    Case("a ticket of a client", ALERT + 10, [crypto_frame(b"\x04\x00\x00\x04abcd")]),
    Case("an end of early data", ALERT + 10, [crypto_frame(b"\x05\x00\x00\x00")], HANDSHAKE),
    Case("a certificate that nobody asked for", ALERT + 10,
         [crypto_frame(b"\x0b\x00\x00\x04\x00\x00\x00\x00")], HANDSHAKE),
    Case("a wrong proof", ALERT + 51, [crypto_frame(b"\x14\x00\x00\x20" + bytes(32))], HANDSHAKE),
    Case("a proof that is too short", ALERT + 51, [crypto_frame(b"\x14\x00\x00\x04" + bytes(4))],
         HANDSHAKE),
]  # fmt: skip
CASES = [*STREAMS, *PACKETS, *MESSAGES, *truncated(), *misplaced()]


class Opening(NamedTuple):
    """A hello that is wrong, or its transport parameters."""

    name: str
    code: int
    hello: Change = as_it_is
    parameters: Change = as_it_is


def parameter(name: str, kind: int, value: bytes | None, *, twice: bool = False) -> Opening:
    return Opening(name, PARAMETER, parameters=parameters_with(kind, value, twice=twice))


def replaced(start: int, data: bytes) -> Change:
    """Bytes of the hello that are others."""
    return lambda hello: hello[:start] + data + hello[start + len(data) :]


def with_session(hello: bytes) -> bytes:
    """One that names a session to resume, as TLS over TCP may."""
    body = hello[4:38] + b"\x04abcd" + hello[39:]
    return b"\x01" + len(body).to_bytes(3, "big") + body


def with_suites(suites: bytes) -> Change:
    def change(hello: bytes) -> bytes:
        count = int.from_bytes(hello[39:41], "big")
        body = hello[4:39] + len(suites).to_bytes(2, "big") + suites + hello[41 + count :]
        return b"\x01" + len(body).to_bytes(3, "big") + body

    return change


OPENINGS = [
    Opening("no protocol", ALERT + 120, hello_with(ALPN, None)),
    Opening("a protocol that we do not have", ALERT + 120, hello_with(ALPN, b"\x00\x05\x04smtp")),
    Opening("no transport parameters", ALERT + 109, hello_with(PARAMETERS, None)),
    Opening("an older TLS only", ALERT + 70, hello_with(VERSIONS, b"\x02\x03\x03")),
    Opening("no signature that we have", ALERT + 40, hello_with(SIGNATURES, b"\x00\x02\x02\x01")),
    Opening("no group that we have", ALERT + 40,
            hello_with(KEY_SHARE, b"\x00\x05\x01\x00\x00\x01x")),
    Opening("no share of a key", ALERT + 109, hello_with(KEY_SHARE, None)),
    Opening("no cipher that we have", ALERT + 40, with_suites(b"\x13\x05")),
    Opening("a session of TLS over TCP", VIOLATION, with_session),
    Opening("the hello of a server", ALERT + 10, replaced(0, b"\x02")),
    Opening("a hello that is cut", ALERT + 50, lambda hello: b"\x01\x00\x00\x20" + hello[4:36]),
    Opening("more groups than the extension", ALERT + 50, hello_with(GROUPS, b"\x00\x40\x00\x17")),
    parameter("no identifier of the client", 0x0F, None),
    parameter("another identifier of the client", 0x0F, b"somebody"),
    parameter("an original identifier of a client", 0x00, b"original"),
    parameter("a reset token of a client", 0x02, bytes(16)),
    parameter("a preferred address of a client", 0x0D, bytes(24) + b"\x04abcd" + bytes(16)),
    parameter("a Retry of a client", 0x10, b"retry-id"),
    parameter("packets that are too small", 0x03, number(1199)),
    parameter("an exponent that is too large", 0x0A, number(21)),
    parameter("an ack that waits too long", 0x0B, number(1 << 14)),
    parameter("room for one identifier", 0x0E, number(1)),
    parameter("too many streams of two ways", 0x08, number((1 << 60) + 1)),
    parameter("too many streams of one way", 0x09, number((1 << 60) + 1)),
    parameter("a parameter twice", 0x04, number(1 << 20), twice=True),
    parameter("a number that is cut", 0x04, b"\x80\x00"),
    parameter("a number with more behind it", 0x04, b"\x05\x05"),
    parameter("a wish not to migrate that has a value", 0x0C, b"\x01"),
]  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("keys"), 0)


def told(node: TestNode, act: Callable[[RawClient], None], **named: Any) -> Any:
    """How the connection ended after `act`; the port serves another one meanwhile."""

    async def run() -> Any:
        async with open_port(node, echo) as port:
            async with raw_dial(port.port, **named) as client:
                if not client.closed:
                    act(client)
                await client.until(lambda: client.closed)
                found = client.closed
            async with raw_dial(port.port) as another:
                assert not another.closed
            return found

    return uvloop.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_mistake_is_told_by_its_code(node: TestNode, case: Case) -> None:
    def act(client: RawClient) -> None:
        frames = case.frames(client) if callable(case.frames) else case.frames
        for one in frames:
            client.send(one, bits=case.bits)

    found = told(node, act, stage=case.stage)
    assert hex(found.error_code) == hex(case.code), found


@pytest.mark.parametrize("case", OPENINGS, ids=lambda case: case.name.replace(" ", "-"))
def test_a_hello_that_is_wrong_is_told_by_its_code(node: TestNode, case: Opening) -> None:
    found = told(node, lambda client: None, hello=case.hello, parameters=case.parameters)
    assert hex(found.error_code) == hex(case.code), found
