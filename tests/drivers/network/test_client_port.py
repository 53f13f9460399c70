"""The client port between real sockets: who comes in, how much is handled at a time, when a
connection ends. The owner is a stand-in that answers each message with a pong."""

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.requests import Request
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import RequestResponseCycle
from websockets.server import ServerProtocol

from appliance.base import limits
from appliance.drivers.network import accepting, websocket
from appliance.drivers.network import entrance as entrance_module
from appliance.drivers.network.http_requests import HttpProtocol, Streamed
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.pages import Pages, Seldom
from appliance.drivers.network.tls import show_certificate
from appliance.drivers.network.websocket import Connection, WebSocketServer
from tests.drivers.network.kept import kept_of
from tests.drivers.network.site import make_node
from tests.patience import within

ENDED_S = 60.0  # nothing here takes a second; without a deadline some would never end
GONE_S = 20.0  # what is not gone by then waits for the collector
WEB = Path(websocket.__file__).parents[2] / "web"
MASK = b"\x00\x00\x00\x00"
PING = b"\x89\x80" + MASK
HELLO = b"\x82\x85" + MASK + b"hello"
ANSWER = b"\x82\x02ok"


class Owner:
    """Welcomes whoever says anything; answers messages; may stop to listen."""

    def __init__(self) -> None:
        self.server: WebSocketServer
        self.listens = True
        self.closes = False  # whoever pings
        self.messages: list[bytes] = []
        self.events: Counter[str] = Counter()

    def on_open(self, connection: Connection) -> None:
        self.events["open"] += 1

    def on_client_message(self, connection: Connection, data: bytes, is_text: bool) -> None:
        self.messages.append(data)
        connection.welcome()
        connection.write([ANSWER])
        connection.read_on(self.listens)

    def on_fragment(self, connection: Connection) -> None:
        self.events["fragment"] += 1

    def on_control(self, connection: Connection) -> None:
        self.events["control"] += 1
        if self.closes:
            connection.close(4001, "hello first")

    def on_oversize(self, connection: Connection) -> None:
        self.events["oversize"] += 1
        connection.close(1009, "too large")

    def on_blocked(self, connection: Connection) -> None:
        self.events["blocked"] += 1

    def on_writable(self, connection: Connection) -> None:
        self.events["writable"] += 1

    def on_closed(self, connection: Connection) -> None:
        self.events["closed"] += 1


class Port:
    """The server and its owner."""

    def __init__(self, owner: Owner, server: WebSocketServer) -> None:
        self.owner, self.server = owner, server

    async def dial(self, address: str = "127.0.0.1") -> "Client":
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, local_addr=(address, 0)
        )
        return Client(reader, writer)

    async def chat(self, address: str = "127.0.0.1", origin: str = "") -> "Client":
        client = await self.dial(address)
        client.writer.write(handshake(origin))
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        return client


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def asked(self) -> float:
        """Seconds until a message was answered."""
        started = time.perf_counter()
        self.writer.write(HELLO)
        try:
            while await self.reader.readexactly(1) != b"\x82":
                pass
            answer = await self.reader.readexactly(3)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise AssertionError("the connection ended before the answer") from None
        assert answer == ANSWER[1:]
        return time.perf_counter() - started

    async def ended(self) -> bytes:
        """What comes until the server ends the connection."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(65536):
                data += part
        return data


def handshake(origin: str = "", host: str = "127.0.0.1") -> bytes:
    line = f"Origin: {origin}\r\n" if origin else ""
    return (
        f"GET /v1 HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: tigerchat.v1.binary\r\n"
        f"Sec-WebSocket-Extensions: permessage-deflate\r\n{line}\r\n"
    ).encode()


def server_tls(folder: Path) -> ssl.SSLContext:
    node = make_node(folder, 0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show_certificate(context, node.certificate, node.private)
    return context


def trusting() -> ssl.SSLContext:
    """Of a client that asks for no certificate it knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def stream(request: Request) -> Streamed:
    """An answer without end."""

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"part"
            await asyncio.sleep(0.01)

    return Streamed(parts())


def run(
    test: Callable[[Port], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
    health: Callable[[], str] = str,
    **settings: Any,
) -> None:
    async def whole() -> None:
        owner, hosts = Owner(), Hosts(["chat.example"])
        pages = Pages(
            WEB,
            nodes=lambda: [{"url": "wss://chat.example:8800/v1"}],
            hosts=hosts,
            secure=True,
            health=health,
            full=lambda: server.entrance.is_full,
        )
        pages.serve([Route("/stream", stream)])
        bounds = {
            "connections_max": 20_000,
            "connections_per_address_max": 2_000,
            "address_connect_rate": 250,
        } | settings
        server = owner.server = WebSocketServer(
            owner, make_http=pages.protocol, hosts=hosts, counters=Counter(), **bounds
        )
        await server.start("127.0.0.1", 0, tls=tls, shared=False)
        try:
            async with within(ENDED_S):
                await test(Port(owner, server))
        finally:
            await server.close(0.1)
            await pages.close()

    uvloop.run(whole())


async def until(condition: Callable[[], object]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


# --- turns


def flood(port: Port, data: bytes) -> socket.socket:
    """As much as the kernel takes, on a connection that said hello."""
    sock = socket.create_connection(("127.0.0.1", port.server.port))
    sock.sendall(handshake() + HELLO)
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(data)
    return sock


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


# --- strangers


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


def test_sockets_that_say_nothing_displace_each_other_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entrance_module, "STRANGERS_SILENT_MAX", 64)

    async def test(port: Port) -> None:
        guest = await port.chat("127.0.0.9")
        await guest.asked()
        half = await port.dial("127.0.0.2")
        half.writer.write(handshake()[:20])
        entrance = port.server.entrance
        await until(lambda: entrance._served.count == 1)
        silent = [await port.dial("127.0.0.2") for _ in range(300)]
        await until(lambda: port.server.counters["accepted"] == 302)
        assert entrance.strangers == 65
        assert port.server.counters["stranger_displaced"] == 300 - 64
        honest = await port.chat("127.0.0.2")  # of the same address
        await honest.asked()
        half.writer.write(handshake()[20:])
        assert b" 101 " in await half.reader.readuntil(b"\r\n\r\n")
        await half.asked()
        await guest.asked()
        for client in silent:
            client.writer.close()
        await until(lambda: len(entrance.visitors) == 3)

    run(test)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02"], ids=["nothing", "half a hello"])
def test_sockets_that_never_end_tls_are_few_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(accepting, "HELLO_MS_MAX", 500)

    async def test(port: Port) -> None:
        entrance, door = port.server.entrance, port.server.door
        silent = [await port.dial("127.0.0.2") for _ in range(300)]
        for client in silent:
            client.writer.write(sent)
        await until(lambda: port.server.counters["accepted"] == 300)
        assert (
            len(door._greetings) <= entrance._served.count <= (limits.STRANGERS_MAX if sent else 0)
        )
        came = None
        while came is None:  # it may have to wait for longer than it may take
            with contextlib.suppress(ConnectionError):
                came = await asyncio.open_connection(
                    "127.0.0.1", port.server.port, ssl=trusting(), local_addr=("127.0.0.2", 0)
                )
        reader, writer = came
        writer.write(handshake())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")  # of the same address, with TLS
        assert await Client(reader, writer).asked() < ENDED_S
        ended = await asyncio.gather(*(client.ended() for client in silent))
        assert ended == [b""] * 300  # displaced, or out of time
        assert port.server.counters["ended_handshake"] >= 300
        assert len(entrance.visitors) == 1 and not door._greetings and not door._callers
        writer.close()

    run(test, tls=server_tls(tmp_path))


def test_of_an_address_no_more_than_so_many_come_in_of_whatever_kind() -> None:
    async def test(port: Port) -> None:
        chats = [await port.chat() for _ in range(2)]
        for chat in chats:
            await chat.asked()
        plain = await port.dial()
        plain.writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await plain.reader.readline()).startswith(b"HTTP/1.1 200")
        over = await port.dial()
        assert await over.ended() == b""
        assert port.server.counters["too_many_of_address"] == 1
        assert port.server.counts() == {"websocket": 2, "http": 1}
        assert port.server.entrance.refusals.told() == {"tcp": {"too_many_of_address": 1}}
        plain.writer.close()
        await until(lambda: len(port.server.entrance.visitors) == 2)
        assert port.server.counts() == {"websocket": 2, "http": 0}
        await (await port.chat()).asked()

    run(test, connections_per_address_max=3)


# --- memory


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


# --- plain HTTP

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_plain_connections_that_never_end_a_request_keep_nobody_out() -> None:
    async def test(port: Port) -> None:
        held = []
        for i in range(300):
            client = await port.dial(f"127.0.0.{2 + i % 5}")
            client.writer.write(GET + b"G")
            held.append(client)
        for _ in range(5):
            honest = await port.dial("127.0.0.9")
            honest.writer.write(GET)
            assert (await honest.reader.readline()).startswith(b"HTTP/1.1 200")
            honest.writer.close()
        assert port.server.entrance._served.count <= limits.STRANGERS_MAX
        for client in held:
            client.writer.close()

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


# --- WebSocket, strictly


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


# --- pages of other sites


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "127.0.0.1:8800", True),
        ("https://127.0.0.1:8800", "127.0.0.1:8800", True),
        ("https://chat.example:8800", "127.0.0.1:8800", True),
        ("https://[::1]:8800", "[::1]:8800", True),
        ("https://localhost:8800", "localhost:8800", True),
        ("https://evil.example", "127.0.0.1:8800", False),
        ("https://10.0.0.9", "127.0.0.1:8800", False),
        ("https://chat.example.evil.example", "chat.example", False),
        ("null", "127.0.0.1:8800", False),
        ("", "127.0.0.1:8800", False),
        ("file://", "127.0.0.1:8800", False),
        ("https://user@chat.example", "chat.example", False),
        ("https://chat.example:x", "chat.example", False),
    ],
)
def test_a_page_of_another_site_may_not_connect(
    origin: str | None, host: str, allowed: bool
) -> None:
    assert Hosts(["chat.example"]).may_connect(origin, host) is allowed


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3:8800", True),
        ("[::1]:8800", True),
        ("localhost:8800", True),
        ("CHAT.example.:8800", True),
        ("evil.example", False),
        ("", False),
        (None, False),
        ("chat.example/x", False),
        ("chat.example:99999999", False),
    ],
)
def test_a_host_that_is_not_ours_is_not_asked_for(host: str | None, allowed: bool) -> None:
    assert Hosts(["Chat.Example"]).may_ask(host) is allowed


def test_handshakes_and_pages_for_others_are_refused_and_counted() -> None:
    async def test(port: Port) -> None:
        for sent in (handshake("https://evil.example"), handshake(host="evil.example")):
            client = await port.dial()
            client.writer.write(sent)
            assert (await client.ended()).startswith(b"HTTP/1.1 403")
        assert port.server.counters["origin_refused"] == 2
        assert port.server.entrance.refusals.told() == {"websocket": {"other_site": 2}}
        await (await port.chat(origin="https://127.0.0.1:1")).asked()
        for host, code in ((b"evil.example", b"421"), (b"chat.example", b"200")):
            client = await port.dial()
            client.writer.write(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 " + code)
            client.writer.close()
        allowed = b"connect-src 'self' wss://chat.example:8800 https://chat.example:8800;"
        assert allowed in head
        for name in (
            b"strict-transport-security: max-age=",
            b"cross-origin-opener-policy: same-origin",
            b"cross-origin-resource-policy: same-origin",
            b"cache-control: no-store",
            b"require-trusted-types-for 'script'",
        ):
            assert name in head, name
        assert head.count(b"cache-control") == 1

    run(test)


def test_what_strangers_cause_is_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    async def test(port: Port) -> None:
        for _ in range(20):
            client = await port.dial()
            client.writer.write(b"\xff\xff\xff\r\n\r\n")
            await client.ended()
        assert port.server.counters["http"] == 20

    run(test)
    assert len([line for line in caplog.records if line.name == "uvicorn.error"]) <= 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("uvicorn.error", "Invalid HTTP request received."),
        ("uvicorn.error", "Unsupported upgrade request."),
        ("uvicorn.error", "No supported WebSocket library detected."),
        ("asyncio", "socket.send() raised exception."),
        ("asyncio", "SSL handshake failed on verifying the certificate"),
        ("asyncio", "Fatal error on transport TCPTransport"),
        ("tigerchat.quic", "the library of QUIC failed: KeyError(7) at fails:1"),
    ],
)
def test_each_line_that_strangers_can_cause_is_logged_seldom(
    name: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(port: Port) -> None:
        for _ in range(3):
            logging.getLogger(name).warning("%s", line)

    run(test)
    assert len([told for told in caplog.records if told.getMessage().startswith(line)]) <= 1


def test_faults_of_our_own_are_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """Beside lines of strangers, whose loggers they share."""

    def at_fault() -> None:
        raise KeyError("ours")

    async def lost() -> None:
        raise ConnectionError("our own, too: nobody looked at the task")

    async def test(port: Port) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            client = await port.dial()
            client.writer.write(b"\xff\xff\xff\r\n\r\n")
            await client.ended()
            loop.call_soon(at_fault)
            task = loop.create_task(lost())
            await asyncio.wait([task])
            del task
            gc.collect()
            logging.getLogger("uvicorn.error").error("Exception in ASGI application\n")

    run(test)
    said = Counter(line.getMessage().split()[:3][-1] for line in caplog.records)
    begins = ("Task exception was", "Exception in callback", "Exception in ASGI")
    assert [said[words.split()[-1]] for words in begins] == [3, 3, 3]


def test_a_line_of_a_connection_with_an_exception_that_is_none_of_it_passes() -> None:
    seldom = Seldom(("Fatal error on ",))

    def passes(error: Exception) -> bool:
        info = (type(error), error, None)
        line = logging.LogRecord("asyncio", logging.ERROR, "", 1, "Fatal error on x", (), info)
        return bool(seldom.filter(line))

    assert [passes(OSError()), passes(OSError()), passes(KeyError()), passes(KeyError())] == [
        True,
        False,
        True,
        True,
    ]


def test_a_client_that_leaves_amid_its_flood_is_answered_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(port: Port) -> None:
        for _ in range(5):
            flood(port, PING * 10_000).close()
        await until(lambda: port.owner.events["closed"] == 5)
        assert not port.server.turns.waiting

    run(test)
    assert not [line for line in caplog.records if line.name == "asyncio"]
