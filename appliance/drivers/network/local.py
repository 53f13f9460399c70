"""Unix sockets between the processes of one node: the replica's end, and the end of an edge or a
console (`formats/local.py` has all questions and answers).

    asker                                replica
      │ ── LOCAL_ATTACH ────────────────▶ │   must be the first frame
      │ ◀─ LOCAL_ATTACHED + ring's memfd  │   body: JSON of facts; the descriptor rides on the
      │                                   │   frame's first byte
      │ ◀─ LOCAL_COMMITTED ────────────── │   op = newest committed log_seq, once per turn of the
      │                                   │   replica's loop; to who wants to hear of what crosses
      │                                   │   to other sites, only then and after 4096 others
      │ ── REQUEST, PING_CLIENT ────────▶ │   as a client, sender 255
      │ ── LOCAL_READ_ROOMS, _STATUS ───▶ │
      │ ◀─ LOCAL_STATUS ───────────────── │   also unasked, when readers must hear of it
      │ ── LOCAL_BROKEN ────────────────▶ │   op = a sealed segment to be mended; no answer

The kernel tells who is at the other end (SO_PEERCRED): the same user or root, others are turned
away.
"""

import asyncio
import contextlib
import json
import mmap
import os
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from appliance.base.errors import FormatError
from appliance.base.json_text import parse_json
from appliance.base.limits import (
    CONNECTIONS_MAX,
    DIAL_BACKOFF_MS_MAX,
    DIAL_BACKOFF_MS_MIN,
    HANDSHAKE_MS_MAX,
    LOCAL_COMMITTED_RECORDS,
)
from appliance.base.prng import Prng
from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.link import CLOSED, OPEN, Connection
from appliance.drivers.network.local_peer import peer_allowed
from appliance.drivers.network.questions import bind
from appliance.formats import local
from appliance.formats.command import COMMANDS_TO_CLIENT
from appliance.formats.envelope import (
    COMMANDS_CLIENT,
    SENDER_CLIENT,
    Header,
    Message,
    decode,
)
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.local import (
    CROSSING,
    LOCAL_ATTACH,
    LOCAL_ATTACHED,
    LOCAL_BROKEN,
    LOCAL_COMMITTED,
    LOCAL_READ_ROOMS,
    LOCAL_ROOMS,
    LOCAL_STATUS,
    Asked,
    number_of,
)
from appliance.formats.status.part import plain
from appliance.formats.status.replica import Attachment, ReplicaStatus
from appliance.formats.status.status import parse

_ASKS = frozenset((LOCAL_ATTACH, LOCAL_READ_ROOMS, LOCAL_STATUS, LOCAL_BROKEN))
_ANSWERS = frozenset((LOCAL_ATTACHED, LOCAL_COMMITTED, LOCAL_ROOMS, LOCAL_STATUS))
_ATTACHED_SIZE_MAX = 4096


def make_ring(size: int) -> tuple[int, memoryview]:
    """A descriptor and the writable bytes of a shared ring: zeros, gone with the last process that
    has it."""
    fd = os.memfd_create("tigerchat-ring", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd, memoryview(mmap.mmap(fd, size))


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


class LocalOwner(Protocol):
    """The replica role: what it hears from the processes of its node."""

    def on_message(self, connection: Connection, message: Message) -> None: ...

    def on_batch(self, connection: Connection) -> None: ...

    def on_closed(self, connection: Connection) -> None: ...


class LocalServer:
    """The replica's end. `attachment` makes the body of LOCAL_ATTACHED; `sender` is the replica's
    member index."""

    def __init__(
        self,
        owner: LocalOwner,
        *,
        cluster: bytes,
        shard: int,
        sender: int,
        message_size_max: int,
        ring_fd: int,
        attachment: Callable[[], Attachment],
        counters: Counter[str],
        drops: Counter[str],
    ) -> None:
        self._owner, self._cluster, self._shard, self._size_max = (
            owner,
            cluster,
            shard,
            message_size_max,
        )
        self._ring_fd, self._attachment = ring_fd, attachment
        self._counters, self._drops = counters, drops
        self.signer = Signer(sender=sender, key=None)
        self._attached: list[Connection] = []
        self._seldom: set[Connection] = set()  # of them, those who wait for what crosses
        self._told_all = 0  # the newest record of which all who are attached were told
        self._connections: list[Connection] = []
        self._server: asyncio.Server | None = None
        self._path = Path()

    async def start(self, path: Path) -> None:
        """Listen at `path`; ConfigurationError when that cannot be."""
        self._path = path
        sock = bind(path)
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, sock=sock)

    def _accept(self) -> Connection:
        return Connection(
            self, secured=None, message_size_max=self._size_max, counters=self._counters
        )

    def attached_count(self) -> int:
        return len(self._attached)

    def committed(self, log_seq: int, crossing_log_seq: int) -> None:
        """Tell who shares the ring that records up to `log_seq` stand in it, and up to where some
        of them may cross to other sites."""
        if not self._attached:
            return
        header = local.told(
            LOCAL_COMMITTED,
            cluster=self._cluster,
            shard=self._shard,
            op=log_seq,
            aux=crossing_log_seq,
        )
        frame = self.signer.frame(header, b"")
        behind = log_seq - self._told_all
        all_hear = crossing_log_seq > self._told_all or behind >= LOCAL_COMMITTED_RECORDS
        if all_hear:
            self._told_all = log_seq
        for connection in self._attached:
            is_seldom = connection in self._seldom
            if (all_hear or not is_seldom) and not connection.send(frame) and is_seldom:
                self._told_all = 0  # it is told with the next commit

    def tell(self, status: ReplicaStatus) -> None:
        """Tell everybody who shares the ring how this replica is, before they ask."""
        if self._attached:
            body = json.dumps(plain(status)).encode()
            header = local.told(LOCAL_STATUS, cluster=self._cluster, shard=self._shard, body=body)
            frame = self.signer.frame(header, body)
            for connection in self._attached:
                connection.send(frame)

    # --- a connection calls

    def on_open(self, connection: Connection) -> Checks | None:
        sock = connection.transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(sock.fileno())) as real:
            if not peer_allowed(real):
                self._counters["local_stranger"] += 1
                return None
        if len(self._connections) >= CONNECTIONS_MAX:
            self._counters["too_many_connections"] += 1
            return None
        self._connections.append(connection)
        client = Sender(COMMANDS_CLIENT | _ASKS, NonceWindow())
        return Checks(
            cluster=self._cluster,
            shard=self._shard,
            message_size_max=self._size_max,
            senders={SENDER_CLIENT: client},
            public_key=None,
            drops=self._drops,
        )

    def on_message(self, connection: Connection, message: Message) -> None:
        if message.header.command == LOCAL_ATTACH:
            self._attach(connection, message.header)
        else:
            self._owner.on_message(connection, message)

    def _attach(self, connection: Connection, asked: Header) -> None:
        """Answer with the ring's descriptor. Nothing was sent on this connection before, so nothing
        is overtaken."""
        if connection in self._attached or connection.transport.get_write_buffer_size():
            connection.abort("attach_not_first")
            return
        body = json.dumps(plain(self._attachment())).encode()
        assert len(body) <= _ATTACHED_SIZE_MAX
        frame = self.signer.frame(local.answer(asked, LOCAL_ATTACHED, body=body), body)
        sock = connection.transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(sock.fileno())) as real:
            try:
                sent = socket.send_fds(real, [frame], [self._ring_fd])
            except OSError:
                sent = 0
        if sent != len(frame):
            connection.abort("attach_failed")
            return
        self._attached.append(connection)
        if asked.aux == CROSSING:
            self._seldom.add(connection)

    def on_batch(self, connection: Connection) -> None:
        self._owner.on_batch(connection)

    def on_closed(self, connection: Connection) -> None:
        for members in (self._connections, self._attached):
            if connection in members:
                members.remove(connection)
        self._seldom.discard(connection)
        self._owner.on_closed(connection)

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        await self._server.wait_closed()
        _remove(self._path)


class LocalLinkOwner(Protocol):
    """An edge or a console: what it hears of one replica of its node."""

    def on_attached(
        self, link: "LocalLink", told: Attachment | None, ring: memoryview | None
    ) -> None:
        """A fresh connection; with `attach`, what the replica tells and its ring, read-only, valid
        for this connection."""

    def on_message(self, link: "LocalLink", message: Message) -> None: ...

    def on_batch(self, link: "LocalLink") -> None: ...

    def on_detached(self, link: "LocalLink") -> None:
        """The connection is gone; it is dialled again."""


class LocalLink:
    """The asker's end: dialled again, with growing pauses, until closed. `attach` asks for the ring
    at each start; with `crossing`, to be told of commits when they matter to other sites."""

    def __init__(
        self,
        owner: LocalLinkOwner,
        path: Path,
        *,
        cluster: bytes,
        shard: int,
        replica: int,
        attach: bool,
        message_size_max: int,
        prng: Prng,
        counters: Counter[str],
        drops: Counter[str],
        crossing: bool = False,
    ) -> None:
        self._crossing = crossing
        self._owner, self._path, self._cluster, self._shard = owner, path, cluster, shard
        self._replica, self._attach, self._size_max, self._prng = (
            replica,
            attach,
            message_size_max,
            prng,
        )
        self._counters, self._drops = counters, drops
        self.signer = Signer(sender=SENDER_CLIENT, key=None)
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._given: tuple[Attachment | None, memoryview | None] = (None, None)  # with its ring
        self._asked: Asked[Any] = Asked()  # on this connection

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"local-{self._path}")

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.state == OPEN

    def send(self, frame: bytes | memoryview) -> bool:
        """Send a frame of `signer` now or never."""
        if self._connection is None:
            self._counters["send_not_open"] += 1
            return False
        return self._connection.send(frame)

    def ask(
        self, command: int, about: Any = None, *, op: int = 0, aux: int = 0, body: bytes = b""
    ) -> bool:
        """Ask now or never; `asked` tells what an answer is `about`."""
        number = self._asked.number() if command == LOCAL_BROKEN else self._asked.ask(about)
        header = local.question(
            command, number, cluster=self._cluster, shard=self._shard, op=op, aux=aux, body=body
        )
        sent = self.send(self.signer.frame(header, body))
        if not sent:
            self._asked.answered(number)
        return sent

    def asked(self, message: Message) -> Any:
        """What it was about that is answered here; None, and the connection is over: nothing that
        is awaited."""
        about = self._asked.answered(number_of(message.header))
        if about is None and self._connection is not None:
            self._connection.abort("malformed")
        return about

    def status_in(self, message: Message) -> ReplicaStatus | None:
        """What the replica says of itself, asked or not; None, and the connection is over: nothing
        of that."""
        self._asked.answered(number_of(message.header))
        try:
            return parse(ReplicaStatus, parse_json(bytes(message.body)))
        except (ValueError, FormatError):
            if self._connection is not None:
                self._connection.abort("malformed")
            return None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_ms = DIAL_BACKOFF_MS_MIN
        while True:
            self._gone.clear()
            try:
                async with asyncio.timeout(HANDSHAKE_MS_MAX / 1000):
                    sock = await self._dial(loop)
                # waits for nobody, and not in the time above: cut short once there is a
                # connection it would close that without a word, and we would write to it
                await loop.create_unix_connection(self._dialled, sock=sock)
            except (OSError, TimeoutError):
                self._counters["dial_failed"] += 1
            else:
                pause_ms = DIAL_BACKOFF_MS_MIN
                await self._gone.wait()
            await asyncio.sleep(self._prng.between(pause_ms // 2, pause_ms) / 1000)
            pause_ms = min(2 * pause_ms, DIAL_BACKOFF_MS_MAX)

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        sock = socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            await loop.sock_connect(sock, str(self._path))
            if not peer_allowed(sock):
                raise ConnectionError(f"{self._path} belongs to another user")
            if self._attach:
                header = local.question(
                    LOCAL_ATTACH,
                    self._asked.number(),
                    cluster=self._cluster,
                    shard=self._shard,
                    aux=CROSSING if self._crossing else 0,
                )
                await loop.sock_sendall(sock, self.signer.frame(header, b""))
                self._given = await _receive_attached(loop, sock)
            undo.pop_all()
        return sock

    def _dialled(self) -> Connection:
        return Connection(
            self, secured=None, message_size_max=self._size_max, counters=self._counters
        )

    # --- the connection calls

    def on_open(self, connection: Connection) -> Checks | None:
        self._connection = connection
        self._owner.on_attached(self, *self._given)
        replica = Sender(COMMANDS_TO_CLIENT | _ANSWERS, NonceWindow())
        return Checks(
            cluster=self._cluster,
            shard=self._shard,
            message_size_max=self._size_max,
            senders={self._replica: replica},
            public_key=None,
            drops=self._drops,
        )

    def on_message(self, connection: Connection, message: Message) -> None:
        self._owner.on_message(self, message)

    def on_batch(self, connection: Connection) -> None:
        self._owner.on_batch(self)

    def on_closed(self, connection: Connection) -> None:
        self._connection = None
        self._asked.clear()
        self._gone.set()
        self._owner.on_detached(self)

    async def close(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        if self._connection is not None and self._connection.state != CLOSED:
            self._connection.close()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None


async def _receive_attached(
    loop: asyncio.AbstractEventLoop, sock: socket.socket
) -> tuple[Attachment, memoryview]:
    """Exactly the LOCAL_ATTACHED frame, with the descriptor that rides on it; what follows stays in
    the socket."""
    await _readable(loop, sock)
    head, fds, _, _ = socket.recv_fds(sock, HEADER_SIZE, 1)
    try:
        header = decode(head) if len(head) == HEADER_SIZE else None
        if (
            header is None
            or header.command != LOCAL_ATTACHED
            or header.body_size > _ATTACHED_SIZE_MAX
            or len(fds) != 1
        ):
            raise ConnectionError("not an answer to LOCAL_ATTACH")
        rest = bytearray()
        while len(rest) < header.body_size + SIGNATURE_SIZE:
            piece = await loop.sock_recv(sock, header.body_size + SIGNATURE_SIZE - len(rest))
            if not piece:
                raise ConnectionError("closed while attaching")
            rest += piece
        try:
            told = parse(Attachment, parse_json(rest[: header.body_size]))
            return told, memoryview(mmap.mmap(fds[0], told.ring_size, prot=mmap.PROT_READ))
        except (ValueError, FormatError, OverflowError) as error:
            raise ConnectionError("an answer to LOCAL_ATTACH without its facts") from error
    finally:
        for fd in fds:
            os.close(fd)


async def _readable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(sock)


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
