"""NATS 2.9: JetStream with three copies; a publication is acknowledged when a majority has it.

This version does not flush its files before it acknowledges: a power cut may lose what it said.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.bench.peers.ledger import NAME, Ledger, prefix_of
from tests.bench.peers.loop import (
    BODY_SIZE,
    MARK,
    NAME_SIZE,
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

STREAM = {
    "name": "MESSAGES",
    "subjects": ["room.*"],
    "storage": "file",
    "num_replicas": NODES,
    "retention": "limits",
    "max_msgs": -1,
    "max_bytes": -1,
}
REPLAY = {
    "deliver_subject": "_INBOX.again",
    "deliver_policy": "all",
    "ack_policy": "none",
    "replay_policy": "instant",
}
REPLAYED_PER_S_MIN = 5_000
NAMED = re.compile(re.escape(MARK) + b"(" + NAME.pattern + b")")
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n'
CONFIGURATION = """
server_name: node-{n}
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "/bench/nats-{n}", max_file_store: 20GB, max_memory_store: 64MB }}
cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{routes}] }}
max_pending: 1GB
"""


class NatsSender(Sender):
    """Publications over one connection; the inbox's last token tells which one is acknowledged."""

    def __init__(self, depth: int, prefix: bytes) -> None:
        super().__init__(depth, prefix)
        self._inbox = b"_INBOX." + prefix
        self._sent_at: dict[int, int] = {}
        self._number = 0
        self._rest = b""

    def greet(self) -> None:
        assert self.transport is not None
        self.transport.write(CONNECT + b"SUB " + self._inbox + b".* 1\r\nPING\r\n")

    def send(self, count: int) -> None:
        assert self.transport is not None
        now, out = time.perf_counter_ns(), []
        for number in range(self._number, self._number + count):
            out.append(
                b"PUB room.%d %b.%d %d\r\n%b\r\n"
                % (number % ROOMS, self._inbox, number, BODY_SIZE, self.body(number))
            )
            self._sent_at[number] = now
        self._number += count
        self.transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\r\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"MSG "):
                self._heading = int(line.split(b" ", 2)[1].rsplit(b".", 1)[1])
            elif line.startswith(b"{"):
                if b'"error"' in line:
                    self.fail(f"the stream answered {line!r}")
                    return
                self.note(1, self._sent_at.pop(self._heading))
            elif line == b"PING":
                assert self.transport is not None
                self.transport.write(b"PONG\r\n")
            elif line == b"PONG" and not self.ready.done():
                self.ready.set_result(None)
            elif line.startswith(b"-ERR"):
                self.fail(f"nats answered {line!r}")


class NatsListener(Listener):
    confirmed = b"PONG"

    def __init__(self) -> None:
        super().__init__(CONNECT + b"SUB room.* 1\r\nPING\r\n")


class Nats:
    """Three servers with one stream."""

    name, note = "NATS 2.9, R3", "no flush before the ack"

    def __init__(self, tree: Path, ports: list[int]) -> None:
        self.servers = Servers(tree)
        self.ports, self.routes = ports[:NODES], ports[NODES : 2 * NODES]
        self.leader = 0
        self.ledger = Ledger()
        self._rounds = 0

    def start(self) -> None:
        routes = ", ".join(f"nats-route://127.0.0.1:{route}" for route in self.routes)
        for n, (port, route) in enumerate(zip(self.ports, self.routes, strict=True)):
            folder = self.servers.folder(f"nats-{n}")
            text = CONFIGURATION.format(n=n, port=port, route=route, routes=routes)
            (folder / "nats.conf").write_text(text)
            self.servers.start(
                ["/usr/sbin/nats-server", "-c", f"/bench/nats-{n}/nats.conf"], f"nats-{n}.log"
            )
        self.servers.until_listening(self.ports)
        self.leader = asyncio.run(self._leader())

    async def _leader(self) -> int:
        """Make the stream, if it is not there; the node that leads it."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            created = json.dumps(STREAM).encode()
            await ask(self.ports[0], b"$JS.API.STREAM.CREATE.MESSAGES", created)
            told = await ask(self.ports[0], b"$JS.API.STREAM.INFO.MESSAGES", b"")
            cluster = told.get("cluster", {})
            followers = cluster.get("replicas", [])
            if cluster.get("leader") and len(followers) == NODES - 1:
                if all(one.get("current") for one in followers):
                    return int(cluster["leader"].removeprefix("node-"))
            await asyncio.sleep(0.2)
        raise PeerFailed("the stream has no leader")

    async def acknowledge(self, in_flight: int, seconds: float) -> Round:
        self._rounds += 1
        port = self.ports[self.leader]
        senders = await connected(
            [
                (lambda d=depth, i=index: NatsSender(d, prefix_of(self._rounds, i)), port)
                for index, depth in enumerate(dealt(in_flight))
            ]
        )
        return await acknowledged(senders, seconds, self.ledger)

    async def fan_out(self, listeners: int, messages: int) -> float:
        self._rounds += 1
        told = await connected([(NatsListener, self.ports[n % NODES]) for n in range(listeners)])
        prefix = prefix_of(self._rounds, 0)
        (speaker,) = await connected([(lambda: NatsSender(1, prefix), self.ports[self.leader])])
        seconds, deliveries = await fanned_out(speaker, told, messages, self.ledger)
        return deliveries / seconds

    async def names(self) -> AsyncIterator[bytes]:
        """Of all messages of the stream, which it is made to tell anew."""
        told = await ask(self.ports[0], b"$JS.API.STREAM.INFO.MESSAGES", b"")
        left = int(told["state"]["messages"])
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[0])
        wish = json.dumps({"stream_name": STREAM["name"], "config": REPLAY}).encode()
        try:
            writer.write(CONNECT + b"SUB _INBOX.again 1\r\n")
            writer.write(b"PUB $JS.API.CONSUMER.CREATE.MESSAGES _INBOX.made %d\r\n" % len(wish))
            writer.write(wish + b"\r\n")
            rest = b""
            async with asyncio.timeout(READY_S + left / REPLAYED_PER_S_MIN):
                while left > 0:
                    data = await reader.read(1 << 20)
                    if not data:
                        raise PeerFailed("nats ended what it was to tell anew")
                    names = NAMED.findall(rest + data)
                    left -= len(names)
                    for name in names:
                        yield name
                    rest = (rest + data)[-len(MARK) - NAME_SIZE + 1 :]
        finally:
            writer.close()


async def ask(port: int, subject: bytes, body: bytes) -> dict[str, Any]:
    """A request to JetStream; its answer, {} if there was none in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            CONNECT
            + b"SUB _INBOX.ask 1\r\nPUB %b _INBOX.ask %d\r\n%b\r\n" % (subject, len(body), body)
        )
        async with asyncio.timeout(5):
            while True:
                line = await reader.readline()
                if line.startswith(b"MSG "):
                    size = int(line.split()[-1])
                    answer: dict[str, Any] = json.loads((await reader.readexactly(size)) or b"{}")
                    return answer
                if not line:
                    return {}
    except TimeoutError:
        return {}
    finally:
        writer.close()
