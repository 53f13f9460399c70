"""etcd 3.4: each message a Put, acknowledged when a majority has flushed it."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench.peers import http2
from tests.bench.peers.ledger import NAME, Ledger, prefix_of
from tests.bench.peers.loop import (
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

PUT, WATCH = "/etcdserverpb.KV/Put", "/etcdserverpb.Watch/Watch"
RANGE, STATUS = "/etcdserverpb.KV/Range", "/etcdserverpb.Maintenance/Status"
FAN = b"fan/"
KEYS_AT_ONCE = 20_000
KEY = re.compile(rb"(?:%b)?room-\d\d/%b" % (FAN, NAME.pattern))


def field(number: int, value: bytes) -> bytes:
    """A field of bytes (protobuf, wire type 2)."""
    return bytes((number << 3 | 2,)) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields_of(data: bytes) -> dict[int, int | bytes]:
    """The fields of a protobuf message, the last of each number."""
    found: dict[int, int | bytes] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 2:
            size = number()
            found[key >> 3] = data[at : at + size]
            at += size
        else:
            found[key >> 3] = number()
    return found


class EtcdSender(Sender):
    """Puts over one connection, each under a key of its own that ends with its name."""

    def __init__(self, depth: int, port: int, prefix: bytes, folder: bytes = b"") -> None:
        super().__init__(depth, prefix)
        self._folder = folder
        self._headers = http2.headers_of(PUT, f"127.0.0.1:{port}")
        self._client = http2.Http2Client(self._write, self._on_answer, self.fail)
        self._sent_at: dict[int, int] = {}
        self._number = 0

    def _write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def greet(self) -> None:
        """The server says nothing before it has seen the headers of a call."""
        self._write(http2.OPENING)
        self.ready.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._client.on_bytes(data)

    def send(self, count: int) -> None:
        first = self._number
        self._number += count
        bodies = [
            field(1, b"%broom-%02d/%b%010d" % (self._folder, number % ROOMS, self.prefix, number))
            + field(2, self.body(number))
            for number in range(first, first + count)
        ]
        now = time.perf_counter_ns()
        for stream in self._client.call(self._headers, bodies):
            self._sent_at[stream] = now

    def _on_answer(self, stream: int, body: bytes) -> None:
        self.note(1, self._sent_at.pop(stream))


class EtcdListener(Listener):
    """Watches the keys of the fan-out."""

    confirmed = b"\x18\x01"  # WatchResponse.created

    def __init__(self, port: int) -> None:
        watch = field(1, field(1, FAN) + field(2, FAN[:-1] + b"0"))
        super().__init__(
            http2.OPENING
            + http2.frame(
                http2.HEADERS,
                http2.END_HEADERS,
                1,
                http2.headers_of(WATCH, f"127.0.0.1:{port}"),
            )
            + http2.frame(http2.DATA, 0, 1, http2.message(watch))
            + http2.frame(http2.SETTINGS, http2.ACK, 0, b"")
        )


class Etcd:
    """Three members."""

    name, note = "etcd 3.4", ""

    def __init__(self, tree: Path, ports: list[int]) -> None:
        self.servers = Servers(tree)
        self.client_ports, self.peer_ports = ports[:NODES], ports[NODES : 2 * NODES]
        self.leader = 0
        self.ledger = Ledger()
        self._rounds = 0

    def start(self) -> None:
        peers = ",".join(
            f"node-{n}=http://127.0.0.1:{port}" for n, port in enumerate(self.peer_ports)
        )
        for n in range(NODES):
            self.servers.folder(f"etcd-{n}").chmod(0o700)
            client, peer = (
                f"http://127.0.0.1:{ports[n]}" for ports in (self.client_ports, self.peer_ports)
            )
            self.servers.start(
                [
                    *("/usr/bin/etcd", "--name", f"node-{n}", "--data-dir", f"/bench/etcd-{n}"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", peers, "--quota-backend-bytes", str(8 << 30)),
                    *("--logger", "zap", "--log-outputs", "stderr", "--log-level", "warn"),
                ],
                f"etcd-{n}.log",
            )
        self.servers.until_listening(self.client_ports)
        self.leader = asyncio.run(self._leader())

    async def _leader(self) -> int:
        """The node that leads, by its own word."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            for n, port in enumerate(self.client_ports):
                status = fields_of(await call(port, STATUS, b""))
                header = status.get(1)
                assert isinstance(header, bytes)
                if status.get(4) and status[4] == fields_of(header)[2]:
                    return n
            await asyncio.sleep(0.1)
        raise PeerFailed("etcd has no leader")

    async def acknowledge(self, in_flight: int, seconds: float) -> Round:
        self._rounds += 1
        port = self.client_ports[self.leader]
        senders = await connected(
            [
                (
                    lambda d=depth, i=index: EtcdSender(d, port, prefix_of(self._rounds, i)),
                    port,
                )
                for index, depth in enumerate(dealt(in_flight))
            ]
        )
        return await acknowledged(senders, seconds, self.ledger)

    async def fan_out(self, listeners: int, messages: int) -> float:
        self._rounds += 1
        ports = self.client_ports
        told = await connected(
            [
                (lambda p=ports[n % NODES]: EtcdListener(p), ports[n % NODES])
                for n in range(listeners)
            ]
        )
        port = ports[self.leader]
        prefix = prefix_of(self._rounds, 0)
        (speaker,) = await connected([(lambda: EtcdSender(1, port, prefix, FAN), port)])
        seconds, deliveries = await fanned_out(speaker, told, messages, self.ledger)
        return deliveries / seconds

    async def names(self) -> AsyncIterator[bytes]:
        """Of all messages that are there, by their keys."""
        first = b"\0"
        while True:
            limit, keys_only = b"\x18" + varint(KEYS_AT_ONCE), b"\x40\x01"
            asked = field(1, first) + field(2, b"\0") + limit + keys_only
            answer = await call(self.client_ports[0], RANGE, asked)
            keys = KEY.findall(answer)
            for key in keys:
                yield key[-NAME_SIZE:]
            if len(keys) < KEYS_AT_ONCE:
                return
            first = keys[-1] + b"\0"


async def call(port: int, path: str, body: bytes) -> bytes:
    """One unary call; the answer's message."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers: list[bytes] = []
    failures: list[str] = []
    client = http2.Http2Client(
        writer.write, lambda stream, answer: answers.append(answer), failures.append
    )
    try:
        writer.write(http2.OPENING)
        client.call(http2.headers_of(path, f"127.0.0.1:{port}"), [body])
        async with asyncio.timeout(READY_S):
            while not answers and not failures:
                data = await reader.read(65_536)
                if not data:
                    failures.append("closed")
                client.on_bytes(data)
    finally:
        writer.close()
    if failures:
        raise PeerFailed(f"{path}: {failures[0]}")
    return answers[0]
