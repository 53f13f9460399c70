"""What the client port answers to plain HTTP: chat page, probe, figures for Prometheus."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from appliance.base.limits import HTTP_HEAD_SIZE_MAX, HTTP_REQUESTS_MAX

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            b"connect-src 'self' ws: wss:; form-action 'none'; frame-ancestors 'none'; "
            b"base-uri 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class SafeHeaders:
    """Tells browsers to run nothing that is not ours."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Pages:
    """An HTTP protocol for each connection that is handed over; all serve one application."""

    def __init__(
        self,
        web: Path,
        *,
        nodes: list[dict[str, Any]],
        health: Callable[[], str],
        metrics: Callable[[], str],
    ) -> None:
        """`nodes` tells a client where else it may connect; `health` gives "" or why this node does
        not serve; `metrics` the text of all figures."""
        self._web, self._nodes, self._health, self._metrics = web, nodes, health, metrics
        app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/healthz", self._probe),
                Route("/metrics", self._figures),
                Route("/nodes.json", self._others),
                Mount("/web", StaticFiles(directory=web)),
            ],
            middleware=[Middleware(SafeHeaders)],
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
            limit_concurrency=HTTP_REQUESTS_MAX,
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=HTTP_HEAD_SIZE_MAX,
        )
        self._config.load()
        self._state = ServerState()

    def protocol(self) -> asyncio.Protocol:
        """For one connection."""
        return H11Protocol(
            config=self._config,
            server_state=self._state,
            app_state={},
            _loop=asyncio.get_running_loop(),
        )

    async def _page(self, request: Request) -> Response:
        return FileResponse(self._web / "chat.html", media_type="text/html")

    async def _probe(self, request: Request) -> Response:
        why = self._health()
        return PlainTextResponse((why or "serving") + "\n", status_code=503 if why else 200)

    async def _figures(self, request: Request) -> Response:
        return PlainTextResponse(self._metrics(), media_type=METRICS_TYPE)

    async def _others(self, request: Request) -> Response:
        return JSONResponse({"nodes": self._nodes}, headers={"cache-control": "no-store"})

    async def close(self) -> None:
        """End what is left of requests and connections."""
        for connection in list(self._state.connections):
            if isinstance(connection, H11Protocol) and connection.transport is not None:
                connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
