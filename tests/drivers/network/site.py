"""Nodes for tests of links: keys, certificates, contexts, and owners that remember what they
hear."""

import asyncio
import datetime
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.link import Connection, Link, Listener, Secured
from appliance.drivers.network.tls import client_context, server_context
from appliance.formats.command import COMMANDS_MEMBER
from appliance.formats.envelope import PREPARE, Header, Message, make
from appliance.formats.site import spki_of
from tests.patience import within

CLUSTER, SHARD = b"cluster of tests", 3
SIZE_MAX = 1 << 20


@dataclass(frozen=True)
class TestNode:
    """A node with its files; `index` is also its member index."""

    __test__ = False

    index: int
    key: SigningKey
    certificate: Path
    private: Path

    @property
    def pem(self) -> str:
        return self.certificate.read_text()

    @property
    def spki(self) -> bytes:
        return hashlib.sha256(spki_of(self.pem)).digest()

    def server(self, known: list["TestNode"]) -> Secured:
        context = server_context(self.certificate, self.private, [node.pem for node in known])
        return Secured(context, server_side=True, pins={node.spki: node.index for node in known})

    def client(self, known: list["TestNode"], server: "TestNode") -> Secured:
        context = client_context(self.certificate, self.private, [node.pem for node in known])
        return Secured(context, server_side=False, pins={server.spki: server.index})

    def signer(self) -> Signer:
        return Signer(sender=self.index, key=self.key, incarnation=1)


def make_node(folder: Path, index: int) -> TestNode:
    private, certificate = make_certificate(f"node-{index}", "127.0.0.1")
    return _node(folder, index, private, certificate)


def make_expired_node(folder: Path, index: int) -> TestNode:
    """A node whose certificate is a day too old."""
    private_pem, certificate_pem = make_certificate(f"node-{index}", "127.0.0.1")
    private = serialization.load_pem_private_key(private_pem.encode(), None)
    fresh = x509.load_pem_x509_certificate(certificate_pem.encode())
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=fresh.issuer,
        subject_name=fresh.subject,
        public_key=fresh.public_key(),
        serial_number=fresh.serial_number,
        not_valid_before=now - datetime.timedelta(days=3),
        not_valid_after=now - datetime.timedelta(days=1),
    )
    expired = builder.sign(private, hashes.SHA256())  # type: ignore[arg-type]
    pem = expired.public_bytes(serialization.Encoding.PEM).decode()
    return _node(folder, index, private_pem, pem)


def _node(folder: Path, index: int, private: str, certificate: str) -> TestNode:
    name = f"{index}-{len(list(folder.iterdir()))}"
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    for path, text in zip(paths, (certificate, private), strict=True):
        path.write_text(text)
    return TestNode(index, SigningKey(bytes([index + 1]) * 32), *paths)


class Recorder:
    """Owns connections and remembers; `changed` is set at every event."""

    def __init__(self, nodes: list[TestNode]) -> None:
        self.keys = {node.index: node.key.public for node in nodes}
        self.windows = {node.index: NonceWindow() for node in nodes}
        self.messages: list[Message] = []
        self.batches = 0
        self.open: list[Connection] = []
        self.closed: list[str] = []
        self.versions: list[int] = []  # of peers that were turned away for theirs
        self.drops: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self._changed = asyncio.Event()

    def on_open(self, connection: Connection) -> Checks | None:
        assert connection.node is not None
        self.open.append(connection)
        self._changed.set()
        window = self.windows[connection.node]
        return Checks(
            cluster=CLUSTER,
            shard=SHARD,
            message_size_max=SIZE_MAX,
            senders={connection.node: Sender(COMMANDS_MEMBER, window)},
            public_key=self.keys[connection.node],
            drops=self.drops,
        )

    def on_message(self, connection: Connection, message: Message) -> None:
        self.messages.append(message)

    def on_batch(self, connection: Connection) -> None:
        self.batches += 1
        self._changed.set()

    def on_closed(self, connection: Connection) -> None:
        self.closed.append(connection.reason)
        if connection.version is not None:
            self.versions.append(connection.version)
        if connection in self.open:
            self.open.remove(connection)
        self._changed.set()

    async def until(self, condition: Callable[["Recorder"], bool]) -> None:
        """Wait until `condition` of this recorder holds."""
        async with within(10):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def listen(self, secured: Secured, port: int = 0) -> Listener:
        listener = Listener(
            self, secured=secured, message_size_max=SIZE_MAX, counters=self.counters
        )
        await listener.start("127.0.0.1", port)
        return listener

    def link(self, secured: Secured, port: int) -> Link:
        link = Link(
            self,
            host="127.0.0.1",
            port=port,
            secured=secured,
            message_size_max=SIZE_MAX,
            prng=Prng(1),
            counters=self.counters,
        )
        link.start()
        return link


def message(op: int, body: bytes = b"") -> tuple[Header, bytes]:
    """A prepare: header and body."""
    return make(PREPARE, cluster=CLUSTER, shard=SHARD, op=op, body=body), body
