"""A QUIC port on a free UDP port of this machine, with an application of the test's."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.quic.certificate import load_shown
from appliance.drivers.network.quic.keys import PortKeys
from appliance.drivers.network.quic.port import QuicPort
from appliance.drivers.network.quic.streams import Services
from appliance.drivers.network.websocket import WebSocketServer
from tests.drivers.network.site import TestNode

SECRET = bytes(range(32))


class Owner:
    """Nobody: for ports that have no conversations."""


def make_port(
    node: TestNode, app: Any, *, number: int = 0, owner: Any = None, **limits: int
) -> QuicPort:
    counters: Counter[str] = Counter()
    chosen = {"visitors_max": 1000, "visitors_per_address_max": 500, "address_rate": 1000} | limits
    server = WebSocketServer(
        owner or Owner(),
        make_http=lambda on_answered: asyncio.Protocol(),
        hosts=Hosts([]),
        connections_max=chosen["visitors_max"],
        connections_per_address_max=chosen["visitors_per_address_max"],
        address_connect_rate=chosen["address_rate"],
        counters=counters,
    )
    return QuicPort(
        entrance=server.entrance,
        services=Services(app=app, hosts=Hosts([]), server=server),
        keys=PortKeys(SECRET, number),
        shown=load_shown(node.certificate, node.private),
        counters=counters,
    )


@asynccontextmanager
async def open_port(
    node: TestNode, app: Any, *, host: str = "127.0.0.1", port: int = 0, **named: Any
) -> AsyncIterator[QuicPort]:
    made = make_port(node, app, **named)
    await made.open(host, port, shared=False)
    try:
        yield made
    finally:
        made.close()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what was sent, as it comes."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})
        if not more:
            return
