"""An edge after thousands of connections that came and went: what it holds is what it held."""

import asyncio
import tempfile
import time
import uuid
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import Hello
from appliance.formats.client.subscribing import SubscribeRoom
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.edge_site import EdgeSite, held_by, insecure, until
from tests.roles.replica_group import REPO
from tests.roles.ways import (
    Ended,
    EventsTcp,
    Polling,
    PollingTcp,
    Way,
    WebSocketHttp3,
    WebSocketTcp,
    WebTransport,
)

CONNECTIONS = 10_000
FIRST = 1_000  # after which everything that is made once has been made
AT_ONCE = 10
GROWTH_MAX = 1.05
PAGES = ("/", "/web/chat.js", "/nodes.json", "/healthz", "/nowhere")
TALKS: list[type[Way]] = [WebSocketTcp, WebSocketHttp3, WebTransport, EventsTcp, PollingTcp]
UNLIMITED = dict.fromkeys(
    ("device_rate", "user_rate", "room_rate", "address_rate", "address_connect_rate"), 10_000_000
)


@pytest.fixture
def site(free_ports: FreePorts) -> Iterator[EdgeSite]:
    build = REPO / "build"
    build.mkdir(exist_ok=True)
    ports = next(port for port in free_ports(310) if port % 10 == 0)
    with tempfile.TemporaryDirectory(prefix="test-", dir=build) as name:
        with EdgeSite(Path(name) / "a", nodes=1, ports=ports, **UNLIMITED) as made:
            made.start_all()
            yield made


async def talk(site: EdgeSite, way: type[Way], token: str) -> None:
    """Come, say a word in a room, read it, and go."""
    async with way(site.ports[0], binary=way.speaks(True)) as client:
        await client.send(Hello(token=token, client_id=uuid.uuid4()))
        await client.next()
        await client.send(CreateRoom(name="everybody"))
        answer = await client.next()
        assert isinstance(answer, RoomAnswer)
        room_id = answer.room_id
        if not issubclass(way, Polling):  # whose answers come in the order of its polls
            await client.send(SubscribeRoom(room_id=room_id))
            await client.next()
        await client.send(SendMessage(room_id=room_id, client_seq=1, body="here I am"))
        await client.next()
        await client.send(SnapshotRequest(room_id=room_id, limit=5))
        await client.next()


async def try_in(site: EdgeSite, way: type[Way]) -> None:
    """A stranger, whose token is none."""
    async with way(site.ports[0], binary=way.speaks(True)) as client:
        with pytest.raises(Ended):
            await client.send(Hello(token="wrong", client_id=uuid.uuid4()))
            while True:
                await client.next()


def load_pages(site: EdgeSite) -> None:
    """On one connection."""
    connection = HTTPSConnection("127.0.0.1", site.ports[0], context=insecure(), timeout=HUNG_S)
    try:
        for path in PAGES:
            connection.request("GET", path)
            connection.getresponse().read()
    finally:
        connection.close()


async def come_and_go(site: EdgeSite, count: int, token: str) -> None:
    """So many connections, of every kind by turns, a few at a time."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            kind, way = number % 3, TALKS[number // 3 % len(TALKS)]
            if kind == 0:
                await talk(site, way, token)
            elif kind == 1:
                await try_in(site, way)
            else:
                await asyncio.to_thread(load_pages, site)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def held_at_rest(site: EdgeSite) -> int:
    """Bytes, once nobody is connected and what was given back has been."""

    def is_quiet() -> bool:
        status = site.edge_status(0)
        return status is not None and not status["connections"] + status["quic_connections"]

    until(is_quiet, "nobody is connected")
    least = held_by(site.edges[0].pid)
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        time.sleep(0.2)
        least = min(least, held_by(site.edges[0].pid))
    return least


@pytest.mark.soak
def test_ten_thousand_who_came_and_went_leave_nothing(site: EdgeSite) -> None:
    token = site.token()
    asyncio.run(come_and_go(site, FIRST, token))
    first = held_at_rest(site)
    row = [first]
    for _ in range(FIRST, CONNECTIONS, FIRST):
        asyncio.run(come_and_go(site, FIRST, token))
        row.append(held_at_rest(site))
    status = site.edge_status(0)
    print([round(size / (1 << 20), 1) for size in row], status and status["memory"])
    assert row[-1] <= GROWTH_MAX * first, row
