"""The client port between real sockets: how much is handled at a time, when a connection ends."""

import asyncio
import gc
import time
from pathlib import Path

import pytest
from uvicorn.protocols.http.h11_impl import RequestResponseCycle
from websockets.server import ServerProtocol

from appliance.base import limits
from appliance.drivers.network import accepting, websocket
from appliance.drivers.network.http_requests import HttpProtocol, Streamed
from appliance.drivers.network.websocket import Connection
from tests.drivers.network.client_port import (
    GET,
    HELLO,
    MASK,
    PING,
    Port,
    flood,
    handshake,
    run,
    server_tls,
    trusting,
    until,
)
from tests.drivers.network.kept import kept_of
from tests.patience import within

GONE_S = 20.0  # what is not gone by then waits for the collector


@pytest.mark.parametrize("frame", [PING, HELLO], ids=["pings", "messages"])
def test_a_flood_of_small_frames_holds_nobody_up(frame: bytes) -> None:
    async def test(port: Port) -> None:
        honest = await port.chat()
        await honest.asked()
        floods = [flood(port, frame * 10_000) for _ in range(3)]
        slowest = max([await honest.asked() for _ in range(50)])
        for sock in floods:
            sock.close()
        assert slowest < 0.5  # a read of 256 KiB of such frames takes longer by itself
        await until(lambda: not port.server.turns.waiting)

    run(test)


def test_a_flood_behind_a_closing_is_passed_over_and_ended() -> None:
    async def test(port: Port) -> None:
        honest = await port.chat()
        await honest.asked()
        port.owner.closes = True
        floods = [flood(port, PING * 10_000) for _ in range(5)]
        slowest = max([await honest.asked() for _ in range(50)])
        await until(lambda: port.server.counters["closed_flooding"] == 5)
        for sock in floods:
            sock.close()
        assert port.owner.events["control"] == 5  # the first of each
        assert slowest < 0.5

    run(test)


def test_a_client_that_is_told_to_go_may_say_its_goodbye_behind_what_it_had_sent() -> None:
    async def test(port: Port) -> None:
        port.owner.closes = True
        client = await port.chat()
        started = time.perf_counter()
        goodbye = b"\x88\x82" + MASK + (4001).to_bytes(2, "big")
        client.writer.write(PING * 1000 + goodbye)
        assert (4001).to_bytes(2, "big") in await client.ended()
        assert time.perf_counter() - started < websocket.CLOSE_SECONDS
        assert port.server.counters["closed_late_closing"] == 0
        assert port.server.counters["closed_flooding"] == 0

    run(test)


def test_all_frames_are_handled_in_their_order_however_many_come_at_once() -> None:
    async def test(port: Port) -> None:
        client = await port.chat()
        payloads = [b"%05d" % i for i in range(5000)]
        client.writer.write(b"".join(b"\x82\x85" + MASK + payload for payload in payloads))
        await until(lambda: len(port.owner.messages) == 5000)
        assert port.owner.messages == payloads

    run(test)


def test_a_frame_that_comes_in_pieces_is_handled_when_it_is_whole() -> None:
    async def test(port: Port) -> None:
        client = await port.chat()
        await client.asked()
        frame = b"\x82\xff" + (300_000).to_bytes(8, "big") + MASK + bytes(300_000) + HELLO
        for start in range(0, len(frame), 70_001):
            client.writer.write(frame[start : start + 70_001])
            await client.writer.drain()
            await asyncio.sleep(0.01)
        await until(lambda: len(port.owner.messages) == 3)
        assert [len(message) for message in port.owner.messages] == [5, 300_000, 5]

    run(test)


def test_of_a_client_that_the_owner_does_not_listen_to_little_is_read() -> None:
    async def test(port: Port) -> None:
        port.owner.listens = False
        client = await port.chat()
        client.writer.write(HELLO)
        await until(lambda: port.owner.messages)
        (connection,) = port.server._open
        for _ in range(400):
            client.writer.write(HELLO * 10_000)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert len(port.owner.messages) == 1
        assert len(connection._inbox) <= 2 * 256 * limits.KIB
        port.owner.listens = True
        connection.read_on(True)
        await until(lambda: len(port.owner.messages) > 100_000)

    run(test)


def test_before_hello_a_frame_is_small_and_nothing_else_comes() -> None:
    async def test(port: Port) -> None:
        size = limits.STRANGER_FRAME_SIZE_MAX + 1
        client = await port.chat()
        client.writer.write(b"\x82\xfe" + size.to_bytes(2, "big") + MASK + bytes(size))
        assert (await client.ended())[2:4] == (1009).to_bytes(2, "big")
        assert port.owner.events["oversize"] == 1
        small = await port.chat()
        small.writer.write(PING)
        await until(lambda: port.owner.events["control"])

    run(test)


def test_what_is_written_and_not_read_is_weighed_before_it_is_too_much() -> None:
    """A thousand connections with a little each are as large as one."""

    async def test(port: Port) -> None:
        client = await port.chat()
        await client.asked()
        client.reader._limit = 1024  # it reads no more: this end of the wire is full soon
        (connection,) = port.server.entrance.visitors
        assert port.server.held() == []
        while connection.held < 2 * limits.HELD_MIN:
            connection.write([bytes(limits.HELD_MIN)])
            await asyncio.sleep(0)
        assert not connection.blocked
        assert [of for of, _ in port.server.held()] == [connection]

    run(test)


CONVERSATION = handshake() + HELLO
COMING: dict[str, tuple[bytes, bytes | None]] = {  # what comes, and how its answer begins
    "conversation": (CONVERSATION, b"HTTP/1.1 101"),
    "goodbye": (CONVERSATION + b"\x88\x82" + MASK + b"\x03\xe8", b"HTTP/1.1 101"),
    "no frame": (handshake() + b"\xff" * 16, b"HTTP/1.1 101"),
    "frame too large": (handshake() + b"\x82\xff" + b"\x7f" * 20, b"HTTP/1.1 101"),
    "page": (GET, b"HTTP/1.1 200"),
    "file that is not taken": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"HTTP/1.1 200"),
    "stream that is left": (b"GET /stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"HTTP/1.1 200"),
    "half a second request": (GET + b"G", b"HTTP/1.1 200"),
    "no request": (b"GET / HTTP/1.1\r\nno head\r\n\r\n", b"HTTP/1.1 400"),
    "host refused": (handshake(host="evil.example"), b"HTTP/1.1 403"),
    "subprotocol refused": (handshake().replace(b"binary", b"nix"), b"HTTP/1.1 400"),
    "no handshake": (handshake().replace(b"Host:", b"Host"), b""),
    "half a request": (b"GET / HT", None),
    "half a handshake of TLS": (b"\x16\x03\x01\x02", None),
}


@pytest.mark.parametrize("over", ["plain", "TLS"])
@pytest.mark.parametrize("kind", COMING)
def test_a_connection_that_is_gone_leaves_nothing_for_the_collector(
    kind: str, over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would keep the buffers of its TLS, or its head, until then."""
    sent, expected = COMING[kind]
    tls = server_tls(tmp_path) if over == "TLS" else None
    dialled = None if tls is None or kind == "half a handshake of TLS" else trusting()

    async def once(port: Port) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.server.port, ssl=dialled)
        writer.write(sent)
        if expected is None:
            await asyncio.sleep(0.01)  # it is read by then
        else:
            assert (await reader.readline()).startswith(expected)
        writer.transport.abort()

    parts = [Connection, ServerProtocol, HttpProtocol, RequestResponseCycle, Streamed]
    kept = kept_of(parts, monkeypatch)

    async def test(port: Port) -> None:
        gc.disable()
        try:
            for _ in range(3):
                await once(port)
            await until(lambda: port.server.counters["accepted"] == 3)
            async with within(GONE_S):
                await until(lambda: not kept)  # nothing collects: what is held stays
        finally:
            gc.enable()

    run(test, tls=tls)


@pytest.mark.parametrize(
    ("sent", "state"),
    [
        (b"", "handshake"),
        (b"GET / HT", "head"),
        (GET + b"G", "http"),
        (GET, "http"),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nx", "http"),
    ],
    ids=["nothing", "half a head", "half a second head", "an answer and silence", "half a body"],
)
def test_a_request_has_its_time(monkeypatch: pytest.MonkeyPatch, sent: bytes, state: str) -> None:
    for module in (accepting, websocket):
        monkeypatch.setattr(module, "HELLO_MS_MAX", 300)
    monkeypatch.setattr(websocket, "HTTP_MS_MAX", 300)

    async def test(port: Port) -> None:
        client = await port.dial()
        client.writer.write(sent)
        await client.ended()
        assert port.server.counters[f"ended_{state}"] == 1
        assert port.server.counters[f"closed_late_{state}"] == 1
        assert not port.server.entrance.visitors

    run(test)


def test_a_plain_connection_answers_so_many_requests_and_ends() -> None:
    async def test(port: Port) -> None:
        client = await port.dial()
        client.writer.write(GET * (limits.HTTP_REQUESTS_MAX + 50))
        answers = (await client.ended()).count(b"HTTP/1.1 200")
        assert answers == limits.HTTP_REQUESTS_MAX

    run(test)


@pytest.mark.parametrize(
    ("parts", "good"),
    [
        ([b"\x81\x83" + MASK + b"\xff{}"], False),
        ([b"\x81\x82" + MASK + b"\xc3\xbc"], True),
        ([b"\x01\x81" + MASK + b"\xc3", b"\x80\x81" + MASK + b"\xbc"], True),
        ([b"\x01\x81" + MASK + b"\xc3", b"\x80\x81" + MASK + b"x"], False),
        ([b"\x82\x83" + MASK + b"\xff{}"], True),
    ],
    ids=["broken", "right", "cut in two", "cut and broken", "binary"],
)
def test_text_that_is_not_utf8_ends_the_connection(parts: list[bytes], good: bool) -> None:
    async def test(port: Port) -> None:
        client = await port.chat()
        for part in parts:
            client.writer.write(part)
        if good:
            await until(lambda: port.owner.messages)
            return
        assert (await client.ended()).startswith(b"\x88")
        assert port.server.counters["closed_1007"] == 1
        assert not port.owner.messages

    run(test)


def test_empty_parts_of_a_message_leave_nothing_behind_but_are_told() -> None:
    async def test(port: Port) -> None:
        client = await port.chat()
        await client.asked()
        client.writer.write(b"\x02\x80" + MASK + (b"\x00\x80" + MASK) * 5000)
        await until(lambda: port.owner.events["fragment"] == 5001)
        (connection,) = port.server._open
        assert len(connection._message) == 0

    run(test)


def test_compression_is_not_offered() -> None:
    async def test(port: Port) -> None:
        client = await port.dial()
        client.writer.write(handshake())
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head
        assert b"extensions" not in head.lower()
        client.writer.write(b"\xc2\x85" + MASK + b"hello")  # a compressed frame
        assert (await client.ended()).startswith(b"\x88")

    run(test)


def test_a_welcome_client_that_stays_silent_over_two_pings_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.2)

    async def test(port: Port) -> None:
        silent, alive = await port.chat(), await port.chat()
        await silent.asked()
        await alive.asked()

        async def answer() -> None:
            while True:
                await alive.reader.readexactly(2)  # a ping
                alive.writer.write(b"\x8a\x80" + MASK)

        answering = asyncio.create_task(answer())
        await silent.ended()
        answering.cancel()
        assert port.server.counters["closed_silent"] == 1
        assert port.server.count() == 1

    run(test)
