"""What strangers and users may do to a node, each as a loop that goes on for as long as it is told.

An attack comes from an address of its own, paces itself, and comes again when it is thrown out: how
often is its result.
"""

import asyncio
import contextlib
import random
import ssl
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from appliance.formats.client.connection import Ping
from appliance.formats.client.frame import encode_binary
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import Hello
from appliance.formats.client.subscribing import UnsubscribeRoom

MASK = b"\x00\x00\x00\x00"
PING = b"\x89\x80" + MASK
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HANDSHAKE = (
    b"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: tigerchat.v1.binary\r\n\r\n"
)
PAUSE_S = 0.05  # between two parts of a flood
PATIENCE_S = 60.0  # for an answer; whoever is attacked on all sides may take a while
AGAIN_S = 0.2  # before a client that was thrown out comes again


@dataclass
class Plan:
    """Whom to attack, for how long, with what; `tokens` by user."""

    port: int
    console: int  # the port of its console
    seconds: float
    tokens: dict[str, str]
    victim: str  # a device's id, as every reader sees it
    room: str  # one that all may read


def frame(payload: bytes, opcode: int = 2) -> bytes:
    """One frame of a client, masked with zeros."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0xFF)) + size.to_bytes(8, "big")
    return head + MASK + payload


class Attack:
    """One way to be a nuisance, from its own address."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan, self.address = plan, f"127.0.1.{number}"
        self.until = time.monotonic() + plan.seconds
        self.thrown_out: Counter[str] = Counter()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE

    async def dial(
        self, tls: bool = True, port: int = 0
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.wait_for(
            asyncio.open_connection(
                "127.0.0.1",
                port or self.plan.port,
                ssl=self.tls if tls else None,
                local_addr=(self.address, 0),
            ),
            PATIENCE_S,
        )

    async def chat(
        self, user: str = "", device: int = 0
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.dial()
        writer.write(HANDSHAKE)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        if user:
            number = device or random.getrandbits(128)
            hello = Hello(token=self.plan.tokens[user], client_id=uuid.UUID(int=number))
            writer.write(frame(encode_binary(hello)))
            await asyncio.wait_for(reader.read(2), PATIENCE_S)
        return reader, writer

    async def flood(self, data: bytes, user: str = "", device: int = 0) -> None:
        """Write `data` again and again, reading nothing; whoever is thrown out comes again."""
        _, writer = await self.chat(user, device)
        try:
            while time.monotonic() < self.until:
                writer.write(data)
                await asyncio.wait_for(writer.drain(), self.until - time.monotonic() + 0.1)
                await asyncio.sleep(PAUSE_S)
        finally:
            writer.transport.abort()

    async def again(self, name: str, once: Callable[[], Awaitable[None]]) -> None:
        while time.monotonic() < self.until:
            try:
                await once()
            except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.LimitOverrunError):
                self.thrown_out[name] += 1
            await asyncio.sleep(AGAIN_S)

    async def hold(
        self, count: int, data: bytes, tls: bool, a_second: float, port: int = 0
    ) -> None:
        """Keep so many connections open that have sent `data`, and open them anew when they end."""
        held: list[asyncio.StreamWriter] = []
        try:
            while time.monotonic() < self.until:
                held = [writer for writer in held if not writer.transport.is_closing()]
                if len(held) < count:
                    with contextlib.suppress(OSError, TimeoutError):
                        _, writer = await self.dial(tls, port)
                        writer.write(data)
                        held.append(writer)
                await asyncio.sleep(1 / a_second)
        finally:
            for writer in held:
                writer.transport.abort()

    # --- the rows

    async def pings_before_hello(self) -> None:
        await self.again("pings before hello", lambda: self.flood(PING * 5000))

    async def pings_after_hello(self) -> None:
        await self.again("pings", lambda: self.flood(PING * 5000, "pinger"))

    async def small_frames(self) -> None:
        unsubscribe = UnsubscribeRoom(room_id=uuid.UUID(int=5))
        data = frame(encode_binary(unsubscribe)) * 1000
        await self.again("small frames", lambda: self.flood(data, "smalls"))

    async def malformed_frames(self) -> None:
        await self.again("malformed frames", lambda: self.flood(frame(b"/") * 2000, "broken"))

    async def many_items(self) -> None:
        send = SendMessage(room_id=uuid.UUID(self.plan.room), client_seq=1, body="")
        data = frame(encode_binary(*[send] * 4096))
        await self.again("many items", lambda: self.flood(data, "reader"))

    async def too_many_items(self) -> None:
        """Thousands a frame, from a user who may send."""
        send = SendMessage(room_id=uuid.UUID(self.plan.room), client_seq=1, body="")
        data = frame(encode_binary(*[send] * 4096))
        await self.again("too many items", lambda: self.flood(data, "writer"))

    async def plain_http(self) -> None:
        await self.hold(300, GET + b"G", True, 40)

    async def bare_sockets(self) -> None:
        await asyncio.gather(*(self.hold(1000, b"", False, 100) for _ in range(3)))

    async def half_frames(self) -> None:
        head = b"\x82\xff" + (1 << 20).to_bytes(8, "big") + MASK
        await self.hold(100, HANDSHAKE + head + bytes(8000), True, 20)

    async def unread_history(self) -> None:
        """Twelve connections, 400 pages each in one write, nothing is read."""
        wish = SnapshotRequest(room_id=uuid.UUID(self.plan.room), limit=1000)
        data = frame(encode_binary(wish)) * 400
        ways = [lambda: self.flood(data, "hoarder") for _ in range(12)]
        await asyncio.gather(*(self.again("unread history", way) for way in ways))

    async def frames_behind_a_room(self) -> None:
        """Large frames to rooms that do not exist."""

        def large() -> bytes:
            room_id = uuid.UUID(int=random.getrandbits(120) + 1)
            send = SendMessage(room_id=room_id, client_seq=1, body="x" * 2000)
            return frame(encode_binary(*[send] * 440))

        ways = [lambda: self.flood(large(), "outsider") for _ in range(4)]
        await asyncio.gather(*(self.again("large frames", way) for way in ways))

    async def new_devices(self) -> None:
        """A device after the other, each with its first message: windows of the shard."""

        async def once() -> None:
            _, writer = await self.chat("filler")
            send = SendMessage(room_id=uuid.UUID(self.plan.room), client_seq=1, body="x")
            writer.write(frame(encode_binary(send)))
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.transport.abort()

        await asyncio.gather(*(self.again("new devices", once) for _ in range(4)))

    async def stolen_device(self) -> None:
        """Under the id of somebody else's device."""
        victim = uuid.UUID(self.plan.victim).int
        data = frame(encode_binary(Ping())) * 1000
        await self.again("stolen device", lambda: self.flood(data, "thief", victim))


ATTACKS = (
    "pings_before_hello",
    "pings_after_hello",
    "small_frames",
    "malformed_frames",
    "many_items",
    "too_many_items",
    "plain_http",
    "bare_sockets",
    "half_frames",
    "unread_history",
    "frames_behind_a_room",
    "new_devices",
    "stolen_device",
)
USERS = {  # user -> rights
    "pinger": {"*": ["read", "send"]},
    "smalls": {"*": ["read"]},
    "broken": {"*": ["read"]},
    "reader": {"*": ["read"]},
    "writer": {"*": ["read", "send"]},
    "hoarder": {"*": ["read"]},
    "outsider": {"*": ["send"]},
    "filler": {"*": ["send"]},
    "thief": {"*": ["read", "send"]},
}
