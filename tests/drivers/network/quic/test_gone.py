"""Connections on QUIC that have ended: they are gone with the last reference to them, for the
library's own refers to itself some fifty times over, with keys, streams and what it has sent."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from appliance.base.limits import HTTP_REQUESTS_MAX
from appliance.cores.edge.websocket import OPCODE_BINARY, server_frame
from appliance.drivers.network import websocket
from appliance.drivers.network.http_requests import Streamed
from appliance.drivers.network.owner import STREAM
from appliance.drivers.network.quic import client as client_module
from appliance.drivers.network.quic.client import Client
from appliance.drivers.network.quic.exchange import Exchange
from appliance.drivers.network.quic.port import QuicPort
from appliance.drivers.network.quic.stream_transport import StreamTransport
from appliance.drivers.network.quic.webtransport import Session
from appliance.drivers.quic.library import BoundedConnection, BoundedHttp3
from appliance.formats.client.stream import framed
from tests.drivers.network.kept import kept_of
from tests.drivers.network.quic.port_site import open_port
from tests.drivers.network.quic.quic_client import H3Client, dial
from tests.drivers.network.site import TestNode, make_node
from tests.patience import within
from tests.roles.ways import OverQuic, WebSocketHttp3, WebTransport

GONE_S = 20.0  # what is not gone by then waits for the collector
TIMES = 3
PARTS = [
    *(Client, BoundedConnection, BoundedHttp3, Exchange, Streamed),
    *(Session, StreamTransport, websocket.Connection),
]
Coming = Callable[[QuicPort], Awaitable[None]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("node"), 0)


class Owner:
    """Welcomes whoever says anything, and says it again."""

    def admit(self, address: str, token: str) -> Any:
        return None

    def on_open(self, connection: Any) -> None:
        """It may speak."""

    def on_client_message(self, connection: Any, data: bytes, is_text: bool) -> None:
        connection.welcome()
        is_stream = connection.framing == STREAM
        connection.write([framed(data) if is_stream else server_frame(data, OPCODE_BINARY)])

    def on_closed(self, connection: Any) -> None:
        """Nothing is kept."""


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse("answer")


async def stay(request: Request) -> Streamed:
    """An answer without end."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"part"
        await asyncio.Event().wait()

    return Streamed(parts())


APP = Starlette(routes=[Route("/", answer), Route("/stay", stay)])


# --- who comes, and how it goes


async def says_nothing(port: QuicPort) -> None:
    async with dial(port.port):
        pass


async def asks(port: QuicPort) -> None:
    async with dial(port.port) as client:
        for path in ("/", "/", "/nowhere"):
            await client.fetch(path)


async def asks_as_often_as_strangers_may(port: QuicPort) -> None:
    async with dial(port.port) as client:
        for _ in range(HTTP_REQUESTS_MAX):
            await client.fetch("/")
        await client.until(lambda: client.goaway or len(client.answers) >= HTTP_REQUESTS_MAX)


async def _listens(client: H3Client) -> int:
    stream_id = await client.request("/stay")
    await client.until(lambda: client.answer(stream_id).body)
    return stream_id


async def goes_amid_an_answer(port: QuicPort) -> None:
    async with dial(port.port) as client:
        await _listens(client)


async def gives_an_answer_up(port: QuicPort) -> None:
    async with dial(port.port) as client:
        stream_id = await _listens(client)
        client._quic.stop_stream(stream_id, 0x10C)
        client.transmit()
        await client.fetch("/")


async def sends_no_request(port: QuicPort) -> None:
    async with dial(port.port) as client:
        await client.until(lambda: client.http is not None)
        client._quic.send_stream_data(0, b"\x01\x03abc", True)
        client.transmit()
        await client.until(lambda: client.terminated or client.answer(0).reset is not None)


async def is_expelled(port: QuicPort) -> None:
    async with dial(port.port) as client:
        await _listens(client)
        for visitor in list(port.clients):
            visitor.expel()
        await client.until(lambda: client.terminated)


async def is_late(port: QuicPort) -> None:
    async with dial(port.port) as client:
        await client.until(lambda: client.terminated)


def converses(way: type[OverQuic]) -> Coming:
    async def coming(port: QuicPort) -> None:
        async with way(port.port, binary=True) as conversation:
            await conversation.send_raw(b"hello")
            assert await conversation.take_raw() == [b"hello"]

    return coming


COMING: dict[str, Coming] = {
    one.__name__.replace("_", " "): one
    for one in (
        *(says_nothing, asks, asks_as_often_as_strangers_may, goes_amid_an_answer),
        *(gives_an_answer_up, sends_no_request, is_expelled, is_late),
    )
} | {way.name: converses(way) for way in (WebSocketHttp3, WebTransport)}


@pytest.mark.parametrize("kind", COMING)
def test_a_connection_on_quic_that_is_gone_leaves_nothing_for_the_collector(
    kind: str, node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "is late":
        monkeypatch.setattr(client_module, "HELLO_MS_MAX", 200)
    kept = kept_of(PARTS, monkeypatch)

    async def test() -> None:
        async with open_port(node, APP, owner=Owner()) as port:
            gc.disable()
            try:
                for _ in range(TIMES):
                    await COMING[kind](port)
                assert port.counters["quic_accepted"] == TIMES
                async with within(GONE_S):
                    while kept:  # noqa: ASYNC110 - nothing collects: what is held stays
                        await asyncio.sleep(0.01)
            finally:
                gc.enable()

    uvloop.run(test())
