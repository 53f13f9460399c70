"""Every mistake of a client in HTTP/3 is answered with the code that the RFC names.

RFC 9114 (HTTP/3), RFC 9204 (QPACK), RFC 9220 (WebSocket and its CONNECT), RFC 9297 (datagrams). A
mistake in one request ends that request; one in what the requests share ends the connection.
"""

import asyncio
from typing import NamedTuple

import pytest
import uvloop

from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.quic.raw_client import (
    RawClient,
    fields,
    http_frame,
    number,
    numbers,
    raw_dial,
    stream_frame,
)
from tests.drivers.network.site import TestNode, make_node

CREATION, CLOSED_CRITICAL, UNEXPECTED, FRAME = 0x103, 0x104, 0x105, 0x106
LOAD, ID, SETTINGS, MISSING_SETTINGS = 0x107, 0x108, 0x109, 0x10A
INCOMPLETE, MESSAGE, DATAGRAM = 0x10D, 0x10E, 0x33
DECOMPRESSION, ENCODER, DECODER = 0x200, 0x201, 0x202
REQUEST, CONTROL, ENCODING, DECODING, OTHER = 0, 2, 6, 10, 14  # streams that the client opens

GET = ((":method", "GET"), (":scheme", "https"), (":authority", "127.0.0.1"), (":path", "/"))
POST = ((":method", "POST"), *GET[1:])
WEBSOCKET = (
    (":method", "CONNECT"), (":protocol", "websocket"), *GET[1:3], (":path", "/v1"),
    ("sec-websocket-version", "13"), ("sec-websocket-protocol", "tigerchat.v1.json"),
)  # fmt: skip
SET_NOTHING = http_frame(4, b"")


class Case(NamedTuple):
    """`sent` is (stream, bytes, whether they are its last); `stream`: the one that is broken off,
    or the connection if there is none."""

    name: str
    code: int
    sent: list[tuple[int, bytes, bool]]
    stream: int | None = None


def control(name: str, code: int, *frames: bytes, ended: bool = False) -> Case:
    """What comes on the control stream, behind its kind."""
    return Case(name, code, [(CONTROL, number(0) + b"".join(frames), ended)])


def settled(name: str, code: int, *frames: bytes) -> Case:
    """The same, behind settings."""
    return control(name, code, SET_NOTHING, *frames)


def request(name: str, code: int, *frames: bytes, ended: bool = False) -> Case:
    """On the stream of a request; ends the connection."""
    return Case(name, code, [(REQUEST, b"".join(frames), ended)])


def message(name: str, *pairs: tuple[str, str], code: int = MESSAGE) -> Case:
    """A request whose head is malformed."""
    return Case(name, code, [(REQUEST, fields(*pairs), False)], REQUEST)


def without(name: str, pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[0] != name]


CONTROLS = [
    control("no settings first", MISSING_SETTINGS, http_frame(7, b"\x00")),
    control("a frame of no kind before settings", MISSING_SETTINGS, http_frame(0x21, b"x")),
    settled("settings twice", UNEXPECTED, SET_NOTHING),
    settled("data on the control stream", UNEXPECTED, http_frame(0, b"x")),
    settled("a head on the control stream", UNEXPECTED, fields(*GET)),
    settled("a promise on the control stream", UNEXPECTED, http_frame(5, b"\x00")),
    control("a setting twice", SETTINGS, http_frame(4, numbers(6, 100, 6, 100))),
    control("a setting that is cut", FRAME, http_frame(4, number(6))),
    *[control(f"setting {kind} of HTTP/2", SETTINGS, http_frame(4, numbers(kind, 1)))
      for kind in (0x0, 0x2, 0x3, 0x4, 0x5)],
    control("an extended CONNECT that is neither on nor off", SETTINGS,
            http_frame(4, numbers(0x8, 2))),
    control("datagrams that are neither on nor off", SETTINGS, http_frame(4, numbers(0x33, 2))),
    *[settled(f"frame {kind} of HTTP/2 on the control stream", UNEXPECTED, http_frame(kind, b""))
      for kind in (0x2, 0x6, 0x8, 0x9)],
    settled("a largest push that sinks", ID, http_frame(13, number(9)), http_frame(13, number(8))),
    settled("a largest push with more behind it", FRAME, http_frame(13, numbers(8, 8))),
    settled("a largest push that is cut", FRAME, http_frame(13, b"\x40")),
    settled("the end of a push that was never promised", ID, http_frame(3, number(5))),
    settled("a largest push that is too large", LOAD, numbers(13, 1 << 20),
            bytes(1000)),
    control("the end of the control stream", CLOSED_CRITICAL, SET_NOTHING, ended=True),
    Case("the end of the encoder's stream", CLOSED_CRITICAL, [(ENCODING, number(2), True)]),
    Case("the end of the decoder's stream", CLOSED_CRITICAL, [(DECODING, number(3), True)]),
    Case("two control streams", CREATION,
         [(CONTROL, number(0) + SET_NOTHING, False), (OTHER, number(0) + SET_NOTHING, False)]),
    Case("two streams of encoders", CREATION,
         [(ENCODING, number(2), False), (OTHER, number(2), False)]),
    Case("two streams of decoders", CREATION,
         [(DECODING, number(3), False), (OTHER, number(3), False)]),
    Case("a push of a client", CREATION, [(OTHER, numbers(1, 0), False)]),
]  # fmt: skip
REQUESTS = [
    request("data before a head", UNEXPECTED, http_frame(0, b"x")),
    request("a head behind trailers", UNEXPECTED,
            fields(*POST), fields(("a", "b")), fields(("a", "b"))),
    request("data behind trailers", UNEXPECTED,
            fields(*POST), fields(("a", "b")), http_frame(0, b"x")),
    request("settings on a request", UNEXPECTED, SET_NOTHING),
    request("a farewell on a request", UNEXPECTED, http_frame(7, b"\x00")),
    request("a largest push on a request", UNEXPECTED, http_frame(13, b"\x00")),
    request("the end of a push on a request", UNEXPECTED, http_frame(3, b"\x00")),
    request("a promise of a client", UNEXPECTED, fields(*POST), http_frame(5, b"\x00")),
    *[request(f"frame {kind} of HTTP/2 on a request", UNEXPECTED, http_frame(kind, b""))
      for kind in (0x2, 0x6, 0x8, 0x9)],
    request("a head that ends amid", FRAME, fields(*GET)[:-1], ended=True),
    request("data that ends amid", FRAME, fields(*POST), numbers(0, 10) + b"x", ended=True),
    request("a frame of no kind that ends amid", FRAME,
            fields(*POST), numbers(0x21, 9), ended=True),
    request("a head that is too large", LOAD, numbers(1, 1 << 20), bytes(1000)),
    Case("a request without anything", INCOMPLETE, [(REQUEST, b"", True)], REQUEST),
    Case("a request of a frame of no kind", INCOMPLETE,
         [(REQUEST, http_frame(0x21, b"x"), True)], REQUEST),
    Case("a body longer than said", MESSAGE,
         [(REQUEST, fields(*POST, ("content-length", "1")) + http_frame(0, b"xy"), True)], REQUEST),
    Case("a body shorter than said", MESSAGE,
         [(REQUEST, fields(*POST, ("content-length", "3")) + http_frame(0, b"xy"), True)], REQUEST),
    Case("a body that was said and is not there", MESSAGE,
         [(REQUEST, fields(*POST, ("content-length", "3")), True)], REQUEST),
    Case("a pseudo-header in trailers", MESSAGE,
         [(REQUEST, fields(*POST) + fields((":path", "/")), True)], REQUEST),
]  # fmt: skip
HEADS = [
    message("a name in capitals", *GET, ("Accept", "x")),
    message("a name with a space", *GET, ("a b", "x")),
    message("a name with a colon", *GET, ("a:b", "x")),
    message("a value with a line break", *GET, ("a", "b\nc")),
    message("a value with a return", *GET, ("a", "b\rc")),
    message("a value with a zero", *GET, ("a", "b\0c")),
    message("a value that begins with a space", *GET, ("a", " b")),
    *[message(f"no {name[1:]}", *without(name, GET)) for name, _ in GET],
    *[message(f"{name[1:]} twice", *GET[:1], (name, value), *GET[1:]) for name, value in GET],
    message("a pseudo-header of an answer", (":status", "200"), *GET),
    message("a pseudo-header of no kind", (":colour", "green"), *GET),
    message("a pseudo-header behind a field", GET[0], ("a", "b"), *GET[1:]),
    message("a path that is empty", *GET[:3], (":path", "")),
    message("a path that is none", *GET[:3], (":path", "here")),
    message("another host", *GET, ("host", "example.com")),
    message("a connection", *GET, ("connection", "close")),
    message("keep-alive", *GET, ("keep-alive", "5")),
    message("a proxy's connection", *GET, ("proxy-connection", "close")),
    message("chunks", *POST, ("transfer-encoding", "chunked")),
    message("an upgrade", *GET, ("upgrade", "websocket")),
    message("te of gzip", *GET, ("te", "gzip")),
    message("a length that is no number", *POST, ("content-length", "few")),
    message("a length below zero", *POST, ("content-length", "-1")),
    message("a length with a sign", *POST, ("content-length", "+1")),
    message("a length with an underscore", *POST, ("content-length", "1_0")),
    message("two lengths", *POST, ("content-length", "1"), ("content-length", "2")),
    message("a WebSocket by GET", GET[0], (":protocol", "websocket"), *GET[1:]),
    message("a WebSocket without a path", *without(":path", WEBSOCKET)),
    message("a WebSocket without a scheme", *without(":scheme", WEBSOCKET)),
    message("a WebSocket without a host", *without(":authority", WEBSOCKET)),
    message("a CONNECT with a path", (":method", "CONNECT"), *GET[2:]),
    message("a CONNECT with a scheme", (":method", "CONNECT"), *GET[1:3]),
]
HEAD_START = b"\x00\x00"  # of a field section: no insertions are needed
FIELDS = [
    request("a field of the table that we do not keep", DECOMPRESSION,
            http_frame(1, b"\x02\x00\x80")),
    request("a field of the table behind the base", DECOMPRESSION,
            http_frame(1, HEAD_START + b"\x10")),
    request("a field beyond the fixed table", DECOMPRESSION,
            http_frame(1, HEAD_START + b"\xff\x80\x01")),
    request("a field that is cut", DECOMPRESSION, http_frame(1, HEAD_START + b"\x51\x20ab")),
    request("a number that is too large", DECOMPRESSION,
            http_frame(1, HEAD_START + b"\xff" + b"\xff" * 12)),
    request("a head without its start", DECOMPRESSION, http_frame(1, b"\x00")),
    request("a code of Huffman that is none", DECOMPRESSION,
            http_frame(1, HEAD_START + b"\x51\x84\xff\xff\xff\xff")),
    Case("a table larger than we allow", ENCODER, [(ENCODING, number(2) + b"\x3f\xe1\x1f", False)]),
    Case("an insertion into a table of no size", ENCODER,
         [(ENCODING, number(2) + b"\xc0\x01a", False)]),
    Case("a literal insertion into a table of no size", ENCODER,
         [(ENCODING, number(2) + b"\x41a\x01b", False)]),
    Case("a copy of what is not in the table", ENCODER, [(ENCODING, number(2) + b"\x00", False)]),
    Case("an increment by nothing", DECODER, [(DECODING, number(3) + b"\x00", False)]),
    Case("an increment beyond what was sent", DECODER, [(DECODING, number(3) + b"\x05", False)]),
    Case("an acknowledgement of no head", DECODER, [(DECODING, number(3) + b"\x80", False)]),
]  # fmt: skip
CASES = [*CONTROLS, *REQUESTS, *HEADS, *FIELDS]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("keys"), 0)


def wanted(case: Case) -> tuple[int | None, str]:
    return case.stream, hex(case.code)


async def outcome(client: RawClient, case: Case) -> tuple[int | None, str]:
    """What was broken off, a stream or else the connection, and with which code."""
    for stream_id, data, ended in case.sent:
        client.say(stream_id, data, ended=ended)
    await client.until(lambda: client.closed or client.resets)
    if client.closed:
        assert client.closed.frame_type is None, client.closed  # it is a code of HTTP/3
        return None, hex(client.closed.error_code)
    ((stream, code),) = client.resets.items()
    return stream, hex(code)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_mistake_in_http3_is_told_by_its_code(node: TestNode, case: Case) -> None:
    async def run() -> None:
        async with open_port(node, echo) as port, raw_dial(port.port) as client:
            assert await outcome(client, case) == wanted(case)
            if case.stream is not None:  # the connection serves on
                client.say(4, fields(*GET), ended=True)
                await client.until(lambda: client.heard.get(4) or client.closed)
                assert not client.closed

    uvloop.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("data", [b"", b"\x40"], ids=["empty", "cut"])
def test_a_datagram_of_no_session_is_told_by_its_code(node: TestNode, data: bytes) -> None:
    async def run() -> None:
        async with open_port(node, echo) as port, raw_dial(port.port) as client:
            client.send(b"\x31" + number(len(data)) + data + bytes(4))
            await client.until(lambda: client.closed)
            assert hex(client.closed.error_code) == hex(DATAGRAM)

    uvloop.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("stream_id", [3, 7, 11], ids=["control", "encoder", "decoder"])
def test_a_stream_that_all_share_may_not_be_stopped(node: TestNode, stream_id: int) -> None:
    async def run() -> None:
        async with open_port(node, echo) as port, raw_dial(port.port) as client:
            client.send(b"\x05" + numbers(stream_id, 0))
            await client.until(lambda: client.closed)
            assert hex(client.closed.error_code) == hex(CLOSED_CRITICAL)

    uvloop.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("kind", [0, 2, 3], ids=["control", "encoder", "decoder"])
def test_a_stream_that_all_share_may_not_be_reset(node: TestNode, kind: int) -> None:
    async def run() -> None:
        async with open_port(node, echo) as port, raw_dial(port.port) as client:
            client.send(stream_frame(2, number(kind)) + b"\x04" + numbers(2, 0, 1))
            await client.until(lambda: client.closed)
            assert hex(client.closed.error_code) == hex(CLOSED_CRITICAL)

    uvloop.run(asyncio.wait_for(run(), 60))
