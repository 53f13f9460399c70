"""A client port between real sockets, for tests. The owner is a stand-in that answers each message
with a pong."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from starlette.requests import Request
from starlette.routing import Route

from appliance.drivers.network import websocket
from appliance.drivers.network.http_requests import Streamed
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.pages import Pages
from appliance.drivers.network.tls import show_certificate
from appliance.drivers.network.websocket import Connection, WebSocketServer
from tests.drivers.network.site import make_node
from tests.patience import within

ENDED_S = 60.0  # nothing here takes a second; without a deadline some would never end
WEB = Path(websocket.__file__).parents[2] / "web"
MASK = b"\x00\x00\x00\x00"
PING = b"\x89\x80" + MASK
HELLO = b"\x82\x85" + MASK + b"hello"
ANSWER = b"\x82\x02ok"
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


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


def flood(port: Port, data: bytes) -> socket.socket:
    """As much as the kernel takes, on a connection that said hello."""
    sock = socket.create_connection(("127.0.0.1", port.server.port))
    sock.sendall(handshake() + HELLO)
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(data)
    return sock
