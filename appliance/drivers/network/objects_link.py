"""The link of a process to the objects of its node: numbered requests, answers, and what is told
unasked. It is opened again whenever it ends."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from appliance.base.json_text import parse_json
from appliance.base.limits import MIB
from appliance.drivers.network.stream_end import end

_AGAIN_S = 0.25
_LINE_SIZE_MAX = 64 * MIB  # the state of a room with very many reactions
_WAITING_MAX = 4 * MIB  # bytes of live words and requests that the objects have not taken
OBJECTS_SOCKET = "objects"  # in the folder of a node's sockets


class ObjectsUser(Protocol):
    """Who is told what comes. `on_live` hears what other processes of the site said."""

    def on_attached(self) -> None: ...
    def on_detached(self) -> None: ...
    def on_answer(self, number: int, answer: dict[str, Any]) -> None: ...
    def on_changes(self, changes: list[dict[str, Any]]) -> None: ...


class ObjectsLink:
    """`start`, then `ask` and `say`; `close`."""

    def __init__(
        self,
        socket: Path,
        user: ObjectsUser,
        *,
        on_live: Callable[[dict[str, Any]], None],
        wake: Callable[[], None],
    ) -> None:
        self._socket, self._user, self._on_live, self._wake = socket, user, on_live, wake
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0  # live words that found the objects busy

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="objects-link")

    def ask(self, number: int, wish: dict[str, Any]) -> None:
        self._write(wish | {"n": number})

    def say(self, said: dict[str, Any]) -> None:
        writer = self._writer
        if writer is not None and writer.transport.get_write_buffer_size() > _WAITING_MAX:
            self.dropped += 1
            return
        self._write({"do": "live", "said": said, "n": 0})

    def _write(self, request: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(request).encode() + b"\n")

    async def _run(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(
                    str(self._socket), limit=_LINE_SIZE_MAX
                )
            except OSError:
                await asyncio.sleep(_AGAIN_S)
                continue
            self._writer = writer
            try:
                await self._follow(reader)
            except (OSError, ValueError):
                pass  # the objects have stopped: they come again
            finally:
                self._writer = None
                self._user.on_detached()
                self._wake()
                await end(writer)
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        self._write({"do": "watch", "n": 0})
        while line := await reader.readline():
            told = parse_json(line)
            if not isinstance(told, dict):
                raise ValueError("no object")
            if "changes" in told:
                self._user.on_changes(told["changes"])
            elif "live" in told:
                self._on_live(told["live"])
            elif told.get("watching"):
                self._user.on_attached()
            elif told.get("n"):
                self._user.on_answer(told["n"], told)
            self._wake()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
