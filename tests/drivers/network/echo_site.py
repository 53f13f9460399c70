"""A client port whose owner answers each message with itself, for cases of WebSockets."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from appliance.cores.edge.websocket import OPCODE_BINARY, OPCODE_TEXT, server_frame
from appliance.drivers.network import websocket
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.websocket import WebSocketServer

MESSAGE_SIZE_MAX = 16 << 20  # the largest of the cases; clients of a node send a sixteenth of it


class Echo:
    """Welcomes everybody; does not listen to who does not read."""

    def admit(self, address: str, token: str) -> Any:
        return None

    def on_open(self, connection: Any) -> None:
        connection.welcome()

    def on_client_message(self, connection: Any, data: bytes, is_text: bool) -> None:
        connection.write([server_frame(data, OPCODE_TEXT if is_text else OPCODE_BINARY)])

    def on_fragment(self, connection: Any) -> None:
        """Waits for the rest."""

    def on_control(self, connection: Any) -> None:
        """Is answered without it."""

    def on_oversize(self, connection: Any) -> None:
        connection.close(1009, "too large")

    def on_blocked(self, connection: Any) -> None:
        connection.read_on(False)

    def on_writable(self, connection: Any) -> None:
        connection.read_on(True)

    def on_closed(self, connection: Any) -> None:
        """Nothing is kept."""


@contextmanager
def large_messages() -> Iterator[None]:
    """Whoever is welcome may send the largest of the cases."""
    usual = websocket.CLIENT_FRAME_SIZE_MAX
    websocket.CLIENT_FRAME_SIZE_MAX = MESSAGE_SIZE_MAX  # type: ignore[misc]
    try:
        yield
    finally:
        websocket.CLIENT_FRAME_SIZE_MAX = usual  # type: ignore[misc]


@asynccontextmanager
async def echo_port(port: int = 0) -> AsyncIterator[int]:
    """On TCP of this machine, without TLS; the port's number."""
    server = WebSocketServer(
        Echo(),
        make_http=lambda _: asyncio.Protocol(),
        hosts=Hosts([]),
        connections_max=1000,
        connections_per_address_max=1000,
        address_connect_rate=100_000,
        counters=Counter(),
    )
    await server.start("127.0.0.1", port, tls=None, shared=False)
    try:
        yield server.port
    finally:
        await server.close(0.1)
