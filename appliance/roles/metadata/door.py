"""The Unix socket by which a node's own processes and its operator ask the objects.

A line is a request of `requests.py`, a line the answer. A request that has a number `n` is answered
with that number when its answer is there; those without are answered one after the other. After
`watch` lines come unasked too: `{"changes": [...]}`, `{"live": {...}}`. What is answered holds all
changes that were told before it, and none that is told after it. Who may open the folder of sockets
may ask.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from appliance.base.errors import ConfigurationError
from appliance.base.limits import (
    DOOR_CONNECTIONS_MAX,
    DOOR_REQUESTS_MAX,
    DOOR_WAITING_MAX,
    MIB,
)
from appliance.drivers.network.stream_end import end

SOCKET = "objects"
_LINE_SIZE_MAX = 1 * MIB


class Caller:
    """One connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.watches = False
        self.tasks: set[asyncio.Task[None]] = set()

    def say(self, what: dict[str, Any]) -> None:
        if not self.writer.is_closing():
            self.writer.write(json.dumps(what).encode() + b"\n")


Ask = Callable[[Caller, Any], Awaitable[dict[str, Any]]]


class Door:
    """`open`, then `close`; `tell` in between."""

    def __init__(self, path: Path, ask: Ask, counters: Counter[str]) -> None:
        self._path, self._ask, self._counters = path, ask, counters
        self._server: asyncio.Server | None = None
        self._callers: list[Caller] = []

    async def open(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(
                self._serve, str(self._path), limit=_LINE_SIZE_MAX
            )
            self._path.chmod(0o600)
        except OSError as error:
            raise ConfigurationError(
                f"socket {self._path} cannot be made ({error.strerror or error}): let this user "
                "write its folder, and keep its name short"
            ) from error

    @property
    def is_watched(self) -> bool:
        return any(caller.watches for caller in self._callers)

    def tell(self, what: dict[str, Any], but: Caller | None = None) -> None:
        """To all that watch. Who does not read is sent away, and asks anew when it comes again."""
        line = json.dumps(what).encode() + b"\n"
        for caller in self._callers:
            if not caller.watches or caller is but or caller.writer.is_closing():
                continue
            if caller.writer.transport.get_write_buffer_size() > DOOR_WAITING_MAX:
                self._counters["door_too_slow"] += 1
                caller.writer.transport.abort()
            else:
                caller.writer.write(line)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._callers) >= DOOR_CONNECTIONS_MAX:
            await end(writer)
            return
        caller = Caller(writer)
        self._callers.append(caller)
        try:
            while line := await reader.readline():
                request = _parsed(line)
                if not isinstance(request, dict) or "n" not in request:
                    caller.say(await self._ask(caller, request))
                else:
                    self._begin(caller, request)
                    while len(caller.tasks) >= DOOR_REQUESTS_MAX:
                        await asyncio.wait(caller.tasks, return_when=asyncio.FIRST_COMPLETED)
                await writer.drain()
        except (OSError, ValueError):
            pass  # whoever asked has gone, or sends lines without end
        finally:
            self._callers.remove(caller)
            await end(writer)

    def _begin(self, caller: Caller, request: dict[str, Any]) -> None:
        async def answer() -> None:
            caller.say({"n": request["n"]} | await self._ask(caller, request))

        task = asyncio.get_running_loop().create_task(answer())
        caller.tasks.add(task)
        task.add_done_callback(caller.tasks.discard)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for caller in list(self._callers):
                caller.writer.close()
                for task in caller.tasks:
                    task.cancel()
            self._path.unlink(missing_ok=True)


def _parsed(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)  # no halves of characters, which nobody could store
    except (ValueError, RecursionError):
        return None
