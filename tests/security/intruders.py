"""What strangers and users try to get at and must not: each try that got through is told by name.

As attacks they go on for as long as they are told, from addresses of their own. `tried` counts what
was done, `got_through` what should have been refused: the one is to be there, the other empty.
"""

import asyncio
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.frame import Frame, encode_binary
from appliance.formats.client.parse import parse_binary_edge
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, RefreshToken, Welcome
from appliance.formats.client.subscribing import MessageEvent, SubscribeRoom
from tests.patience import HUNG_S
from tests.security.attacks import AGAIN_S, HANDSHAKE, PATIENCE_S, Attack, Plan, frame

LATE_S = HUNG_S / 4  # for a first whole try, when no floods are in its way any more
LISTEN_S = 1.5  # for what should not come
BINARY, TEXT, CLOSING = 2, 1, 8
WORD_SIZE_MAX = 16  # bytes of an answer of one word
TEN_YEARS_S = 10 * 365 * 24 * 3600
COMMANDING = "\x1b]0;owned\x07\u009b31mred\u202e\u2066 =1+1"
FOREIGN = b"https://evil.example"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
WRONG_SECRET = json.dumps({"secret": "AAAA-AAAA-AAAA-AAAA"}).encode()


class Conversation:
    """One connection that speaks the protocol and listens."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def say(self, *frames: Frame) -> None:
        for one in frames:
            self._writer.write(frame(encode_binary(one)))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def message(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame of the edge, which never sends one in parts."""
        head = await self._reader.readexactly(2)
        size = head[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        return head[0] & 0x0F, await self._reader.readexactly(size)

    async def heard(self, seconds: float) -> AsyncIterator[Frame]:
        """What comes within so many seconds; ends when the connection does."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                opcode, payload = await asyncio.wait_for(self.message(), left)
            except (TimeoutError, OSError, asyncio.IncompleteReadError):
                return
            if opcode == CLOSING:
                return
            if opcode == BINARY:
                for one in parse_binary_edge(payload):
                    yield one

    async def next(self, *kinds: type[Frame]) -> Frame:
        """The next frame of these classes. Raises TimeoutError."""
        async for one in self.heard(PATIENCE_S):
            if type(one) in kinds:
                return one
        raise TimeoutError

    def end(self) -> None:
        self._writer.transport.abort()


class Intruder(Attack):
    """One who wants what is not his, from an address of his own."""

    def __init__(self, plan: Plan, number: int) -> None:
        super().__init__(plan, number)
        self.tried: Counter[str] = Counter()
        self.got_through: Counter[str] = Counter()

    async def enter(self, token: str) -> Conversation:
        """A connection that has said hello."""
        reader, writer = await self.dial()
        writer.write(HANDSHAKE)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        talk = Conversation(reader, writer)
        talk.say(Hello(token=token, client_id=uuid.uuid4()))
        return talk

    async def asked(self, port: int, request: bytes) -> bytes:
        """All that comes back for one request of plain HTTP."""
        reader, writer = await self.dial(port=port)
        try:
            writer.write(request)
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                size = LENGTH.search(head)  # a body may come behind its head, in a read of its own
                return head + await reader.readexactly(int(size[1]) if size else 0)
        finally:
            writer.transport.abort()

    async def repeat(self, name: str, once: Callable[[], Awaitable[None]], pause: float) -> None:
        """As long as told, and once at least: a slow machine may answer first when floods end."""

        async def counted() -> None:
            await once()
            self.tried[name] += 1
            await asyncio.sleep(pause)

        await self.again(name, counted)
        late = time.monotonic() + LATE_S
        while not self.tried[name] and time.monotonic() < late:
            self.until = time.monotonic() + AGAIN_S
            await self.again(name, counted)

    # --- the rows

    async def taken_away_room(self) -> None:
        """Rights are refreshed to none: what is said in the room afterwards is not heard."""

        async def once() -> None:
            talk = await self.enter(self.plan.tokens["demoted"])
            try:
                await talk.next(Welcome)
                talk.say(SubscribeRoom(room_id=uuid.UUID(self.plan.room)))
                await talk.next(MessageEvent)
                talk.say(RefreshToken(token=self.plan.tokens["demoted, now"]))
                await talk.next(Welcome)
                async for one in talk.heard(LISTEN_S):
                    if type(one) is MessageEvent:
                        self.got_through["a room that was taken away is heard"] += 1
            finally:
                talk.end()

        await self.repeat("taken away room", once, 1.0)

    async def refreshes(self) -> None:
        """Hello, refresh upon refresh, gone: what is kept of each would add up."""
        token = self.plan.tokens["refresher"]

        async def once() -> None:
            talk = await self.enter(token)
            try:
                await talk.next(Welcome)
                for _ in range(20):
                    talk.say(RefreshToken(token=token))
                    await talk.next(Welcome, ErrorFrame)
            finally:
                talk.end()

        await self.repeat("refreshes", once, 0.2)

    async def long_life(self) -> None:
        """A token that is valid for ten years."""
        token = self.plan.tokens["for ten years"]
        await self.repeat(
            "long life", lambda: self.is_refused("a token of ten years is taken", token), 1.0
        )

    async def is_refused(self, what: str, token: str) -> None:
        talk = await self.enter(token)
        try:
            if type(await talk.next(Welcome, ErrorFrame)) is Welcome:
                self.got_through[what] += 1
        finally:
            talk.end()

    async def commanding_texts(self) -> None:
        """Texts that command the terminal, or the spreadsheet, of who reads them later."""

        async def once() -> None:
            talk = await self.enter(self.plan.tokens["commander"])
            try:
                await talk.next(Welcome)
                room = uuid.UUID(self.plan.room)
                talk.say(SendMessage(room_id=room, client_seq=1, body=COMMANDING))
                await talk.next(MessageAck)
            finally:
                talk.end()

        await self.repeat("commanding texts", once, 1.0)

    async def broken_text(self) -> None:
        """A text frame that is no UTF-8, in a field nobody reads."""
        json_of = HANDSHAKE.replace(b"v1.binary", b"v1.json")

        async def once() -> None:
            reader, writer = await self.dial()
            writer.write(json_of + frame(b'{"type": "ping", "unknown": "\xff\xfe"}', TEXT))
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            talk = Conversation(reader, writer)
            try:
                opcode, payload = await asyncio.wait_for(talk.message(), PATIENCE_S)
            finally:
                talk.end()
            if (opcode, payload[:2]) != (CLOSING, (1007).to_bytes(2, "big")):
                self.got_through["text that is none"] += 1

        await self.repeat("broken text", once, 0.5)

    async def malformed_heads(self) -> None:
        """Requests that are none, each a reason for a line in a log."""

        async def once() -> None:
            await self.asked(self.plan.port, b"GET / HTTP/1.1\r\nHost: \x00\r\nno head\r\n\r\n")

        await self.repeat("malformed heads", once, 0.02)

    async def foreign_pages(self) -> None:
        """A page of another site connects, and a foreign name is made to lead here."""
        origin = HANDSHAKE.replace(b"\r\n\r\n", b"\r\nOrigin: " + FOREIGN + b"\r\n\r\n")
        host = HANDSHAKE.replace(b"Host: 127.0.0.1", b"Host: evil.example")

        async def once() -> None:
            for request in (origin, host):
                if b" 101 " in (await self.asked(self.plan.port, request))[:16]:
                    self.got_through["a page of another site connects"] += 1

        await self.repeat("foreign pages", once, 0.5)

    async def figures(self) -> None:
        """Figures and reasons, for anybody: at the port of clients and at the console."""

        async def once() -> None:
            for port in (self.plan.port, self.plan.console):
                for path in (b"/metrics", b"/console/status"):
                    head = b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
                    if b" 200 " in (await self.asked(port, head))[:16]:
                        self.got_through["figures for a stranger"] += 1
            health = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            _, _, body = (await self.asked(self.plan.port, health)).partition(b"\r\n\r\n")
            if len(body) > WORD_SIZE_MAX:
                self.got_through["reasons for a stranger"] += 1

        await self.repeat("figures", once, 0.5)

    async def console_sockets(self) -> None:
        """All connections of the console, held and idle."""
        await self.hold(300, b"", True, 50, self.plan.console)
        self.tried["console sockets"] += 1

    async def wrong_secrets(self) -> None:
        """Secrets that are none, and a right-looking one that a page of another site sends."""
        head = (
            b"POST /console/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
            b"\r\nContent-Length: %d\r\n%s\r\n%s"
        )

        async def once() -> None:
            for origin in (b"", b"Origin: " + FOREIGN + b"\r\n"):
                request = head % (len(WRONG_SECRET), origin, WRONG_SECRET)
                answer = await self.asked(self.plan.console, request)
                if b" 204 " in answer[:16]:
                    self.got_through["a wrong secret opens the console"] += 1
                elif origin and answer and b"cross site" not in answer:
                    self.got_through["a page of another site is judged"] += 1

        await self.repeat("wrong secrets", once, 0.5)


INTRUSIONS = (
    "taken_away_room",
    "refreshes",
    "long_life",
    "commanding_texts",
    "broken_text",
    "malformed_heads",
    "foreign_pages",
    "figures",
    "console_sockets",
    "wrong_secrets",
)
TOKENS: dict[str, tuple[str, dict[str, list[str]], int]] = {  # name -> user, rights, seconds
    "demoted": ("demoted", {"*": ["read"]}, 3600),
    "demoted, now": ("demoted", {}, 3600),
    "refresher": ("refresher", {"*": ["read"]}, 3600),
    "commander": ("commander", {"*": ["send"]}, 3600),
    "for ten years": ("for ten years", {"*": ["read"]}, TEN_YEARS_S),
}
