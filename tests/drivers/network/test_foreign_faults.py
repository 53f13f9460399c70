"""What a library raises for what the other end sends, or breaks off, ends that connection and
nothing else: the handler of the loop, which takes what nobody caught for a bug, sees nothing."""

import asyncio
import contextlib
import copy
import errno
import gc
import logging
import os
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from aioquic.h3.connection import H3Connection
from aioquic.quic.connection import QuicConnection
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from appliance.base.prng import Prng
from appliance.drivers.network import tls as tls_module
from appliance.drivers.network.ask import ask_status
from appliance.drivers.network.farm_stream import DialFailed, Route, open_stream, server_tls
from appliance.drivers.network.quic import client as client_module
from appliance.drivers.network.status import StatusServer
from appliance.drivers.network.tls import identify, spki_digest
from appliance.drivers.quic.library import BoundedConnection, BoundedHttp3
from tests.drivers.network.quic.port_site import echo, open_port
from tests.drivers.network.quic.quic_client import dial
from tests.drivers.network.site import Recorder, TestNode, make_node
from tests.drivers.network.test_link import message
from tests.drivers.network.test_stream import End, accepting, dialling
from tests.patience import HUNG_S, within

Story = Callable[[], Awaitable[None]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("node"), 0)


def counts(context: dict[str, Any]) -> bool:
    """A client of the library that was not let in leaves such a future behind."""
    never_asked = str(context.get("message")).startswith("Future exception was never")
    return not (never_asked and type(context.get("exception")) is ConnectionError)


def unseen(story: Story) -> None:
    """The story, in which nothing is left to the handler of the loop: it ends where something is,
    as it might wait for ever then."""

    async def whole() -> None:
        found: list[str] = []
        seen = asyncio.Event()

        def see(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if counts(context):
                found.append(str(context))
                seen.set()

        asyncio.get_running_loop().set_exception_handler(see)
        tasks = [asyncio.ensure_future(story()), asyncio.ensure_future(seen.wait())]
        async with within(HUNG_S):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            told, _ = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(told, Exception):
            raise told
        gc.collect()  # a task whose error nobody asked for tells it when it is freed
        await asyncio.sleep(0)
        assert found == []

    uvloop.run(whole())


@contextlib.asynccontextmanager
async def answering(data: bytes, node: TestNode | None = None) -> AsyncIterator[int]:
    """Somebody who takes what comes, says that, and ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(1)
            writer.write(data)
            await writer.drain()
        writer.close()

    tls = None if node is None else server_tls(node.certificate, node.private)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    yield server.sockets[0].getsockname()[1]
    server.close()


YES = b"HTTP/1.1 200 OK\r\n\r\n"
ANSWERS = {
    "nothing": b"",
    "a byte": b"\x00",
    "zeros": bytes(70_000),
    "noise": Prng(7).bytes(5_000),
    "an endless line": b"x" * 300_000,
    "yes, and no TLS": YES + b"no TLS",
    "yes, and the end": YES,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_proxy_or_member_that_answers_anything_was_not_reached(name: str) -> None:
    async def story() -> None:
        async with answering(ANSWERS[name]) as port:
            for route in (
                Route("127.0.0.1", 1, bytes(32), proxy=("127.0.0.1", port)),
                Route("127.0.0.1", port, bytes(32)),
            ):
                with pytest.raises(DialFailed):
                    await open_stream(route)

    unseen(story)


UNREADABLE = {"nothing": b"", "noise": Prng(1).bytes(300), "a sequence": b"\x30\x03\x02\x01\x05"}


@pytest.mark.parametrize("name", [*UNREADABLE, "cut", "an unknown kind of key"])
def test_a_certificate_that_holds_no_key_is_nobodys_and_an_error_of_tls(
    name: str, node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ssl.PEM_cert_to_DER_cert(node.pem)
    assert spki_digest(whole) == node.spki
    shown = UNREADABLE.get(name, whole[:-20] if name == "cut" else whole)
    if name == "an unknown kind of key":

        class Odd:
            def public_key(self) -> None:
                raise UnsupportedAlgorithm("brainpoolP256r1")

        monkeypatch.setattr(x509, "load_der_x509_certificate", lambda data: Odd())

    class Shown:
        def getpeercert(self, binary_form: bool = False) -> Any:
            return shown if binary_form else {}

    with pytest.raises(ssl.SSLError, match="without a key that can be read"):
        identify(Shown(), {node.spki: 0})  # type: ignore[arg-type]

    async def story() -> None:
        monkeypatch.setattr(tls_module.ssl.SSLObject, "getpeercert", Shown.getpeercert)
        async with answering(b"", node) as port:
            with pytest.raises(DialFailed, match="dial_failed"):
                await open_stream(Route("127.0.0.1", port, node.spki))

    unseen(story)


def test_a_member_that_ends_before_tls_begins_was_not_reached(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start_tls(self: Any, context: Any, **named: Any) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    async def story() -> None:
        monkeypatch.setattr(asyncio.StreamWriter, "start_tls", start_tls)
        async with answering(b"", node) as port:
            with pytest.raises(DialFailed, match="dial_failed"):
                await open_stream(Route("127.0.0.1", port, node.spki))

    unseen(story)


@pytest.fixture
def nodes(tmp_path: Path) -> list[TestNode]:
    return [make_node(tmp_path, index) for index in range(2)]


@pytest.mark.parametrize("fault", [ValueError("x"), TypeError("x"), UnsupportedAlgorithm("x")])
@pytest.mark.parametrize("over", ["links", "streams"])
def test_a_peer_whose_certificate_cannot_be_read_is_dialled_again(
    over: str, fault: Exception, nodes: list[TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = x509.load_der_x509_certificate, [5]

    def load(data: bytes) -> x509.Certificate:
        left[0] -= 1
        if left[0] > 0:
            raise copy.copy(fault)  # one that is kept keeps all that it passed
        return real(data)

    monkeypatch.setattr(x509, "load_der_x509_certificate", load)

    async def links() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await server.until(lambda r: bool(r.open))
        assert left[0] <= 0
        await link.close()
        await listener.close()

    async def streams() -> None:
        server, client = End(), End()
        acceptor = await accepting(server, nodes[0], nodes)
        dialler = dialling(client, nodes[1], nodes[0], acceptor.port)
        await server.until(lambda end: bool(end.codecs))
        assert left[0] <= 0 < server.counters["closed_pin"] + client.counters["closed_pin"]
        await dialler.close()
        await acceptor.close()

    unseen(links if over == "links" else streams)


def test_a_frame_that_tls_does_not_take_ends_its_link_which_is_dialled_again(
    nodes: list[TestNode],
) -> None:
    def write(data: bytes) -> int:
        raise ssl.SSLError("bad key update")

    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: bool(r.open))
        assert link._connection is not None
        link._connection._tls = SimpleNamespace(write=write)  # type: ignore[assignment]
        assert not link.send(nodes[1].signer().frame(*message(1)))
        await client.until(lambda r: r.closed == ["tls"] and bool(r.open))
        assert link.send(nodes[1].signer().frame(*message(1)))
        await server.until(lambda r: len(r.messages) == 1)
        await link.close()
        await listener.close()

    unseen(story)


def test_who_asks_for_a_status_and_is_gone_at_once_is_nothing_to_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.dup, [3]

    def dup(fd: int) -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EBADF, "the socket is closed")
        return real(fd)

    async def story() -> None:
        path = tmp_path / "edge-0"
        server = StatusServer(path, cluster=bytes(16), number=0, status=dict)
        await server.start()
        monkeypatch.setattr(os, "dup", dup)
        for _ in range(3):
            reader, writer = await asyncio.open_unix_connection(str(path))
            assert await reader.read() == b""
            writer.close()
        asked = {"cluster": bytes(16), "shard": 0, "kind": "edge", "timeout_s": HUNG_S}
        assert await asyncio.to_thread(ask_status, tmp_path, **asked) == {}
        await server.close()
        assert not server.askers

    unseen(story)


# --- the library of QUIC

FAULTS = [
    AssertionError("of the library"),
    struct.error("unpack requires a buffer of 4 bytes"),
    IndexError("index out of range"),
    KeyError(7),
    UnicodeDecodeError("ascii", b"\xff", 0, 1, "ordinal not in range"),
    ValueError("Invalid version"),
    UnsupportedAlgorithm("a curve"),
]
WHERE = {
    "what came": (BoundedConnection, QuicConnection, "receive_datagram"),
    "what is sent": (BoundedConnection, QuicConnection, "datagrams_to_send"),
    "a timer": (BoundedConnection, QuicConnection, "handle_timer"),
    "HTTP/3": (BoundedHttp3, H3Connection, "handle_event"),
}


@pytest.mark.parametrize(
    ("where", "fault"),
    [*(("what came", fault) for fault in FAULTS), *((where, FAULTS[0]) for where in [*WHERE][1:])],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_an_error_of_the_library_ends_the_connection_whose_client_led_to_it(
    where: str,
    fault: Exception,
    node: TestNode,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tigerchat.quic")
    monkeypatch.setattr(logging.getLogger("tigerchat.quic"), "filters", [])  # of others' pages
    monkeypatch.setattr(client_module, "HELLO_MS_MAX", HUNG_S * 1000)
    monkeypatch.setattr(client_module, "HTTP_MS_MAX", HUNG_S * 1000)
    ours, library, name = WHERE[where]
    meant: set[Any] = set()
    real = getattr(library, name)

    def fails(self: Any, *words: Any, **named: Any) -> Any:
        if isinstance(self, ours) and (self in meant or getattr(self, "_quic", None) in meant):
            raise copy.copy(fault)  # one that is kept keeps all that it passed
        return real(self, *words, **named)

    async def story() -> None:
        async with open_port(node, echo) as port, dial(port.port) as kept:
            assert (await kept.fetch("/", method="POST", body=b"before")).body == b"before"
            (first,) = port.clients
            async with dial(port.port) as lost:
                await lost.fetch("/", method="POST", body=b"before")
                (second,) = set(port.clients) - {first}
                monkeypatch.setattr(library, name, fails)
                meant.add(second.quic)
                if where == "a timer":
                    monkeypatch.setattr(second.quic, "get_timer", lambda: 0.0)
                    if second._timer is not None:
                        second._timer.cancel()
                    second._on_timer()
                await lost.request("/", method="POST", body=b"now")
                while second in port.clients:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert port.counters["quic_library_failed"] == 1
            (line,) = [record.getMessage() for record in caplog.records]
            assert f"{fault!r} at fails:" in line
            assert set(port.clients) == {first} == set(port.entrance.visitors)
            assert (await kept.fetch("/", method="POST", body=b"after")).body == b"after"

    unseen(story)


def test_http_3_that_cannot_begin_ends_the_connection(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Any, quic: Any) -> None:
        raise KeyError("of the library")

    async def story() -> None:
        async def dials() -> None:
            async with dial(port.port):
                await asyncio.Event().wait()

        async with open_port(node, echo) as port:
            with monkeypatch.context() as patch:
                patch.setattr(BoundedHttp3, "__init__", fails)
                trying = asyncio.ensure_future(dials())
                while port.counters["quic_library_failed"] < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                trying.cancel()
                await asyncio.gather(trying, return_exceptions=True)
            async with dial(port.port) as kept:
                assert (await kept.fetch("/", method="POST", body=b"a")).body == b"a"
                assert len(port.clients) == len(port.entrance.visitors) == 1

    unseen(story)
