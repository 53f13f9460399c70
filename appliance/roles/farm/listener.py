"""Accepted connections: a login, then requests in and answers out, in order."""

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from appliance.base.errors import FarmFrameError
from appliance.base.limits import (
    FARM_CONNECTIONS_PER_USER_MAX,
    FARM_HANDSHAKE_MS_MAX,
    FARM_READ_AHEAD_MAX,
    FARM_SERVERS_MAX,
    FARM_STRANGERS_MAX,
    FARM_STRANGERS_PER_ADDRESS_MAX,
)
from appliance.cores.raft.invitation import Invited
from appliance.cores.raft.login import (
    FEATURE_PRE_VOTE,
    FEATURE_REFUSAL,
    Doorway,
    Login,
    ServerLogin,
    encode_welcome,
)
from appliance.cores.raft.users import MEMBER, SHARED, User, refusal_of
from appliance.drivers.network.farm_stream import keep_alive
from appliance.drivers.network.stream_end import end
from appliance.formats.raft_legacy.frame import (
    ADMINISTRATIVE,
    Request,
    Response,
    encode_response,
)
from appliance.formats.raft_legacy.reader import RequestReader

_READ_SIZE = 1 << 16
_WRITE_BUFFER_MAX = 1 << 20  # bytes of answers nobody takes; then the connection is closed


def now_ms() -> int:
    return int(time.time() * 1000)


class Taker(Protocol):
    """The farm's member behind a door."""

    def on_request(self, visitor: "Visitor", request: Request) -> None: ...
    async def welcome(self, invited: Invited) -> bytes: ...


Slot = list[Response | None]  # of one item: the answer to a request, once there is one


@dataclass(eq=False)
class Visitor:
    """One logged-in connection. `slots`: requests without an answer yet, and answers that wait;
    `of_member`: it gives way to nobody."""

    farm: str
    user: User
    pre_vote: bool
    writer: asyncio.StreamWriter
    told_why: bool = False  # it understands why not
    of_member: bool = False
    said: bool = False  # a request came on it
    used: float = 0.0
    slots: deque[Slot] = field(default_factory=deque)
    room: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def closed(self) -> bool:
        return self.writer.is_closing()

    def answer(self, slot: Slot, response: Response) -> None:
        """Answers leave in the order of requests."""
        slot[0] = response if self.told_why else replace(response, refusal=0)
        while self.slots and (first := self.slots[0][0]) is not None:
            self.slots.popleft()
            self.writer.write(encode_response(first))
        if self.writer.transport.get_write_buffer_size() > _WRITE_BUFFER_MAX:
            self.writer.close()
        self.room.set()

    def close(self) -> None:
        self.writer.close()
        self.room.set()


class Listener:
    """One listener for all farms of a node. Everything refused is counted by name."""

    def __init__(
        self,
        doorway: Doorway,
        takers: dict[str, Taker],
        *,
        renew: Callable[[], None],
        raw: str = "",
    ) -> None:
        """`renew` comes before `doorway` is asked; `raw`: the farm that is spoken without a login,
        on loopback; empty: none."""
        self.doorway, self.takers, self.raw, self._renew = doorway, takers, raw, renew
        self.strangers: Counter[str] = Counter()  # connections without a login, by address
        self.visitors: dict[str, list[Visitor]] = {}  # by user
        self.tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def counts(self) -> Counter[str]:
        return self.doorway.counts

    async def on_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection, from its first byte to its last."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks[task] = writer
        try:
            keep_alive(writer)
            login = await self._enter(reader, writer)
            if login is not None:
                await self._visit(login, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            self.counts["connection_lost"] += 1
        finally:
            del self.tasks[task]
            await end(writer)

    async def _enter(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Login | None:
        if self.raw:
            return Login(self.raw, User("raw", SHARED, 0, {}), frozenset(), b"")
        name = writer.get_extra_info("peername")
        address = str(name[0]) if name else ""
        if self.strangers.total() >= FARM_STRANGERS_MAX:
            self.counts["strangers_too_many"] += 1
            return None
        if self.strangers[address] >= FARM_STRANGERS_PER_ADDRESS_MAX:
            self.counts["strangers_too_many_of_address"] += 1
            return None
        self.strangers[address] += 1
        try:
            async with asyncio.timeout(FARM_HANDSHAKE_MS_MAX / 1000):
                return await self._log_in(reader, writer, address)
        except TimeoutError:
            self.counts["handshake_late"] += 1
            return None
        finally:
            self.strangers[address] -= 1
            if not self.strangers[address]:
                del self.strangers[address]

    async def _log_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> Login | None:
        login = ServerLogin(self.doorway, address, os.urandom)
        while True:
            data = await reader.read(_READ_SIZE)
            if not data:
                self.counts["ended_before_login"] += 1
                return None
            self._renew()
            result = login.on_bytes(data, now_ms())
            if result is None:
                continue
            await asyncio.sleep(result.delay_ms / 1000)
            reply = result.reply
            if result.invited is not None:
                welcome = await self.takers[result.invited.farm].welcome(result.invited)
                reply = encode_welcome(welcome) if welcome else reply
            writer.write(reply)
            await writer.drain()
            return result.login

    # --- after the login --------------------------------------------------------------------------

    async def _visit(
        self, login: Login, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        visitor = Visitor(login.farm, login.user, FEATURE_PRE_VOTE in login.features, writer)
        visitor.told_why = FEATURE_REFUSAL in login.features
        visitor.of_member = login.user.role == MEMBER
        visitor.used = time.monotonic()
        there = self.visitors.setdefault(login.user.name, [])
        if self._is_full(login.user, there) and not self._make_room(there):
            self.counts["connections_too_many_of_user"] += 1
            return
        there.append(visitor)
        try:
            await self._serve(visitor, login.rest, reader)
        except FarmFrameError as error:
            self.counts[error.reason] += 1
        finally:
            there.remove(visitor)
            if not there:
                del self.visitors[login.user.name]

    def _is_full(self, user: User, there: list[Visitor]) -> bool:
        """Behind a gateway, or without a login, all members are one user: theirs do not count."""
        counted = [v for v in there if not v.closed and not (user.role == SHARED and v.of_member)]
        return len(counted) >= FARM_CONNECTIONS_PER_USER_MAX

    def _make_room(self, there: list[Visitor]) -> bool:
        """Close an idle connection that is not a member's, the oldest of those that said nothing
        yet if there is one; False: there is none."""
        idle = [v for v in there if not v.of_member and not v.slots and not v.closed]
        if not idle:
            return False
        oldest = min(idle, key=lambda visitor: (visitor.said, visitor.used))
        self.counts["idle_closed_for_another"] += 1
        oldest.close()
        return True

    def _hear(self, visitor: Visitor, request: Request) -> None:
        """Note what a request says of its connection: only members ask for more than clients do."""
        visitor.said, visitor.used = True, time.monotonic()
        if visitor.user.role != SHARED or request.type in ADMINISTRATIVE or visitor.of_member:
            return
        there = self.visitors[visitor.user.name]
        visitor.of_member = sum(v.of_member for v in there) < FARM_SERVERS_MAX

    async def _serve(self, visitor: Visitor, first: bytes, reader: asyncio.StreamReader) -> None:
        requests = RequestReader()
        data = first
        taker = self.takers[visitor.farm]
        while not visitor.closed:
            requests.feed(data)
            while (request := requests.take()) is not None:
                if reason := refusal_of(visitor.user, request, pre_vote=visitor.pre_vote):
                    raise FarmFrameError(reason, f"user {visitor.user.name}: {reason}")
                self._hear(visitor, request)
                taker.on_request(visitor, request)
                while len(visitor.slots) >= FARM_READ_AHEAD_MAX and not visitor.closed:
                    visitor.room.clear()
                    await visitor.room.wait()
                if visitor.closed:
                    return
            data = await reader.read(_READ_SIZE)
            if not data:
                return

    async def close(self) -> None:
        """End all connections."""
        for writer in self.tasks.values():
            writer.close()
        for there in self.visitors.values():
            for visitor in there:
                visitor.close()
        if self.tasks:
            await asyncio.wait(list(self.tasks))
