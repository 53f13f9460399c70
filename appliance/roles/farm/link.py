"""Our connection to one peer: dialled, logged in, and dialled again when it ends."""

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from appliance.base.authority import authority
from appliance.base.errors import FarmFrameError, Reasoned
from appliance.base.limits import FARM_HANDSHAKE_MS_MAX
from appliance.cores.raft.dial import Again, Challenges, ClientLogin, Credentials, Entered, GaveUp
from appliance.cores.raft.hint import LeaderHint
from appliance.cores.raft.login import FEATURE_PRE_VOTE
from appliance.drivers.network.farm_stream import DialFailed, Route, Stream, open_stream
from appliance.drivers.network.stream_end import end
from appliance.formats.raft_legacy.frame import Request, Response, encode_request
from appliance.formats.raft_legacy.reader import ResponseReader
from appliance.roles.farm.listener import now_ms

_READ_SIZE = 1 << 16
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.02, 0.5  # between two tries, doubled, with jitter
_CONNECTIONS_MAX = 5  # for one login: each way to go on is taken once
_WRITE_BUFFER_MAX = 64 << 20  # bytes a peer does not take; then the connection is closed


@dataclass(slots=True, frozen=True)
class Keys:
    """With what a farm is dialled. `credentials` None: raw frames, without a login."""

    farm: str
    credentials: Credentials | None
    challenges: Challenges


class LoginFailed(Reasoned):
    """The other side let us not in; wait so long."""

    def __init__(self, reason: str, wait_ms: int) -> None:
        super().__init__(reason)
        self.wait_ms = wait_ms


@contextlib.asynccontextmanager
async def logged_in(
    route: Route, endpoint: str, keys: Keys
) -> AsyncIterator[tuple[Stream, Entered]]:
    """A connection on which Raft may begin. DialFailed, LoginFailed or OSError otherwise."""
    if keys.credentials is None:
        stream = await open_stream(route)
        entered: Entered | None = Entered(frozenset(), None, b"")
    else:
        async with asyncio.timeout(FARM_HANDSHAKE_MS_MAX / 1000):
            stream, entered = await _log_in(route, endpoint, keys, keys.credentials)
    assert entered is not None
    try:
        yield stream, entered
    finally:
        await end(stream[1])


async def _log_in(
    route: Route, endpoint: str, keys: Keys, credentials: Credentials
) -> tuple[Stream, Entered]:
    login = ClientLogin(
        challenges=keys.challenges,
        credentials=credentials,
        endpoint=endpoint,
        host=authority(route.host, route.port),
        farm=keys.farm,
        absolute=route.absolute,
    )
    wait_ms = keys.challenges.wait_ms((endpoint, keys.farm), now_ms())
    if wait_ms:
        raise LoginFailed("login_waits", wait_ms)
    for _ in range(_CONNECTIONS_MAX):
        stream = await open_stream(route)
        try:
            step = await _try(login, stream)
        except BaseException:
            await end(stream[1])
            raise
        if isinstance(step, Entered):
            return stream, step
        await end(stream[1])
        if isinstance(step, GaveUp):
            raise LoginFailed(step.reason, step.wait_ms)
    raise LoginFailed("login_too_long", 0)


async def _try(login: ClientLogin, stream: Stream) -> Again | Entered | GaveUp:
    reader, writer = stream
    writer.write(login.begin(now_ms(), os.urandom))
    while True:
        data = await reader.read(_READ_SIZE)
        if not data:
            raise DialFailed("ended_before_login")
        step = login.on_bytes(data, now_ms())
        if step is not None:
            return step


class LinkOwner(Protocol):
    """The member that holds a link."""

    counts: Counter[str]

    def on_link_open(self, link: "PeerLink", pre_vote: bool, hint: LeaderHint | None) -> None: ...
    def on_link_response(self, link: "PeerLink", response: Response) -> None: ...
    def on_link_closed(self, link: "PeerLink") -> None: ...


class PeerLink:
    """Holds a connection to a peer until it is closed; each one is announced and its end too."""

    def __init__(
        self, *, peer: int, endpoint: str, route: Route, keys: Keys, owner: LinkOwner
    ) -> None:
        self.peer, self.endpoint, self.route, self.keys = peer, endpoint, route, keys
        self.owner = owner
        self.writer: asyncio.StreamWriter | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    def send(self, request: Request) -> None:
        """On the open connection; without one it is lost, and the core will hear of that."""
        if self.writer is None or self.writer.is_closing():
            return
        self.writer.write(encode_request(request))
        if self.writer.transport.get_write_buffer_size() > _WRITE_BUFFER_MAX:
            self.hang_up()

    def hang_up(self) -> None:
        """End the present connection; another one is dialled."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    async def close(self) -> None:
        self.hang_up()
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def _run(self) -> None:
        pause_s = _PAUSE_S_MIN
        while True:
            try:
                async with logged_in(self.route, self.endpoint, self.keys) as (stream, entered):
                    pause_s = _PAUSE_S_MIN
                    await self._hold(stream, entered)
            except DialFailed as error:
                self.owner.counts[error.reason] += 1
            except LoginFailed as error:
                self.owner.counts[error.reason] += 1
                pause_s = max(pause_s, error.wait_ms / 1000)
            except FarmFrameError as error:
                self.owner.counts[error.reason] += 1
            except (OSError, TimeoutError):
                self.owner.counts["link_lost"] += 1
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    async def _hold(self, stream: Stream, entered: Entered) -> None:
        reader, self.writer = stream
        self.owner.on_link_open(self, FEATURE_PRE_VOTE in entered.features, entered.hint)
        try:
            responses = ResponseReader()
            data = entered.rest
            while True:
                responses.feed(data)
                while (response := responses.take()) is not None:
                    self.owner.on_link_response(self, response)
                data = await reader.read(_READ_SIZE)
                if not data:
                    self.owner.counts["link_ended"] += 1
                    return
        finally:
            self.writer = None
            self.owner.on_link_closed(self)
