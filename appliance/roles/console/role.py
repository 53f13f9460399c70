"""The console of a node: asks its processes how they are, once a second while anybody looks, and
shows it to operators.

    processes of this machine ──status, each second──▶ ┌──────┐ ──▶ /console/status   JSON
    clock ─────────────────────────────────────────── ▶│ core │ ──▶ /console/events   each second
                                                       │      │ ──▶ /console/history  five minutes
                                                       └──────┘ ──▶ /console/curves   a day, kept

It listens on the management address only, over TLS. A secret that is printed at start opens one
session; the cookie is sent by no other site and read by no script.
"""

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import argon2
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from appliance.base.authority import authority
from appliance.base.errors import ConfigurationError, FormatError
from appliance.cores.console.alarm_life import not_held
from appliance.cores.console.model import Source
from appliance.drivers.host import clock, resources, service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.node_folder import (
    METRICS_KEY_FILE,
    SOCKETS_FOLDER,
    NodeFolder,
    own_secret,
)
from appliance.drivers.host.operator_sign_in import OperatorSignIn
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.network.http_requests import Page, PageFiles, Streamed
from appliance.drivers.network.metrics import Probes, Said, serves
from appliance.drivers.network.operator_port import Guard, OperatorPort, bind
from appliance.drivers.network.pages import SafeHeaders
from appliance.drivers.network.status import StatusServer
from appliance.drivers.network.tls import show_certificate
from appliance.formats.operator_act import bounded
from appliance.formats.site import SITE_FILE
from appliance.formats.status.console import ConsoleStatus
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.part import plain
from appliance.formats.status.replica import ReplicaStatus
from appliance.roles.console.act_requests import ACT_REQUESTS, act_at_the_machine, act_routes
from appliance.roles.console.alarm_file import AlarmFile
from appliance.roles.console.curve_file import CurveFile
from appliance.roles.console.curve_requests import curve_routes
from appliance.roles.console.doer import Doer
from appliance.roles.console.sign_ins import FRESH, SCREEN_REQUESTS, SignIns, refusal
from appliance.roles.console.watch import ANSWER_S, POLL_S, PROBE_S, Kind, Watch, watch_of_site

WEB = resources.web()
STREAMS_MAX = 32  # pages that are told each second
SECRET_KIB = argon2.DEFAULT_MEMORY_COST  # of memory that each check of a secret fills
# Nobody has looked for so long: then the processes are asked as seldom as this, for the alarms
UNWATCHED_S, POLL_UNWATCHED_S = 15.0, 5.0


class ConsoleRole:
    """Wires one console. Made before the loop runs; `serve` runs it until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger, kinds: Sequence[Kind]) -> None:
        self._node, self._log = node, log
        self._kinds = kinds
        self.watch = self._own_watch(ANSWER_S, log.error)
        hasher = argon2.PasswordHasher(memory_cost=SECRET_KIB)
        self._sign_in = OperatorSignIn(now=time.monotonic, tell=self._tell, hasher=hasher)
        self.doer = Doer(node, self._own_watch(), self.watch.console.life, log, self._hurry)
        console = self.watch.console
        self._alarm_file = AlarmFile(node.path, console.life, console.usual, log)
        self._curve_file = CurveFile(node.path, node.site.cluster, log)
        self._sign_ins = SignIns(self._sign_in)
        self._news = asyncio.Condition()
        self._polls = 0
        self._viewed_s, self._watched_s = 0.0, time.monotonic()
        self._wanted = asyncio.Event()
        self._life = Lifetime()
        self._stopped = self._life.asked
        self._beat = Beat("console", log, self._life)
        self._streams = 0
        self._process = Figures()
        self._status = b"{}"
        self._strangers: Counter[str] = Counter()

    def _own_watch(
        self, patience_s: float = PROBE_S, tell: Callable[[str], None] = lambda line: None
    ) -> Watch:
        node = self._node
        path, kinds = node.path / SITE_FILE, self._kinds
        return watch_of_site(path, node.path, node.site, kinds, patience_s=patience_s, tell=tell)

    @property
    def url(self) -> str:
        where = authority(self._node.settings.console_host, self._node.node.console_port)
        return f"https://{where}/console"

    def _tell(self, secret: str) -> None:
        print(
            f"console of {self._node.node.name}: {self.url}   one-time secret: {secret}", flush=True
        )

    # --- life

    async def serve(self) -> int:
        """Until told to stop; the exit code."""
        loop = asyncio.get_running_loop()
        self._beat.lead()
        on_stop_signal(self._stopped.set)
        port = self._port()
        port.start(self._listen())
        self._sign_in.open()
        self.doer.remember()
        self._alarm_file.remember()
        await asyncio.to_thread(self._curve_file.remember)
        door = StatusServer(
            Path(SOCKETS_FOLDER) / "console-0",
            cluster=self._node.site.cluster,
            number=0,
            status=self._told,
            on_wish=self._on_request,
        )
        await door.start()
        serving = loop.create_task(port.serve(), name="console-http")
        polling = loop.create_task(self._poll(), name="console-poll")
        stopped = loop.create_task(self._stopped.wait())
        self._life.task(polling)
        self._life.task(stopped)
        self._beat.task(loop.create_task(self.doer.trail.run(), name="console-trail"))
        self._beat.task(loop.create_task(self.doer.keep_on(), name="console-acts"))
        self._beat.task(loop.create_task(self._curve_file.keep_on(), name="console-curves"))
        self._life.opened(self.doer.close)
        self._life.opened(self._curve_file.close)
        self._life.opened(door.close)
        self._life.opened(port.close)
        try:
            await asyncio.wait((serving, polling, stopped), return_when=asyncio.FIRST_COMPLETED)
            service.notify("STOPPING=1")
        finally:
            self._stopped.set()
            async with self._news:
                self._news.notify_all()
            await self._life.close()
            results = await asyncio.gather(serving, polling, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return self._beat.exit_code

    def _told(self) -> ConsoleStatus:
        """For `tigerchat status` and metrics."""
        alarms = self.watch.console.alarms()
        return ConsoleStatus(
            process=self._process.read(),
            beat=self._beat.told(),
            alarms=dict(Counter(alarm.name for alarm in alarms)),
            streams=self._streams,
            since=[(alarm.name, alarm.subject, alarm.since_ms) for alarm in alarms],
            connection_events=self._connections(),
            operator_acts=self.doer.told(),
            audit_waiting=self.doer.trail.counts().waiting,
            usual_us=[(*at, us) for at, us in self.watch.console.usual.medians.items()],
        )

    def _listen(self) -> socket.socket:
        host, port = self._node.settings.console_host, self._node.node.console_port
        try:
            return bind(host, port)
        except OSError as error:
            raise ConfigurationError(
                f"{self._node.path}: the console cannot listen on {host}, port {port} "
                f"({error.strerror or error}); allowed: an address of this machine as console_host "
                "and a free port as console_port"
            ) from error

    def _port(self) -> OperatorPort:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        show_certificate(tls, *self._node.client_certificate)
        return OperatorPort(self._app(), tls, self._strangers)

    def _connections(self) -> dict[str, int]:
        """What came to the port since the start, by name."""
        always = ("handshakes", "closed_handshake", "connected", "malformed")
        return {name: self._strangers[name] for name in always} | self._strangers

    def _app(self) -> Starlette:
        key = own_secret(self._node.path / METRICS_KEY_FILE)
        probes = Probes(key, allowed=self._sign_ins.allowed, said=self._said, ready=self._is_ready)
        return Starlette(
            routes=[
                Route("/", self._to_page),
                Route("/console", self._page),
                *probes.routes(),
                *self._sign_ins.routes(),
                Route("/console/status", self._show),
                Route("/console/history", self._history),
                Route("/console/events", self._events),
                *act_routes(self.doer, self._sign_ins, self._tell_acts),
                *curve_routes(
                    self._curve_file.curves, self.watch.console, self._sign_ins, self._fresh
                ),
                Mount("/web", PageFiles(directory=WEB)),
            ],
            middleware=[
                Middleware(SafeHeaders),
                Middleware(Guard, names=self._names(), counters=self._strangers),
            ],
        )

    def _names(self) -> list[str]:
        """Hosts under which operators know this console."""
        settings = self._node.settings
        return [settings.console_host, self._node.node.name, *settings.console_names.split()]

    # --- looking

    async def _poll(self) -> None:
        """Each second, or seldom; what a stall swallowed is not caught up."""
        due_s = time.monotonic()
        while True:
            self._wanted.clear()
            began_s = time.monotonic()
            try:
                await self.watch.poll_beside()
            except FormatError as error:
                self._log.error("%s; is it of another version?", error)
            else:
                seen = self.watch.console.seen()
                self.doer.on_poll(seen)
                self._curve_file.on_poll(
                    self.watch.answers, now_ms=seen.now_ms, wall_ms=seen.wall_ms
                )
                self._viewed_s = began_s
                await self._show_news()
                await self._alarm_file.keep()
            if self._polls == 1:
                service.notify("READY=1", f"STATUS=console at {self.url}")
            due_s = max(due_s + POLL_S, time.monotonic())
            await self._rest(due_s)
            due_s = max(due_s, time.monotonic() - POLL_S)

    async def _show_news(self) -> None:
        """What the newest poll found, and how far acts are, to everybody who looks."""
        console = self.watch.console
        shown = console.plain() | {
            "connection_events": self._connections(),
            "offers": console.offers(),
            "operator_acts": [plain(act) for act in self.doer.told()],
            "audit_waiting": self.doer.trail.counts().waiting,
        }
        self._status = json.dumps(shown).encode()
        self._polls += 1
        async with self._news:
            self._news.notify_all()

    async def _tell_acts(self) -> None:
        """An act was begun or has ended: pages need not wait for the next poll."""
        if self._polls:
            await self._show_news()

    def _hurry(self) -> None:
        self._wanted.set()

    def _on_request(self, asked: dict[str, Any]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """What verbs of this machine, and its screen, ask and tell."""
        if asked.keys() & ACT_REQUESTS:
            return act_at_the_machine(self.doer, self._sign_ins, asked)
        if asked.keys() & SCREEN_REQUESTS:
            return self._sign_ins.at_the_machine(asked)
        return self._on_note(asked)

    def _on_note(self, wish: dict[str, Any]) -> dict[str, Any]:
        life = self.watch.console.life
        if "alarms" in wish:
            return {"alarms": life.kept()}
        self._hurry()
        if "seen" not in wish:
            return self.doer.on_note(wish)
        said = wish["seen"]
        if type(said) is not list or [type(word) for word in said] != [str, str, str]:
            return {"seen": False, "error": "expected an alarm, its subject, and who has seen it"}
        name, subject, who = said
        if not life.see(name, subject, bounded(who), clock.realtime_us() // 1000):
            return {"seen": False, "error": not_held(bounded(name), bounded(subject))}
        return {"seen": True}

    async def _rest(self, due_s: float) -> None:
        """Until the next look is due; without anybody who looks until one comes, or for long."""
        unwatched_s = self._viewed_s + POLL_UNWATCHED_S
        while True:
            self._beat.turned()
            now_s = time.monotonic()
            watched = self._streams > 0 or self.doer.is_busy
            watched = watched or now_s < self._watched_s + UNWATCHED_S
            end_s = due_s if watched else max(due_s, unwatched_s)
            if now_s >= end_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(end_s - now_s, service.HEARTBEAT_S)):
                    await self._wanted.wait()
                    return

    def _is_watched(self) -> bool:
        """Somebody looks now; whether what is known is young enough for him."""
        self._watched_s = time.monotonic()
        if self._watched_s < self._viewed_s + 2 * POLL_S:
            return True
        self._wanted.set()
        return False

    async def _fresh(self) -> None:
        """Somebody looks now, and is shown what has just been asked, if that can be."""
        if self._is_watched():
            return
        seen = self._polls
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * POLL_S), self._news:
                while self._polls == seen and not self._stopped.is_set():
                    await self._news.wait()

    # --- requests

    async def _to_page(self, request: Request) -> Response:
        return RedirectResponse("/console")

    async def _page(self, request: Request) -> Response:
        return Page(WEB / "console.html", media_type="text/html")

    async def _said(self) -> list[Said]:
        """What all processes of this machine answered last."""
        await self._fresh()
        own = Source(ConsoleStatus.kind, self._node.settings.index, 0)
        answers = {**self.watch.answers, own: self._told()}
        return [Said(one.kind, one.node, one.number, said) for one, said in answers.items()]

    def _is_ready(self) -> bool:
        """Whether each process of this node that clients need serves."""
        self._is_watched()
        index = self._node.settings.index
        own = [
            answer
            for source, answer in self.watch.answers.items()
            if source.node == index and source.kind in (ReplicaStatus.kind, EdgeStatus.kind)
        ]
        return bool(own) and all(map(serves, own))

    async def _show(self, request: Request) -> Response:
        if not self._sign_ins.allowed(request):
            return refusal(401, "sign in first")
        await self._fresh()
        return Response(self._status, media_type="application/json", headers=FRESH)

    async def _history(self, request: Request) -> Response:
        if not self._sign_ins.allowed(request):
            return refusal(401, "sign in first")
        await self._fresh()
        return JSONResponse({"points": self.watch.console.history()}, headers=FRESH)

    async def _events(self, request: Request) -> Response:
        if not self._sign_ins.allowed(request):
            return refusal(401, "sign in first")
        if self._streams >= STREAMS_MAX:
            return refusal(503, f"{STREAMS_MAX} pages are open already")
        return Streamed(self._stream(request), media_type="text/event-stream", headers=FRESH)

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        """Each look as an event, until the page or the session ends."""
        self._streams += 1
        try:
            await self._fresh()
            while not self._stopped.is_set() and self._sign_ins.allowed(request):
                seen = self._polls
                yield b"data: " + self._status + b"\n\n"
                async with self._news:
                    while self._polls == seen and not self._stopped.is_set():
                        await self._news.wait()
        finally:
            self._streams -= 1


def make_role(
    node: NodeFolder, number: int, log: logging.Logger, kinds: Sequence[Kind]
) -> ConsoleRole:
    """The console of a node, which looks at processes of these kinds."""
    return ConsoleRole(node, log, kinds)
