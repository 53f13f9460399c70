"""Answers the questions of a node's own processes, and of its operator, on a Unix socket.

    asker ── frame ──▶ QuestionServer ── asker, body ──▶ answer()
          ◀─ frame ──                 ◀──── body ───────
          ◀─ frame ──────── tell(body), to those who follow

The kernel tells who asks: the same user or root, others are turned away. A frame that is no
question of this kind, of this cluster and this process ends the connection, as does half a frame
that does not go on.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.base.limits import HANDSHAKE_MS_MAX
from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.handlers import Handlers
from appliance.drivers.network.local_peer import peer_allowed
from appliance.drivers.network.stream_end import end
from appliance.formats import local
from appliance.formats.envelope import SENDER_CLIENT, Header, decode
from appliance.formats.geometry import HEADER_SIZE

_PIECE_SIZE_MAX = 1 << 16  # bytes of a connection, taken at once

# What is answered to a body; None: nothing sensible was asked, and the connection ends.
Answer = Callable[["Asker", bytes], Awaitable[bytes | None]]


class Asker:
    """One connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.follows = False  # it hears what is told
        self.tasks: set[asyncio.Task[None]] = set()  # questions that are not answered

    def write(self, frame: bytes | memoryview) -> None:
        if not self.writer.is_closing():
            self.writer.write(frame)


def bind(path: Path) -> socket.socket:
    """A socket that listens at `path`, for this user alone. What a dead process left there is
    removed. Raises ConfigurationError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)
        sock.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        sock.close()
        raise ConfigurationError(
            f"socket {path} cannot be made ({error.strerror or error}): let this user write its "
            f"folder, and keep its name short"
        ) from error
    sock.listen()
    sock.setblocking(False)
    return sock


class QuestionReader:
    """Finds the questions of one connection in whatever pieces they arrive: at most one piece more
    than the question that is awaited is kept."""

    def __init__(self, reader: asyncio.StreamReader, is_ours: Callable[[Header], bool]) -> None:
        """`is_ours`: whether a question of this header is to be heard, before it is whole."""
        self._reader, self._is_ours = reader, is_ours
        self._data = bytearray()  # has arrived and is not handed out
        self._header: Header | None = None  # of the question that is first in it

    async def next(self) -> tuple[Header, bytes] | None:
        """What comes next, None for anything that is no question; it may take its time, but not
        between bytes, else TimeoutError. EOFError: the connection has ended."""
        if not self._data:
            await self._read()
        if not self._is_decided():  # else no timer is needed: most questions come in one piece
            async with asyncio.timeout(HANDSHAKE_MS_MAX / 1000):
                while not self._is_decided():
                    await self._read()
        header, self._header = self._header, None
        if header is None:
            return None
        end = HEADER_SIZE + header.body_size
        body = bytes(self._data[HEADER_SIZE:end])
        del self._data[: end + SIGNATURE_SIZE]
        return header, body

    def _is_decided(self) -> bool:
        """Whether the next question is whole, or is none."""
        if len(self._data) < HEADER_SIZE:
            return False
        if self._header is None:
            header = decode(bytes(self._data[:HEADER_SIZE]))
            if header is None or not self._is_ours(header):
                return True
            self._header = header
        return len(self._data) >= HEADER_SIZE + self._header.body_size + SIGNATURE_SIZE

    async def _read(self) -> None:
        piece = await self._reader.read(_PIECE_SIZE_MAX)
        if not piece:
            raise EOFError
        self._data += piece


class QuestionServer:
    """Of one kind of question. `start`, then `close`; `tell` in between."""

    def __init__(
        self,
        path: Path,
        answer: Answer,
        *,
        command: int,
        cluster: bytes,
        number: int,
        question_size_max: int,
        connections_max: int,
        questions_max: int = 1,
        waiting_size_max: int = 0,
    ) -> None:
        """`number`: of this process among those of its kind. A question's body has at most
        `question_size_max` bytes. So many questions of one connection are answered at a time, then
        it is not read. Who follows, and has not taken `waiting_size_max` bytes, is sent away."""
        self._path, self._answer, self._command = path, answer, command
        self._cluster, self._number = cluster, number
        self._size_max, self._connections_max = question_size_max, connections_max
        self._questions_max, self._waiting_size_max = questions_max, waiting_size_max
        self._signer = Signer(sender=SENDER_CLIENT, key=None)
        self._server: asyncio.Server | None = None
        self._handlers = Handlers(self._serve)
        self._serving: dict[Asker, None] = {}  # in the order in which they came

    @property
    def askers(self) -> list[Asker]:
        """Who is connected."""
        return list(self._serving)

    def tell(self, body: bytes, but: Asker | None = None) -> int:
        """Tell all who follow, but one; how many were sent away."""
        header = local.told(self._command, cluster=self._cluster, shard=self._number, body=body)
        frame, slow = self._signer.frame(header, body), 0
        for asker in self._serving:
            if not asker.follows or asker is but or asker.writer.is_closing():
                continue
            if asker.writer.transport.get_write_buffer_size() > self._waiting_size_max:
                slow += 1
                asker.writer.transport.abort()
            else:
                asker.writer.write(frame)
        return slow

    async def start(self) -> None:
        """Listen. Raises ConfigurationError."""
        self._server = await asyncio.start_unix_server(self._handlers.serve, sock=bind(self._path))

    async def close(self) -> None:
        """Listen no more; every connection ends, and what it asked is dropped."""
        if self._server is None:
            return
        self._server.close()
        await self._handlers.end()
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asker = Asker(writer)
        self._serving[asker] = None
        try:  # whoever asked may be gone already: then there is no socket left
            connected = writer.get_extra_info("socket")
            with socket.socket(fileno=os.dup(connected.fileno())) as real:
                welcome = peer_allowed(real) and len(self._serving) <= self._connections_max
            questions = QuestionReader(reader, self._is_ours)
            while welcome and (asked := await questions.next()) is not None:
                welcome = await self._take(asker, *asked)
        except (OSError, EOFError):
            pass  # whoever asked has gone, takes no answer, or asks half a question
        finally:
            for task in asker.tasks:
                task.cancel()
            del self._serving[asker]
            await end(writer)

    def _is_ours(self, header: Header) -> bool:
        return (
            header.command == self._command
            and header.body_size <= self._size_max
            and header.cluster == self._cluster
            and header.shard == self._number
        )

    async def _take(self, asker: Asker, header: Header, body: bytes) -> bool:
        """Answer it, or begin to; whether the connection goes on."""
        if self._questions_max == 1:
            return await self._say(asker, header, body)
        task = asyncio.get_running_loop().create_task(self._say_or_end(asker, header, body))
        asker.tasks.add(task)
        task.add_done_callback(asker.tasks.discard)
        while len(asker.tasks) >= self._questions_max:
            await asyncio.wait(asker.tasks, return_when=asyncio.FIRST_COMPLETED)
        await asker.writer.drain()
        return True

    async def _say(self, asker: Asker, header: Header, body: bytes) -> bool:
        said = await self._answer(asker, body)
        if said is None:
            return False
        asker.write(self._signer.frame(local.answer(header, self._command, body=said), said))
        await asker.writer.drain()
        return True

    async def _say_or_end(self, asker: Asker, header: Header, body: bytes) -> None:
        with contextlib.suppress(OSError):  # it has gone
            if not await self._say(asker, header, body):
                asker.writer.transport.abort()
