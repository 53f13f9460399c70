"""Whatever comes on a stream, and however it ends: that connection is over and nothing else. An
error that nobody caught would end the role, as one of our own does."""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette

from appliance.drivers.network.framing import Signer
from appliance.drivers.network.joining import Gathering, Row
from appliance.drivers.network.local import LocalServer, make_ring
from appliance.drivers.network.objects_link import OBJECTS_SOCKET
from appliance.drivers.network.operator_port import OperatorPort, bind
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.pages import Pages
from appliance.drivers.network.status import WISH_SIZE_MAX, StatusServer
from appliance.drivers.network.stream.acceptor import Acceptor
from appliance.drivers.network.tls import server_context
from appliance.drivers.network.websocket import WebSocketServer
from appliance.formats.envelope import SENDER_CLIENT
from appliance.formats.local import LOCAL_OBJECTS, LOCAL_STATUS, question
from tests.drivers.network.client_port import (
    HELLO,
    MASK,
    PING,
    WEB,
    Owner,
    handshake,
    server_tls,
    trusting,
)
from tests.drivers.network.site import Recorder, make_node
from tests.drivers.network.test_local import Heard
from tests.drivers.network.test_stream import End
from tests.patience import HUNG_S, within
from tests.roles.objects_site import Running, site_of
from tests.statuses import attachment

CLUSTER = bytes(range(16))


@dataclass
class Port:
    """Where to dial, by TLS as a stranger or not, and how many it holds of those that did."""

    place: Path | int
    held: Callable[[], int]
    tls: ssl.SSLContext | None = None


Opened = AbstractAsyncContextManager[Port]


def control(body: bytes, command: int = LOCAL_STATUS, cluster: bytes = CLUSTER) -> bytes:
    header = question(command, 1, cluster=cluster, shard=0, body=body)
    return bytes(Signer(sender=SENDER_CLIENT, key=None).frame(header, body))


@contextlib.asynccontextmanager
async def client_port(folder: Path, tls: bool = False) -> AsyncIterator[Port]:
    owner, hosts = Owner(), Hosts(["chat.example"])
    pages = Pages(WEB, nodes=list, hosts=hosts, secure=True, health=lambda: "")
    server = owner.server = WebSocketServer(
        owner,
        make_http=pages.protocol,
        hosts=hosts,
        counters=Counter(),
        connections_max=1000,
        connections_per_address_max=1000,
        address_connect_rate=1000,
    )
    context = server_tls(folder) if tls else None
    await server.start("127.0.0.1", 0, tls=context, shared=False)
    yield Port(server.port, lambda: len(server.entrance.visitors), trusting() if tls else None)
    await server.close(0.1)
    await pages.close()


@contextlib.asynccontextmanager
async def status_socket(folder: Path) -> AsyncIterator[Port]:
    path = folder / "s"
    server = StatusServer(path, cluster=CLUSTER, number=0, status=dict, on_wish=lambda asked: asked)
    await server.start()
    yield Port(path, lambda: len(server.askers))
    await server.close()


@contextlib.asynccontextmanager
async def objects_socket(folder: Path) -> AsyncIterator[Port]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        number = sock.getsockname()[1]
    site = Running(site_of(folder, [number]))
    site.start(0)
    await site.ask(0, do="vv")
    role = site.roles[0]
    server = role._listener._server
    yield Port(site.folders[0].path / "sockets" / OBJECTS_SOCKET, lambda: len(server.askers))
    await site.stop(0)


@contextlib.asynccontextmanager
async def replica_socket(folder: Path) -> AsyncIterator[Port]:
    heard = Heard()
    ring_fd, _ = make_ring(1 << 16)
    server = LocalServer(
        heard,
        cluster=CLUSTER,
        shard=0,
        sender=0,
        message_size_max=1 << 20,
        ring_fd=ring_fd,
        attachment=lambda: attachment(1 << 16),
        counters=Counter(),
        drops=Counter(),
    )
    await server.start(folder / "r")
    yield Port(folder / "r", lambda: len(server._connections))
    await server.close()


@contextlib.asynccontextmanager
async def peer_port(folder: Path) -> AsyncIterator[Port]:
    nodes = [make_node(folder, index) for index in range(2)]
    server = Recorder(nodes)
    listener = await server.listen(nodes[0].server(nodes))
    yield Port(listener.port, listener.count, trusting())
    await listener.close()


@contextlib.asynccontextmanager
async def stream_port(folder: Path, tls: bool = True) -> AsyncIterator[Port]:
    node, end = make_node(folder, 0), End()
    context = server_context(node.certificate, node.private, [node.pem]) if tls else None
    acceptor = Acceptor(end.make, context=context, pins={node.spki: "0"}, counters=end.counters)
    await acceptor.start("127.0.0.1", 0)
    held = lambda: acceptor.count() + len(acceptor._handshakes)  # noqa: E731
    yield Port(acceptor.port, held, trusting() if tls else None)
    await acceptor.close()


@contextlib.asynccontextmanager
async def console_port(folder: Path) -> AsyncIterator[Port]:
    port = OperatorPort(Starlette(), server_tls(folder), Counter())
    sock = bind("127.0.0.1", 0)
    port.start(sock)
    yield Port(sock.getsockname()[1], port.count, trusting())
    await port.close()


async def nobody(rows: list[Row]) -> list[Row]:
    return []


@contextlib.asynccontextmanager
async def founding_port(folder: Path) -> AsyncIterator[Port]:
    node = make_node(folder, 0)
    gate = Gathering(
        node.certificate,
        node.private,
        [b"s" * 16],
        cluster=bytes(16),
        seconds=10 * HUNG_S,
        check=lambda row, others: None,
        told=lambda sentence: None,
        expired="",
    )
    with socket.create_server(("127.0.0.1", 0)) as sock:
        number = sock.getsockname()[1]
    gathering = asyncio.ensure_future(gate.gather("127.0.0.1", number, nobody))
    writer = None
    while writer is None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", number)
        await asyncio.sleep(0.01)
    writer.close()
    yield Port(number, lambda: gate._strangers, trusting())
    gathering.cancel()
    await asyncio.gather(gathering, return_exceptions=True)


PORTS: dict[str, Callable[[Path], Opened]] = {
    "clients": client_port,
    "clients by TLS": lambda folder: client_port(folder, tls=True),
    "status": status_socket,
    "objects": objects_socket,
    "replica": replica_socket,
    "peers": peer_port,
    "streams": stream_port,
    "plain streams": lambda folder: stream_port(folder, tls=False),
    "console": console_port,
    "founding": founding_port,
}
OF_OBJECTS = bytes([1]) * 16  # the cluster of their site
DEEP = b"[" * 3000
REQUESTS = [
    DEEP,
    b'{"do":"vv","of":' + DEEP,
    b'{"do":["vv"]}',
    b'{"do":{"vv":1}}',
    b'{"do":"topic","room":5,"text":"x"}',
    b'{"do":"topic","room":"lobby","text":"\\ud800"}',
    b'{"do":"topic","room":"\\udfff","text":"x"}',
    b'{"do":"pin","room":"lobby","message":"\\ud800"}',
    b'{"do":"reaction","message":"\\ud800","author":"\\ud800","emoji":"\\ud800"}',
    b'{"do":"new","class":"\\ud800","values":["\\ud800"]}',
    b'{"do":"live","said":{"typing":"\\ud800"}}',
    b'{"do":"live","said":[[[]]]}',
    b'{"do":"vv","of":1e999}',
    b'{"do":"vv","of":' + b"9" * 5000 + b"}",
    b'{"do":"room","room":"\\u0000"}',
    b'"\xff\xfe"',
    b"null",
]

STREAMS: dict[str, bytes] = {
    "nothing": b"",
    "a byte": b"\0",
    "bytes of all values": bytes(range(256)) * 300,
    "the begin of TLS": b"\x16\x03\x01\x02\x00\x01\x00",
    "a hello of TLS that lies": b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff" + b"x" * 500,
    "an alert of TLS": b"\x15\x03\x03\x00\x02\x02\x50",
    "half a request": b"GET /v1 HTTP/1.1\r\nHost: 127",
    "a request without sense": b"\xff\xfe \xff HTTP/9\r\n\xe9: \xe9\r\n\r\n",
    "a request that never ends": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\nx",
    "a chunk without a size": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a page, and its end": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3,
    "a handshake of odd fields": handshake(host="[::1") + handshake("http://[", "\u00e9"),
    "a handshake": handshake(),
    "frames that wait for their turn": handshake() + PING * 3000 + HELLO * 2000,
    "a frame cut off": handshake() + b"\x82\xfe",
    "a text that is none": handshake() + b"\x81\x82" + MASK + b"\xff\xfe",
    "a closing that is none": handshake() + b"\x88\x81" + MASK + b"x" + HELLO * 2000,
    "frames behind a closing": handshake() + b"\x88\x80" + MASK + HELLO * 2000,
    "parts without a begin": handshake() + b"\x80\x80" + MASK + HELLO * 2000,
    **{f"request {body[:60]!r}": control(body, LOCAL_OBJECTS, OF_OBJECTS) for body in REQUESTS},
    "a request that is too large": control(b" " * (2 << 20), LOCAL_OBJECTS, OF_OBJECTS),
    "half a request of objects": control(b'{"do":"vv"}', LOCAL_OBJECTS, OF_OBJECTS)[:100],
    "a request and the next": control(b'{"do":"watch"}', LOCAL_OBJECTS, OF_OBJECTS) * 300,
    "a line without end": b"x" * (2 << 20),
    "a control request that is deep": control(b"[" * WISH_SIZE_MAX),
    "a control request that is no text": control(b"\xff"),
    "a control request of half a character": control(b'{"a":"\\ud800"}'),
    "a number too long": control(b'{"a":' + b"9" * 4000),
}  # fmt: skip
ENDS = ["half", "whole", "reset"]


async def say(port: Port, data: bytes, end: str, *, tls: bool) -> None:
    """Send `data` and end; what is answered is read until the other side ends, or for nothing."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        if isinstance(port.place, int):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.place)
        else:
            reader, writer = await asyncio.open_unix_connection(str(port.place))
        if tls:
            await writer.start_tls(port.tls or trusting())
        writer.write(data)
        if end == "half" and writer.can_write_eof():
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
        elif end == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writer.close()
        await writer.wait_closed()


async def gone(port: Port) -> None:
    while port.held():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", PORTS)
def test_nothing_that_a_stream_holds_is_an_error_of_the_process(kind: str, tmp_path: Path) -> None:
    told: list[str] = []

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        told.append(f"{now}: {context.get('message')}: {context.get('exception')!r}")

    async def story() -> None:
        nonlocal now
        asyncio.get_running_loop().set_exception_handler(tell)
        async with PORTS[kind](tmp_path) as port, within(HUNG_S):
            asyncio.get_running_loop().set_exception_handler(tell)
            for name, data in STREAMS.items():
                for end in ENDS:
                    for tls in [False, True] if port.tls else [False]:
                        now = f"{name}, {end}, {'TLS' if tls else 'plain'}"
                        await say(port, data, end, tls=tls)
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(1):
                                await gone(port)
            await gone(port)

    now = ""
    uvloop.run(story())
    assert told == [], json.dumps(told, indent=1)
