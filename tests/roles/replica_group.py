"""Real replica processes of a small site, and a client that speaks to them as an edge does."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.vsr import log_sessions as logs
from appliance.cores.vsr.client import new_client
from appliance.cores.vsr.log_sessions import LogSessions
from appliance.drivers.host.node_folder import open_node
from appliance.drivers.network.ask import ask_status
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.link import Connection, Link, Secured
from appliance.drivers.network.local import LocalLink
from appliance.drivers.network.tls import client_context
from appliance.formats import record, session
from appliance.formats.command import COMMANDS_TO_CLIENT
from appliance.formats.envelope import OPERATION_APPEND, SENDER_CLIENT, Message
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.local import LOCAL_COMMITTED, LOCAL_STATUS
from appliance.formats.status.replica import Attachment
from appliance.node.format_site import format_local
from tests import forked
from tests.patience import HUNG_S
from tests.ports import PORTS, PORTS_AT_ONCE, close, port_is_free, ports_reserved

REPO = Path(__file__).resolve().parents[2]
PORTS_STEP = PORTS_AT_ONCE


@contextmanager
def peer_ports(nodes: int) -> Iterator[int]:
    """The first of the ports of so many nodes, all of them reserved within."""
    last = PORTS.stop - nodes * PORTS_STEP  # from the end: rows of sites are taken from the front
    for first in range(last, PORTS.start - 1, -PORTS_STEP):
        ports = [first + PORTS_STEP * node for node in range(nodes)]
        reserved = [ports_reserved(port) for port in ports]
        if all(reserved) and all(map(port_is_free, ports)):
            break
        close(reserved)
    else:
        raise AssertionError(f"no free ports left for {nodes} nodes")
    try:
        yield first
    finally:
        close(reserved)


class Group:
    """A formatted site of one shard and its replica processes."""

    def __init__(
        self, folder: Path, *, nodes: int, ports: int, geometry: str = "small", standbys: int = 0
    ) -> None:
        self.folder = folder / "site"
        self.count = nodes + standbys
        format_local(
            self.folder, nodes=nodes, standbys=standbys, shards=1, ports=ports, segments_max=16,
            geometry=geometry, brief=True,
        )  # fmt: skip
        self.processes: list[subprocess.Popen[str] | forked.Started | None] = [None] * self.count
        self.cluster = open_node(self.node(0)).site.cluster

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            if process is not None:
                process.kill()
                process.wait()
                assert process.stderr is not None
                process.stderr.close()

    def node(self, index: int) -> Path:
        return self.folder / f"node-{index}"

    def start(
        self, index: int, before: Callable[[], None] | None = None
    ) -> "subprocess.Popen[str] | forked.Started":
        words = ["start", "replica", "--node-folder", str(self.node(index)), "--shard", "0"]
        environment = {**os.environ, "PYTHONPATH": str(REPO)}
        process: subprocess.Popen[str] | forked.Started
        if before is None:
            process = forked.start(words, environment=environment)
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", "appliance", *words],
                env=environment, cwd=REPO, stderr=subprocess.PIPE, text=True, preexec_fn=before,
            )  # fmt: skip
        self.processes[index] = process
        return process

    def start_all(self) -> None:
        for index in range(self.count):
            self.start(index)
        for index in range(self.count):
            self.until(index, lambda status: status["status"] == "normal")

    def _assert_alive(self, index: int) -> None:
        """A process that ended says why on stderr."""
        process = self.processes[index]
        if process is not None and process.poll() is not None:
            assert process.stderr is not None
            raise AssertionError(f"exit code {process.returncode}: {process.stderr.read()}")

    def kill(self, index: int) -> None:
        process = self.processes[index]
        assert process is not None and process.stderr is not None
        process.kill()
        process.wait()
        process.stderr.close()
        self.processes[index] = None

    def status(self, index: int) -> dict[str, Any] | None:
        return ask_status(
            self.node(index) / "sockets", cluster=self.cluster, shard=0, timeout_s=HUNG_S
        )

    def until(self, index: int, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status of a replica for which `condition` holds."""
        deadline = time.monotonic() + HUNG_S
        while time.monotonic() < deadline:
            status = self.status(index)
            if status is not None and condition(status):
                return status
            self._assert_alive(index)
            time.sleep(0.02)
        raise AssertionError(f"replica {index}: {self.status(index)}")

    def primary(self) -> int:
        """Whoever leads, waited for as long as nobody does."""
        deadline = time.monotonic() + HUNG_S
        while time.monotonic() < deadline:
            for index in range(self.count):
                status = self.status(index)
                if status is not None and status["role"] == "primary":
                    return index
            time.sleep(0.05)
        raise AssertionError("nobody leads")


class EdgeLike:
    """One session of an edge on node `home`: its own replica by socket, the others by TLS."""

    def __init__(self, group: Group, home: int, seed: int) -> None:
        node = open_node(group.node(home))
        site, shard = node.site, node.site.shards[0]
        prng = Prng(seed)
        self.room_id = prng.bytes(16)
        self.ring: memoryview | None = None
        self.attachment: Attachment | None = None
        self.committed = 0
        self.answers: list[Message] = []
        self.told: list[dict[str, Any]] = []  # how the replica is, unasked
        self.drops: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self._home, self._site, self._shard = home, site, shard
        self._sessions = LogSessions()
        self._log = self._sessions.open(new_client(site, shard, SMALL, prng))
        self.client_id = self._log.client.client_id
        self._signer = Signer(sender=SENDER_CLIENT, key=node.signing_key, incarnation=1)
        self._waiting: asyncio.Future[list[tuple[Any, ...]]] | None = None
        self._sequence = 0
        self.local = LocalLink(
            self, node.path / "sockets/shard-0", cluster=site.cluster, shard=0, replica=home,
            attach=True, message_size_max=SMALL.message_size_max, prng=prng,
            counters=self.counters, drops=self.drops,
        )  # fmt: skip
        context = client_context(
            node.path / "keys/tls.crt",
            node.path / "keys/tls.key",
            [other.certificate_pem for other in site.nodes],
        )
        self.links: dict[int, Link] = {}
        for replica, index in enumerate(shard.members):
            other = site.nodes[index]
            if replica != home:
                secured = Secured(context, server_side=False, pins={other.spki: index})
                self.links[replica] = Link(
                    self, host=other.host, port=other.peer_port, secured=secured,
                    message_size_max=SMALL.message_size_max, prng=prng, counters=self.counters,
                )  # fmt: skip

    async def __aenter__(self) -> "EdgeLike":
        self.local.start()
        for link in self.links.values():
            link.start()
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticking.cancel()
        await self.local.close()
        for link in self.links.values():
            await link.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            self._sessions.on_ticks(1)
            self._perform()

    # --- the links call

    def on_attached(
        self, link: LocalLink, told: Attachment | None, ring: memoryview | None
    ) -> None:
        self.attachment, self.ring = told, ring
        asyncio.get_running_loop().call_soon(self._connected, self._home)

    def on_detached(self, link: LocalLink) -> None:
        self._sessions.on_gone(0, self._shard.replica_ids[self._home])

    def on_open(self, connection: Connection) -> Checks:
        assert connection.node is not None
        replica = self._shard.members.index(connection.node)
        asyncio.get_running_loop().call_soon(self._connected, replica)
        return Checks(
            cluster=self._site.cluster, shard=0, message_size_max=SMALL.message_size_max,
            senders={replica: Sender(COMMANDS_TO_CLIENT, NonceWindow())},
            public_key=self._site.nodes[connection.node].public_key, drops=self.drops,
        )  # fmt: skip

    def on_closed(self, connection: Connection) -> None:
        if connection.node is not None:
            replica = self._shard.members.index(connection.node)
            self._sessions.on_gone(0, self._shard.replica_ids[replica])

    def _connected(self, replica: int) -> None:
        self._sessions.on_connected(0, self._shard.replica_ids[replica], replica)
        self._perform()

    def on_message(self, where: object, message: Message) -> None:
        if message.header.command in COMMANDS_TO_CLIENT:
            self._sessions.on_message(0, message)
        elif message.header.command == LOCAL_COMMITTED:
            self.committed = message.header.op
        elif message.header.command == LOCAL_STATUS:
            self.told.append(json.loads(bytes(message.body)))
        else:
            self.answers.append(message)

    def on_batch(self, where: object) -> None:
        self._perform()

    def _perform(self) -> None:
        for effect in self._sessions.take_effects():
            if effect[0] == logs.SEND:
                _, replica, header, body = effect
                if replica == self._home:
                    self.local.send(self.local.signer.frame(header, body))
                else:
                    self.links[replica].send(self._signer.frame(header, body))
            elif effect[0] == logs.REPLY and self._waiting is not None:
                self._waiting.set_result(list(session.RESULT_STRUCT.iter_unpack(effect[2])))
                self._waiting = None

    # --- for tests

    @property
    def ready(self) -> bool:
        """Registered, and nothing in flight."""
        return self._log.ready

    async def append(self, count: int, kind: int = record.KIND_MESSAGE) -> list[tuple[Any, ...]]:
        """Send `count` records of the room as one request; the results, once acknowledged."""
        async with asyncio.timeout(HUNG_S):
            while not self._log.ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            records = bytearray()
            for _ in range(count):
                self._sequence += 1
                number = self._sequence
                msg_id = number.to_bytes(8, "little") + self.client_id[:8]  # nobody else's
                records += record.encode(
                    room_id=self.room_id, msg_id=msg_id, author_id=1,
                    body=b"message %d" % number, client_id=self.client_id, client_seq=number,
                    kind=kind,
                )  # fmt: skip
            assert len(records) == count * RECORD_SIZE
            self._waiting = asyncio.get_running_loop().create_future()
            waiting = self._waiting
            self._sessions.request(self._log, OPERATION_APPEND, bytes(records), count)
            self._perform()
            return await waiting

    async def create_room(self) -> None:
        (result,) = await self.append(1, record.KIND_ROOM_CREATE)
        assert result[3] == session.OK, result

    async def answer(self) -> Message:
        """The next answer to a question put to the local replica."""
        async with asyncio.timeout(HUNG_S):
            while not self.answers:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return self.answers.pop(0)
