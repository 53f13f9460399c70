"""What it costs readers that every record is checked at the reading at which it leaves a node: the
rate of pages of history and of deliveries to listeners, by edges with that check and without.

All edges of a site are switched from round to round, so that whatever else happens on the machine
meets both alike; each round with the check is set beside the one without it next to it.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from appliance.commands.benchmark import Nodes, acknowledge, fan_out
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.connection import Connection, dial
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, encode_binary
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.sign_in import Hello
from appliance.formats.geometry import PRODUCTION
from appliance.simulation.workloads.audience import Audience
from appliance.simulation.workloads.chatter import Chatter
from tests.bench.switched_edge import ANSWER, OFF, ON
from tests.system.local_site import COMMAND, LocalSite, wait_until

COST_MAX = 0.05  # of the rate
BODY_SIZE = 256
PAGE = 100  # messages, as a client asks for that says nothing of it
NODE = 0  # whose edge is read from
MIXED_ROOMS = 16
PATIENCE_S = 30.0

Say = Callable[[str], None]


class Rounds(NamedTuple):
    """How much is measured."""

    pairs: int = 11  # of rounds, one with the check and one without
    pages: int = 400  # of one round
    listeners: int = 100
    messages: int = 6_000  # to each listener


QUICK = Rounds(pairs=1, pages=5, listeners=5, messages=100)


class SwitchedSite(LocalSite):
    """A site whose edges can be told to trust the disk."""

    def _wrapped(self, node: int, command: list[str]) -> list[str]:
        if "edge" not in command:
            return command
        assert command[: len(COMMAND)] == COMMAND
        words = command[len(COMMAND) :]
        return [sys.executable, str(Path(__file__).with_name("switched_edge.py")), *words]

    def switch(self, checked: bool) -> None:
        """Have all edges check, or not, from now on."""
        for node in self.nodes:
            self.roles[node, "edge"].send_signal(ON if checked else OFF)
        wanted = "on" if checked else "off"
        answers = [self.place(node) / ANSWER for node in self.nodes]

        def switched() -> bool:
            return all(answer.exists() and answer.read_text() == wanted for answer in answers)

        wait_until(switched, PATIENCE_S, "all edges have switched")


class BareReader:
    """Asks for one page after the other and looks at nothing but the first byte."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._answer: asyncio.Future[bytes] | None = None

    async def __aenter__(self) -> "BareReader":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def connect(self, site: LocalSite) -> None:
        """Sign in at the edge that is read from."""
        access = site.access()
        endpoint = access.endpoints[NODE]
        self._connection = await dial(endpoint, SUBPROTOCOL_BINARY, self._on_data, PATIENCE_S)
        await self._ask(encode_binary(Hello(token=access.token(), client_id=uuid4())))

    async def page(self, room: UUID, first: int) -> None:
        """One page, as bytes."""
        frame = SnapshotRequest(room_id=room, from_op=first, limit=PAGE)
        data = await self._ask(encode_binary(frame))
        assert data[0] == SnapshotChunk.code and len(data) > PAGE * BODY_SIZE, data[:200]

    async def _ask(self, data: bytes) -> bytes:
        assert self._connection is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(data)
        return await asyncio.wait_for(self._answer, PATIENCE_S)

    def _on_data(self, data: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(data)


class Room(NamedTuple):
    """A room and how many of its first messages lie in sealed segments that no ring holds."""

    room_id: UUID
    sealed: int


def filled(site: LocalSite) -> dict[str, Room]:
    """Rooms by how their messages lie: one beside the other, and among those of others."""
    segment = PRODUCTION.segment_records
    alone = _fill(site, "alone", 1, 2 * segment)
    before = _log_seq(site)
    mixed = _fill(site, "mixed", MIXED_ROOMS, before + 4 * segment)
    return {
        "alone": Room(alone, segment),
        "mixed": Room(mixed, segment // MIXED_ROOMS),
    }


def _log_seq(site: LocalSite) -> int:
    status = site.status(NODE)
    assert status is not None
    return int(status["log_seq"])


def _fill(site: LocalSite, name: str, rooms: int, log_seq: int) -> UUID:
    """Write into such rooms until the log has so many records; the id of the first."""
    chatter = Chatter(rooms=rooms, devices=3, in_flight=192, body_size=BODY_SIZE, name=name)
    access = site.access()
    while _log_seq(site) < log_seq:
        asyncio.run(acknowledge(access, Nodes(None), chatter, "binary", 0.5))

    async def room_id() -> UUID:
        async with Client(access.endpoints, access.token) as client:
            return (await client.create_room(chatter.setup()[0])).room_id

    return asyncio.run(room_id())


async def pages_of_client(site: LocalSite, room: Room, pages: int) -> float:
    """Messages a second, as the product's own client reads and parses them."""
    access = site.access()
    async with Client([access.endpoints[NODE]], access.token) as client:
        await client.snapshot(room.room_id, from_op=1, limit=PAGE)
        begin = time.perf_counter()
        for first in _firsts(room, pages):
            page = await client.snapshot(room.room_id, from_op=first, limit=PAGE)
            assert len(page.messages) == PAGE
        return pages * PAGE / (time.perf_counter() - begin)


async def pages_bare(site: LocalSite, room: Room, pages: int) -> float:
    """Messages a second, read by somebody who does not look at them."""
    async with BareReader() as reader:
        await reader.connect(site)
        await reader.page(room.room_id, 1)
        begin = time.perf_counter()
        for first in _firsts(room, pages):
            await reader.page(room.room_id, first)
        return pages * PAGE / (time.perf_counter() - begin)


def _firsts(room: Room, pages: int) -> list[int]:
    return [1 + number * PAGE % (room.sealed - PAGE) for number in range(pages)]


async def deliveries(site: LocalSite, rounds: Rounds) -> float:
    """Deliveries a second to listeners of all nodes."""
    audience = Audience(
        listeners=rounds.listeners, messages=rounds.messages, window=64, body_size=BODY_SIZE
    )
    row = await fan_out(site.access(), Nodes(None), audience)
    return float(row["per_s"])


def measure(
    site: SwitchedSite, rooms: dict[str, Room], rounds: Rounds, say: Say
) -> list[dict[str, Any]]:
    """Rows of `make bench`."""
    alone, mixed = rooms["alone"], rooms["mixed"]
    ways: dict[str, Callable[[], float]] = {
        "history to the client, a room alone": lambda: asyncio.run(
            pages_of_client(site, alone, rounds.pages // 2)
        ),
        f"history to the client, {MIXED_ROOMS} rooms mixed": lambda: asyncio.run(
            pages_of_client(site, mixed, rounds.pages // 2)
        ),
        "history to a bare reader, a room alone": lambda: asyncio.run(
            pages_bare(site, alone, rounds.pages)
        ),
        f"history to a bare reader, {MIXED_ROOMS} rooms mixed": lambda: asyncio.run(
            pages_bare(site, mixed, rounds.pages)
        ),
        "fan-out": lambda: asyncio.run(deliveries(site, rounds)),
    }
    return [_compared(site, name, way, rounds.pairs, say) for name, way in ways.items()]


def _compared(
    site: SwitchedSite, name: str, way: Callable[[], float], pairs: int, say: Say
) -> dict[str, Any]:
    """One way of reading, with the check and without by turns."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs):
        for checked in (True, False) if number % 2 else (False, True):
            site.switch(checked)
            found[checked].append(way())
    ratios = [a / b for a, b in zip(found[True], found[False], strict=True)]
    cost = 1 - statistics.median(ratios)
    per_s = {checked: round(statistics.median(rates)) for checked, rates in found.items()}
    say(
        f"{name}: {per_s[True]} messages/s checked, {per_s[False]} unchecked, "
        f"{cost:+.1%} by the median of {pairs} pairs"
    )
    return {
        "kind": "checked reading",
        "what": f"the check of records that leave: {name}",
        "value": round(100 * cost, 1),
        "unit": "% of the rate",
        "checked_per_s": per_s[True],
        "unchecked_per_s": per_s[False],
        "pairs": pairs,
        "bar": f"at most {COST_MAX:.0%}",
        "held": cost <= COST_MAX,
    }
