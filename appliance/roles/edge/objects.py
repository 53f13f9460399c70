"""The link of an edge to the objects of its node: numbered requests, answers, and what is told
unasked. It is opened again whenever it ends."""

import asyncio
import json
from pathlib import Path
from typing import Any

from appliance.base.limits import MIB
from appliance.cores.edge.objects import Objects
from appliance.drivers.host.node_folder import SOCKETS_FOLDER

_AGAIN_S = 0.25
_LINE_SIZE_MAX = 64 * MIB  # the state of a room with very many reactions
_WAITING_MAX = 4 * MIB  # bytes of live words and requests that the objects have not taken
_SOCKET = Path(SOCKETS_FOLDER) / "objects"


class ObjectsLink:
    """`start`, then `ask` and `say`; `close`. The core hears what comes."""

    def __init__(self, objects: Objects, wake: Any) -> None:
        self._objects, self._wake = objects, wake
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0  # live words that found the objects busy

    def start(self) -> None:
        self._objects.exists = True
        self._task = asyncio.get_running_loop().create_task(self._run(), name="edge-objects")

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
                    str(_SOCKET), limit=_LINE_SIZE_MAX
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
                writer.close()
                self._objects.on_detached()
                self._wake()
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        self._write({"do": "watch", "n": 0})
        while line := await reader.readline():
            told = json.loads(line)
            if "changes" in told:
                self._objects.on_changes(told["changes"])
            elif "live" in told:
                self._objects.on_live(told["live"])
            elif told.get("watching"):
                self._objects.on_attached()
            elif told["n"]:
                self._objects.on_answer(told["n"], told)
            self._wake()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
