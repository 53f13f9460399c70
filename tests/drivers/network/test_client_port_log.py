"""What is logged of the client port: what strangers cause seldom, faults of our own always."""

import asyncio
import gc
import logging
from collections import Counter

import pytest

from appliance.drivers.network.pages import Seldom
from tests.drivers.network.client_port import (
    PING,
    Port,
    flood,
    run,
    until,
)


def test_what_strangers_cause_is_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    async def test(port: Port) -> None:
        for _ in range(20):
            client = await port.dial()
            client.writer.write(b"\xff\xff\xff\r\n\r\n")
            await client.ended()
        assert port.server.counters["http"] == 20

    run(test)
    assert len([line for line in caplog.records if line.name == "uvicorn.error"]) <= 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("uvicorn.error", "Invalid HTTP request received."),
        ("uvicorn.error", "Unsupported upgrade request."),
        ("uvicorn.error", "No supported WebSocket library detected."),
        ("asyncio", "socket.send() raised exception."),
        ("asyncio", "SSL handshake failed on verifying the certificate"),
        ("asyncio", "Fatal error on transport TCPTransport"),
        ("tigerchat.quic", "the library of QUIC failed: KeyError(7) at fails:1"),
    ],
)
def test_each_line_that_strangers_can_cause_is_logged_seldom(
    name: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(port: Port) -> None:
        for _ in range(3):
            logging.getLogger(name).warning("%s", line)

    run(test)
    assert len([told for told in caplog.records if told.getMessage().startswith(line)]) <= 1


def test_faults_of_our_own_are_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """Beside lines of strangers, whose loggers they share."""

    def at_fault() -> None:
        raise KeyError("ours")

    async def lost() -> None:
        raise ConnectionError("our own, too: nobody looked at the task")

    async def test(port: Port) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            client = await port.dial()
            client.writer.write(b"\xff\xff\xff\r\n\r\n")
            await client.ended()
            loop.call_soon(at_fault)
            task = loop.create_task(lost())
            await asyncio.wait([task])
            del task
            gc.collect()
            logging.getLogger("uvicorn.error").error("Exception in ASGI application\n")

    run(test)
    said = Counter(line.getMessage().split()[:3][-1] for line in caplog.records)
    begins = ("Task exception was", "Exception in callback", "Exception in ASGI")
    assert [said[words.split()[-1]] for words in begins] == [3, 3, 3]


def test_a_line_of_a_connection_with_an_exception_that_is_none_of_it_passes() -> None:
    seldom = Seldom(("Fatal error on ",))

    def passes(error: Exception) -> bool:
        info = (type(error), error, None)
        line = logging.LogRecord("asyncio", logging.ERROR, "", 1, "Fatal error on x", (), info)
        return bool(seldom.filter(line))

    assert [passes(OSError()), passes(OSError()), passes(KeyError()), passes(KeyError())] == [
        True,
        False,
        True,
        True,
    ]


def test_a_client_that_leaves_amid_its_flood_is_answered_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(port: Port) -> None:
        for _ in range(5):
            flood(port, PING * 10_000).close()
        await until(lambda: port.owner.events["closed"] == 5)
        assert not port.server.turns.waiting

    run(test)
    assert not [line for line in caplog.records if line.name == "asyncio"]
