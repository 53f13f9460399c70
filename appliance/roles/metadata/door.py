"""The Unix socket by which a node's own processes and its operator ask the objects.

A line is a request of `requests.py`, a line the answer. Who may open the folder of sockets may ask.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.limits import DOOR_CONNECTIONS_MAX, MIB

SOCKET = "objects"
_LINE_SIZE_MAX = 1 * MIB

Ask = Callable[[Any], Awaitable[dict[str, Any]]]


class Door:
    """`open`, then `close`."""

    def __init__(self, path: Path, ask: Ask) -> None:
        self._path, self._ask = path, ask
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= DOOR_CONNECTIONS_MAX:
            writer.close()
            return
        self._writers.append(writer)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._ask(_parsed(line))).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # whoever asked has gone, or sends lines without end
        finally:
            self._writers.remove(writer)
            writer.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.close()
            self._path.unlink(missing_ok=True)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
