"""Posts values to whoever leads, following answers and trying all members in turn."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

from appliance.base.errors import FarmFrameError, FarmPostFailed, FarmPostRefused
from appliance.cores.raft.hint import LeaderHint
from appliance.cores.raft.login import FEATURE_REFUSAL
from appliance.drivers.network.farm_stream import DialFailed, Route, Stream
from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.raft_legacy.frame import (
    APPLICATION,
    CLIENT_REQUEST,
    NO_SERVER,
    RESPONSE_SIZE,
    Entry,
    Request,
    Response,
    decode_response,
    encode_request,
)
from appliance.formats.raft_legacy.refusal import refusal_of_code
from appliance.roles.farm.link import Keys, LoginFailed, logged_in

_PAUSE_S_MIN, _PAUSE_S_MAX = 0.1, 5.0  # after a round without success, doubled, +- 50 %


class FarmClient:
    """One request at a time; connections are kept. `route_of`: how an endpoint is reached."""

    def __init__(
        self,
        servers: Iterable[Server],
        keys: Keys,
        route_of: Callable[[int, str], Route],
        *,
        call_s_max: float = 2.0,
    ) -> None:
        self.table = {server.id: server.endpoint for server in servers}
        self.keys, self.route_of, self.call_s_max = keys, route_of, call_s_max
        self.guess = next(iter(self.table))
        self.counts: Counter[str] = Counter()
        self.hint: LeaderHint | None = None  # the newest that a login told
        self.index = 0  # of the newest entry at who said yes last
        self._open: dict[int, tuple[contextlib.AsyncExitStack, Stream]] = {}
        self._tell_why: set[int] = set()  # of these: they agreed to say why not

    async def post(self, values: Iterable[bytes], deadline_s: float) -> int:
        """The leader's id, once all values are committed. FarmPostFailed after `deadline_s`."""
        entries = tuple(Entry(0, APPLICATION, value) for value in values)
        return await self.ask(Request(CLIENT_REQUEST, entries=entries), deadline_s)

    async def ask(self, request: Request, deadline_s: float) -> int:
        """Ask until somebody says yes: the guess, who is named, then all in random order.

        FarmPostRefused as soon as one of them says why nobody ever will; FarmPostFailed after
        `deadline_s`.
        """
        deadline = time.monotonic() + deadline_s
        pause_s = _PAUSE_S_MIN
        while True:
            for target in self._round():
                answer = await self._call(target, request)
                named = answer.destination if answer is not None else target
                if answer is not None and answer.accepted:
                    return self._note_yes(target, answer)
                if named != target and named in self.table:  # once a round, without a pause
                    answer = await self._call(named, request)
                    if answer is not None and answer.accepted:
                        return self._note_yes(named, answer)
                elif named > NO_SERVER and named not in self.table:
                    self.counts["leader_unknown"] += 1
                    await self._drop(target)  # a login tells of all members, as of its own time
                if time.monotonic() > deadline:
                    raise FarmPostFailed(f"no member of farm {self.keys.farm} said yes in time")
            self.counts["rounds_without_success"] += 1
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _note_yes(self, target: int, answer: Response) -> int:
        self.guess, self.index = target, answer.next_index - 1
        return target

    async def ask_once(self, request: Request) -> Response | None:
        """What the guess answers; None: nothing, or it could not be reached. FarmPostRefused."""
        return await self._call(self.guess, request)

    def _round(self) -> list[int]:
        others = [server for server in self.table if server != self.guess]
        random.shuffle(others)
        return [self.guess, *others] if self.guess in self.table else others

    async def _call(self, target: int, request: Request) -> Response | None:
        """One question; None: no answer. A connection that failed is dropped. FarmPostRefused."""
        try:
            async with asyncio.timeout(self.call_s_max):
                reader, writer = await self._stream(target)
                writer.write(encode_request(request))
                answer = decode_response(await reader.readexactly(RESPONSE_SIZE))
        except (DialFailed, LoginFailed) as error:
            self.counts[error.reason] += 1
        except FarmFrameError as error:
            self.counts[error.reason] += 1
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.counts["call_failed"] += 1
        else:
            if answer.refusal and target in self._tell_why:
                why = refusal_of_code(answer.refusal)
                raise FarmPostRefused(why.word, why.sentence)
            return answer
        await self._drop(target)
        return None

    async def _stream(self, target: int) -> Stream:
        if target not in self._open:
            endpoint = self.table[target]
            stack = contextlib.AsyncExitStack()
            stream, entered = await stack.enter_async_context(
                logged_in(self.route_of(target, endpoint), endpoint, self.keys)
            )
            self._open[target] = (stack, stream)
            self._tell_why.discard(target)
            if FEATURE_REFUSAL in entered.features:
                self._tell_why.add(target)
            self._learn(entered.hint)
        return self._open[target][1]

    def _learn(self, hint: LeaderHint | None) -> None:
        """Who belongs to the farm, from a login; older news than we have are passed over."""
        if hint is None or not hint.members:
            return
        if self.hint is not None and hint.index < self.hint.index:
            return
        self.hint = hint
        self.table.update({server.id: server.endpoint for server in hint.members})
        if hint.leader in self.table:
            self.guess = hint.leader

    async def _drop(self, target: int) -> None:
        found = self._open.pop(target, None)
        if found is not None:
            await found[0].aclose()

    async def close(self) -> None:
        for target in list(self._open):
            await self._drop(target)
