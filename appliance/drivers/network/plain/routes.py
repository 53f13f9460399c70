"""The requests of conversations in plain HTTP, and how each is answered.

The connection below a request is no stranger's while the request is that of a conversation whose
client has said who it is.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from appliance.base.errors import InputError
from appliance.base.limits import PLAIN_POLL_S
from appliance.drivers.network.closings import HTTP_STATUSES
from appliance.drivers.network.entrance import Bearer
from appliance.drivers.network.http_requests import Streamed
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.plain.conversation import (
    Batch,
    Conversation,
    Displaced,
    End,
    OutOfStep,
)
from appliance.drivers.network.plain.conversations import Absent, Conversations
from appliance.drivers.network.proxies import client_of
from appliance.drivers.network.refusal import refusal_of
from appliance.drivers.network.site_route import Handler, site_route
from appliance.formats.client.address import SESSION_PATH

SESSION_FIELD = "tigerchat-session"
_JSON, _EVENTS = "application/json", "text/event-stream"
_ALLOWED_FIELDS = f"{SESSION_FIELD}, content-type"
_NUMBER_DIGITS_MAX = 18  # of a batch
_OVERTAKEN = "another request is served; send one at a time\n"

Found = Callable[[Request, Conversation], Awaitable[Response]]


class Routes:
    """Serves `conversations`; `all` is for the application."""

    def __init__(self, conversations: Conversations, hosts: Hosts) -> None:
        self._conversations = conversations
        rows: list[tuple[str, dict[str, Handler]]] = [
            (SESSION_PATH, {"POST": self._open, "DELETE": self._found(self._leave)}),
            (f"{SESSION_PATH}/frames", {"POST": self._found(self._take)}),
            (f"{SESSION_PATH}/poll", {"GET": self._found(self._poll)}),
            (f"{SESSION_PATH}/events", {"GET": self._found(self._events)}),
        ]
        self.all = [
            site_route(path, handlers, hosts, fields=_ALLOWED_FIELDS, shown=SESSION_FIELD)
            for path, handlers in rows
        ]

    # --- whose request it is

    def _found(self, handler: Found) -> Handler:
        """Gives the handler the conversation whose secret the request bears."""

        async def answer(request: Request) -> Response:
            found = self._conversations.find(request.headers.get(SESSION_FIELD, ""))
            if found is Absent.ELSEWHERE:
                text = "another process has this session: ask again on a new connection\n"
                return PlainTextResponse(text, status_code=421, headers={"connection": "close"})
            if isinstance(found, Absent):
                text = f"no such session: open one by POST {SESSION_PATH}\n"
                return PlainTextResponse(text, status_code=404)
            with _borne(request, found):
                return await handler(request, found)

        return answer

    # --- the requests

    async def _open(self, request: Request) -> Response:
        try:
            secret, conversation = self._conversations.open(client_of(request))
        except InputError as error:
            told = refusal_of(error, HTTP_STATUSES)
            return Response(told.text, status_code=told.status, headers=dict(told.fields))
        batch = None
        try:
            await conversation.take(request.stream())
            batch = await conversation.poll(0, PLAIN_POLL_S)
        except ClientDisconnect:
            return Response(status_code=400)  # for nobody
        finally:
            if batch is None:  # nobody got the secret
                conversation.leave()
        status = 201 if batch.end is None else batch.end.http_status
        response = Response(_object_of(batch), status_code=status, media_type=_JSON)
        if batch.end is None:
            response.headers[SESSION_FIELD] = secret
            return response
        if batch.end.retry_after_ms:
            response.headers["retry-after"] = str(-(-batch.end.retry_after_ms // 1000))
        conversation.leave()
        return response

    async def _take(self, request: Request, conversation: Conversation) -> Response:
        if conversation.is_taking:
            return PlainTextResponse(_OVERTAKEN, status_code=409)
        with contextlib.suppress(ClientDisconnect):
            await conversation.take(request.stream())
        return Response(status_code=202)

    async def _poll(self, request: Request, conversation: Conversation) -> Response:
        try:
            batch = await conversation.poll(_after(request), PLAIN_POLL_S)
        except OutOfStep:
            return _out_of_step()
        except Displaced:
            return PlainTextResponse(_OVERTAKEN, status_code=409)
        return Response(_object_of(batch), media_type=_JSON)

    async def _events(self, request: Request, conversation: Conversation) -> Response:
        reader = object()
        batches = conversation.events(_after(request), reader)
        try:
            first = await anext(batches)
        except OutOfStep:
            return _out_of_step()
        except Displaced:
            return PlainTextResponse(_OVERTAKEN, status_code=409)
        return EventStream(request, conversation, reader, first, batches)

    async def _leave(self, request: Request, conversation: Conversation) -> Response:
        conversation.leave()
        return Response(status_code=204)


class EventStream(Streamed):
    """Server-sent events: a frame each, and last one of type `close`. Whoever breaks it off has
    left the conversation, unless another request took over."""

    def __init__(
        self,
        request: Request,
        conversation: Conversation,
        reader: object,
        first: Batch,
        batches: AsyncIterator[Batch],
    ) -> None:
        self._request, self._conversation, self._reader = request, conversation, reader
        super().__init__(_texts(first, batches), media_type=_EVENTS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with _borne(self._request, self._conversation):
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._conversation.break_off(self._reader)


async def _texts(first: Batch, batches: AsyncIterator[Batch]) -> AsyncIterator[bytes]:
    """Not a method: what makes the pieces of an answer would keep it, and the answer this."""
    yield _events_of(first)
    if first.end is not None:
        return
    with contextlib.suppress(Displaced):
        async for batch in batches:
            yield _events_of(batch)


@contextlib.contextmanager
def _borne(request: Request, conversation: Conversation) -> Iterator[None]:
    """The request belongs to the conversation, and so does what carries it meanwhile."""
    bearer: Bearer | None = request.scope["state"].get("bearer")
    if bearer is None or not conversation.is_welcome:
        yield
        return
    bearer.welcome()
    try:
        yield
    finally:
        bearer.leave()


def _after(request: Request) -> int:
    """The batch that the client has; one that is no number is none that there was."""
    text = request.query_params.get("after", "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX
    return int(text) if is_number else -1


def _out_of_step() -> Response:
    text = "`after` is the `next` of the newest answer that came\n"
    return PlainTextResponse(text, status_code=409)


def _object_of(batch: Batch) -> bytes:
    """As a poll is answered. Frames are encoded already, and no line break is within one."""
    frames = batch.lines.removesuffix(b"\n").replace(b"\n", b",")
    closed = b"" if batch.end is None else b',"closed":' + _told(batch.end)
    return b'{"next":%d,"frames":[%b]%b}' % (batch.number, frames, closed)


def _events_of(batch: Batch) -> bytes:
    """As a stream tells it."""
    lines = batch.lines.removesuffix(b"\n")
    text = b"data: " + lines.replace(b"\n", b"\n\ndata: ") + b"\n\n" if lines else b""
    if batch.end is not None:
        text += b"event: close\ndata: " + _told(batch.end) + b"\n\n"
    return text or b":\n\n"


def _told(end: End) -> bytes:
    told: dict[str, Any] = {"code": end.code, "name": end.name, "temporary": end.temporary}
    if end.retry_after_ms:
        told["retry_after"] = end.retry_after_ms
    return msgspec.json.encode(told)
