"""Many clients of a site in one process that costs little: they follow a room, from node to node.

    python tests/bench/crowd.py < one line of JSON, `Plan`; then a line for each question

A WebSocket of the crowd is a socket, TLS and the few frames that it needs; a WebTransport is the
product's own client. They keep to what the product's client does: the same patience with a node,
the same pauses between two nodes, and the room from the cursor on. No limit is loosened for them:
they come from several addresses, as several users.
"""

import asyncio
import contextlib
import json
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

import uvloop  # noqa: E402

from appliance.drivers.chat.access import local_access  # noqa: E402
from appliance.drivers.chat.backoff import Backoff  # noqa: E402
from appliance.drivers.chat.connection import THROWN_OUT  # noqa: E402
from appliance.drivers.chat.endpoint import Endpoint  # noqa: E402
from appliance.drivers.chat.errors import ConnectionLost, ThrownOut  # noqa: E402
from appliance.drivers.chat.webtransport import Connection as WebTransport  # noqa: E402
from appliance.drivers.chat.webtransport import dial as dial_webtransport  # noqa: E402
from appliance.drivers.host.process import child_environment  # noqa: E402
from appliance.formats.client.frame import (  # noqa: E402
    HEAD_SIZE,
    SUBPROTOCOL_BINARY,
    encode_binary,
    layout_of,
)
from appliance.formats.client.parse import parse_binary_edge  # noqa: E402
from appliance.formats.client.sign_in import Hello, Welcome  # noqa: E402
from appliance.formats.client.subscribing import (  # noqa: E402
    MessageEvent,
    Subscribed,
    SubscribeRoom,
)

CLIENTS_OF_ADDRESS = 1_000  # and of a user
DIALS_AT_ONCE = 256  # more would wait for this process and not for a node
WRONG_MAX = 10  # mistakes that are told
_HANDSHAKE = (
    "GET /v1 HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: " + SUBPROTOCOL_BINARY + "\r\n\r\n"
)
_NO_MASK = bytes(4)  # the mask that changes nothing
_PONG, _PING_CODE, _CLOSE_CODE = b"\x8a\x80" + _NO_MASK, 9, 8
_OP = struct.Struct("<Q")
_OP_OFFSET = 16  # behind the room


@dataclass(frozen=True)
class Plan:
    """Who comes, and where to."""

    folder: str  # of the local site
    room: str
    clients: int
    nodes: list[int]  # where all are at first, and the others, in two orders by turns
    transport: str = "websocket"
    body_size: int = 16  # of each message in the room
    dials: int = DIALS_AT_ONCE  # under way at once


@dataclass(frozen=True)
class State:
    """What the crowd says of itself; times are those of `time.monotonic`."""

    open: int  # clients that follow the room
    opened_at: float  # when the newest of them began to
    opens: int  # so often did one begin
    failed: dict[str, int]  # tries, by how they failed
    next_op_min: int
    next_op_max: int
    wrong: list[str]


def _masked(payload: bytes) -> bytes:
    size = len(payload)
    head = bytes((0x82, 0x80 | size)) if size < 126 else b"\x82\xfe" + size.to_bytes(2, "big")
    return head + _NO_MASK + payload


class Member:
    """One client, whatever carries it."""

    def __init__(self, crowd: "Crowd", number: int) -> None:
        self.crowd, self.number = crowd, number
        self.address = f"127.0.0.{2 + number // CLIENTS_OF_ADDRESS}"
        self.client_id = uuid4()
        self.next_op = self.epoch = self.at = 0
        self.backoff = Backoff(len(crowd.endpoints))
        self.follows: asyncio.Future[None] | None = None  # done when the room is followed
        self.line: Socket | WebTransport | None = None

    async def come(self) -> None:
        """Until it follows the room, on one node or another."""
        async with self.crowd.gate:
            await self._come()

    async def _come(self) -> None:
        while True:
            order = self.crowd.orders[self.number % 2]
            endpoint = self.crowd.endpoints[order[self.at % len(order)]]
            try:
                await self._come_to(endpoint)
            except (OSError, ConnectionLost) as error:  # TimeoutError among them
                if self.line is not None:
                    self.line.abort()
                self.line = None
                self.at += 1
                self.crowd.failed[type(error).__name__] += 1
                if not isinstance(error, ConnectionLost):
                    kind = ThrownOut if isinstance(error, THROWN_OUT) else ConnectionLost
                    error = kind(str(error))
                await asyncio.sleep(self.backoff.pause_s(error))
            else:
                self.backoff.on_welcome()
                return

    async def _come_to(self, endpoint: Endpoint) -> None:
        self.follows = asyncio.get_running_loop().create_future()
        timeout_s = self.backoff.timeout_s
        async with asyncio.timeout(timeout_s):
            if self.crowd.plan.transport == "webtransport":
                line: Socket | WebTransport = await dial_webtransport(
                    endpoint, SUBPROTOCOL_BINARY, self.on_frame, timeout_s
                )
            else:
                line = await Socket.dial(endpoint, self.address, self.on_frame)
        self.line = line
        line.lost.add_done_callback(lambda _: self.on_lost(line))
        token = self.crowd.tokens[self.number // CLIENTS_OF_ADDRESS]
        line.send(encode_binary(Hello(token=token, client_id=self.client_id)))
        async with asyncio.timeout(timeout_s):
            await self.follows

    def on_lost(self, line: "Socket | WebTransport") -> None:
        if line is not self.line:
            return
        assert self.follows is not None
        if not self.follows.done():
            self.follows.set_exception(ConnectionLost(line.lost.result()))
        elif self.follows.exception() is None:
            self.crowd.open -= 1
            self.line = None
            self.at += 1
            self.crowd.dial(self)

    def on_frame(self, data: bytes) -> None:
        if data[0] == MessageEvent.code:
            self._on_events(data)
        elif data[0] == Welcome.code:
            assert self.line is not None
            since = self.next_op - 1 if self.next_op else None
            wish = SubscribeRoom(room_id=self.crowd.room, since_op=since, epoch=self.epoch or None)
            self.line.send(encode_binary(wish))
        elif data[0] == Subscribed.code:
            (answer,) = parse_binary_edge(data)
            assert isinstance(answer, Subscribed)
            if self.next_op and answer.status != "recovered":
                self.crowd.note(f"client {self.number} resumed with {answer.status}")
            self.next_op, self.epoch = self.next_op or answer.next_op, answer.epoch
            self.crowd.on_open()
            assert self.follows is not None
            if not self.follows.done():
                self.follows.set_result(None)
        elif self.follows is not None and not self.follows.done():
            self.follows.set_exception(ConnectionLost(str(parse_binary_edge(data))))
        else:
            self.crowd.note(f"client {self.number} was told {parse_binary_edge(data)}")

    def _on_events(self, data: bytes) -> None:
        for offset in range(HEAD_SIZE, len(data), self.crowd.event_size):
            (op,) = _OP.unpack_from(data, offset + _OP_OFFSET)
            if op != self.next_op:
                self.crowd.note(f"client {self.number}: op {op} came, {self.next_op} was due")
            self.next_op = op + 1


class Socket(asyncio.Protocol):
    """A WebSocket, as far as this crowd needs one: the product's `Carrier` in little."""

    __slots__ = ("lost", "_ready", "_on_data", "_inbox", "_transport", "_handshake", "_is_open")

    def __init__(self, handshake: bytes, on_data: Any) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = loop.create_future()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._on_data, self._handshake = on_data, handshake
        self._inbox = b""
        self._is_open = False
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def dial(cls, endpoint: Endpoint, address: str, on_data: Any) -> "Socket":
        handshake = _HANDSHAKE.format(host=endpoint.host, port=endpoint.port).encode()
        _, made = await asyncio.get_running_loop().create_connection(
            lambda: cls(handshake, on_data),
            endpoint.host,
            endpoint.port,
            ssl=endpoint.tls,
            server_hostname=endpoint.host,
            local_addr=(address, 0),
        )
        with contextlib.ExitStack() as unready:
            unready.callback(made.abort)
            await made._ready
            unready.pop_all()
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._transport.write(self._handshake)  # type: ignore[union-attr]

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ready.done():
            self._ready.set_exception(ThrownOut(str(error or "closed")))
        if not self.lost.done():
            self.lost.set_result(str(error or "closed"))

    def data_received(self, data: bytes) -> None:
        self._inbox += data
        if not self._is_open:
            head, mark, rest = self._inbox.partition(b"\r\n\r\n")
            if not mark:
                return
            if b" 101 " not in head.partition(b"\r\n")[0]:
                self.abort()
                return
            self._is_open, self._inbox = True, rest
            self._ready.set_result(None)
        while self._inbox and self._take_frame():
            """One after the other."""

    def _take_frame(self) -> bool:
        inbox = self._inbox
        if len(inbox) < 2:
            return False
        size, start = inbox[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            if len(inbox) < start:
                return False
            size = int.from_bytes(inbox[2:start], "big")
        if len(inbox) < start + size:
            return False
        self._inbox = inbox[start + size :]
        assert self._transport is not None
        code = inbox[0] & 0x0F
        if code == _PING_CODE:
            self._transport.write(_PONG)
        elif code == _CLOSE_CODE:
            self._transport.abort()
        else:
            self._on_data(inbox[start : start + size])
        return True

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_masked(data))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """All members, in the crowd's own process."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.room = plan, UUID(plan.room)
        users = 1 + (plan.clients - 1) // CLIENTS_OF_ADDRESS
        places = [local_access(Path(plan.folder), f"crowd-{number}") for number in range(users)]
        self.endpoints = [places[0].endpoints[node] for node in plan.nodes]
        first, *others = range(len(plan.nodes))
        self.orders = ([first, *others], [first, *reversed(others)])
        self.tokens = [place.token() for place in places]
        self.event_size = layout_of(MessageEvent).struct().size + plan.body_size
        self.open = self.opens = 0
        self.failed, self.gate = Counter[str](), asyncio.Semaphore(plan.dials)
        self.opened_at = time.monotonic()
        self.wrong: list[str] = []
        self._members = [Member(self, number) for number in range(plan.clients)]
        self._tasks: set[asyncio.Task[None]] = set()

    async def come(self) -> None:
        """For the first time."""
        await asyncio.gather(*(member.come() for member in self._members))

    def dial(self, member: Member) -> None:
        """One has lost its node."""
        task = asyncio.get_running_loop().create_task(member.come())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_open(self) -> None:
        self.open += 1
        self.opens += 1
        self.opened_at = time.monotonic()

    def note(self, wrong: str) -> None:
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(wrong)

    def state(self) -> State:
        ops = [member.next_op for member in self._members]
        return State(
            open=self.open,
            opened_at=self.opened_at,
            opens=self.opens,
            failed=dict(self.failed),
            next_op_min=min(ops),
            next_op_max=max(ops),
            wrong=self.wrong,
        )


async def _main() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # of uvloop, for each that is thrown out
    crowd = Crowd(Plan(**json.loads(sys.stdin.readline())))
    await crowd.come()
    while True:
        print(json.dumps(asdict(crowd.state())), flush=True)
        if not await loop.run_in_executor(None, sys.stdin.readline):
            return


class Running:
    """A crowd in its process, to who asks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def hear(self) -> State:
        """The first one: all are there."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: a crowd ended with {self._process.wait()}")
        return State(**json.loads(line))

    def ask(self) -> State:
        """How it is now."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.hear()


@contextmanager
def crowd(plan: Plan) -> Iterator[Running]:
    """Clients that are all there; they go at the end."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({f.name: getattr(plan, f.name) for f in fields(plan)}))
            process.stdin.write("\n")
            process.stdin.flush()
            running = Running(process)
            running.hear()
            yield running
        finally:
            process.kill()


if __name__ == "__main__":
    uvloop.run(_main())
