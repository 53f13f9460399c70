"""A closed loop: so many messages wait for their acknowledgement, each answer sends the next ones.

Generators share the cores with what they measure, hence they speak the raw protocols, and a message
costs them microseconds. A sender is one connection; a round has at most SENDERS of them.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

import numpy as np

from tests.bench.peers.ledger import PREFIX_SIZE, Ledger

SENDERS = 3
ROOMS = 16
BODY_SIZE = 256
MARK = b"\xfa\xceTIGER\xfb"  # begins each body; nothing else on a wire has it
NAME_SIZE = PREFIX_SIZE + 10
REST = (bytes(range(65, 91)) * 10)[: BODY_SIZE - len(MARK) - NAME_SIZE]  # after the name
WARM_UP_S = 0.5
STALLED_S = 30.0
READY_S = 20.0  # until servers that were started answer
DIALS_AT_ONCE = 50
WINDOW = 64  # messages that a speaker may be ahead of its listeners


class PeerFailed(Exception):
    """A server or its protocol did not do what a round needs; nothing was measured."""


@dataclass(frozen=True)
class Round:
    """What one round found."""

    messages: int  # acknowledged in the counted seconds
    seconds: float
    p50_ms: float
    p99_ms: float
    whole: int  # acknowledged from its first moment to its last, warm-up and all

    @property
    def per_s(self) -> float:
        return self.messages / self.seconds


class Sender(asyncio.Protocol, ABC):
    """One connection with `depth` messages in flight; subclasses speak a protocol.

    `send(count)` puts so many messages on the wire, with the names that follow; `note(count,
    sent_at_ns)` is called for those that were acknowledged.
    """

    def __init__(self, depth: int, prefix: bytes) -> None:
        self.depth, self.prefix = depth, prefix
        self.transport: asyncio.Transport | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure = ""
        self.running = False
        self.sent = self.acked = 0
        self._told: list[tuple[int, int, int]] = []  # (at, latency, count), ns

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.greet()

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(f"the connection was lost: {error}")

    def fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        if not self.ready.done():
            self.ready.set_exception(PeerFailed(reason))

    def greet(self) -> None:
        """What opens the conversation; `ready` is set when messages may follow."""
        self.ready.set_result(None)

    @abstractmethod
    def send(self, count: int) -> None:
        """Have so many messages more on the way."""

    def begin(self) -> None:
        self.running = True
        self.sent += self.depth
        self.send(self.depth)

    def note(self, count: int, sent_at_ns: int) -> None:
        now = time.perf_counter_ns()
        self._told.append((now, now - sent_at_ns, count))
        self.acked += count
        if self.running:
            self.sent += count
            self.send(count)

    def body(self, number: int) -> bytes:
        return b"%b%b%010d%b" % (MARK, self.prefix, number, REST)

    def between(self, begin_ns: int, end_ns: int) -> np.ndarray:
        """Latencies, in ns, of what was acknowledged then."""
        rows = np.array(self._told, dtype=np.int64).reshape(-1, 3)
        rows = rows[(rows[:, 0] >= begin_ns) & (rows[:, 0] < end_ns)]
        return np.repeat(rows[:, 1], rows[:, 2])


class Listener(asyncio.Protocol):
    """Counts bodies that come in; `words` subscribe."""

    confirmed: ClassVar[bytes] = b""  # in what the server says once the subscription stands

    def __init__(self, words: bytes) -> None:
        self.words = words
        self.delivered = 0
        self.transport: asyncio.Transport | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""
        self.on_progress: Callable[[int], None] = lambda count: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.words)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(PeerFailed(f"a listener's connection was lost: {error}"))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self.ready.done():
            if self.confirmed not in data:
                self._rest = data
                return
            self.ready.set_result(None)
        if count := data.count(MARK):
            self.delivered += count
            self.on_progress(count)
        self._rest = data[-(len(MARK) - 1) :]  # a mark may lie across two pieces


End = TypeVar("End", Sender, Listener)


async def connected(wanted: Sequence[tuple[Callable[[], End], int]]) -> list[End]:
    """An end of each connection (how it is made, port), ready, in this order."""
    loop, gate = asyncio.get_running_loop(), asyncio.Semaphore(DIALS_AT_ONCE)

    async def one(make: Callable[[], End], port: int) -> End:
        async with gate:
            _, end = await loop.create_connection(make, "127.0.0.1", port)
            await asyncio.wait_for(asyncio.shield(end.ready), READY_S)
            return end

    return await asyncio.gather(*(one(make, port) for make, port in wanted))


def close(ends: Sequence[Sender | Listener]) -> None:
    for end in ends:
        if end.transport is not None:
            end.transport.abort()


def dealt(in_flight: int) -> list[int]:
    """Depths of the senders of a round."""
    count = min(SENDERS, in_flight)
    return [in_flight // count + (index < in_flight % count) for index in range(count)]


async def acknowledged(senders: Sequence[Sender], seconds: float, ledger: Ledger) -> Round:
    """Run connected senders; what was acknowledged in `seconds` after a warm-up."""
    try:
        for sender in senders:
            sender.begin()
        await _pass(senders, WARM_UP_S)
        begin = time.perf_counter_ns()
        await _pass(senders, seconds)
        end = time.perf_counter_ns()
        for sender in senders:
            sender.running = False
        await _all_answered(senders, ledger)
    finally:
        close(senders)
    latencies = np.concatenate([sender.between(begin, end) for sender in senders])
    if not len(latencies):
        raise PeerFailed("nothing was acknowledged")
    p50, p99 = np.percentile(latencies, [50, 99]) / 1e6
    whole = sum(sender.acked for sender in senders)
    return Round(len(latencies), (end - begin) / 1e9, float(p50), float(p99), whole)


async def _all_answered(senders: Sequence[Sender], ledger: Ledger) -> None:
    """Wait for what is in flight: then every name that was sent is one that was acknowledged."""
    until = time.monotonic() + STALLED_S
    while any(sender.acked < sender.sent for sender in senders):
        if time.monotonic() > until:
            raise PeerFailed("messages stayed unanswered")
        await _pass(senders, 0.01)
    for sender in senders:
        ledger.add(sender.prefix, sender.acked)


async def _pass(senders: Sequence[Sender], seconds: float) -> None:
    await asyncio.sleep(seconds)
    for sender in senders:
        if sender.failure:
            raise PeerFailed(sender.failure)


async def fanned_out(
    speaker: Sender, listeners: Sequence[Listener], messages: int, ledger: Ledger
) -> tuple[float, int]:
    """(seconds, deliveries): one speaks, WINDOW messages ahead of the listeners at most."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    wanted, delivered, said = messages * len(listeners), 0, 0

    def on_progress(count: int) -> None:
        nonlocal delivered, said
        delivered += count
        free = min(delivered // len(listeners) + WINDOW, messages) - said
        if free >= WINDOW // 4 or (free and said + free == messages):
            said += free
            speaker.sent += free
            speaker.send(free)
        if delivered >= wanted and not done.done():
            done.set_result(None)

    for listener in listeners:
        listener.on_progress = on_progress
    begin = time.perf_counter()
    on_progress(0)
    try:
        await asyncio.wait_for(done, STALLED_S + messages / 20)
        end = time.perf_counter()
        await _all_answered([speaker], ledger)
    except TimeoutError:
        raise PeerFailed(
            f"{delivered} of {wanted} were delivered; the speaker: {speaker.failure or 'well'}"
        ) from None
    finally:
        close([speaker, *listeners])
    return end - begin, delivered
