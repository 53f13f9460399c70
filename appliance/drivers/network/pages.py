"""What the client port answers to plain HTTP: the chat page, the site's nodes, a probe."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from appliance.base.limits import HTTP_HEAD_SIZE_MAX
from appliance.drivers.network.http_requests import HttpProtocol, Page, PageFiles
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.websocket import PlainHttp
from appliance.drivers.network.weighed import OnBody, Weighed, unweighed
from appliance.formats.client.address import HEALTH_PATH, PATH, READY_PATH, SESSION_PATH

KEEP_ALIVE_SECONDS = 5
LOG_SECONDS = 60.0  # between two lines about what strangers send
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self' {origins}; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_SECURE_HEADERS = ((b"strict-transport-security", b"max-age=31536000"),)


class SafeHeaders:
    """Tells browsers to run nothing that is not ours, to talk to nobody else, and to keep nothing;
    a request that names another host is answered by nobody (421), and what follows one that says
    twice where it ends is not read."""

    def __init__(
        self,
        app: Any,
        *,
        hosts: Hosts | None = None,
        secure: bool = False,
        origins: Callable[[], str] = str,
        also: Callable[[], bytes] = bytes,
    ) -> None:
        """`origins` says where pages may connect to beside their own origin; `also` which other
        transport serves the same (RFC 7838), for those who did not come by it."""
        self._app, self._hosts, self._secure, self._origins = app, hosts, secure, origins
        self._also = also

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                kept = [row for row in message["headers"] if row[0].lower() != b"cache-control"]
                policy = _POLICY.format(origins=self._origins()).encode()
                headers = [*kept, (b"content-security-policy", policy), *_HEADERS]
                if self._secure:
                    headers += _SECURE_HEADERS
                if scope["http_version"] != "3" and (also := self._also()):
                    headers.append((b"alt-svc", also))
                message = {**message, "headers": headers}
            await send(message)

        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            refused = PlainTextResponse(
                "a length or chunks, not both\n", status_code=400, headers={"connection": "close"}
            )
            await refused(scope, receive, send_with_headers)
            return
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        hosts = self._hosts
        if hosts is not None and (len(named) != 1 or not hosts.may_ask(named[0])):
            refused = PlainTextResponse("not a host of this site\n", status_code=421)
            await refused(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


class _Protocol(HttpProtocol):
    """Of one connection; says when a request was answered."""

    bearer: PlainHttp

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.bearer.on_answered()


# What libraries log because of a stranger: by the words a line begins with. A line of ours, such as
# an exception in a callback or in a page, begins with others, and passes each time.
OF_STRANGERS = {
    "uvicorn.error": (
        "Invalid HTTP request received",
        "Unsupported upgrade request",
        "No supported WebSocket library",
    ),
    "asyncio": ("socket.send() raised exception", "SSL handshake failed", "Fatal error on "),
    "tigerchat.quic": ("the library of QUIC failed",),
}


class Seldom(logging.Filter):
    """Lets one line pass in `LOG_SECONDS` of those that begin with `words`, with the number of such
    lines between: strangers cause them. A line with an exception that is none of a connection is
    our own fault, whatever its words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self._words = words
        self._next_s = 0.0
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if not said.startswith(self._words) or not isinstance(error, OSError | None):
            return True
        if record.created < self._next_s:
            self._dropped += 1
            return False
        record.msg = f"{said} ({self._dropped} such lines since the last one)"
        record.args = ()
        self._next_s, self._dropped = record.created + LOG_SECONDS, 0
        return True


class Pages:
    """An HTTP protocol for each connection that is handed over; all serve one application."""

    def __init__(
        self,
        web: Path,
        *,
        nodes: Callable[[], list[dict[str, Any]]],
        hosts: Hosts,
        secure: bool,
        health: Callable[[], str],
        full: Callable[[], bool] = bool,
        directory: Callable[[], bytes] = bytes,
        farm_key: bytes = b"",
        also: Callable[[], bytes] = bytes,
        on_body: OnBody = unweighed,
    ) -> None:
        """`nodes` tells a client where else it may connect; `health` gives "" or why this node does
        not serve, which is not for strangers: they are told one word; `full` whether there is room
        for nobody;
        `directory` gives the signed bytes of the newest one, or none, `farm_key` verifies who may
        sign it;
        `also` is the Alt-Svc of the port, or empty; `on_body` hears of what comes and goes that is
        no conversation's."""
        self._directory, self._farm_key = directory, farm_key.hex()
        self._web, self._nodes, self._health, self._is_full = web, nodes, health, full
        self.app = app = Starlette(
            routes=[
                Route("/", self._page),
                Route(HEALTH_PATH, self._probe),
                Route(READY_PATH, self._ready),
                Route("/nodes.json", self._others),
                Route("/directory", self._show_directory),
                Mount("/web", PageFiles(directory=web)),
            ],
            middleware=[
                Middleware(Weighed, on_body=on_body, besides=SESSION_PATH),
                Middleware(
                    SafeHeaders, hosts=hosts, secure=secure, origins=self._origins, also=also
                ),
            ],
        )
        self._config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=HTTP_HEAD_SIZE_MAX,
        )
        self._config.load()
        self._state = ServerState()
        for name, words in OF_STRANGERS.items():
            logging.getLogger(name).addFilter(Seldom(words))

    def _origins(self) -> str:
        """Where the page connects: the site's nodes, beside the one that it came from, by sockets
        and by requests, for which WebTransport counts."""
        sockets = [node["url"].removesuffix(PATH) for node in self._nodes()]
        return " ".join([*sockets, *(re.sub("^ws", "http", origin) for origin in sockets)])

    def serve(self, routes: Sequence[BaseRoute]) -> None:
        """Answer these requests as well."""
        self.app.router.routes.extend(routes)

    def protocol(self, bearer: PlainHttp) -> asyncio.Protocol:
        """For one connection, which is told of each answer."""
        protocol = _Protocol(
            config=self._config,
            server_state=self._state,
            app_state={"bearer": bearer},
            _loop=asyncio.get_running_loop(),
        )
        protocol.bearer = bearer
        return protocol

    async def _page(self, request: Request) -> Response:
        return Page(self._web / "chat.html", media_type="text/html")

    async def _probe(self, request: Request) -> Response:
        serves = not self._health()
        word = "serving" if serves else "unavailable"
        return PlainTextResponse(word + "\n", status_code=200 if serves else 503)

    async def _ready(self, request: Request) -> Response:
        ready = not self._health() and not self._is_full()
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    async def _others(self, request: Request) -> Response:
        return JSONResponse({"nodes": self._nodes(), "farm_key": self._farm_key})

    async def _show_directory(self, request: Request) -> Response:
        """Byte for byte as it was signed."""
        data = self._directory()
        if not data:
            return PlainTextResponse("no directory\n", status_code=404)
        return Response(data, media_type="application/json")

    async def close(self) -> None:
        """End what is left of requests and connections."""
        for connection in list(self._state.connections):
            if isinstance(connection, H11Protocol) and connection.transport is not None:
                connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
