"""Connections between nodes, both ends, and the link that dials one again for ever.

TLS is driven here, over a plain transport, rather than by the event loop: so that a handshake that
fails is counted under a name, and a stranger costs no more than the bounds say.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from appliance.base.errors import ConfigurationError
from appliance.base.limits import (
    CONNECTIONS_MAX,
    DIAL_BACKOFF_MS_MAX,
    DIAL_BACKOFF_MS_MIN,
    HANDSHAKE_MS_MAX,
    HANDSHAKES_MAX,
    KIB,
    LINK_BUFFER_MAX,
    PEER_ADDRESSES_MAX,
)
from appliance.base.prng import Prng
from appliance.drivers.network.address import address_group
from appliance.drivers.network.checks import Checks
from appliance.drivers.network.framing import FrameReader
from appliance.drivers.network.tls import identify
from appliance.formats.envelope import Message

_RECEIVE_SIZE = 256 * KIB
# shared: what a read put here is consumed before the next one
_received = memoryview(bytearray(_RECEIVE_SIZE))

# A peer that vanished without a word is noticed within about three seconds.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3_000),
)

# a connection that lived so long was accepted: the next dial need not pause long
_SETTLED_SECONDS = 1.0

CONNECTING, OPEN, CLOSED = "connecting", "open", "closed"


class Owner(Protocol):
    """Who uses connections. All of these are called in the loop, one connection at a time."""

    def on_open(self, connection: "Connection") -> Checks | None:
        """The peer is known (`connection.node`); the checks for its frames, or None to turn it
        away."""

    def on_message(self, connection: "Connection", message: Message) -> None:
        """A message passed all checks."""

    def on_batch(self, connection: "Connection") -> None:
        """All messages of one read were delivered."""

    def on_closed(self, connection: "Connection") -> None:
        """The connection, open or not, is gone; `connection.reason` says why."""


class Secured:
    """How a connection proves who is there: a context, our side of it, and whom we accept."""

    __slots__ = ("context", "server_side", "pins")

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, pins: dict[bytes, int]
    ) -> None:
        self.context, self.server_side, self.pins = context, server_side, pins


class Connection(asyncio.BufferedProtocol):
    """One connection, TLS or (within a node) plain. Invariant: messages flow only while `state` is
    OPEN."""

    def __init__(
        self,
        owner: Owner,
        *,
        secured: Secured | None,
        message_size_max: int,
        counters: Counter[str],
    ) -> None:
        self.state, self.reason = CONNECTING, ""
        self._made = False  # whether there is a transport
        self.node: int | None = None  # the peer's node index, once TLS has shown it
        self.address = ""  # of who came to us, as far as it shares a cap
        self.version: int | None = None  # of a peer that was turned away for it
        self.counters = counters
        self._owner, self._secured, self._size_max = owner, secured, message_size_max
        self._checks: Checks | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._delivered = False

    # --- the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._equip(transport)
        self._begin()

    def _equip(self, transport: asyncio.BaseTransport) -> None:
        """Take a transport, and the buffers that it needs: not before there is one, since a peer
        that is away is dialled for ever, and buffers that refer to us are freed by the collector
        only, which comes seldom.
        """
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._made = True
        secured = self._secured
        self._reader = FrameReader(self._size_max, self._on_frame)
        if secured is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = secured.context.wrap_bio(
                self._incoming, self._outgoing, server_side=secured.server_side
            )

    def _begin(self) -> None:
        if self.state == CLOSED:  # while it was dialled
            self.transport.abort()
            return
        if self._secured is None:
            self._open()
            return
        self._deadline = asyncio.get_running_loop().call_later(
            HANDSHAKE_MS_MAX / 1000, self.abort, "handshake_timeout"
        )
        self._handshake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received if self._secured is not None else self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._secured is None:
            self._advance(nbytes)
        else:
            self._incoming.write(_received[:nbytes])
            if self.state == CONNECTING:
                self._handshake()
            if self.state == OPEN:
                self._decrypt()
        if self._delivered:
            self._delivered = False
            self._owner.on_batch(self)

    def eof_received(self) -> bool:
        self.reason = self.reason or (
            "handshake_end" if self.state == CONNECTING else "peer_closed"
        )
        return False  # the transport closes itself

    def connection_lost(self, error: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.reason = self.reason or ("lost" if error is not None else "closed")
        self.counters["closed_" + self.reason] += 1
        self.state = CLOSED
        self._reader.release()
        self._owner.on_closed(self)

    # --- TLS

    def _handshake(self) -> None:
        assert self._secured is not None
        try:
            self._tls.do_handshake()
            self.node = identify(self._tls, self._secured.pins)
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ValueError) as error:
            self._flush()  # the alert tells the other side
            wrong = isinstance(error, ssl.SSLCertVerificationError)
            self.abort("certificate" if wrong else "handshake", flushed=True)
            return
        self._flush()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.node is None:
            self.abort("pin")
        else:
            self._open()

    def _decrypt(self) -> None:
        """Pass on all that arrived; a stream that broke is closed."""
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        try:
            while self.state == OPEN:
                space = self._reader.space()
                size, filled, more = len(space), 0, True
                try:
                    while more and filled < size:
                        count = read(size - filled, space[filled:])
                        if not count:
                            break
                        filled += count
                        more = bool(self._incoming.pending or self._tls.pending())
                finally:
                    if filled:
                        self._advance(filled)
                if not more:  # known without an exception, which costs more than a small frame
                    break
                if filled < size:  # the peer said goodbye
                    self.reason = self.reason or "peer_closed"
                    self.transport.close()
                    return
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            wrong = "certificate" in str(error).lower()
            self.abort("refused_certificate" if wrong else "tls")
        if self.state == OPEN:
            self._flush()  # answers of TLS itself

    def _flush(self) -> None:
        if self._outgoing.pending:
            self.transport.write(self._outgoing.read())

    # --- frames

    def _open(self) -> None:
        self.state = OPEN
        self._checks = self._owner.on_open(self)
        if self._checks is None:
            self.abort("refused")

    def _advance(self, count: int) -> None:
        wrong = self._reader.advance(count)
        if wrong:
            assert self._checks is not None
            self._checks.drops[wrong] += 1
            if wrong == "version":
                self.version = self._reader.version
            self.abort("broken_stream" if self.version is None else "version")

    def _on_frame(self, head: bytes, body: bytes, signature: bytes) -> None:
        if self.state != OPEN:
            return
        assert self._checks is not None
        message = self._checks.check(head, body, signature)
        if message is not None:
            self._delivered = True
            self._owner.on_message(self, message)

    # --- for the owner

    def send(self, frame: bytes | memoryview) -> bool:
        """Send a frame now or never: False (and counted) when not open, or when too much waits
        already."""
        if self.state != OPEN:
            self.counters["send_not_open"] += 1
            return False
        if self.transport.get_write_buffer_size() + len(frame) > LINK_BUFFER_MAX:
            self.counters["send_buffer_full"] += 1
            return False
        if self._secured is None:
            self.transport.write(frame)
            return True
        try:
            self._tls.write(frame)
        except ssl.SSLError:  # by what the peer has sent
            self.abort("tls")
            return False
        self.transport.write(self._outgoing.read())
        return True

    def close(self, reason: str = "closed") -> None:
        """Say goodbye and close once what was sent has left."""
        if self.state == CLOSED:
            return
        self.reason = self.reason or reason
        if self._secured is not None and self.state == OPEN:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # its goodbye need not be answered
            self._flush()
        self.state = CLOSED
        if self._made:
            self.transport.close()

    def abort(self, reason: str, *, flushed: bool = False) -> None:
        """Close now; with `flushed`, after what was sent has left."""
        if self.state == CLOSED:
            return
        self.reason = self.reason or reason
        self.state = CLOSED
        if not self._made:
            return
        if flushed:
            self.transport.close()
        else:
            self.transport.abort()


def tune(transport: asyncio.BaseTransport) -> None:
    """No delay, and silence noticed soon."""
    sock = transport.get_extra_info("socket")
    for level, option, value in _KEEPALIVE:
        sock.setsockopt(level, option, value)


class Listener:
    """Accepts connections of other nodes, within bounds, and hands them to their owner.

    So many may be in their handshake. When all these places are taken, whoever comes next gets in,
    and the oldest of the address that holds most of them gives way: of strangers' addresses first,
    of those from which members have come last. So nobody who is silent keeps a member out.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        secured: Secured,
        message_size_max: int,
        counters: Counter[str],
        expected: Iterable[str] = (),
    ) -> None:
        """`expected` are hosts of members; others are learned when they come."""
        assert secured.server_side
        self._known = dict.fromkeys(map(address_group, expected))  # longest unseen first
        self._owner, self._secured, self._size_max, self._counters = (
            owner,
            secured,
            message_size_max,
            counters,
        )
        self._connections: dict[Connection, None] = {}  # oldest first
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Bind; ConfigurationError when somebody else has the port."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._accept, host, port, backlog=512
            )
        except OSError as error:
            raise ConfigurationError(
                f"peer_port {port} on {host} cannot be bound ({error.strerror or error}): stop "
                f"what uses it, or choose another peer_port in site.toml"
            ) from error

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def count(self) -> int:
        """Connections, known or not."""
        return len(self._connections)

    def _accept(self) -> "Connection":
        return _Accepted(
            self,
            self._owner,
            secured=self._secured,
            message_size_max=self._size_max,
            counters=self._counters,
        )

    def admit(self, connection: Connection) -> str:
        """Count a new connection in; not "" = why it is too many."""
        self._counters["accepted"] += 1
        waiting = [other for other in self._connections if other.state == CONNECTING]
        if len(self._connections) - len(waiting) >= CONNECTIONS_MAX:
            return "too_many_connections"
        if len(waiting) >= HANDSHAKES_MAX:
            self._longest_of_most(waiting).abort("gave_way")
        self._connections[connection] = None
        return ""

    def _longest_of_most(self, waiting: list[Connection]) -> Connection:
        """Who gives way among those in their handshake, oldest first."""
        strangers = [other for other in waiting if other.address not in self._known] or waiting
        held = Counter(other.address for other in strangers)
        most = max(held.values())
        return next(other for other in strangers if held[other.address] == most)

    def remember(self, address: str) -> None:
        """A member has come from there."""
        self._known.pop(address, None)
        self._known[address] = None
        while len(self._known) > PEER_ADDRESSES_MAX:
            del self._known[next(iter(self._known))]

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.close()
            await self._server.wait_closed()


class _Accepted(Connection):
    """A connection that its listener counts."""

    def __init__(
        self,
        listener: Listener,
        owner: Owner,
        *,
        secured: Secured,
        message_size_max: int,
        counters: Counter[str],
    ) -> None:
        super().__init__(
            owner, secured=secured, message_size_max=message_size_max, counters=counters
        )
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._equip(transport)
        peer = transport.get_extra_info("peername")
        self.address = address_group(str(peer[0])) if peer else ""
        why = self._listener.admit(self)
        if why:
            self.abort(why)
            return
        tune(transport)
        self._begin()

    def _open(self) -> None:
        self._listener.remember(self.address)  # its key was shown
        super()._open()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.forget(self)
        super().connection_lost(error)


class Link:
    """A connection to one replica that is dialled again, with growing pauses, until closed.

    `pins` of `secured` holds the one node that may answer. The owner hears `on_open` and
    `on_closed` of each connection in turn; `send` drops, and counts, whenever there is none.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        host: str,
        port: int,
        secured: Secured,
        message_size_max: int,
        prng: Prng,
        counters: Counter[str],
    ) -> None:
        assert not secured.server_side and len(secured.pins) == 1
        self._owner, self._host, self._port, self._secured = owner, host, port, secured
        self._size_max, self._prng, self._counters = message_size_max, prng, counters
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"link-{self._host}:{self._port}"
        )

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.state == OPEN

    def send(self, frame: bytes | memoryview) -> bool:
        """Send a frame now or never."""
        connection = self._connection
        if connection is None:
            self._counters["send_not_open"] += 1
            return False
        return connection.send(frame)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_ms = DIAL_BACKOFF_MS_MIN
        while True:
            self._gone.clear()
            try:
                async with asyncio.timeout(HANDSHAKE_MS_MAX / 1000):
                    await loop.create_connection(self._dialled, self._host, self._port)
            except (OSError, TimeoutError):
                self._counters["dial_failed"] += 1
            else:
                born = loop.time()
                await self._gone.wait()
                if loop.time() - born > _SETTLED_SECONDS:
                    pause_ms = DIAL_BACKOFF_MS_MIN
            self._connection = None
            await asyncio.sleep(self._prng.between(pause_ms // 2, pause_ms) / 1000)
            pause_ms = min(2 * pause_ms, DIAL_BACKOFF_MS_MAX)

    def _dialled(self) -> "Connection":
        self._connection = _Dialled(
            self._gone,
            self._owner,
            secured=self._secured,
            message_size_max=self._size_max,
            counters=self._counters,
        )
        return self._connection

    async def close(self) -> None:
        """Close the connection and dial no more."""
        if self._task is None:
            return
        self._task.cancel()
        if self._connection is not None and self._connection.state != CLOSED:
            self._connection.close()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None


class _Dialled(Connection):
    """A connection whose link waits for its end."""

    def __init__(
        self,
        gone: asyncio.Event,
        owner: Owner,
        *,
        secured: Secured,
        message_size_max: int,
        counters: Counter[str],
    ) -> None:
        super().__init__(
            owner, secured=secured, message_size_max=message_size_max, counters=counters
        )
        self._gone = gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tune(transport)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        super().connection_lost(error)
