"""HTTP over TLS on the management address: who may connect, for how long, and from which page.

    socket ──▶ caps, before a byte of TLS ──▶ TLS ──▶ HTTP/1.1 with deadlines ──▶ Guard ──▶ pages

Strangers who can reach the port must not keep the operator out. Each address has a share of the
connections. When all are taken, the newcomer gets in, and the address that holds most of them loses
its oldest one that nobody signed in on. A connection has a deadline for its handshake, for each
request, and for taking what is sent to it.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Iterable
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from uvicorn.server import ServerState

from appliance.base.json_text import parse_json
from appliance.base.limits import (
    HTTP_HEAD_SIZE_MAX,
    OPERATOR_CONNECTIONS_MAX,
    OPERATOR_CONNECTIONS_PER_ADDRESS_MAX,
    OPERATOR_REQUEST_S,
    OPERATOR_TAKE_S,
)
from appliance.drivers.network.address import address_group
from appliance.drivers.network.http_requests import HttpProtocol

SWEEP_S = 0.5  # between two looks at the deadlines
SIGN_IN_SIZE_MAX = 256  # bytes of a sign-in's body
_PAGES = ("/", "/console")  # a link on another site may lead here
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Guard:
    """Refuses, before a body is read, what a page of another site makes a browser send.

    `names` are the hosts under which operators know this port; any address literal will do as well,
    since no foreign name can be made to lead to its origin. A program that is no browser sends no
    Origin.
    """

    def __init__(self, app: Any, *, names: Iterable[str], counters: Counter[str]) -> None:
        self._app, self._counters = app, counters
        self._names = {name.lower() for name in (*names, *_LOCAL_NAMES)}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        why = self._wrong(scope) if scope["type"] == "http" else ""
        if not why:
            await self._app(scope, receive, send)
            return
        self._counters[why.partition(":")[0].replace(" ", "_")] += 1
        answer = JSONResponse({"error": why}, 403, {"connection": "close"})
        await answer(scope, receive, send)

    def _wrong(self, scope: Any) -> str:
        """Why this request is refused; "" = it is not."""
        heads = scope["headers"]
        hosts = [value for name, value in heads if name == b"host"]
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if not self._known(host):
            return "unknown host: name it in console_names of node.toml, or use the address"
        origins = [value for name, value in heads if name == b"origin"]
        if any(origin.decode("latin-1").lower() != f"https://{host}" for origin in origins):
            return "cross site: a page of another origin asks"
        sites = [value for name, value in heads if name == b"sec-fetch-site"]
        modes = [value for name, value in heads if name == b"sec-fetch-mode"]
        follows_link = (
            scope["method"] == "GET" and scope["path"] in _PAGES and modes == [b"navigate"]
        )
        if any(site not in (b"same-origin", b"none") for site in sites) and not follows_link:
            return "cross site: a page of another origin asks"
        return ""

    def _known(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.removeprefix("[").removesuffix("]")
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class _Visitor:
    """A connection from its first moment on."""

    def __init__(self, sock: socket.socket, group: str) -> None:
        self.sock, self.group = sock, group
        self.protocol: _Protocol | None = None
        self.task: asyncio.Task[None] | None = None
        self.signed_in = False

    def end(self) -> None:
        if self.protocol is not None:
            self.protocol.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class _Protocol(HttpProtocol):
    """HTTP/1.1 with deadlines that no single byte pushes back."""

    def __init__(self, port: "OperatorPort", visitor: _Visitor, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._port, self._visitor = port, visitor
        self._waits_since = self.loop.time()  # for a request to be whole
        self._stuck_since: float | None = None  # what was sent is not taken

    def connection_made(self, transport: Any) -> None:
        self._port.counters["connected"] += 1
        self._visitor.protocol = self
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._port.forget(self._visitor)
        self._visitor.protocol = None

    def send_400_response(self, msg: str) -> None:
        self._port.counters["malformed"] += 1
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def is_late(self, now: float) -> bool:
        if self._stuck_since is not None:
            return now - self._stuck_since > OPERATOR_TAKE_S
        cycle = self.cycle
        is_served = cycle is not None and not cycle.response_complete and not cycle.more_body
        return not is_served and now - self._waits_since > OPERATOR_REQUEST_S


class OperatorPort:
    """Listens on a bound socket, within bounds. Names of `counters` are told to operators."""

    def __init__(self, app: Any, tls: ssl.SSLContext, counters: Counter[str]) -> None:
        self.counters = counters
        self._tls = tls
        self._config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # strangers write no lines, they are counted; our own faults do
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=HTTP_HEAD_SIZE_MAX,
        )
        self._config.load()
        self._state = ServerState()
        self._visitors: dict[_Visitor, None] = {}  # oldest first
        self._per_group: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        self._sock: socket.socket | None = None

    def start(self, sock: socket.socket) -> None:
        """`sock` listens and does not block; it is ours from now on."""
        self._sock = sock
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._accept(sock), name="operator-accept"),
            loop.create_task(self._sweep(), name="operator-deadlines"),
        ]

    async def serve(self) -> None:
        """Until it is closed; what goes wrong in accepting is raised here."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Stop listening, end all connections; running answers are cut."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._sock is not None:
            self._sock.close()
        entering = [visitor.task for visitor in self._visitors if visitor.task is not None]
        for visitor in list(self._visitors):
            visitor.end()
            self.forget(visitor)
        for answering in list(self._state.tasks):
            answering.cancel()
        await asyncio.gather(*entering, *self._state.tasks, return_exceptions=True)

    def count(self) -> int:
        return len(self._visitors)

    # --- who comes in

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError:  # of the one who came, or no descriptor is free
                self.counters["accept_failed"] += 1
                await asyncio.sleep(SWEEP_S)
                continue
            self.counters["handshakes"] += 1
            group = address_group(str(address[0]))
            if self._per_group[group] >= OPERATOR_CONNECTIONS_PER_ADDRESS_MAX:
                self.counters["too_many_of_address"] += 1
                sock.close()
                continue
            if len(self._visitors) >= OPERATOR_CONNECTIONS_MAX:
                self._make_room()
            visitor = _Visitor(sock, group)
            self._visitors[visitor] = None
            self._per_group[group] += 1
            visitor.task = loop.create_task(self._enter(visitor))

    def _make_room(self) -> None:
        """The oldest connection without a session gives way, of whoever has most such."""
        strangers = [visitor for visitor in self._visitors if not visitor.signed_in]
        held = Counter(visitor.group for visitor in strangers)
        for visitor in strangers or list(self._visitors):
            if not strangers or held[visitor.group] == max(held.values()):
                self.counters["gave_way"] += 1
                visitor.end()
                self.forget(visitor)
                return

    async def _enter(self, visitor: _Visitor) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(visitor),
                visitor.sock,
                ssl=self._tls,
                ssl_handshake_timeout=OPERATOR_REQUEST_S,
                ssl_shutdown_timeout=1.0,
            )
        except (OSError, TimeoutError):
            self.counters["closed_handshake"] += 1
        finally:
            visitor.task = None
            if visitor.protocol is None:
                self.forget(visitor)
                visitor.sock.close()

    def _protocol(self, visitor: _Visitor) -> _Protocol:
        return _Protocol(self, visitor, self._config, self._state, {"visitor": visitor}, _loop=None)

    def forget(self, visitor: _Visitor) -> None:
        if self._visitors.pop(visitor, self) is None:
            self._per_group[visitor.group] -= 1
            if not self._per_group[visitor.group]:
                del self._per_group[visitor.group]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for visitor in list(self._visitors):
                if visitor.protocol is not None and visitor.protocol.is_late(now):
                    self.counters["closed_late"] += 1
                    visitor.protocol.transport.abort()


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError where that cannot be."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
        sock.setblocking(False)
        on_failure.pop_all()
    return sock


async def json_in(request: Request, size_max: int) -> dict[str, Any] | None:
    """The JSON object that is a request's body, which a form of another site cannot send; None
    unless the body is one, says so, and is short."""
    if request.headers.get("content-type") != "application/json":
        return None
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > size_max:
            return None
    try:
        found = parse_json(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


async def secret_in(request: Request) -> str | None:
    """The secret in a sign-in's body; None unless the body is such an object and short."""
    secret = (await json_in(request, SIGN_IN_SIZE_MAX) or {}).get("secret")
    return secret if isinstance(secret, str) else None
