"""Plain HTTP of one connection: its requests out of its bytes, and answers that keep nothing of it.

What is refused, broken off or over must be gone with its connection. Whatever refers to itself
stays until the collector comes by, with the buffers of its TLS: tens of megabytes for a stranger
who sends what is no HTTP, or asks for a page and leaves, again and again.
"""

import asyncio
import os
from typing import Any

import h11
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from appliance.base.limits import HTTP_HEAD_SIZE_MAX
from appliance.formats.client.address import HEALTH_PATH

_PROBES = tuple(f"{method} {HEALTH_PATH} ".encode() for method in ("GET", "HEAD"))
HEAD_END = b"\r\n\r\n"


def only_probe(data: bytes) -> bytes:
    """The request that `data` begins with, made the last one of its connection, if it asks whether
    the node serves; else nothing."""
    if not data.startswith(_PROBES):
        return b""
    return data[: data.index(HEAD_END)] + b"\r\nconnection: close" + HEAD_END


class Requests(h11.Connection):
    """As the library finds them. It raises a refusal out of the refusal itself, whose traceback
    would then keep it, and with it the connection."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HTTP_HEAD_SIZE_MAX)

    def next_event(self) -> Any:
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            words, status = str(error), error.error_status_hint
            error.__traceback__ = None
        raise h11.RemoteProtocolError(words, status)


class _Gone(asyncio.Transport):
    """Stands for the transport of a connection that is lost."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


_GONE = _Gone()


class HttpProtocol(H11Protocol):
    """Of one connection. When that is lost, an answer that was under way may still be kept by its
    own cancellation: it lets go of the connection first."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.conn = Requests()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.transport = _GONE
        if self.flow is not None:
            self.flow.read_paused = False
            self.flow._transport = _GONE
        if self.cycle is not None:
            self.cycle.transport = _GONE


class Page(FileResponse):
    """A file, sent piece by piece. Nothing listens beside it for the client's going, whose
    cancellation would keep the answer, and a piece, for the collector: a page is a few pieces."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asgi = {**scope.get("asgi", {}), "spec_version": "2.4"}  # which has no need to listen
        try:
            await super().__call__({**scope, "asgi": asgi}, receive, send)
        except OSError:  # how a server of that version, and ours of HTTP/3, tell that it is gone
            return


class Streamed(StreamingResponse):
    """An answer whose pieces may take long to come. The client's going is listened for, and ends
    it. The library does so in a group of tasks, which refers to itself once it is cancelled."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        listening = asyncio.create_task(self._listen(receive, task))
        try:
            await self.stream_response(send)
        except asyncio.CancelledError:
            if not listening.done() or task.uncancel():
                raise  # it was not for the client's going, or not for that alone
        except OSError:  # how HTTP/3 tells that the client is gone
            return
        finally:
            listening.cancel()
            del listening, task  # what goes on through here keeps this frame, and both keep it

    async def _listen(self, receive: Any, task: asyncio.Task[Any]) -> None:
        await self.listen_for_disconnect(receive)
        task.cancel()


class PageFiles(StaticFiles):
    """The files of a folder, each a `Page`."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Any,
        status_code: int = 200,
    ) -> Response:
        return Page(full_path, status_code=status_code, stat_result=stat_result)
