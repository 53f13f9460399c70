"""The link of a process to the objects of its node: numbered requests, answers, and what is told
unasked. It is opened again whenever it ends."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from appliance.base.json_text import parse_json
from appliance.base.limits import MIB
from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.stream_end import end
from appliance.formats.envelope import SENDER_CLIENT, decode
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.local import LOCAL_OBJECTS, UNASKED, Asked, number_of, question

_AGAIN_S = 0.25
OBJECTS_ANSWER_SIZE_MAX = 64 * MIB  # the state of a room with very many reactions
_READ_SIZE = 64 * 1024  # what is read ahead
_WAITING_MAX = 4 * MIB  # bytes of live words and requests that the objects have not taken
OBJECTS_SOCKET = "objects"  # in the folder of a node's sockets
_WATCH, _SAY = -1, -2  # what was asked, where no user waits for the answer


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
        cluster: bytes,
        on_live: Callable[[dict[str, Any]], None],
        wake: Callable[[], None],
    ) -> None:
        self._socket, self._user, self._on_live, self._wake = socket, user, on_live, wake
        self._cluster, self._signer = cluster, Signer(sender=SENDER_CLIENT, key=None)
        self._asked: Asked[int] = Asked()  # the user's number, _WATCH or _SAY
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0  # live words that found the objects busy

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="objects-link")

    def ask(self, number: int, wish: dict[str, Any]) -> None:
        """The user is told the answer under its own `number`, unless the link ends before."""
        self._ask(number, wish)

    def say(self, said: dict[str, Any]) -> None:
        writer = self._writer
        if writer is not None and writer.transport.get_write_buffer_size() > _WAITING_MAX:
            self.dropped += 1
            return
        self._ask(_SAY, {"do": "live", "said": said})

    def _ask(self, about: int, wish: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            body = json.dumps(wish).encode()
            header = question(
                LOCAL_OBJECTS, self._asked.ask(about), cluster=self._cluster, shard=0, body=body
            )
            self._writer.write(self._signer.frame(header, body))

    async def _run(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(
                    str(self._socket), limit=_READ_SIZE
                )
            except OSError:
                await asyncio.sleep(_AGAIN_S)
                continue
            self._writer = writer
            try:
                await self._follow(reader)
            except (OSError, EOFError, ValueError):
                pass  # the objects have stopped: they come again
            finally:
                self._writer = None
                self._asked.clear()
                self._user.on_detached()
                self._wake()
                await end(writer)
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        self._ask(_WATCH, {"do": "watch"})
        while True:
            header = decode(await reader.readexactly(HEADER_SIZE))
            if (
                header is None
                or header.command != LOCAL_OBJECTS
                or header.body_size > OBJECTS_ANSWER_SIZE_MAX
            ):
                raise ValueError("nothing that objects say")
            body = await reader.readexactly(header.body_size + SIGNATURE_SIZE)
            said = parse_json(body[: header.body_size])
            if not isinstance(said, dict):
                raise ValueError("no object")
            self._hear(number_of(header), said)
            self._wake()

    def _hear(self, number: int, said: dict[str, Any]) -> None:
        if number == UNASKED:
            if "changes" in said:
                self._user.on_changes(said["changes"])
            elif "live" in said:
                self._on_live(said["live"])
            return
        about = self._asked.answered(number)
        if about is None:
            raise ValueError("an answer to what was not asked")
        if about == _WATCH:
            self._user.on_attached()
        elif about != _SAY:
            self._user.on_answer(about, said)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
