"""What an edge does while it stops, and what it tells of its conversations."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.drivers.network.refusals import SERVED
from appliance.formats.client_errors import Closing, TokenExpired
from appliance.roles.edge import figures
from appliance.roles.edge.figures import answered
from appliance.roles.edge.traffic import Traffic
from tests.patience import HUNG_S


def edge_with(*in_flight: int) -> Any:
    sessions = {number: SimpleNamespace(in_flight=count) for number, count in enumerate(in_flight)}
    return SimpleNamespace(sessions=sessions)


def test_a_stop_waits_for_answers_to_what_was_taken() -> None:
    async def story() -> None:
        edge = edge_with(0, 2)
        waiting = asyncio.create_task(answered(edge))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        edge.sessions[1].in_flight = 0
        await waiting

    asyncio.run(story())


def test_a_stop_does_not_wait_for_a_quorum_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "DRAIN_MS_MAX", 200)

    async def story() -> None:
        async with asyncio.timeout(HUNG_S):
            await answered(edge_with(1))

    asyncio.run(story())


class Carried:
    """A conversation, as the role sees it."""

    def __init__(self, transport_name: str) -> None:
        self.transport_name = transport_name
        self.written: list[bytes] = []
        self.error: Any = None

    def write(self, frames: list[bytes]) -> None:
        self.written += frames

    def end(self, error: Any) -> None:
        self.error = error


def test_bytes_and_ends_are_told_by_transport() -> None:
    traffic, one, other = Traffic(), Carried("websocket"), Carried("webtransport")
    traffic.on_received(one, b"12345")  # type: ignore[arg-type]
    traffic.write(one, [b"ab", b"c"])  # type: ignore[arg-type]
    traffic.write(other, [b"d"])  # type: ignore[arg-type]
    for connection, error in ((one, Closing("x")), (other, TokenExpired("y")), (one, Closing("z"))):
        traffic.end(connection, error)  # type: ignore[arg-type]
    assert one.written == [b"ab", b"c"] and type(one.error) is Closing
    traffic.on_body("http", 0, 70)
    traffic.on_body("http", 4, 0)
    nothing = dict.fromkeys(SERVED, 0)  # a series that begins with its first byte has no rate
    assert traffic.received() == nothing | {"websocket": 5, "http": 4}
    assert traffic.sent() == nothing | {"websocket": 3, "webtransport": 1, "http": 70}
    ends = {"websocket": {"closing": 2}, "webtransport": {"token_expired": 1}}
    assert traffic.ended() == ends
