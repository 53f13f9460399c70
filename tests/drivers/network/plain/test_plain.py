"""Conversations in plain HTTP between real sockets: who is found, what waits, when one ends. The
owner is a stand-in that answers each frame with itself."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from appliance.base.limits import (
    CLIENT_WRITE_HIGH,
    HTTP_REQUESTS_MAX,
    PLAIN_BATCH_SIZE,
    STRANGER_FRAME_SIZE_MAX,
    STRANGERS_MAX,
)
from appliance.drivers.network import websocket
from appliance.drivers.network.http_requests import HttpProtocol
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.pages import Pages
from appliance.drivers.network.plain import conversation as conversation_module
from appliance.drivers.network.plain.conversation import Conversation
from appliance.drivers.network.plain.conversations import Conversations
from appliance.drivers.network.plain.routes import EventStream, Routes
from appliance.drivers.network.websocket import WebSocketServer
from appliance.formats.client_errors import FrameTooLarge, RateLimited, TokenInvalid
from tests.drivers.network.kept import kept_of
from tests.patience import within

ENDED_S = 60.0
GONE_S = 20.0  # what is not gone by then waits for the collector
WEB = Path(websocket.__file__).parents[2] / "web"
FOREIGN = ["https://evil.example", "null", "https://chat.example.evil.example", "file://x"]


class Owner:
    """Answers a frame with itself; some have a meaning."""

    def __init__(self) -> None:
        self.server: WebSocketServer
        self.conversations: list[Conversation] = []
        self.frames: list[bytes] = []
        self.events: Counter[str] = Counter()
        self.listens = True

    def on_open(self, connection: Conversation) -> None:
        self.conversations.append(connection)

    def on_client_message(self, connection: Conversation, data: bytes, is_text: bool) -> None:
        assert is_text
        self.frames.append(data)
        if data == b'"stranger"':
            connection.write([b'"who"\n'])
            return
        if data in (b'"wrong"', b'"fast"'):
            connection.end(TokenInvalid("no") if data == b'"wrong"' else RateLimited("", 1500))
            return
        connection.welcome()
        connection.write([data + b"\n"])
        connection.read_on(self.listens)

    def on_oversize(self, connection: Conversation) -> None:
        connection.end(FrameTooLarge("too large"))

    def on_blocked(self, connection: Conversation) -> None:
        self.events["blocked"] += 1

    def on_writable(self, connection: Conversation) -> None:
        self.events["writable"] += 1

    def on_closed(self, connection: Conversation) -> None:
        self.events["closed"] += 1


class Answer:
    def __init__(self, status: int, fields: dict[str, str], body: bytes) -> None:
        self.status, self.fields, self.body = status, fields, body

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.body)


class Http:
    """One connection, requests behind each other."""

    def __init__(self, port: int) -> None:
        self.port, self.secret, self.origin = port, "", ""

    async def __aenter__(self) -> "Http":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def begin(self, method: str, path: str, body: bytes = b"", size: int | None = None) -> None:
        fields = {"host": "127.0.0.1", "tigerchat-session": self.secret, "origin": self.origin}
        if method == "POST":
            fields["content-length"] = str(len(body) if size is None else size)
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        self.writer.write(f"{method} /v1/session{path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def head(self) -> Answer:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        rows = (line.partition(": ") for line in lines[1:] if line)
        return Answer(
            int(lines[0].split()[1]), {name.lower(): value for name, _, value in rows}, b""
        )

    async def answer(self) -> Answer:
        answer = await self.head()
        answer.body = await self.reader.readexactly(int(answer.fields.get("content-length", 0)))
        return answer

    async def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        self.begin(method, path, body)
        return await self.answer()

    async def open(self, body: bytes = b'"hello"') -> Answer:
        answer = await self.ask("POST", "", body)
        self.secret = answer.fields.get("tigerchat-session", "")
        return answer


class Site:
    def __init__(self, owner: Owner, server: WebSocketServer) -> None:
        self.owner, self.server = owner, server

    def http(self, secret: str = "") -> Http:
        made = Http(self.server.port)
        made.secret = secret
        return made


def run(test: Callable[[Site], Awaitable[None]], number: int = 0, **settings: int) -> None:
    async def whole() -> None:
        owner, hosts = Owner(), Hosts(["chat.example"])
        pages = Pages(WEB, nodes=list, hosts=hosts, secure=False, health=str)
        server = owner.server = WebSocketServer(
            owner,
            make_http=pages.protocol,
            hosts=hosts,
            counters=Counter(),
            **{
                "connections_max": 2_000,
                "connections_per_address_max": 1_000,
                "address_connect_rate": 10_000,
                **settings,
            },
        )
        pages.serve(Routes(Conversations(server, number), hosts).all)
        await server.start("127.0.0.1", 0, tls=None, shared=False)
        try:
            async with within(ENDED_S):
                await test(Site(owner, server))
        finally:
            await server.close(0.1)
            await pages.close()

    uvloop.run(whole())


async def until(condition: Callable[[], object]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("setting", "status", "name", "reason"),
    [
        ("connections_max", 503, "node_full", "node_full"),
        ("connections_per_address_max", 429, "rate_limited", "too_many_of_address"),
    ],
)
def test_where_there_is_no_room_for_a_conversation_it_is_told_when_to_come_again(
    setting: str, status: int, name: str, reason: str
) -> None:
    async def test(site: Site) -> None:
        async with site.http() as http:
            refused = await http.open()  # the connection of this request is here already
            assert refused.status == status
            error = refused.told["error"]
            assert (error["name"], error["temporary"], error["retry_after"]) == (name, True, 1000)
            assert refused.fields["retry-after"] == "1"
            assert site.server.entrance.refusals.told() == {"long_poll": {reason: 1}}
            assert not site.owner.frames

    run(test, **{setting: 1})


def test_frames_go_both_ways_many_in_a_request_and_come_in_their_order() -> None:
    lines = [b"%d" % i for i in range(3000)]

    async def test(site: Site) -> None:
        async with site.http() as http:
            opened = await http.open()
            assert (opened.status, opened.told) == (201, {"next": 1, "frames": ["hello"]})
            assert (await http.ask("POST", "/frames", b"\n".join(lines))).status == 202
            assert site.owner.frames[1:] == lines
            told = (await http.ask("GET", "/poll?after=1")).told
            assert told == {"next": 2, "frames": list(range(3000))}
            assert (await http.ask("DELETE", "")).status == 204
            assert (await http.ask("GET", "/poll?after=2")).status == 404
            assert site.owner.events["closed"] == 1

    run(test)


def test_who_is_refused_hears_why_and_gets_no_secret() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http:
            wrong = await http.open(b'"wrong"')
            closed = {"code": 4003, "name": "token_invalid", "temporary": False}
            assert (wrong.status, wrong.told["closed"], http.secret) == (401, closed, "")
            fast = await http.open(b'"fast"')
            assert (fast.status, fast.fields["retry-after"]) == (429, "2")
            assert fast.told["closed"]["retry_after"] == 1500
            large = await http.open(b"x" * (STRANGER_FRAME_SIZE_MAX + 1))
            assert (large.status, large.told["closed"]["code"]) == (413, 1009)
        async with site.http() as http:
            broken = await http.open(b'"\xff"')
            assert (broken.status, broken.told["closed"]["code"]) == (400, 1007)
        assert site.owner.events["closed"] == 4

    run(test)


def test_a_secret_of_nobody_finds_nothing_and_one_of_another_process_is_sent_there() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http:
            await http.open()
            right = http.secret
            assert right.startswith("03")
            for wrong in ("", "03", right[:-1], right + "0", "03" + "0" * 64, "x" * 66 + "y"):
                http.secret = wrong
                assert (await http.ask("GET", "/poll?after=1")).status == 404, wrong
            http.secret = "02" + right[2:]
            elsewhere = await http.ask("GET", "/poll?after=1")
            assert (elsewhere.status, elsewhere.fields["connection"]) == (421, "close")

    run(test, number=3)


def test_pages_of_this_site_may_ask_and_others_may_not() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http:
            for method, path in (("POST", ""), ("GET", "/poll"), ("OPTIONS", "/frames")):
                for origin in FOREIGN:
                    http.origin = origin
                    answer = await http.ask(method, path, b'"hello"' if method == "POST" else b"")
                    assert answer.status == 403, (method, origin)
                    assert "access-control-allow-origin" not in answer.fields
            assert not site.owner.conversations
            http.origin = "https://chat.example"
            asked = await http.ask("OPTIONS", "/frames")
            assert "tigerchat-session" in asked.fields["access-control-allow-headers"]
            opened = await http.open()
            assert opened.fields["access-control-allow-origin"] == "https://chat.example"
            assert opened.fields["access-control-expose-headers"] == "tigerchat-session"

    run(test)


def test_an_answer_that_was_lost_is_given_again_and_none_is_skipped() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http:
            await http.open()
            await http.ask("POST", "/frames", b"1\n2")
            told = [(await http.ask("GET", "/poll?after=1")).told for _ in range(2)]
            assert told == [{"next": 2, "frames": [1, 2]}] * 2
            for after in ("0", "3", "-1", "", "x", "9" * 30):
                assert (await http.ask("GET", f"/poll?after={after}")).status == 409, after
                assert (await http.ask("GET", f"/events?after={after}")).status == 409, after
            await http.ask("POST", "/frames", b"3")
            assert (await http.ask("GET", "/poll?after=2")).told["frames"] == [3]

    run(test)


def test_a_newer_request_reads_instead_of_an_older_one() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http, site.http() as other, site.http() as third:
            await http.open()
            other.secret = third.secret = http.secret
            other.begin("GET", "/poll?after=1")
            (one,) = site.owner.conversations
            await until(lambda: one._is_read)
            third.begin("GET", "/events?after=1")
            assert (await other.answer()).status == 409
            await http.ask("POST", "/frames", b"1")
            await third.reader.readuntil(b"data: 1\n\n")
            other.begin("GET", "/poll?after=1")
            await third.reader.readuntil(b"0\r\n\r\n")  # the stream ends, not the conversation
            await http.ask("POST", "/frames", b"2")
            assert (await other.answer()).told["frames"] == [2]
            assert not site.owner.events["closed"]

    run(test)


def test_a_stream_that_breaks_ends_the_conversation() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http, site.http() as other:
            await http.open()
            other.secret = http.secret
            other.begin("GET", "/events?after=0")
            assert (await other.head()).fields["content-type"].startswith("text/event-stream")
            await other.reader.readuntil(b'data: "hello"\n\n')  # that answer may have been lost
            other.writer.transport.abort()
            await until(lambda: site.owner.events["closed"])
            assert (await http.ask("POST", "/frames", b"1")).status == 404
            assert not site.server.count()

    run(test)


async def leaves_a_stream(site: Site, http: Http) -> None:
    async with site.http(http.secret) as other:
        other.begin("GET", "/events?after=0")
        await other.reader.readuntil(b'data: "hello"\n\n')
        other.writer.transport.abort()
        await until(lambda: site.owner.events["closed"])


async def hears_a_stream_to_its_end(site: Site, http: Http) -> None:
    async with site.http(http.secret) as other:
        other.begin("GET", "/events?after=1")
        await http.ask("POST", "/frames", b'"wrong"')
        await other.reader.readuntil(b"0\r\n\r\n")


async def leaves_a_poll(site: Site, http: Http) -> None:
    async with site.http(http.secret) as other:
        other.begin("GET", "/poll?after=1")
        await until(lambda: site.owner.conversations[0]._is_read)
        other.writer.transport.abort()
    await http.ask("DELETE", "")


async def is_displaced(site: Site, http: Http) -> None:
    async with site.http(http.secret) as one, site.http(http.secret) as other:
        one.begin("GET", "/events?after=0")
        await one.head()
        other.begin("GET", "/events?after=1")
        await one.reader.readuntil(b"0\r\n\r\n")
        await http.ask("DELETE", "")
        await other.head()


async def breaks_a_request_off(site: Site, http: Http) -> None:
    async with site.http(http.secret) as other:
        other.begin("POST", "/frames", b'"1"\n"2', 100)
        await until(lambda: len(site.owner.frames) > 1)
        other.writer.transport.abort()
    await http.ask("DELETE", "")


@pytest.mark.parametrize(
    "going",
    [
        leaves_a_stream,
        hears_a_stream_to_its_end,
        leaves_a_poll,
        is_displaced,
        breaks_a_request_off,
    ],
)
def test_a_conversation_that_is_gone_leaves_nothing_for_the_collector(
    going: Callable[[Site, Http], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_of([Conversation, EventStream, HttpProtocol, RequestResponseCycle], monkeypatch)

    async def test(site: Site) -> None:
        gc.disable()
        try:
            async with site.http() as http:
                await http.open()
                await going(site, http)
            await until(lambda: site.owner.events["closed"])
            site.owner.conversations.clear()
            async with within(GONE_S):
                await until(lambda: not kept)  # nothing collects: what is held stays
        finally:
            gc.enable()

    run(test)


def test_a_stream_tells_its_end_behind_everything_else() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http, site.http() as other:
            await http.open()
            other.secret = http.secret
            other.begin("GET", "/events?after=1")
            await http.ask("POST", "/frames", b'1\n"wrong"\n2')
            text = await other.reader.readuntil(b"0\r\n\r\n")
            assert text.index(b"data: 1\n\n") < text.index(b"event: close\ndata: {")
            assert b'"code":4003' in text and b"data: 2" not in text
            await until(lambda: site.owner.events["closed"])

    run(test)


def test_who_reads_no_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_module, "PLAIN_SILENT_S", 0.2)
    monkeypatch.setattr(conversation_module, "LAST_S", 0.2)

    async def test(site: Site) -> None:
        async with site.http() as http:
            await http.open()
            await until(lambda: site.owner.events["closed"])
            await http.open()
            await http.ask("POST", "/frames", b'"wrong"')  # and does not fetch why
            await until(lambda: site.owner.events["closed"] == 2)
            assert site.server.counters["closed_silent"] == 1

    run(test)


def test_what_is_not_read_blocks_and_is_given_in_bounded_pieces() -> None:
    line = b'"' + b"x" * (CLIENT_WRITE_HIGH // 2) + b'"'
    count = 3 * PLAIN_BATCH_SIZE // len(line)

    async def test(site: Site) -> None:
        async with site.http() as http:
            await http.open()
            await http.ask("POST", "/frames", b"\n".join([line] * count))
            assert site.owner.events == {"blocked": 1}
            (one,) = site.owner.conversations
            assert one.held > 2 * PLAIN_BATCH_SIZE and one in site.server.heavy
            came = 0
            for after in range(1, 20):
                answer = await http.ask("GET", f"/poll?after={after}")
                assert len(answer.body) < PLAIN_BATCH_SIZE + 100
                came += len(answer.told["frames"])
                if came == count:
                    break
            assert came == count and site.owner.events["writable"] == 1

    run(test)


def test_a_request_waits_while_the_owner_does_not_listen_and_a_second_one_is_refused() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http, site.http() as other:
            await http.open()
            other.secret, site.owner.listens = http.secret, False
            other.begin("POST", "/frames", b"1\n2\n3")
            await until(lambda: len(site.owner.frames) == 2)
            assert (await http.ask("POST", "/frames", b"4")).status == 409
            site.owner.listens = True
            site.owner.conversations[0].read_on(True)
            assert (await other.answer()).status == 202
            assert site.owner.frames[1:] == [b"1", b"2", b"3"]

    run(test)


def test_a_request_that_breaks_off_leaves_no_half_frame() -> None:
    async def test(site: Site) -> None:
        async with site.http() as http, site.http() as other:
            await http.open()
            other.secret = http.secret
            other.begin("POST", "/frames", b"1\n[2,", size=100)
            await until(lambda: len(site.owner.frames) == 2)
            other.writer.transport.abort()
            (one,) = site.owner.conversations
            await until(lambda: not one.is_taking)
            await http.ask("POST", "/frames", b"3")
            assert site.owner.frames[1:] == [b"1", b"3"]

    run(test)


def test_a_guest_is_not_held_to_the_time_and_number_of_a_strangers_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "HTTP_MS_MAX", 300)

    async def test(site: Site) -> None:
        async with site.http() as http, site.http() as stranger:
            await http.open()
            await stranger.open(b'"stranger"')
            stranger.begin("GET", "/poll?after=1")
            http.begin("GET", "/poll?after=1")
            assert await stranger.reader.read() == b""  # too long for who has not said who it is
            await asyncio.sleep(0.5)
            async with site.http(http.secret) as other:
                for i in range(HTTP_REQUESTS_MAX + 10):
                    assert (await other.ask("POST", "/frames", b"%d" % i)).status == 202
                    if i == 0:
                        assert (await http.answer()).told["frames"] == [0]

    run(test)


def test_conversations_of_strangers_displace_each_other() -> None:
    async def test(site: Site) -> None:
        for _ in range(STRANGERS_MAX + 5):
            async with site.http() as http:
                await http.open(b'"stranger"')
        await until(lambda: len(site.server.entrance.visitors) <= STRANGERS_MAX)
        assert site.server.count() <= STRANGERS_MAX
        assert site.owner.events["closed"] >= 5

    run(test)
