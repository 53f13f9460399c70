"""Who comes in at the client port: how many that say nothing, of which sites and hosts."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from appliance.base import limits
from appliance.drivers.network import accepting
from appliance.drivers.network import entrance as entrance_module
from appliance.drivers.network.origin import Hosts
from tests.drivers.network.client_port import (
    ENDED_S,
    GET,
    Client,
    Port,
    handshake,
    run,
    server_tls,
    trusting,
    until,
)


def test_sockets_that_say_nothing_displace_each_other_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entrance_module, "STRANGERS_SILENT_MAX", 64)

    async def test(port: Port) -> None:
        guest = await port.chat("127.0.0.9")
        await guest.asked()
        half = await port.dial("127.0.0.2")
        half.writer.write(handshake()[:20])
        entrance = port.server.entrance
        await until(lambda: entrance._served.count == 1)
        silent = [await port.dial("127.0.0.2") for _ in range(300)]
        await until(lambda: port.server.counters["accepted"] == 302)
        assert entrance.strangers == 65
        assert port.server.counters["stranger_displaced"] == 300 - 64
        honest = await port.chat("127.0.0.2")  # of the same address
        await honest.asked()
        half.writer.write(handshake()[20:])
        assert b" 101 " in await half.reader.readuntil(b"\r\n\r\n")
        await half.asked()
        await guest.asked()
        for client in silent:
            client.writer.close()
        await until(lambda: len(entrance.visitors) == 3)

    run(test)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02"], ids=["nothing", "half a hello"])
def test_sockets_that_never_end_tls_are_few_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(accepting, "HELLO_MS_MAX", 500)

    async def test(port: Port) -> None:
        entrance, listener = port.server.entrance, port.server.listener
        silent = [await port.dial("127.0.0.2") for _ in range(300)]
        for client in silent:
            client.writer.write(sent)
        await until(lambda: port.server.counters["accepted"] == 300)
        assert (
            len(listener._greetings)
            <= entrance._served.count
            <= (limits.STRANGERS_MAX if sent else 0)
        )
        came = None
        while came is None:  # it may have to wait for longer than it may take
            with contextlib.suppress(ConnectionError):
                came = await asyncio.open_connection(
                    "127.0.0.1", port.server.port, ssl=trusting(), local_addr=("127.0.0.2", 0)
                )
        reader, writer = came
        writer.write(handshake())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")  # of the same address, with TLS
        assert await Client(reader, writer).asked() < ENDED_S
        ended = await asyncio.gather(*(client.ended() for client in silent))
        assert ended == [b""] * 300  # displaced, or out of time
        assert port.server.counters["ended_handshake"] >= 300
        assert len(entrance.visitors) == 1 and not listener._greetings and not listener._callers
        writer.close()

    run(test, tls=server_tls(tmp_path))


def test_of_an_address_no_more_than_so_many_come_in_of_whatever_kind() -> None:
    async def test(port: Port) -> None:
        chats = [await port.chat() for _ in range(2)]
        for chat in chats:
            await chat.asked()
        plain = await port.dial()
        plain.writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await plain.reader.readline()).startswith(b"HTTP/1.1 200")
        over = await port.dial()
        assert await over.ended() == b""
        assert port.server.counters["too_many_of_address"] == 1
        assert port.server.counts() == {"websocket": 2, "http": 1}
        assert port.server.entrance.refusals.told() == {"tcp": {"too_many_of_address": 1}}
        plain.writer.close()
        await until(lambda: len(port.server.entrance.visitors) == 2)
        assert port.server.counts() == {"websocket": 2, "http": 0}
        await (await port.chat()).asked()

    run(test, connections_per_address_max=3)


def test_plain_connections_that_never_end_a_request_keep_nobody_out() -> None:
    async def test(port: Port) -> None:
        held = []
        for i in range(300):
            client = await port.dial(f"127.0.0.{2 + i % 5}")
            client.writer.write(GET + b"G")
            held.append(client)
        for _ in range(5):
            honest = await port.dial("127.0.0.9")
            honest.writer.write(GET)
            assert (await honest.reader.readline()).startswith(b"HTTP/1.1 200")
            honest.writer.close()
        assert port.server.entrance._served.count <= limits.STRANGERS_MAX
        for client in held:
            client.writer.close()

    run(test)


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "127.0.0.1:8800", True),
        ("https://127.0.0.1:8800", "127.0.0.1:8800", True),
        ("https://chat.example:8800", "127.0.0.1:8800", True),
        ("https://[::1]:8800", "[::1]:8800", True),
        ("https://localhost:8800", "localhost:8800", True),
        ("https://evil.example", "127.0.0.1:8800", False),
        ("https://10.0.0.9", "127.0.0.1:8800", False),
        ("https://chat.example.evil.example", "chat.example", False),
        ("null", "127.0.0.1:8800", False),
        ("", "127.0.0.1:8800", False),
        ("file://", "127.0.0.1:8800", False),
        ("https://user@chat.example", "chat.example", False),
        ("https://chat.example:x", "chat.example", False),
    ],
)
def test_a_page_of_another_site_may_not_connect(
    origin: str | None, host: str, allowed: bool
) -> None:
    assert Hosts(["chat.example"]).may_connect(origin, host) is allowed


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3:8800", True),
        ("[::1]:8800", True),
        ("localhost:8800", True),
        ("CHAT.example.:8800", True),
        ("evil.example", False),
        ("", False),
        (None, False),
        ("chat.example/x", False),
        ("chat.example:99999999", False),
    ],
)
def test_a_host_that_is_not_ours_is_not_asked_for(host: str | None, allowed: bool) -> None:
    assert Hosts(["Chat.Example"]).may_ask(host) is allowed


def test_handshakes_and_pages_for_others_are_refused_and_counted() -> None:
    async def test(port: Port) -> None:
        for sent in (handshake("https://evil.example"), handshake(host="evil.example")):
            client = await port.dial()
            client.writer.write(sent)
            assert (await client.ended()).startswith(b"HTTP/1.1 403")
        assert port.server.counters["origin_refused"] == 2
        assert port.server.entrance.refusals.told() == {"websocket": {"other_site": 2}}
        await (await port.chat(origin="https://127.0.0.1:1")).asked()
        for host, code in ((b"evil.example", b"421"), (b"chat.example", b"200")):
            client = await port.dial()
            client.writer.write(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 " + code)
            client.writer.close()
        allowed = b"connect-src 'self' wss://chat.example:8800 https://chat.example:8800;"
        assert allowed in head
        for name in (
            b"strict-transport-security: max-age=",
            b"cross-origin-opener-policy: same-origin",
            b"cross-origin-resource-policy: same-origin",
            b"cache-control: no-store",
            b"require-trusted-types-for 'script'",
        ):
            assert name in head, name
        assert head.count(b"cache-control") == 1

    run(test)
