"""A conversation in plain HTTP, for networks that let nothing else through: what is said goes by
POST, what is heard comes by a stream of events, or by one poll after the other.

    POST hello ──▶ the secret ──┬──▶ GET events, or GET poll again and again ──▶ frames
                                └──▶ POST frames, one request at a time
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import h11
import msgspec

from appliance.drivers.chat.carrier import OnData
from appliance.drivers.chat.connection import FRAME_SIZE_MAX
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.refusal import refusal_in
from appliance.formats.client.address import PATH, SESSION_PATH
from appliance.formats.client.frame import encode_json

_SECRET = b"tigerchat-session"
_ELSEWHERE = 421  # another process of the node has the conversation
_ASKED_MAX = 16  # times, each on a connection of its own, until the right one is met
_PIECE = 65_536  # bytes read at once
_ANSWER_S_MAX = 10.0  # for what is answered at once


class _Asked(msgspec.Struct):
    request: str | None = None


class _Closed(msgspec.Struct):
    name: str
    code: int = 0


class _Batch(msgspec.Struct):
    next: int
    frames: list[msgspec.Raw] = []
    closed: _Closed | None = None


class _Requests:
    """Requests to one node, one after the other, on a connection that is kept while it lasts."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.secret = b""
        self._endpoint = endpoint
        self._host = endpoint.url.partition("://")[2].removesuffix(PATH).encode()
        self._http = h11.Connection(h11.CLIENT)
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> h11.Response:
        """The head of the answer; `pieces` has its body, which is to be read before the next one.
        Raises OSError, h11.RemoteProtocolError."""
        for _ in range(_ASKED_MAX):
            answer = await self._ask(method, path, body)
            if answer.status_code != _ELSEWHERE:
                break
            self.close()
        return answer

    async def _ask(self, method: str, path: str, body: bytes) -> h11.Response:
        if self._reader is not None and self._reader.at_eof():
            self.close()  # nothing was asked for a while
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        elif self._http.our_state is not h11.IDLE:
            self.close()
        if self._writer is None:
            tls = self._endpoint.tls
            self._reader, self._writer = await asyncio.open_connection(
                self._endpoint.host,
                self._endpoint.port,
                ssl=tls,
                server_hostname=self._endpoint.host if tls else None,
            )
        fields = [(b"host", self._host), (b"content-length", b"%d" % len(body))]
        if self.secret:
            fields.append((_SECRET, self.secret))
        request = h11.Request(method=method, target=path, headers=fields)
        parts = (request, h11.Data(data=body), h11.EndOfMessage())
        self._writer.write(b"".join(self._http.send(part) or b"" for part in parts))
        event = await self._next()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        if not isinstance(event, h11.Response):
            raise ConnectionResetError("the node closed the connection")
        return event

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of the answer, as it comes."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def whole(self) -> bytes:
        """The body of an answer of bounded size."""
        body = b""
        async for piece in self.pieces():
            body += piece
            if len(body) > FRAME_SIZE_MAX:
                raise h11.RemoteProtocolError("an answer that is too large")
        return body

    async def _next(self) -> Any:
        reader = self._reader
        if reader is None:
            raise ConnectionResetError("the connection was closed")
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await reader.read(_PIECE))
        return event

    def close(self) -> None:
        """The next request gets a new connection."""
        self._http = h11.Connection(h11.CLIENT)
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = self._reader = None


_FAULTS = (OSError, h11.RemoteProtocolError, msgspec.MsgspecError, TimeoutError)


class Connection:
    """A `Carrier`; JSON alone."""

    def __init__(self, endpoint: Endpoint, on_data: OnData, *, streams: bool) -> None:
        """`streams`: by a stream of events."""
        self.endpoint = endpoint
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_data, self._streams = on_data, streams
        self._said, self._heard = _Requests(endpoint), _Requests(endpoint)
        self._waiting: list[bytes] = []
        self._is_open = self._is_telling = False
        self._reads = asyncio.Event()
        self._reads.set()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the client's side

    def send(self, data: bytes) -> None:
        """The first one, which is the hello, opens the conversation."""
        if self.lost.done():
            return
        self._waiting.append(data)
        if not self._is_telling:
            self._is_telling = True
            self._start(self._tell())

    def pause(self) -> None:
        self._reads.clear()

    @property
    def paused(self) -> bool:
        return not self._reads.is_set()

    def resume(self) -> None:
        self._reads.set()

    def abort(self) -> None:
        self._end("closed")

    async def close(self, timeout_s: float = 1.0) -> None:
        if not self.lost.done():
            left = _Requests(self.endpoint)
            left.secret = self._said.secret
            self._end("closed")
            with contextlib.suppress(*_FAULTS):
                async with asyncio.timeout(timeout_s):
                    if left.secret:
                        await left.ask("DELETE", SESSION_PATH)
            left.close()

    # --- inside

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._until_fault(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_fault(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except _FAULTS as error:
            self._end(str(error) or type(error).__name__)

    async def _tell(self) -> None:
        while self._waiting:
            if not self._is_open:
                await self._open(self._waiting.pop(0))
                continue
            body, self._waiting = b"\n".join(self._waiting), []
            async with asyncio.timeout(_ANSWER_S_MAX):
                answer = await self._said.ask("POST", f"{SESSION_PATH}/frames", body)
                await self._said.whole()
            if answer.status_code != 202:
                raise ConnectionResetError(f"HTTP {answer.status_code}")
        self._is_telling = False

    async def _open(self, hello: bytes) -> None:
        async with asyncio.timeout(_ANSWER_S_MAX):
            answer = await self._said.ask("POST", SESSION_PATH, hello)
            body = await self._said.whole()
        refused = refusal_in(body)
        if refused is not None:
            asked = msgspec.json.decode(hello, type=_Asked).request
            self._on_data(encode_json(msgspec.structs.replace(refused, request=asked)))
            raise ConnectionResetError(refused.name)
        batch = msgspec.json.decode(body, type=_Batch)
        secret = dict(answer.headers.raw_items()).get(_SECRET, b"")
        self._said.secret = self._heard.secret = secret
        self._is_open = True
        self._take(batch)
        if not self.lost.done():
            self._start(self._hear(batch.next))

    def _take(self, batch: _Batch) -> None:
        for frame in batch.frames:
            self._on_data(bytes(frame))
        if batch.closed is not None:
            self._end(f"closed by the node: {batch.closed.code} {batch.closed.name}")

    async def _hear(self, after: int) -> None:
        if self._streams:
            await self._hear_events(after)
        while not self.lost.done():
            await self._reads.wait()
            await self._heard_ok(f"/poll?after={after}")
            batch = msgspec.json.decode(await self._heard.whole(), type=_Batch)
            after = batch.next
            self._take(batch)

    async def _hear_events(self, after: int) -> None:
        await self._heard_ok(f"/events?after={after}")
        text, kind = b"", b""
        async for piece in self._heard.pieces():
            *lines, text = (text + piece).split(b"\n")
            if len(text) > FRAME_SIZE_MAX:
                raise h11.RemoteProtocolError("an event that is too large")
            for line in lines:
                name, _, value = line.partition(b": ")
                if not line:
                    kind = b""
                elif name == b"event":
                    kind = value
                elif name == b"data" and kind == b"close":
                    self._take(_Batch(after, [], msgspec.json.decode(value, type=_Closed)))
                elif name == b"data":
                    self._on_data(value)
                await self._reads.wait()
        self._end("the stream of events broke off")

    async def _heard_ok(self, path: str) -> None:
        answer = await self._heard.ask("GET", SESSION_PATH + path)
        if answer.status_code != 200:
            raise ConnectionResetError(f"HTTP {answer.status_code}")

    def _end(self, reason: str) -> None:
        if self.lost.done():
            return
        self.lost.set_result(reason)
        self._reads.set()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        for requests in (self._said, self._heard):
            requests.close()


async def dial_events(
    endpoint: Endpoint, subprotocol: str, on_data: OnData, timeout_s: float
) -> Connection:
    """By a stream of events. The node is asked when the hello is sent."""
    return Connection(endpoint, on_data, streams=True)


async def dial_poll(
    endpoint: Endpoint, subprotocol: str, on_data: OnData, timeout_s: float
) -> Connection:
    """By long polls."""
    return Connection(endpoint, on_data, streams=False)
