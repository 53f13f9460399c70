"""HTTP/3 on real sockets: the library's client against our port."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.base.limits import CLIENT_WRITE_HIGH, QUIC_STREAM_WINDOW
from appliance.drivers.network import websocket
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.pages import Pages
from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.quic.quic_client import dial
from tests.drivers.network.site import TestNode, make_node
from tests.patience import HUNG_S, within

WEB = Path(websocket.__file__).parents[2] / "web"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("keys"), 0)


def run(test: Callable[[], Any]) -> None:
    uvloop.run(test())


def pages_app() -> Any:
    return Pages(WEB, nodes=list, hosts=Hosts([]), secure=True, health=str).app


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_chat_page_is_served_by_http3_after_a_retry(node: TestNode, host: str) -> None:
    async def test() -> None:
        async with open_port(node, pages_app(), host=host) as port, dial(port.port, host) as client:
            answer = await client.fetch("/", authority="localhost")
            assert answer.status == 200
            assert bytes(answer.body) == (WEB / "chat.html").read_bytes()
            assert b"content-security-policy" in answer.headers
            assert b"alt-svc" not in answer.headers
            assert (await client.fetch("/nowhere")).status == 404
            assert (await client.fetch("/", authority="example.com")).status == 421
            assert port.counters["quic_retry"] == 1 == port.counters["quic_accepted"]

    run(test)


def test_bodies_of_2_mib_go_both_ways_while_little_is_held(node: TestNode) -> None:
    body = os.urandom(2 << 20)

    async def test() -> None:
        async with open_port(node, echo) as port, dial(port.port) as client:
            stream_id = await client.request("/", method="POST", body=body)
            answer, most = client.answer(stream_id), 0
            async with within(HUNG_S):
                while not answer.ended:
                    client.changed.clear()
                    await client.changed.wait()
                    most = max(most, *(one.quic.held for one in port.clients))
            assert bytes(answer.body) == body
            assert most < QUIC_STREAM_WINDOW + 2 * CLIENT_WRITE_HIGH + QUIC_STREAM_WINDOW

    run(test)


def test_an_application_that_does_not_read_stops_the_client(node: TestNode) -> None:
    read = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await read.wait()
        await echo(scope, receive, send)

    async def test() -> None:
        async with open_port(node, slow) as port, dial(port.port) as client:
            stream_id = await client.request("/", method="POST", body=bytes(1 << 20))
            (one,) = port.clients
            async with within(HUNG_S):
                while not one.quic.held:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)  # for more than it may hold
            assert 0 < one.quic.held <= QUIC_STREAM_WINDOW
            read.set()
            answer = client.answer(stream_id)
            await client.until(lambda: answer.ended)
            assert len(answer.body) == 1 << 20

    run(test)


def test_a_request_that_is_given_up_ends_its_application(node: TestNode) -> None:
    ended = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                body = {"type": "http.response.body", "body": bytes(10_000), "more_body": True}
                await send(body)
                await asyncio.sleep(0)
        finally:
            ended.set()

    async def test() -> None:
        async with open_port(node, endless) as port, dial(port.port) as client:
            stream_id = await client.request("/")
            await client.until(lambda: len(client.answer(stream_id).body) > 100_000)
            client._quic.stop_stream(stream_id, 0x10C)
            client.transmit()
            async with within(HUNG_S):
                await ended.wait()
            (one,) = port.clients
            assert not one.users

    run(test)


def test_a_failing_application_breaks_its_stream_and_no_other(node: TestNode) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/broken":
            raise RuntimeError("as a test wants it")
        await echo(scope, receive, send)

    async def test() -> None:
        async with open_port(node, broken) as port, dial(port.port) as client:
            assert (await client.fetch("/broken")).reset == 0x102
            assert (
                await client.fetch("/", method="POST", body=b"still here")
            ).body == b"still here"
            assert port.count() == 1

    run(test)


def test_a_drained_port_answers_what_is_under_way_and_nothing_new(node: TestNode) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await go.wait()
        await echo(scope, receive, send)

    async def test() -> None:
        async with open_port(node, waits) as port, dial(port.port) as client:
            first = client.answer(await client.request("/", method="POST", body=b"first"))
            async with within(HUNG_S):
                await begun.wait()
            port.drain()
            second = client.answer(await client.request("/", method="POST", body=b"second"))
            await client.until(lambda: second.reset is not None)
            assert second.reset == 0x10B  # H3_REQUEST_REJECTED
            go.set()
            await client.until(lambda: first.ended)
            assert first.body == b"first"

    run(test)


def test_a_timer_that_is_due_at_once_is_set_again(node: TestNode) -> None:
    async def test() -> None:
        async with open_port(node, echo) as port, dial(port.port) as client:
            await client.fetch("/")
            (one,) = port.clients
            one.quic._close_at = asyncio.get_running_loop().time()  # as when it has been silent
            one.flush()
            one.flush()
            for _ in range(1000):
                if not port.clients:
                    break
                await asyncio.sleep(0.01)
            assert not port.clients  # over, and forgotten

    run(test)
