"""The client's side of WebTransport: whom it believes, and how it learns that nobody is there."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from appliance.base.errors import ConfigurationError
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import ConnectionLost
from appliance.drivers.chat.webtransport import Connection, dial
from appliance.drivers.network.quic.certificate import load_shown, make_short
from appliance.formats.client.frame import SUBPROTOCOL_BINARY
from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.site import TestNode, make_node
from tests.patience import HUNG_S

SPAN = {"begin_s": 1_796_000_000, "end_s": 1_797_000_000}


class Owner:
    """Takes conversations and says what is sent to it."""

    def on_open(self, connection: Any) -> None:
        connection.welcome()

    def on_client_message(self, connection: Any, data: bytes, is_text: bool) -> None:
        connection.write([len(data).to_bytes(4, "little") + data])

    def on_blocked(self, connection: Any) -> None:
        """It goes on writing: all that is said fits."""

    on_writable = on_closed = on_blocked


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[TestNode]:
    folder = tmp_path_factory.mktemp("keys")
    return [make_node(folder, index) for index in range(2)]


def trusting(node: TestNode, port: int) -> Endpoint:
    """As a local site's clients know a node."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=node.pem)
    return Endpoint("127.0.0.1", port, context)


@contextlib.asynccontextmanager
async def tcp_of(node: TestNode) -> AsyncIterator[int]:
    """Somebody who proves by TCP to be `node`: the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(node.certificate, node.private)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def dialled(endpoint: Endpoint, heard: list[bytes]) -> Connection:
    return await dial(endpoint, SUBPROTOCOL_BINARY, heard.append, HUNG_S)


async def said_back(connection: Connection, heard: list[bytes], data: bytes) -> None:
    connection.send(data)
    async with asyncio.timeout(HUNG_S):
        while data not in heard:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_frames_go_and_come_whatever_certificate_of_the_key_is_shown(
    nodes: list[TestNode],
) -> None:
    async def story() -> None:
        async with (
            tcp_of(nodes[0]) as port,
            open_port(nodes[0], echo, port=port, owner=Owner()) as quic,
        ):
            quic.show(make_short(load_shown(nodes[0].certificate, nodes[0].private), **SPAN))
            heard: list[bytes] = []
            connection = await dialled(trusting(nodes[0], port), heard)
            for data in (b"one", b"x" * 200_000, b"three"):
                await said_back(connection, heard, data)
            connection.pause()
            connection.send(b"four")
            connection.resume()
            await said_back(connection, heard, b"five")
            assert heard == [b"one", b"x" * 200_000, b"three", b"four", b"five"]
            await connection.close()

    asyncio.run(story())


def test_another_key_by_quic_than_by_tcp_is_not_believed(nodes: list[TestNode]) -> None:
    async def story() -> None:
        async with tcp_of(nodes[0]) as port, open_port(nodes[1], echo, port=port, owner=Owner()):
            with pytest.raises(ConnectionLost, match="another key"):
                await dialled(trusting(nodes[0], port), [])

    asyncio.run(story())


def test_who_is_not_trusted_by_tcp_is_not_asked_by_quic(nodes: list[TestNode]) -> None:
    async def story() -> None:
        async with (
            tcp_of(nodes[0]) as port,
            open_port(nodes[0], echo, port=port, owner=Owner()) as quic,
        ):
            with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                await dialled(trusting(nodes[1], port), [])
            assert not quic.counters

    asyncio.run(story())


def test_without_tls_there_is_no_quic(nodes: list[TestNode]) -> None:
    with pytest.raises(ConfigurationError, match="another transport"):
        asyncio.run(dial(Endpoint("127.0.0.1", 1, None), SUBPROTOCOL_BINARY, [].append, 1.0))


def test_a_client_that_waits_hears_soon_that_nobody_is_at_the_port(nodes: list[TestNode]) -> None:
    """As after a kill, which closes nothing: the port is gone without a word."""

    async def story() -> None:
        async with (
            tcp_of(nodes[0]) as port,
            open_port(nodes[0], echo, port=port, owner=Owner()) as quic,
        ):
            heard: list[bytes] = []
            connection = await dialled(trusting(nodes[0], port), heard)
            await said_back(connection, heard, b"one")
            loop = asyncio.get_running_loop()
            for sock in quic._sockets:
                loop.remove_reader(sock.sock)
                sock.sock.close()
            quic._sockets.clear()
            quic.clients.clear()
            begun = time.monotonic()
            async with asyncio.timeout(HUNG_S):
                reason = await connection.lost
            assert "refused" in reason.lower() and time.monotonic() - begun < 45 / 2

    asyncio.run(story())
