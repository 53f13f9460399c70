"""One member with its door in this process, so that a test can look at what it counts."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.cores.raft.dial import Challenges, Credentials
from appliance.cores.raft.digest import ALGORITHMS
from appliance.cores.raft.login import Doorway, path_of
from appliance.cores.raft.settings import Settings
from appliance.cores.raft.users import User
from appliance.drivers.network.farm_stream import Route, Stream, listen, open_stream
from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.raft_legacy.frame import (
    CLIENT_REQUEST,
    RESPONSE_SIZE,
    Request,
    Response,
    decode_response,
    encode_request,
)
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.link import Keys, logged_in
from appliance.roles.farm.listener import Listener
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.serve import renewal
from appliance.roles.farm.settings import PLAIN, RAW, FarmSettings, make_user
from tests.patience import HUNG_S

PASSWORD, REALM = "correct horse", "farm"


def user(name: str, role: str, server_id: int = 0) -> User:
    row = make_user(name=name, role=role, server_id=server_id, realm=REALM, password=PASSWORD)
    return User(name, role, server_id, row["secrets"])


USERS = (
    user("node1", "member", 1),
    user("node2", "member", 2),
    user("admin", "administrator"),
    user("poster", "client"),
    user("gateway", "shared"),
)


@dataclass
class Inside:
    """`door` and `members` are the real ones."""

    port: int
    door: Listener
    members: dict[str, FarmMember]

    @property
    def member(self) -> FarmMember:
        return next(iter(self.members.values()))

    def route(self) -> Route:
        return Route("127.0.0.1", self.port)

    def client(self, name: str, farm: str = "farm") -> FarmClient:
        """That asks as that user; to be closed."""
        keys = Keys(farm, Credentials(name, PASSWORD, tuple(ALGORITHMS)), Challenges())
        server = Server(1, f"tcp://127.0.0.1:{self.port}")
        return FarmClient([server], keys, lambda server_id, endpoint: self.route())

    async def stream(self) -> Stream:
        """A connection that says nothing yet."""
        return await open_stream(self.route())

    @contextlib.asynccontextmanager
    async def visit(self, name: str, farm: str = "farm") -> AsyncIterator[Stream]:
        """A connection that is logged in as that user."""
        keys = Keys(farm, Credentials(name, PASSWORD, tuple(ALGORITHMS)), Challenges())
        async with logged_in(self.route(), f"tcp://127.0.0.1:{self.port}", keys) as (stream, _):
            yield stream

    def raw_addresses(self) -> list[object]:
        """Of the connections that were let in without a login."""
        there = self.door.visitors.get("raw", [])
        return [visitor.writer.get_extra_info("peername") for visitor in there]

    async def counted(self, reason: str, wanted: int = 1) -> None:
        """Wait until the door or a member has counted so many of that name."""
        await until(lambda: self.count(reason) >= wanted)

    def count(self, reason: str) -> int:
        return self.door.counts[reason] + sum(m.counts[reason] for m in self.members.values())

    async def lives(self) -> None:
        """Who had no part in what was before logs in, and is answered by a leader."""
        raw = bool(self.door.raw)
        async with contextlib.AsyncExitStack() as stack, asyncio.timeout(HUNG_S):
            if raw:
                stream = await self.stream()
                stack.callback(stream[1].close)
            else:
                stream = await stack.enter_async_context(self.visit("poster"))
            while True:
                if (await ask(stream, Request(CLIENT_REQUEST))).accepted:
                    return
                await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has to come."""
    async with asyncio.timeout(HUNG_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def ask(stream: Stream, request: Request) -> Response:
    stream[1].write(encode_request(request))
    return decode_response(await stream[0].readexactly(RESPONSE_SIZE))


async def closed(stream: Stream) -> bytes:
    """What still comes until the other side closes."""
    async with asyncio.timeout(HUNG_S):
        try:
            return await stream[0].read()
        except ConnectionError:
            return b""


@contextlib.asynccontextmanager
async def inside(
    folder: Path,
    port: int,
    *farms: str,
    algorithms: tuple[str, ...] = tuple(ALGORITHMS),
    carrier: str = PLAIN,
) -> AsyncIterator[Inside]:
    """A farm of one member each, which leads it."""
    has_login = carrier != RAW
    raft = Settings(election_ticks_min=3, election_ticks_max=6, heartbeat_ticks=1)
    members = {
        name: FarmMember(
            FarmSettings(
                folder=folder / name,
                id=1,
                farm=name,
                listen=("127.0.0.1", port),
                endpoint=f"tcp://127.0.0.1:{port}",
                peers=(),
                join=False,
                carrier=carrier,
                user="node1" if has_login else "",
                password=PASSWORD if has_login else "",
                users=USERS if has_login else (),
                algorithms=algorithms,
                raft=raft,
            ),
            logging.getLogger("farm"),
        )
        for name in farms or ("farm",)
    }
    raw = "" if has_login else next(iter(members))
    doorway = Doorway({path_of(n): m.gate() for n, m in members.items()})
    door = Listener(doorway, dict(members), raw=raw, renew=renewal(doorway, members))
    server = await listen("127.0.0.1", port, None, door.on_stream)
    tasks = [asyncio.create_task(member.run()) for member in members.values()]
    made = Inside(port, door, members)
    try:
        await until(lambda: all(m.node.status().role == "leader" for m in members.values()))
        yield made
    finally:
        server.close()
        await door.close()
        for member in members.values():
            member.stop()
        await asyncio.gather(*tasks)
