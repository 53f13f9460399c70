"""Who leaves while it waits to be served costs no handshake, and lets in who came behind it."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from appliance.drivers.network import entrance as entrance_module
from tests.drivers.network.client_port import (
    Client,
    Port,
    handshake,
    run,
    server_tls,
    trusting,
    until,
)

IMPATIENT = 900  # in one turn; more than calls may be nested


def first_bytes() -> bytes:
    """With which a client begins TLS."""
    out = ssl.MemoryBIO()
    client = trusting().wrap_bio(ssl.MemoryBIO(), out)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def test_those_who_left_the_line_are_passed_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance_module, "STRANGERS_MAX", 1)
    monkeypatch.setattr(entrance_module, "STRANGER_STEP_MS", 10**6)

    async def test(port: Port) -> None:
        entrance, listener = port.server.entrance, port.server.listener
        slow = await port.dial("127.0.0.2")
        slow.writer.write(first_bytes()[:20])
        await until(lambda: entrance._served.count == 1)
        impatient = [await port.dial("127.0.0.2") for _ in range(IMPATIENT)]
        for client in impatient:
            client.writer.write(first_bytes())
        await until(lambda: entrance.waiting == IMPATIENT)
        coming = asyncio.create_task(
            asyncio.open_connection(
                "127.0.0.1", port.server.port, ssl=trusting(), local_addr=("127.0.0.2", 0)
            )
        )
        await until(lambda: entrance.waiting == IMPATIENT + 1)
        for client in impatient:
            client.writer.transport.abort()
        slow.writer.transport.abort()
        reader, writer = await coming
        writer.write(handshake())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        await Client(reader, writer).asked()
        assert port.server.counters["left_waiting"] == IMPATIENT
        assert len(entrance.visitors) == 1 and not listener._greetings and not listener._callers
        writer.close()

    run(test, tls=server_tls(tmp_path), address_connect_rate=10_000)
