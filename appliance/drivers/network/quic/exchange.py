"""A request and its answer, for an ASGI application: the bridge from HTTP/3.

What the client sends waits in the window of its stream until the application takes it. What the
application sends makes it wait while much of it has not left.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from appliance.base.limits import CLIENT_WRITE_HIGH, CLIENT_WRITE_LOW
from appliance.drivers.network.quic.request import Request
from appliance.drivers.network.quic.sockets import Peer
from appliance.drivers.network.quic.streams import Carrier
from appliance.drivers.quic.library import Http3Code

_log = logging.getLogger("tigerchat.http3")
# fields that speak of a connection of HTTP/1.1, and mean nothing here
_HOP_FIELDS = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"}


class Exchange:
    """One request. `start` runs the application; it ends with the answer, or when the client is
    gone."""

    def __init__(self, client: Carrier, stream_id: int, request: Request, peer: Peer) -> None:
        self._client, self._stream_id, self._request = client, stream_id, request
        self._peer = peer
        self._body: deque[bytes] = deque()
        self._is_complete = False  # the request came whole
        self._was_read = False  # and was taken whole
        self._is_over = False  # it was answered, or the client is gone
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, app: Callable[..., Any]) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(app(self._scope(), self._receive, self._send))
        self._task.add_done_callback(self._on_done)

    # --- the stream

    def on_data(self, data: bytes, ended: bool) -> None:
        if data and not self._is_over:
            self._client.quic.hold(self._stream_id, len(data))
            self._body.append(data)
        self._is_complete = self._is_complete or ended
        self._changed.set()

    def on_progress(self) -> None:
        if not self._is_full(CLIENT_WRITE_LOW):
            self._changed.set()

    def on_gone(self) -> None:
        self._end()
        if self._task is not None:
            self._task.cancel()  # nobody waits for what it does

    # --- the application

    def _scope(self) -> dict[str, Any]:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "3",
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.raw_path,
            "query_string": request.query,
            "root_path": "",
            "headers": request.headers,
            "client": (self._peer[0], self._peer[1]),
            "server": None,
            "state": {"bearer": self._client},
        }

    async def _receive(self) -> dict[str, Any]:
        while not (self._body or self._is_over or (self._is_complete and not self._was_read)):
            await self._wait()
        if self._is_over:
            return {"type": "http.disconnect"}
        data = b""
        if self._body:
            data = self._body.popleft()
            self._client.quic.release(self._stream_id, len(data))
            self._client.wake()
        self._was_read = self._is_complete and not self._body
        return {"type": "http.request", "body": data, "more_body": not self._was_read}

    async def _send(self, message: dict[str, Any]) -> None:
        if self._is_over:
            raise OSError("the client is gone")
        if message["type"] == "http.response.start":
            headers = [
                (bytes(name).lower(), bytes(value))
                for name, value in message.get("headers", ())
                if bytes(name).lower() not in _HOP_FIELDS
            ]
            status = str(message["status"]).encode()
            self._client.send_headers(self._stream_id, [(b":status", status), *headers])
            return
        assert message["type"] == "http.response.body"
        ended = not message.get("more_body", False)
        self._client.send_data(self._stream_id, bytes(message.get("body", b"")), ended=ended)
        if ended:
            self._end()
            self._client.finish(self._stream_id)
            return
        while self._is_full(CLIENT_WRITE_HIGH) and not self._is_over:
            await self._wait()

    def _is_full(self, size: int) -> bool:
        return self._client.is_full or self._client.quic.backlog(self._stream_id) > size

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _end(self) -> None:
        self._is_over = True
        self._body.clear()
        self._changed.set()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None  # one that was cancelled keeps all that it was doing, and so this
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._is_over:
            _log.error("an answer failed", exc_info=error)
        if not self._is_over:
            self._end()
            self._client.reset(self._stream_id, Http3Code.H3_INTERNAL_ERROR)
