"""Where clients come in: accepts connections, hears for whom a known proxy speaks, and begins TLS
with those that say something, in their turn. Who may come in, and whose turn it is, `entrance`
decides.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from appliance.base.errors import ConfigurationError
from appliance.base.limits import (
    ACCEPTS_PER_TURN,
    HELLO_MS_MAX,
    PROXY_HEADER_SIZE_MAX,
    TURNED_AWAY_MS_MAX,
)
from appliance.drivers.network.entrance import Entrance, Visitor, address_of
from appliance.drivers.network.proxies import Proxies
from appliance.drivers.network.refusals import NO_DESCRIPTOR, TCP
from appliance.drivers.network.spare import Spare
from appliance.formats.proxy_header import (
    Incomplete,
    ProxyHeaderMalformed,
    parse_proxy_header,
)

BACKLOG = 1024  # connections that the kernel completes and keeps for us
REST_SECONDS = 0.1  # without accepting, when the process has no descriptor left
SHUTDOWN_SECONDS = 5.0  # for a client to answer the end of TLS
RELIEF_SECONDS = 0.1  # between two looks whether somebody gives way to those who wait


@dataclass(slots=True)
class _Caller:
    """A connection of which nothing was read yet, but for the header of a known proxy."""

    sock: socket.socket
    deadline: asyncio.TimerHandle
    peeked: int = 0  # bytes of such a header that came so far


def _has_left(sock: socket.socket) -> bool:
    """Whether the client has ended the connection, whatever it had sent before."""
    ended = select.poll()
    ended.register(sock, select.POLLRDHUP)
    return bool(ended.poll(0))


class Listener:
    """Accepts connections, a few in each turn of the loop, and begins TLS with those that say
    something, in their turn."""

    def __init__(
        self, entrance: Entrance, make: Callable[[str], Visitor], proxies: Proxies
    ) -> None:
        """`make` gives the protocol of a connection from an address; `proxies` may name another
        one, before TLS."""
        self._entrance, self._make, self._proxies = entrance, make, proxies
        self._listeners: list[socket.socket] = []
        self._tls: ssl.SSLContext | None = None
        self._spare = Spare()
        self._callers: dict[Visitor, _Caller] = {}
        self._greetings: dict[Visitor, asyncio.Task[None]] = {}
        self._port = 0
        self._rest: asyncio.TimerHandle | None = None
        self._relief: asyncio.TimerHandle | None = None  # while somebody waits

    async def open(self, host: str, port: int, *, tls: ssl.SSLContext | None, shared: bool) -> None:
        """Bind, `shared` with other processes; ConfigurationError when that cannot be."""
        self._tls = tls
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, _, _, _, address in dict.fromkeys(infos):
                listener = socket.create_server(
                    address[:2], family=family, backlog=BACKLOG, reuse_port=shared
                )
                listener.setblocking(False)
                self._listeners.append(listener)
        except OSError as error:
            raise ConfigurationError(
                f"client_port {port} on {host} cannot be bound ({error.strerror or error}): "
                "stop what uses it, or choose another client_port in site.toml"
            ) from error
        self._port = int(self._listeners[0].getsockname()[1])
        self._listen()

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        """Accept nobody any more; who is being greeted is sent away."""
        for handle in (self._rest, self._relief):
            if handle is not None:
                handle.cancel()
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()
        self._spare.close()
        for visitor in list(self._callers):
            self.dismiss(visitor)
        for task in self._greetings.values():
            task.cancel()

    def dismiss(self, visitor: Visitor) -> bool:
        """Stop hearing or greeting it; False if that was over."""
        caller = self._callers.pop(visitor, None)
        if caller is not None:
            asyncio.get_running_loop().remove_reader(caller.sock)
            caller.deadline.cancel()
            caller.sock.close()
            self._entrance.counters["ended_handshake"] += 1
            self._entrance.forget(visitor)
            return True
        task = self._greetings.get(visitor)
        return task is not None and task.cancel()

    def _listen(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._on_acceptable, listener)

    def _on_acceptable(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor left
                self._entrance.counters["accept_failed"] += 1
                if self._spare.turn_away(listener):
                    self._entrance.refusals.count(TCP, NO_DESCRIPTOR)
                    continue
                for other in self._listeners:
                    loop.remove_reader(other)
                self._rest = loop.call_later(REST_SECONDS, self._listen)
                return
            sock.setblocking(False)
            visitor = self._make(address_of(str(peer[0])))
            visitor.is_proxy = self._proxies.knows(str(peer[0]))
            ms_max, now_s = HELLO_MS_MAX, loop.time()
            if not self._entrance.arrive(visitor, now_s):
                if not (self._entrance.is_full and self._entrance.turn_away(visitor, now_s)):
                    sock.close()
                    continue
                ms_max = TURNED_AWAY_MS_MAX
            deadline = loop.call_later(ms_max / 1000, self._on_late, visitor)
            self._callers[visitor] = _Caller(sock, deadline)
            loop.add_reader(sock, self._on_bytes, visitor)

    def _on_late(self, visitor: Visitor) -> None:
        self._entrance.counters["closed_late_handshake"] += 1
        self.dismiss(visitor)

    def _on_bytes(self, visitor: Visitor) -> None:
        """Something came, or the end of it. It stays in the socket: TLS reads it from there."""
        caller = self._callers[visitor]
        try:
            size = PROXY_HEADER_SIZE_MAX if visitor.is_proxy else 1
            came = caller.sock.recv(size, socket.MSG_PEEK)
            if visitor.is_proxy and not self._hear_proxy(visitor, caller, came):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            came = b""
        except ProxyHeaderMalformed:
            self._entrance.counters["proxy_header_malformed"] += 1
            came = b""
        if not came:
            self.dismiss(visitor)
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(caller.sock)
        self._entrance.speak(visitor, partial(self._begin, visitor), loop.time())
        if self._relief is None and self._entrance.waiting:
            self._relief = loop.call_later(RELIEF_SECONDS, self._relieve)

    def _hear_proxy(self, visitor: Visitor, caller: _Caller, came: bytes) -> bool:
        """A known proxy sends `came`: whether a client's own bytes follow, or the end. Its header
        is taken out of the socket; no further one is heard, but that of a known proxy which this
        one has named."""
        header = parse_proxy_header(came) if came else None
        if isinstance(header, Incomplete):
            if len(came) <= caller.peeked:
                raise ProxyHeaderMalformed("the end within it")
            caller.peeked = len(came)  # this is called again for more than what is here already
            caller.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(came) + 1)
            return False
        if caller.peeked:
            caller.peeked = 0
            caller.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        if header is None:
            return True  # it may name its client in HTTP
        caller.sock.recv(header.size)
        now_s = asyncio.get_running_loop().time()
        address = address_of(header.host) if header.host else visitor.address
        if self._proxies.knows(header.host):
            self._entrance.relay(visitor, address, now_s)
            return False
        self._entrance.counters["proxied"] += bool(header.host)
        why = self._entrance.attribute(visitor, address, now_s)
        if why:
            if visitor.refusal is None:  # else it is counted when it goes
                self._entrance.refusals.count(visitor.comes_by, why)
            self.dismiss(visitor)
        return False

    def _relieve(self) -> None:
        loop = asyncio.get_running_loop()
        others_wait = self._entrance.relieve(loop.time())
        self._relief = loop.call_later(RELIEF_SECONDS, self._relieve) if others_wait else None

    def _begin(self, visitor: Visitor) -> None:
        """It is served, unless it has left while it waited: TLS would be begun for nobody."""
        loop = asyncio.get_running_loop()
        if self._tls is not None and _has_left(self._callers[visitor].sock):
            self._entrance.counters["left_waiting"] += 1
            loop.call_soon(self.dismiss, visitor)  # which lets in the next one
            return
        caller = self._callers.pop(visitor)
        caller.deadline.cancel()
        task = loop.create_task(self._greet(visitor, caller.sock))
        self._greetings[visitor] = task

    async def _greet(self, visitor: Visitor, sock: socket.socket) -> None:
        timeouts = {}
        if self._tls is not None:
            ms_max = HELLO_MS_MAX if visitor.refusal is None else TURNED_AWAY_MS_MAX
            timeouts = {
                "ssl_handshake_timeout": ms_max / 1000,
                "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
            }
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: visitor,
                sock,
                ssl=self._tls,
                **timeouts,
            )
        except (OSError, asyncio.CancelledError):
            self._entrance.counters["ended_handshake"] += 1
            self._entrance.forget(visitor)
        finally:
            self._greetings.pop(visitor, None)
