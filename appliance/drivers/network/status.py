"""Answers one question on a Unix socket: how are you? For processes with no other local frames.

Whoever runs as the same user or as root may ask, as often as it likes on one connection. A question
is a frame without a body; with a body, a JSON object, it is a wish, if the process takes wishes.
Anything else ends the connection.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.json_text import parse_json
from appliance.base.limits import CONNECTIONS_MAX, HANDSHAKE_MS_MAX
from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.local_peer import peer_allowed
from appliance.drivers.network.stream_end import end
from appliance.formats.envelope import LOCAL_STATUS, SENDER_CLIENT, decode, make
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.status.status import Status, plain

WISH_SIZE_MAX = 4096  # bytes of JSON


class StatusServer:
    """`status` is called for each question, `on_wish` for each wish."""

    def __init__(
        self,
        path: Path,
        *,
        cluster: bytes,
        number: int,
        status: Callable[[], Status | dict[str, Any]],
        on_wish: Callable[[dict[str, Any]], Status | dict[str, Any]] | None = None,
    ) -> None:
        self._path, self._cluster, self._number, self._status = path, cluster, number, status
        self._on_wish = on_wish
        self._signer = Signer(sender=SENDER_CLIENT, key=None)
        self._server: asyncio.Server | None = None
        self._open: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        """Listen; what a dead process left at the path is removed."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._path.unlink(missing_ok=True)
            sock.bind(str(self._path))
            self._path.chmod(0o600)
        except OSError as error:
            sock.close()
            raise ConfigurationError(
                f"socket {self._path} cannot be made ({error.strerror or error}): let this user "
                "write its folder, and keep its name short"
            ) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=sock)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        try:  # whoever asked may be gone already: then there is no socket left
            connected = writer.get_extra_info("socket")
            with socket.socket(fileno=os.dup(connected.fileno())) as real:
                welcome = peer_allowed(real) and len(self._open) <= CONNECTIONS_MAX
            while welcome and (wish := await self._question(reader)) is not None:
                said = self._on_wish(wish) if wish and self._on_wish else self._status()
                body = json.dumps(plain(said) if isinstance(said, Status) else said).encode()
                header = make(LOCAL_STATUS, cluster=self._cluster, shard=self._number, body=body)
                writer.write(self._signer.frame(header, body))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            pass  # whoever asked has gone, takes no answer, or asks nothing sensible
        finally:
            self._open.remove(writer)
            await end(writer)

    async def _question(self, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """The wish that comes next, empty for a question, None for anything else; it may take its
        time, but not between bytes."""
        head = await reader.readexactly(1)
        async with asyncio.timeout(HANDSHAKE_MS_MAX / 1000):
            head += await reader.readexactly(HEADER_SIZE - 1)
            header = decode(head)
            size_max = WISH_SIZE_MAX if self._on_wish else 0
            if (
                header is None
                or header.command != LOCAL_STATUS
                or header.body_size > size_max
                or header.cluster != self._cluster
                or header.shard != self._number
            ):
                return None
            body = await reader.readexactly(header.body_size + SIGNATURE_SIZE)
        if header.body_size == 0:
            return {}
        wish = parse_json(body[: header.body_size])
        return wish if isinstance(wish, dict) else None

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._open):
            writer.close()
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)
