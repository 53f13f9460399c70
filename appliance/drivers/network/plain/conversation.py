"""A conversation of which every part is a request of its own.

    POST ──▶ take ──▶ lines, by turns ──▶ owner
    owner ──▶ write ──▶ output ──▶ poll: a batch, kept until the next poll says that it arrived
                              └──▶ events: a stream; when it breaks, the conversation ends

One request reads at a time: a newer one displaces it, for a client whose connection broke asks
again before anybody here knows.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import InputError
from appliance.base.limits import (
    CLIENT_FRAME_SIZE_MAX,
    CLIENT_WRITE_HIGH,
    CLIENT_WRITE_LOW,
    HELD_MIN,
    PLAIN_BATCH_SIZE,
    PLAIN_SILENT_S,
    STRANGER_FRAME_SIZE_MAX,
    TURN_COST_SIZE,
)
from appliance.drivers.network.closings import CLOSE_CODES, HTTP_STATUSES
from appliance.drivers.network.entrance import Visitor
from appliance.drivers.network.owner import LINES
from appliance.drivers.network.refusals import EVENTS, LONG_POLL
from appliance.drivers.network.websocket import WebSocketServer
from appliance.formats.client.frame import SUBPROTOCOL_JSON

KEEP_ALIVE_S = 15.0  # between two signs of life of a stream of events, and of a poll's answer
LAST_S = 5.0  # for a client to fetch how it ended
_NOT_UTF8 = 1007  # as a WebSocket says it


class Displaced(Exception):
    """Another request reads from this conversation now."""


class OutOfStep(Exception):
    """A poll names a batch that is neither the newest nor the one before it."""


@dataclass(slots=True, frozen=True)
class End:
    """How a conversation ended: `code` as of a WebSocket, `retry_after_ms` 0 for none."""

    code: int
    name: str
    http_status: int
    temporary: bool = False
    retry_after_ms: int = 0


@dataclass(slots=True, frozen=True)
class Batch:
    """Lines of frames, and the number by which the next poll says that they arrived."""

    number: int
    lines: bytes
    end: End | None


class Conversation(Visitor):
    """See above; for the owner one connection like others."""

    framing = LINES
    subprotocol = SUBPROTOCOL_JSON
    comes_by = LONG_POLL
    admitted = None  # the first frames come with the request that opens it

    def __init__(self, server: WebSocketServer, address: str) -> None:
        self.address = address
        self.transport_name = LONG_POLL
        self.user: Any = None
        self.turn, self.is_waiting = 0, False
        self.is_welcome = False
        self.on_gone: Callable[[], None] = lambda: None
        self._server = server
        self._inbox = bytearray()
        self._is_taking = False
        self._wanted = True
        self._output: deque[bytes] = deque()
        self._output_size = 0
        self._newest = Batch(0, b"", None)  # that a poll was given
        self._reader: object | None = None  # the newest request that reads, or did
        self._end: End | None = None
        self._is_read = self._is_blocked = self._is_gone = False
        self._changed = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """It was admitted."""
        self._server.on_open(self)
        self._end_after(PLAIN_SILENT_S)

    # --- what the client sends

    @property
    def is_taking(self) -> bool:
        """Whether a request brings frames; a second one would overtake it."""
        return self._is_taking

    async def take(self, pieces: AsyncIterator[bytes]) -> None:
        """Handle the lines of one request as they come, until all are handled or it is over. What
        breaks off in the middle of a line is dropped."""
        self._is_taking = True
        try:
            async for piece in pieces:
                self._inbox += piece
                await self._handled()
                if self._end is not None:
                    return
            self._inbox += b"\n"
            await self._handled()
        finally:
            del self._inbox[self._inbox.rfind(b"\n") + 1 :]
            self._is_taking = False

    async def _handled(self) -> None:
        """Have what came handled, in its turn."""
        self._server.turns.on_input(self)
        self._note_held()
        while self._end is None and b"\n" in self._inbox:
            await self._wait()

    def advance(self, cost_max: int) -> tuple[int, bool]:
        """Handle lines up to that cost: what they cost, and whether there are more."""
        cost = start = 0
        while cost < cost_max and self._wanted and self._end is None:
            end = self._inbox.find(b"\n", start)
            size_max = CLIENT_FRAME_SIZE_MAX if self.is_welcome else STRANGER_FRAME_SIZE_MAX
            if (len(self._inbox) if end < 0 else end) - start > size_max:
                self._server.owner.on_oversize(self)
                break
            if end < 0:
                break
            line = bytes(memoryview(self._inbox)[start:end])
            start = end + 1
            cost += 1 + len(line) // TURN_COST_SIZE
            self._on_line(line)
        del self._inbox[:start]
        self._changed.set()
        return cost, self._wanted and self._end is None and b"\n" in self._inbox

    def _on_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            str(line, "utf-8")
        except UnicodeDecodeError:
            self._finish(End(_NOT_UTF8, "not_utf8", 400))
            return
        self._server.owner.on_client_message(self, line, True)

    def on_turn(self) -> None:
        """It waits for its turn, or does no more: its request waits as well."""

    # --- what the client reads

    async def poll(self, after: int, seconds: float) -> Batch:
        """What follows on batch `after`, as soon as there is something, empty when there is nothing
        for so long. Displaced, OutOfStep."""
        if after == self._newest.number - 1:
            return self._newest  # its answer was lost
        if after != self._newest.number:
            raise OutOfStep
        reader = object()
        with self._reading(reader):
            self._drop_newest()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._readable(reader)
            if not self._output and self._end is None:
                return Batch(after, b"", None)
            self._newest = Batch(after + 1, self._take_output(PLAIN_BATCH_SIZE), self._told_end())
            return self._newest

    async def events(self, after: int, reader: object) -> AsyncIterator[Batch]:
        """Everything behind batch `after`, to the end; empty ones are signs of life. Call
        `break_off` with the same `reader` when nobody reads on. Displaced, OutOfStep."""
        if after not in (self._newest.number - 1, self._newest.number):
            raise OutOfStep
        if after == self._newest.number:
            self._drop_newest()
        self.transport_name = EVENTS
        with self._reading(reader):
            batch = self._newest
            while True:
                if batch.lines or batch.end or batch is not self._newest:
                    yield batch
                if batch.end is not None:
                    return
                self._drop_newest()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await self._readable(reader)
                lines = self._take_output(PLAIN_BATCH_SIZE)
                batch = Batch(self._newest.number, lines, self._told_end())

    @contextlib.contextmanager
    def _reading(self, reader: object) -> Iterator[None]:
        """One request reads from now on, and no other."""
        self._reader, self._is_read = reader, True
        self._changed.set()
        if self._deadline is not None:
            self._deadline.cancel()
        try:
            yield
        finally:
            if self._reader is reader:
                self._is_read = False
                if not self._is_gone:
                    self._end_after(PLAIN_SILENT_S if self._end is None else LAST_S)

    async def _readable(self, reader: object) -> None:
        while not self._output and self._end is None:
            await self._wait()
            if self._reader is not reader:
                raise Displaced

    def _told_end(self) -> End | None:
        """The end, once everything before it is taken."""
        return None if self._output else self._end

    def _take_output(self, size_max: int) -> bytes:
        taken: list[bytes] = []
        size = 0
        while self._output and (not taken or size + len(self._output[0]) <= size_max):
            taken.append(self._output.popleft())
            size += len(taken[-1])
        self._output_size -= size
        if self._is_blocked and self._output_size <= CLIENT_WRITE_LOW:
            self._is_blocked = False
            self._server.owner.on_writable(self)
        return b"".join(taken)

    def _drop_newest(self) -> None:
        self._newest = Batch(self._newest.number, b"", None)

    # --- for the owner

    @property
    def held(self) -> int:
        """Bytes in memory for this connection, in both directions."""
        return len(self._inbox) + self._output_size + len(self._newest.lines)

    def _note_held(self) -> None:
        if self.held >= HELD_MIN:
            self._server.heavy[self] = None

    def welcome(self) -> None:
        if not self.is_welcome:
            self.is_welcome = True
            self._server.entrance.welcome(self)

    def write(self, frames: list[bytes]) -> None:
        if self._end is not None or not frames:
            return
        self._output += frames
        self._output_size += sum(map(len, frames))
        self._changed.set()
        if not self._is_blocked and self._output_size > CLIENT_WRITE_HIGH:
            self._is_blocked = True
            self._server.owner.on_blocked(self)
        self._note_held()

    def read_on(self, wanted: bool) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            if wanted and self._inbox:
                self._server.turns.on_input(self)

    def end(self, error: InputError) -> None:
        kind = type(error)
        self._finish(
            End(
                CLOSE_CODES[kind],
                error.name,
                HTTP_STATUSES[kind],
                error.temporary,
                error.retry_after_ms,
            )
        )

    def probe(self) -> None:
        """Who reads no more is forgotten anyway."""

    # --- its end

    def _finish(self, end: End) -> None:
        if self._end is not None:
            return
        self._server.counters[f"closed_{end.code}"] += 1
        self._end = end
        self._inbox.clear()
        self._changed.set()
        if not self._is_read:
            self._end_after(LAST_S)

    def _end_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._on_silent)

    def _on_silent(self) -> None:
        self._server.counters["closed_silent"] += self._end is None
        self.leave()

    def break_off(self, reader: object) -> None:
        """The stream of this reader is over: so is the conversation, unless another one reads."""
        if self._reader is reader:
            self.leave()

    def expel(self) -> None:
        """Make room for somebody else."""
        self.leave()

    def leave(self) -> None:
        """The client is gone, or has to go."""
        if self._is_gone:
            return
        self._is_gone = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self._end is None:
            self._end = End(1001, "gone", 404)
        self._inbox.clear()
        self._output.clear()
        self._output_size = 0
        self._drop_newest()
        self._changed.set()
        self._server.forget(self)
        self._server.owner.on_closed(self)
        self.on_gone()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
