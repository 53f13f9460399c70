"""A node that has room for nobody: what who comes all the same hears of it, by TCP and by QUIC, and
that those who are there notice nothing."""

import asyncio
import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.base import limits
from appliance.drivers.chat.client import Client as ChatClient
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import Refused
from appliance.drivers.host.descriptors import clients_max, files_max
from appliance.drivers.network import accepting, websocket
from tests.drivers.chat.small_site import SmallSite
from tests.drivers.network.client_port import (
    GET,
    Client,
    Port,
    handshake,
    run,
    server_tls,
    trusting,
    until,
)
from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.quic.quic_client import dial
from tests.drivers.network.site import make_node
from tests.drivers.network.test_proxies import KNOWN, PROXY
from tests.patience import within

ROOM = GET.replace(b"/healthz", b"/readyz")
PAGE = GET.replace(b"/healthz", b"/")
FULL = {"code": 2048, "name": "node_full", "temporary": True, "retry_after": 1000}


def told(answer: bytes) -> dict[str, Any]:
    """The error in an answer that turns somebody away."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"http/1.1 503 service unavailable"
    assert b"retry-after: 1" in lines and b"connection: close" in lines
    assert b"content-length: %d" % len(body) in lines
    error: dict[str, Any] = json.loads(body)["error"]
    assert error.pop("detail")
    return error


async def dialled(port: Port, tls: bool) -> Client:
    return Client(
        *await asyncio.open_connection(
            "127.0.0.1", port.server.port, ssl=trusting() if tls else None
        )
    )


@pytest.mark.parametrize("over", ["plain", "TLS"])
def test_who_comes_to_a_full_node_is_told_so_and_let_in_when_somebody_left(
    over: str, tmp_path: Path
) -> None:
    with_tls = over == "TLS"

    async def test(port: Port) -> None:
        guests = [await dialled(port, with_tls) for _ in range(2)]
        for guest in guests:
            guest.writer.write(handshake())
            assert b" 101 " in await guest.reader.readuntil(b"\r\n\r\n")
            await guest.asked()
        for request in (handshake(), PAGE):
            late = await dialled(port, with_tls)
            late.writer.write(request)
            assert told(await late.ended()) == FULL
            late.writer.close()
        entrance = port.server.entrance
        await until(lambda: not entrance.turned_away)
        rows = {"websocket": {"node_full": 1}, "http": {"node_full": 1}}
        assert entrance.refusals.told() == rows
        assert port.owner.events == {"open": 2} and len(entrance.visitors) == 2
        for guest in guests:
            await guest.asked()
        guests[0].writer.transport.abort()
        await until(lambda: len(entrance.visitors) == 1)
        comer = await dialled(port, with_tls)
        comer.writer.write(handshake())
        assert b" 101 " in await comer.reader.readuntil(b"\r\n\r\n")
        await comer.asked()

    run(test, tls=server_tls(tmp_path) if with_tls else None, connections_max=2)


@pytest.mark.parametrize("over", ["plain", "TLS"])
def test_a_full_node_that_serves_says_so_to_who_asks_for_that_alone(
    over: str, tmp_path: Path
) -> None:
    """Whoever restarts what is not well must not restart this one; whoever spreads clients hears
    that there is no room. Behind the one request nothing is heard."""
    with_tls = over == "TLS"
    health = ""

    async def answer(port: Port, *requests: bytes) -> bytes:
        prober = await dialled(port, with_tls)
        for request in requests:
            prober.writer.write(request)
            await prober.writer.drain()
        answered = await prober.ended()
        prober.writer.close()
        return answered

    async def test(port: Port) -> None:
        nonlocal health
        guests = [await dialled(port, with_tls) for _ in range(2)]
        guests[0].writer.write(ROOM)  # there is no room beside these two
        answered = await guests[0].reader.readuntil(b"ready\n")
        assert b" 503 " in answered and answered.endswith(b"not ready\n")
        guests[0].writer.transport.abort()
        await until(lambda: len(port.server.entrance.visitors) == 1)
        guests[0] = await dialled(port, with_tls)
        for guest in guests:
            guest.writer.write(handshake())
            assert b" 101 " in await guest.reader.readuntil(b"\r\n\r\n")
        head = GET.replace(b"GET", b"HEAD")
        for requests in ((GET,), (GET + PAGE,), (GET, PAGE), (head,)):
            answered = await answer(port, *requests)
            assert answered.startswith(b"HTTP/1.1 200 OK\r\n"), answered
            assert answered.count(b"HTTP/1.1 ") == 1 and b"connection: close" in answered.lower()
            assert answered.endswith(b"serving\n") or requests == (head,)
        await until(lambda: not port.server.entrance.turned_away)
        assert port.server.entrance.refusals.told() == {}
        assert told(await answer(port, ROOM)) == FULL
        health = "the replica of shard 0 is not attached"
        answered = await answer(port, GET)
        assert b" 503 " in answered and answered.endswith(b"unavailable\n")
        health = ""
        for guest in guests:
            await guest.asked()
            guest.writer.transport.abort()
        await until(lambda: not port.server.entrance.visitors)
        comer = await dialled(port, with_tls)
        comer.writer.write(ROOM)
        assert b" 200 " in await comer.reader.readuntil(b"ready\n")

    tls = server_tls(tmp_path) if with_tls else None
    run(test, tls=tls, health=lambda: health, connections_max=2)


def test_of_a_crowd_before_a_full_node_a_few_are_told_and_all_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody waits for an answer."""
    monkeypatch.setattr(accepting, "TURNED_AWAY_MS_MAX", 60_000)

    async def test(port: Port) -> None:
        guest = await port.chat("127.0.0.9")
        await guest.asked()
        entrance = port.server.entrance
        crowd = [await port.dial(f"127.0.0.{10 + number % 5}") for number in range(200)]
        await until(lambda: port.server.counters["accepted"] == 201)
        most = len(entrance.turned_away)
        assert most == limits.TURNED_AWAY_MAX
        for one in crowd[:100]:
            one.writer.write(handshake())
        answers = await asyncio.gather(*(one.ended() for one in crowd))
        heard = [answer for answer in answers if answer]
        assert [told(answer) for answer in heard] == [FULL] * most
        await guest.asked()
        await until(lambda: not entrance.turned_away)
        rows = entrance.refusals.told()
        assert rows == {"websocket": {"node_full": most}, "tcp": {"node_full": 200 - most}}

    run(test, connections_max=1)


def test_who_says_nothing_to_a_full_node_is_ended_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (accepting, websocket):
        monkeypatch.setattr(module, "TURNED_AWAY_MS_MAX", 200)
        monkeypatch.setattr(module, "HELLO_MS_MAX", 600_000)

    async def test(port: Port) -> None:
        guest = await port.chat()
        await guest.asked()
        for sent in (b"", b"GET / HT"):
            late = await port.dial()
            late.writer.write(sent)
            assert await late.ended() == b""
        await until(lambda: not port.server.entrance.turned_away)
        assert port.server.entrance.refusals.told() == {"tcp": {"node_full": 2}}
        await guest.asked()

    run(test, connections_max=1)


def test_an_address_that_comes_too_fast_is_not_told_that_the_node_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accepting, "TURNED_AWAY_MS_MAX", 60_000)

    async def test(port: Port) -> None:
        guest = await port.chat("127.0.0.9")
        await guest.asked()
        crowd = [await port.dial("127.0.0.2") for _ in range(limits.TURNED_AWAY_MAX - 2)]
        await until(lambda: port.server.counters["accepted"] == len(crowd) + 1)
        told_of_it = len(port.server.entrance.turned_away)
        assert limits.ACCEPT_BURST_SECONDS <= told_of_it < len(crowd)
        rows = port.server.entrance.refusals.told()
        assert rows == {"tcp": {"too_fast_of_address": len(crowd) - told_of_it}}
        other = await port.dial("127.0.0.3")
        other.writer.write(handshake())
        assert told(await other.ended()) == FULL
        for one in crowd:
            one.writer.close()

    run(test, connections_max=1, address_connect_rate=1)


def test_who_comes_through_a_known_proxy_is_told_too() -> None:
    async def test(port: Port) -> None:
        guest = await port.chat("127.0.0.9")
        await guest.asked()
        late = await port.dial(PROXY)
        late.writer.write(b"PROXY TCP4 198.51.100.7 192.0.2.1 1 2\r\n" + handshake())
        assert told(await late.ended()) == FULL
        await until(lambda: not port.server.entrance.turned_away)
        assert port.server.entrance.refusals.told() == {"websocket": {"node_full": 1}}

    run(test, connections_max=1, proxies=KNOWN)


def test_a_client_of_quic_is_refused_with_the_code_for_it(tmp_path: Path) -> None:
    async def test() -> None:
        node = make_node(tmp_path, 0)
        async with within(60), open_port(node, echo, visitors_max=1) as port:
            async with dial(port.port) as guest:
                assert (await guest.fetch("/")).status == 200
                with pytest.raises(ConnectionError):
                    async with dial(port.port):
                        pass
                assert port.counters["quic_refused"] == 1
                assert port.entrance.refusals.told() == {"quic": {"node_full": 1}}
                assert len(port.clients) == 1  # nothing is kept for who was refused
                assert (await guest.fetch("/")).status == 200

    uvloop.run(test())


# --- descriptors


def open_now() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def limited(limit: int) -> Iterator[None]:
    """So many files may be open in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("files", "clients"),
    [(None, 20_000), (65_536, 20_000), (20_511, 19_999), (1024, 512), (201, 101), (1, 1)],
)
def test_no_more_clients_than_the_limit_of_open_files_leaves_room_for(
    files: int | None, clients: int
) -> None:
    assert limits.DESCRIPTORS_RESERVED == 512
    assert clients_max(20_000, files) == clients
    assert clients_max(1, files) == 1


def test_the_limit_of_open_files_is_that_of_this_process() -> None:
    limit = open_now() + 200
    with limited(limit):
        assert files_max() == limit


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """As many as are open now, and no more."""
    with limited(open_now() + 20):
        held: list[int] = []
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        try:
            yield
        finally:
            for descriptor in held:
                os.close(descriptor)


def test_without_a_descriptor_who_knocks_is_sent_away_and_who_is_there_is_served() -> None:
    async def test(port: Port) -> None:
        guest = await port.chat()
        await guest.asked()
        loop = asyncio.get_running_loop()
        knocking = [socket.socket() for _ in range(40)]
        for sock in knocking:
            sock.setblocking(False)
        with no_descriptor_left():
            for sock in knocking:
                await loop.sock_connect(sock, ("127.0.0.1", port.server.port))
            for sock in knocking:
                assert await loop.sock_recv(sock, 1) == b""
            await guest.asked()
        for sock in knocking:
            sock.close()
        assert port.server.entrance.refusals.told() == {"tcp": {"no_descriptor": 40}}
        late = await port.chat()  # it has gone on to accept
        await late.asked()

    run(test)


# --- our own clients


def test_our_client_goes_to_the_next_node_when_one_is_full() -> None:
    async def test(port: Port) -> None:
        guest = await port.chat()
        await guest.asked()
        full = Endpoint("127.0.0.1", port.server.port, None)
        async with SmallSite(nodes=1) as site:
            endpoints = [full, *site.endpoints]
            async with ChatClient(endpoints, lambda: "token") as client:
                room = (await client.create_room("a")).room_id
                assert (await client.send(room, "hello")).op == 1
        assert port.server.entrance.refusals.told() == {"websocket": {"node_full": 1}}

    run(test, connections_max=1)


def test_our_client_says_that_all_nodes_are_full_when_it_gives_up() -> None:
    async def test(port: Port) -> None:
        guest = await port.chat()
        await guest.asked()
        full = Endpoint("127.0.0.1", port.server.port, None)
        loop, rows = asyncio.get_running_loop(), port.server.entrance.refusals
        began = loop.time()
        with pytest.raises(Refused, match="node_full"):
            async with ChatClient([full], lambda: "token", patience_s=1.5):
                pass
        asked = rows.told()["websocket"]["node_full"]
        assert 2 <= asked <= 1 + loop.time() - began  # it waited for as long as it was told

    run(test, connections_max=1)
