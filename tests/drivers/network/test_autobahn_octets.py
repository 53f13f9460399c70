"""Every case of the Autobahn test suite again, however its bytes arrive: octet by octet, and all at
once that need not wait. The connection is the product's, fed by hand: no byte waits for a network.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.websocket import Connection, WebSocketServer
from tests.drivers.network.autobahn_cases import Case, Heard, chopped, every_case
from tests.drivers.network.echo_site import Echo, large_messages
from tests.drivers.network.test_autobahn import HELLO, SECTIONS, fault_of

SCALE = 512  # of what section 9 sends: 32 KiB of its 16 MiB
EDGE_SIZE, MIDDLE_SIZE = 2048, 61  # bytes of a piece that arrive alone, and together between them


class Memory(asyncio.Transport):
    """What a connection writes, and whether it has ended; what it does not read waits."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._written = bytearray()
        self._changed = asyncio.Event()
        self._is_closing = False
        self._reading = asyncio.Event()
        self._reading.set()
        connection.connection_made(self)

    async def feed(self, data: bytes) -> None:
        """As one piece."""
        if not self._reading.is_set():
            await self._reading.wait()
        if not self._is_closing:
            self._connection.data_received(data)

    async def receive(self) -> bytes:
        """What came; empty at the end."""
        while not self._written and not self._is_closing:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._written)
        self._written.clear()
        return data

    def write(self, data: Any) -> None:
        assert not self._is_closing
        self._written += data
        self._changed.set()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._changed.set()
            self._reading.set()
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def get_write_buffer_size(self) -> int:
        return len(self._written)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is kept from being written."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Octets:
    """A wire on which each octet arrives alone; of a long frame those of its head and its end."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def send(self, data: bytes) -> None:
        end = max(EDGE_SIZE, len(data) - EDGE_SIZE)
        middle = chopped(data[EDGE_SIZE:end], MIDDLE_SIZE)
        for piece in (*chopped(data[:EDGE_SIZE]), *middle, *chopped(data[end:])):
            await self._memory.feed(piece)
        await asyncio.sleep(0)

    async def receive(self) -> bytes:
        return await self._memory.receive()


class Whole(Octets):
    """A wire on which what is sent arrives in one piece."""

    async def send(self, data: bytes) -> None:
        await self._memory.feed(data)
        await asyncio.sleep(0)


WIRES = {"octet by octet": Octets, "whole": Whole}


def joined(sent: Iterable[bytes | Heard]) -> Iterator[bytes | Heard]:
    """All that needs not wait for an answer at once."""
    for is_step, steps in itertools.groupby(sent, lambda step: isinstance(step, Heard)):
        if is_step:
            yield from steps
        else:
            yield b"".join(steps)  # type: ignore[arg-type]


@asynccontextmanager
async def connected(server: WebSocketServer, kind: type[Octets]) -> AsyncIterator[Octets]:
    """A wire behind its handshake, which came as everything does there."""
    connection = Connection(server, "127.0.0.1")
    assert server.entrance.admit(connection, asyncio.get_running_loop().time())
    memory = Memory(connection)
    wire = kind(memory)
    await wire.send(HELLO)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = await wire.receive()
        assert piece, head
        head += piece
    assert b" 101 " in head
    yield wire
    memory.close()


async def faults_of(section: str, kind: type[Octets]) -> tuple[int, dict[str, str]]:
    """How many cases there were, and what is wrong with them."""
    server = WebSocketServer(
        Echo(),
        make_http=lambda _: asyncio.Protocol(),
        hosts=Hosts([]),
        connections_max=1000,
        connections_per_address_max=1000,
        address_connect_rate=100_000,
        counters=Counter(),
    )
    found: dict[str, str] = {}
    count = 0
    with large_messages():
        for case in every_case(SCALE):
            if case.id.split(".")[0] == section:
                count += 1
                if kind is Whole:
                    case = Case(case.id, joined(case.sent), *case[2:])
                if fault := await fault_of(case, lambda: connected(server, kind)):
                    found[case.id] = fault
    assert server.count() == 0
    return count, found


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("section", SECTIONS)
def test_every_case_passes_however_its_bytes_arrive(section: str, wire: str) -> None:
    count, found = uvloop.run(faults_of(section, WIRES[wire]))
    assert count and found == {}
