"""Redis 7: each message an RPUSH, a batch acknowledged by WAIT 1; files are flushed on each write.

One replica has the batch when WAIT answers; nobody agrees on who leads: this is not consensus.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench.peers.ledger import NAME, Ledger, prefix_of
from tests.bench.peers.loop import (
    BODY_SIZE,
    READY_S,
    ROOMS,
    Listener,
    PeerFailed,
    Round,
    Sender,
    acknowledged,
    connected,
    dealt,
    fanned_out,
)
from tests.bench.peers.servers import NODES, Servers

WAIT = b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"
CHANNEL = b"fan"
ELEMENTS_AT_ONCE, ELEMENT_SIZE = 10_000, len(b"$%d\r\n\r\n" % BODY_SIZE) + BODY_SIZE
SUBSCRIBE = b"*2\r\n$9\r\nSUBSCRIBE\r\n$3\r\n" + CHANNEL + b"\r\n"


def words(*parts: bytes) -> bytes:
    """A command, as the protocol has it."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


class RedisSender(Sender):
    """Batches: so many RPUSH and one WAIT; all of them are acknowledged together."""

    def __init__(self, depth: int, prefix: bytes, publish: bool = False) -> None:
        super().__init__(depth, prefix)
        self._pushes = [b"*3\r\n$5\r\nRPUSH\r\n$7\r\nroom-%02d\r\n" % room for room in range(ROOMS)]
        self._publish = publish
        self._batches: list[tuple[int, int]] = []  # (messages, when they were sent)
        self._answers = 0  # that came of the first batch
        self._rest = b""
        self._number = 0

    def send(self, count: int) -> None:
        assert self.transport is not None
        out = []
        for number in range(self._number, self._number + count):
            body = self.body(number)
            out.append(b"%b$%d\r\n%b\r\n" % (self._pushes[number % ROOMS], BODY_SIZE, body))
            if self._publish:
                out.append(words(b"PUBLISH", CHANNEL, body))
        self._number += count
        self._batches.append((count, time.perf_counter_ns()))
        self.transport.write(b"".join(out) + WAIT)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if b"-" in data[:end]:
            self.fail(f"redis answered {data[:200]!r}")
            return
        self._answers += data.count(b"\n", 0, end)
        while self._batches:
            count, sent_at = self._batches[0]
            due = count * (2 if self._publish else 1) + 1
            if self._answers < due:
                break
            self._answers -= due
            self._batches.pop(0)
            if not self._answers and data[:end].endswith(b":0\r\n"):
                self.fail("WAIT says that no replica has the batch")
            self.note(count, sent_at)


class RedisListener(Listener):
    confirmed = b"subscribe"

    def __init__(self) -> None:
        super().__init__(SUBSCRIBE)


class Redis:
    """A primary and two replicas."""

    name, note = "Redis 7, WAIT 1", "no consensus"
    leader = 0

    def __init__(self, tree: Path, ports: list[int]) -> None:
        self.servers = Servers(tree)
        self.ports = ports[:NODES]
        self.ledger = Ledger()
        self._rounds = 0

    def start(self) -> None:
        for n, port in enumerate(self.ports):
            self.servers.folder(f"redis-{n}")
            replica = ["--replicaof", f"127.0.0.1 {self.ports[0]}"] if n else []
            self.servers.start(
                [
                    *("/usr/bin/redis-server", "--port", str(port), "--bind", "127.0.0.1"),
                    *("--dir", f"/bench/redis-{n}", "--save", "", "--appendonly", "yes"),
                    *("--appendfsync", "always", "--daemonize", "no", *replica),
                    *("--client-output-buffer-limit", "pubsub 0 0 0"),
                ],
                f"redis-{n}.log",
            )
        self.servers.until_listening(self.ports)
        asyncio.run(self._until_replicated())

    async def _until_replicated(self) -> None:
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            told = await ask(self.ports[0], words(b"INFO", b"replication"))
            if told.count(b"state=online") == NODES - 1:
                return
            await asyncio.sleep(0.1)
        raise PeerFailed("the replicas do not follow")

    async def acknowledge(self, in_flight: int, seconds: float) -> Round:
        self._rounds += 1
        port = self.ports[0]
        senders = await connected(
            [
                (lambda d=depth, i=index: RedisSender(d, prefix_of(self._rounds, i)), port)
                for index, depth in enumerate(dealt(in_flight))
            ]
        )
        return await acknowledged(senders, seconds, self.ledger)

    async def fan_out(self, listeners: int, messages: int) -> float:
        self._rounds += 1
        told = await connected([(RedisListener, self.ports[n % NODES]) for n in range(listeners)])
        prefix = prefix_of(self._rounds, 0)
        port = self.ports[0]
        (speaker,) = await connected([(lambda: RedisSender(1, prefix, publish=True), port)])
        seconds, deliveries = await fanned_out(speaker, told, messages, self.ledger)
        return deliveries / seconds

    async def names(self) -> AsyncIterator[bytes]:
        """Of the elements of all rooms, on the primary."""
        await ask(self.ports[0], words(b"PING"))  # answered once its files are read
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[0])
        try:
            for room in range(ROOMS):
                first, count = 0, ELEMENTS_AT_ONCE
                while count == ELEMENTS_AT_ONCE:
                    last = first + ELEMENTS_AT_ONCE - 1
                    limits = b"%d" % first, b"%d" % last
                    writer.write(words(b"LRANGE", b"room-%02d" % room, *limits))
                    count = int((await reader.readline())[1:])
                    elements = await reader.readexactly(count * ELEMENT_SIZE)
                    for name in NAME.findall(elements):
                        yield name
                    first += count
        finally:
            writer.close()


async def ask(port: int, command: bytes) -> bytes:
    """What is answered to one command at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(READY_S):
            while True:
                writer.write(command)
                told = await reader.read(65_536)
                if not told.startswith(b"-LOADING"):
                    return told
                await asyncio.sleep(0.1)
    finally:
        writer.close()
