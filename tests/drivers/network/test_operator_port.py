"""The operators' port, real sockets and TLS: strangers of one address take nothing from another."""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from appliance.base.limits import OPERATOR_CONNECTIONS_MAX, OPERATOR_CONNECTIONS_PER_ADDRESS_MAX
from appliance.drivers.network import operator_port
from appliance.drivers.network.address import address_group
from appliance.drivers.network.operator_port import Guard, OperatorPort, bind
from appliance.drivers.network.tls import show_certificate
from tests.drivers.network.site import TestNode, make_node
from tests.patience import within

ENDED_S = 30.0  # deadlines of tests are below a second: what is open after this stays open
OPERATOR, STRANGER = "127.0.0.2", "127.0.0.3"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("operator"), 0)


class Stage:
    """A port with an application that tells how much of a body it was given."""

    def __init__(self, node: TestNode) -> None:
        self.counters: Counter[str] = Counter()
        self.read = 0
        app = Starlette(
            routes=[
                Route("/", self._hello),
                Route("/take", self._take, methods=["POST"]),
                Route("/stay", self._stay),
                Route("/endless", self._endless),
            ],
            middleware=[Middleware(Guard, names=["node-0"], counters=self.counters)],
        )
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        show_certificate(tls, node.certificate, node.private)
        self.port = OperatorPort(app, tls, self.counters)
        sock = bind("127.0.0.1", 0)
        self.number = sock.getsockname()[1]
        self.port.start(sock)

    async def _hello(self, request: Request) -> Response:
        return PlainTextResponse("hello")

    async def _take(self, request: Request) -> Response:
        async for piece in request.stream():
            self.read += len(piece)
        return PlainTextResponse(str(self.read))

    async def _stay(self, request: Request) -> Response:
        request.state.visitor.signed_in = True
        return PlainTextResponse("known")

    async def _endless(self, request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 16)
                await asyncio.sleep(0)  # whoever sends to nobody must let others run

        return StreamingResponse(pieces())

    async def connect(
        self, address: str, *, tls: bool = True
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return await asyncio.open_connection(
            "127.0.0.1", self.number, ssl=context, local_addr=(address, 0)
        )

    async def ask(self, address: str, text: str) -> bytes:
        reader, writer = await self.connect(address)
        writer.write(text.encode())
        answer = await reader.read()
        writer.close()
        return answer

    async def until(self, true: Callable[[], bool]) -> None:
        async with within(ENDED_S):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def on_stage(node: TestNode, story: Callable[[Stage], Awaitable[None]]) -> Stage:
    async def run() -> Stage:
        stage = Stage(node)
        try:
            async with within(3 * ENDED_S):
                await story(stage)
        finally:
            await stage.port.close()
        assert stage.port.count() == 0
        return stage

    return uvloop.run(run())  # as in service


GET = "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


def test_an_address_has_a_share_of_the_connections_and_another_one_gets_in(node: TestNode) -> None:
    async def story(stage: Stage) -> None:
        held = [
            await stage.connect(STRANGER, tls=False)
            for _ in range(OPERATOR_CONNECTIONS_PER_ADDRESS_MAX)
        ]
        await stage.until(lambda: stage.port.count() == len(held))
        reader, writer = await stage.connect(STRANGER, tls=False)
        assert await reader.read() == b""
        assert b"hello" in await stage.ask(OPERATOR, GET)
        assert stage.counters["too_many_of_address"] == 1
        for _, other in [*held, (reader, writer)]:
            other.close()

    on_stage(node, story)


def test_when_all_connections_are_taken_who_holds_most_gives_way_and_no_session_does(
    node: TestNode,
) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect("127.0.1.1")  # strangers there hold most as well
        writer.write(b"GET /stay HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert b"known" in await reader.readuntil(b"known")
        held = []
        for number in range(OPERATOR_CONNECTIONS_MAX - 1):
            held.append(await stage.connect(f"127.0.1.{1 + number % 8}", tls=False))
        await stage.until(lambda: stage.port.count() == OPERATOR_CONNECTIONS_MAX)
        assert b"hello" in await stage.ask("127.0.2.1", GET)
        assert b"hello" in await stage.ask("127.0.2.2", GET)
        assert stage.counters["gave_way"] >= 1
        writer.write(GET.encode())
        try:
            await reader.readuntil(b"hello")
        except (asyncio.IncompleteReadError, ConnectionError):
            pytest.fail("the session's connection gave way")
        for _, other in [*held, (reader, writer)]:
            other.close()

    on_stage(node, story)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param("", id="nothing"),
        pytest.param("GET / HTTP/1.1\r\nho", id="half a head"),
        pytest.param(
            "POST /take HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\nx", id="half a body"
        ),
        pytest.param("GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nG", id="one byte of a second"),
    ],
)
def test_a_connection_that_never_ends_its_request_is_closed(
    node: TestNode, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    monkeypatch.setattr(operator_port, "OPERATOR_REQUEST_S", 0.2)

    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect(STRANGER)
        writer.write(sent.encode())
        with contextlib.suppress(ConnectionError):
            async with within(ENDED_S):
                while await reader.read(1000):
                    continue
        await stage.until(lambda: stage.port.count() == 0)
        writer.close()

    assert on_stage(node, story).counters["closed_late"] == 1


def test_a_connection_that_drips_bytes_is_closed_as_well(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_port, "OPERATOR_REQUEST_S", 0.5)

    async def story(stage: Stage) -> None:
        _, writer = await stage.connect(STRANGER)
        writer.write(b"GET / HTTP/1.1\r\nx: ")
        async with within(ENDED_S):
            while stage.counters["closed_late"] == 0:
                writer.write(b"x")
                await asyncio.sleep(0.05)
        writer.close()

    on_stage(node, story)


def test_sockets_that_never_begin_tls_are_closed(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_port, "OPERATOR_REQUEST_S", 0.2)

    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect(STRANGER, tls=False)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    assert on_stage(node, story).counters["closed_handshake"] == 1


def test_who_does_not_take_what_is_sent_is_closed(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_port, "OPERATOR_TAKE_S", 0.2)

    async def story(stage: Stage) -> None:
        reader, writer = await stage.connect(STRANGER)
        writer.transport.pause_reading()
        writer.write(b"GET /endless HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        await stage.until(lambda: stage.counters["closed_late"] == 1)
        writer.transport.abort()

    on_stage(node, story)


def test_a_request_of_another_site_is_refused_before_its_body_is_read(node: TestNode) -> None:
    body = "x" * 100_000
    head = f"POST /take HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"

    async def story(stage: Stage) -> None:
        answer = await stage.ask(STRANGER, head + "origin: https://evil.example\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403") and stage.read == 0
        assert stage.counters["cross_site"] == 1
        answer = await stage.ask(OPERATOR, head + "connection: close\r\n\r\n" + body)
        assert answer.startswith(b"HTTP/1.1 200") and stage.read == len(body)

    on_stage(node, story)


async def answered(**heads: str) -> int:
    """The status that a request with these heads gets from the guard."""
    said: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    pairs = [(key.replace("_", "-").encode(), value.encode()) for key, value in heads.items()]
    scope = {"type": "http", "method": "POST", "path": "/take", "headers": pairs}
    await Guard(app, names=["Node-0.example"], counters=Counter())(scope, None, send)
    return said[0]["status"]


@pytest.mark.parametrize(
    ("heads", "status"),
    [
        ({"host": "node-0.example"}, 200),
        ({"host": "NODE-0.example:9000"}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:9000"}, 200),
        ({"host": "192.0.2.7:9000"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "node-0.example.evil.example"}, 403),
        ({"host": ""}, 403),
        ({}, 403),
        ({"host": "localhost:1", "origin": "https://localhost:1"}, 200),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, 403),
        ({"host": "localhost:1", "origin": "https://localhost:2"}, 403),
        ({"host": "localhost:1", "origin": "null"}, 403),
        ({"host": "localhost:1", "sec_fetch_site": "same-origin"}, 200),
        ({"host": "localhost:1", "sec_fetch_site": "none"}, 200),
        ({"host": "localhost:1", "sec_fetch_site": "same-site"}, 403),
        ({"host": "localhost:1", "sec_fetch_site": "cross-site"}, 403),
        (
            {"host": "localhost:1", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
            403,
        ),
    ],
)
def test_host_and_origin_are_judged(heads: dict[str, str], status: int) -> None:
    assert asyncio.run(answered(**heads)) == status


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::1"),
    ],
)
def test_addresses_that_one_stranger_has_share_a_cap(host: str, group: str) -> None:
    assert address_group(host) == group


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    first = bind("127.0.0.1", 0)
    with first, pytest.raises(OSError):
        bind("127.0.0.1", first.getsockname()[1])


def test_strangers_write_no_lines_into_the_log(
    node: TestNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        for sent in ("NONSENSE\r\n\r\n", GET.replace("host: 127.0.0.1", "host: evil.example")):
            for _ in range(20):
                await stage.ask(STRANGER, sent)
        for _ in range(20):
            reader, writer = await stage.connect(STRANGER, tls=False)
            writer.write(b"no TLS at all\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
        await stage.until(lambda: stage.counters["closed_handshake"] == 20)

    with caplog.at_level("INFO"):
        stage = on_stage(node, story)
    assert [record for record in caplog.records if record.name != "asyncio"] == []
    assert stage.counters["malformed"] == stage.counters["unknown_host"] == 20
