"""Who may come in at the client port: connections are counted from their acceptance until they are
lost, whatever they speak.

    accepted ──▶ silent ──▶ waiting ──▶ served ──▶ guest: a welcome client, as many as settings say
       │            │          │           │
       │            │          │           └─ TLS, first request, hello, plain HTTP: few at a time.
       │            │          │              Who made no step for longest gives way
       │            │          └─ bytes came; all places are taken. The newest is turned away
       │            └─ nothing came. The oldest gives way
       ├─▶ closed before TLS: too many, or too fast of its address
       └─▶ turned away: no room for anybody. A few at a time are served until their first request,
           which is answered with the error and when to come again, or, if it only asks whether
           the node serves, with that; the others are closed

All but guests are strangers. One that is served costs the buffers of TLS and a handshake, so there
are few at a time; one that says nothing, or waits, costs a descriptor. Whoever gives way is of the
address that has most, so a flood displaces strangers of its own address first. Those who wait of
one address do not push its own out before they had time for a step: a crowd behind one address
comes in one after the other, as fast as its hellos come.
"""

import asyncio
import contextlib
import ipaddress
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from appliance.base.errors import InputError
from appliance.base.limits import (
    ACCEPT_BURST_SECONDS,
    HELLO_MS_MAX,
    STRANGER_STEP_MS,
    STRANGERS_MAX,
    STRANGERS_SILENT_MAX,
    STRANGERS_WAITING_MAX,
    TURNED_AWAY_MAX,
    TURNED_AWAY_RATE,
)
from appliance.drivers.network.rate import Rate
from appliance.drivers.network.refusals import (
    DISPLACED,
    FULL,
    TCP,
    TOO_FAST,
    TOO_MANY,
    Refusals,
)
from appliance.drivers.network.strangers import Stage
from appliance.formats.client_errors import NodeFull

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
    is_proxy = False  # a known one: for whom it speaks is not heard yet, or never said
    comes_by = TCP  # what it speaks, as far as is known
    refusal: InputError | None = None  # it is here to be told that alone

    @abstractmethod
    def expel(self) -> None:
        """Be gone at once; nobody waits for anything."""


class Bearer(Protocol):
    """A connection that carries requests, to who serves them."""

    def address_for(self, forwarded: Sequence[str]) -> str:
        """Who asks, for whom a request with these fields X-Forwarded-For counts. Raises
        InputError."""

    def welcome(self) -> None:
        """A request on it is one of a conversation whose client has said who it is."""

    def leave(self) -> None:
        """That request is over."""


class Entrance:
    """Counts visitors. Invariant: each is a guest or a stranger in one stage, until `forget`."""

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
        self.refusals = Refusals()
        self.turned_away: dict[Visitor, None] = {}  # who is told that there is no room
        self._probes: set[Visitor] = set()  # those of them that do not count as refused
        self._tellings = Rate(TURNED_AWAY_RATE, TURNED_AWAY_MAX)
        self.visitors: dict[Visitor, str | None] = {}  # and its address, once it counts for it
        self._cost_s = 1 / address_rate
        # as many of an address as may come while one of them says hello
        self._share = min(STRANGERS_MAX, address_rate * HELLO_MS_MAX // 1000)
        self.visitors_max, self._per_address_max = visitors_max, visitors_per_address_max
        self._per_address: Counter[str] = Counter()
        self._silent: Stage[Visitor] = Stage()
        self._waiting: Stage[Visitor] = Stage()
        self._served: Stage[Visitor] = Stage()  # since their newest step
        self._enter: dict[Visitor, Callable[[], None]] = {}  # of those who wait
        self._now_s = 0.0  # the newest that was told
        self._paces: dict[str, float] = {}  # address -> when its bucket is empty again
        self._emptied: asyncio.Event | None = None  # set when all are gone, once that is awaited

    def admit(self, visitor: Visitor, now_s: float) -> bool:
        """Count in one that is served at once, unless there are too many."""
        if not self._count_in(visitor, now_s):
            if self.is_full:
                self.refusals.count(visitor.comes_by, FULL)
            return False
        self._make_room(visitor.address, at_once=True)
        self._served.add(visitor, now_s)
        return True

    def arrive(self, visitor: Visitor, now_s: float) -> bool:
        """Count in one that has said nothing, unless there are too many."""
        if not self._count_in(visitor, now_s):
            return False
        if self._silent.count >= STRANGERS_SILENT_MAX:
            self._displace(self._silent.oldest(self._silent.crowd())[0])
        self._silent.add(visitor, now_s)
        return True

    @property
    def is_full(self) -> bool:
        """Whether there is no room for anybody."""
        return len(self.visitors) >= self.visitors_max

    def turn_away(self, visitor: Visitor, now_s: float) -> bool:
        """Whether one that was not let in, since there is no room, may stay until it is told so."""
        self._now_s = now_s
        assert visitor not in self.visitors
        why = FULL if len(self.turned_away) >= TURNED_AWAY_MAX else ""
        if not why and not visitor.is_proxy:
            why = self._why_not(visitor.address)
        if why or not self._tellings.take(now_s):
            self.refusals.count(visitor.comes_by, why or FULL)
            return False
        visitor.refusal = NodeFull("no more connections are served here: use another node, or wait")
        self.turned_away[visitor] = None
        return True

    def probed(self, visitor: Visitor) -> None:
        """One that was turned away only asks how the node is: it is answered, and not counted as
        one that found no room."""
        assert visitor in self.turned_away
        self._probes.add(visitor)

    def attribute(self, visitor: Visitor, address: str, now_s: float) -> str:
        """It is settled for whom a known proxy speaks on this connection, be it itself: it counts
        for that `address` from now on. Else why not, if there are too many of it: then it is to
        end, and to be counted as refused."""
        assert visitor.is_proxy
        visitor.is_proxy = False
        self._now_s = now_s
        why = self._why_not(address)
        if not why and visitor in self.visitors:
            self.relay(visitor, address, now_s)
            self._count(visitor)
        return why

    def relay(self, visitor: Visitor, address: str, now_s: float) -> None:
        """A known proxy speaks for the one at `address`, which has not said yet for whom."""
        stages = [
            stage for stage in (self._silent, self._waiting, self._served) if stage.remove(visitor)
        ]
        visitor.address = address
        for stage in stages:
            stage.add(visitor, now_s)

    def speak(self, visitor: Visitor, enter: Callable[[], None], now_s: float) -> None:
        """A silent one has sent something. `enter` is called when it is served: now, or when it is
        its turn; or it is expelled."""
        if visitor in self.turned_away:
            enter()
            return
        if not self._silent.remove(visitor):
            return
        self._now_s = now_s
        self._waiting.add(visitor, now_s)
        self._enter[visitor] = enter
        self._serve_waiting()
        if self._waiting.count > STRANGERS_WAITING_MAX:
            self._displace(self._waiting.newest(self._waiting.crowd()))

    def advance(self, visitor: Visitor, now_s: float) -> None:
        """One that is served has made a step towards its hello, as there are few."""
        if self._served.remove(visitor):
            self._served.add(visitor, now_s)

    def relieve(self, now_s: float) -> bool:
        """Serve whom time has made room for; whether others still wait."""
        self._now_s = now_s
        self._serve_waiting()
        return self.waiting > 0

    @property
    def waiting(self) -> int:
        """How many have spoken and are not served."""
        return self._waiting.count

    @property
    def strangers(self) -> int:
        """How many are no guests."""
        return self._silent.count + self._waiting.count + self._served.count

    def welcome(self, visitor: Visitor) -> None:
        """It is no stranger any more."""
        if self._end_stage(visitor):
            self._serve_waiting()

    def forget(self, visitor: Visitor) -> None:
        """It is gone, if it was here."""
        if self._drop(visitor):
            self._serve_waiting()

    async def emptied(self, seconds: float) -> None:
        """Until all are gone, or so long."""
        if self.visitors:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._emptied.wait()

    def _count_in(self, visitor: Visitor, now_s: float) -> bool:
        self._now_s = now_s
        self.counters["accepted"] += 1
        if self.is_full:
            self.counters["too_many_connections"] += 1
            return False
        why = "" if visitor.is_proxy else self._why_not(visitor.address)
        if why:
            self.refusals.count(visitor.comes_by, why)
            return False
        self.visitors[visitor] = None
        if not visitor.is_proxy:
            self._count(visitor)
        return True

    def _why_not(self, address: str) -> str:
        """Why no more of `address` may come, if so; a known proxy is asked for whom it speaks
        instead."""
        why = ""
        if not self._in_pace(address, self._now_s):
            why = TOO_FAST
        elif self._per_address[address] >= self._per_address_max:
            why = TOO_MANY
        if why:
            self.counters[why] += 1
        return why

    def _count(self, visitor: Visitor) -> None:
        """It is one of its address from now on."""
        self.visitors[visitor] = visitor.address
        self._per_address[visitor.address] += 1

    def _end_stage(self, visitor: Visitor) -> bool:
        """It is no stranger any more; whether it made room for one."""
        self._enter.pop(visitor, None)
        if self._silent.remove(visitor) or self._waiting.remove(visitor):
            return False
        return self._served.remove(visitor)

    def _drop(self, visitor: Visitor) -> bool:
        """Count it out; whether it made room for a stranger."""
        if self.turned_away.pop(visitor, self) is None and visitor not in self._probes:
            self.refusals.count(visitor.comes_by, FULL)
        self._probes.discard(visitor)
        was_served = self._end_stage(visitor)
        address = self.visitors.pop(visitor, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]
        if self._emptied is not None and not self.visitors:
            self._emptied.set()
        return was_served

    def _displace(self, visitor: Visitor) -> None:
        self.counters[DISPLACED] += 1
        self.refusals.count(visitor.comes_by, DISPLACED)
        self._drop(visitor)
        visitor.expel()

    def _serve_waiting(self) -> None:
        """Addresses of whom fewest are served come first, and of one who came first."""
        while self._waiting.count:
            address = min(self._waiting.addresses(), key=self._served.of)
            if not self._make_room(address):
                return
            visitor, _ = self._waiting.oldest(address)
            self._waiting.remove(visitor)
            self._served.add(visitor, self._now_s)
            self._enter.pop(visitor)()

    def _make_room(self, address: str, *, at_once: bool = False) -> bool:
        """Whether one more of `address` can be served, after somebody gave way if need be: of an
        address that has more, or one that had its time, or `at_once` anybody."""
        own = self._served.of(address)
        if own >= self._share:
            crowd = address
        elif self._served.count < STRANGERS_MAX:
            return True
        else:
            crowd = self._served.crowd()
        slowest, step_s = self._served.oldest(crowd)
        is_late = self._now_s - step_s >= STRANGER_STEP_MS / 1000
        if not (at_once or is_late or self._served.of(crowd) > own + 1):
            return False
        self._displace(slowest)
        return True

    def _in_pace(self, address: str, now_s: float) -> bool:
        empty_at = max(self._paces.pop(address, 0.0), now_s)
        within = empty_at - now_s < ACCEPT_BURST_SECONDS
        self._paces[address] = empty_at + self._cost_s if within else empty_at
        if len(self._paces) > _ADDRESSES_MAX:
            del self._paces[next(iter(self._paces))]
        return within
