"""Who may come in at the client port: connections are counted from their acceptance until they are
lost, whatever they speak.

    accepted ──▶ stranger: TLS, first request, hello, or plain HTTP ──▶ guest: a welcome client
       │             few, of one address and of all:                      many, as the node's
       │             the oldest makes room for the newest                 settings say
       └─▶ refused before TLS: too many, or too fast of its address

A stranger who waits costs memory, and one who comes costs a handshake. So there are few at a time,
and a flood displaces strangers of its own address first: somebody else's handshake, a matter of
milliseconds, is in nobody's way. Whoever is displaced was there longest, and knows no token.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from appliance.base.errors import ConfigurationError
from appliance.base.limits import (
    ACCEPT_BURST_SECONDS,
    ACCEPTS_PER_TURN,
    HELLO_MS_MAX,
    STRANGERS_MAX,
    STRANGERS_PER_ADDRESS_MAX,
)

BACKLOG = 1024  # connections that the kernel completes and keeps for us
REST_SECONDS = 0.1  # without accepting, when the process has no descriptor left
SHUTDOWN_SECONDS = 5.0  # for a client to answer the end of TLS
_ADDRESSES_MAX = 10_000  # whose pace is remembered


def address_of(host: str) -> str:
    """For whom a connection counts that comes from `host`: of IPv6 the network of 64 bits, for its
    owner has all the addresses in it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


class Visitor(asyncio.Protocol, ABC):
    """A connection, from the moment it is accepted."""

    address: str

    @abstractmethod
    def expel(self) -> None:
        """Be gone at once; nobody waits for anything."""


class Bearer(Protocol):
    """A connection that carries requests, to who serves them."""

    def welcome(self) -> None:
        """A request on it is one of a conversation whose client has said who it is."""

    def leave(self) -> None:
        """That request is over."""


class Entrance:
    """Counts visitors. Invariant: each is a stranger or a guest, from `admit` until `forget`."""

    def __init__(
        self,
        *,
        visitors_max: int,
        visitors_per_address_max: int,
        address_rate: int,
        counters: Counter[str],
    ) -> None:
        """`address_rate` is connections a second."""
        self.counters = counters
        self.visitors: dict[Visitor, None] = {}
        self._cost_s = 1 / address_rate
        self._max, self._per_address_max = visitors_max, visitors_per_address_max
        self._per_address: Counter[str] = Counter()
        self._strangers: dict[str, dict[Visitor, None]] = {}  # by address, oldest first
        self._strangers_count = 0
        self._paces: dict[str, float] = {}  # address -> when its bucket is empty again
        self._emptied: asyncio.Event | None = None  # set when all are gone, once that is awaited

    def admit(self, visitor: Visitor, now_s: float) -> bool:
        """Count a new one in, as a stranger, unless there are too many."""
        self.counters["accepted"] += 1
        address = visitor.address
        if not self._in_pace(address, now_s):
            self.counters["too_fast_of_address"] += 1
            return False
        if len(self.visitors) >= self._max:
            self.counters["too_many_connections"] += 1
            return False
        if self._per_address[address] >= self._per_address_max:
            self.counters["too_many_of_address"] += 1
            return False
        if len(self._strangers.get(address, ())) >= STRANGERS_PER_ADDRESS_MAX:
            self._displace(address)
        elif self._strangers_count >= STRANGERS_MAX:
            self._displace(max(self._strangers, key=lambda other: len(self._strangers[other])))
        self.visitors[visitor] = None
        self._per_address[address] += 1
        self._strangers.setdefault(address, {})[visitor] = None
        self._strangers_count += 1
        return True

    def welcome(self, visitor: Visitor) -> None:
        """It is no stranger any more."""
        strangers = self._strangers.get(visitor.address, {})
        if strangers.pop(visitor, self) is None:
            self._strangers_count -= 1
            if not strangers:
                del self._strangers[visitor.address]

    def forget(self, visitor: Visitor) -> None:
        """It is gone, if it was here."""
        self.welcome(visitor)
        if self.visitors.pop(visitor, self) is None:
            self._per_address[visitor.address] -= 1
            if not self._per_address[visitor.address]:
                del self._per_address[visitor.address]
        if self._emptied is not None and not self.visitors:
            self._emptied.set()

    async def emptied(self, seconds: float) -> None:
        """Until all are gone, or so long."""
        if self.visitors:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._emptied.wait()

    def _displace(self, address: str) -> None:
        oldest = next(iter(self._strangers[address]))
        self.counters["stranger_displaced"] += 1
        self.forget(oldest)
        oldest.expel()

    def _in_pace(self, address: str, now_s: float) -> bool:
        empty_at = max(self._paces.pop(address, 0.0), now_s)
        within = empty_at - now_s < ACCEPT_BURST_SECONDS
        self._paces[address] = empty_at + self._cost_s if within else empty_at
        if len(self._paces) > _ADDRESSES_MAX:
            del self._paces[next(iter(self._paces))]
        return within


class Door:
    """Accepts connections, a few in each turn of the loop, and begins TLS with those admitted."""

    def __init__(self, entrance: Entrance, make: Callable[[str], Visitor]) -> None:
        """`make` gives the protocol of a connection from an address."""
        self._entrance, self._make = entrance, make
        self._listeners: list[socket.socket] = []
        self._tls: ssl.SSLContext | None = None
        self._greetings: dict[Visitor, asyncio.Task[None]] = {}
        self._port = 0
        self._rest: asyncio.TimerHandle | None = None

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
        if self._rest is not None:
            self._rest.cancel()
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for task in self._greetings.values():
            task.cancel()

    def dismiss(self, visitor: Visitor) -> bool:
        """Stop greeting it; False if it was not being greeted."""
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
                for other in self._listeners:
                    loop.remove_reader(other)
                self._rest = loop.call_later(REST_SECONDS, self._listen)
                return
            sock.setblocking(False)
            visitor = self._make(address_of(str(peer[0])))
            if not self._entrance.admit(visitor, loop.time()):
                sock.close()
                continue
            task = loop.create_task(self._greet(visitor, sock))
            self._greetings[visitor] = task

    async def _greet(self, visitor: Visitor, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timeouts = {}
        if self._tls is not None:
            timeouts = {
                "ssl_handshake_timeout": HELLO_MS_MAX / 1000,
                "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
            }
        try:
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
