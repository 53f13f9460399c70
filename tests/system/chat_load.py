"""Clients that write and listen while a site is hurt, and note everything in a ledger."""

import asyncio
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import Refused
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from appliance.formats.client.sending import MessageAck
from tests.system.ledger import Ledger

CATCH_UP_PACE_S = 0.3  # between two messages of a writer, while a node catches up
OUTSTANDING_MAX = 12  # of one writer
RESENT = 20  # newest messages of each room that are sent again in the end
PATIENCE_S = 60.0


class Writer:
    """One device that writes to all rooms; the ledger knows each message before it is sent.

    `patience_s`: how long it looks for a site that does not answer.
    """

    def __init__(
        self,
        number: int,
        access: Access,
        ledger: Ledger,
        seed: int,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.number, self.ledger, self.access = number, ledger, access
        self.patience_s = patience_s
        self.chance = random.Random(seed * 1000 + number)
        self.client = self._client(number)
        self.bodies: dict[tuple[UUID, int], str] = {}
        self.pace_s = 0.0
        self.newest_ack_sent = 0.0  # when the newest acknowledged message was sent
        self._outstanding = asyncio.Semaphore(OUTSTANDING_MAX)
        self._waiting: set[asyncio.Future[Any]] = set()

    def _client(self, first: int, client_id: UUID | None = None) -> Client:
        subprotocol = SUBPROTOCOL_JSON if self.number % 2 else SUBPROTOCOL_BINARY
        return Client(
            self.access.endpoints,
            self.access.token,
            client_id=client_id,
            subprotocol=subprotocol,
            patience_s=self.patience_s,
            first_endpoint=first,
        )

    async def write(self, rooms: list[UUID], stop: asyncio.Event) -> None:
        """Send until told to stop, then wait for what is unanswered."""
        async with self.client:
            while not stop.is_set():
                await self._outstanding.acquire()
                await self._send(self.chance.choice(rooms))
                await asyncio.sleep(self.pace_s)
            if self._waiting:
                await asyncio.wait(self._waiting, timeout=self.patience_s)
            assert not self._waiting, f"writer {self.number}: {len(self._waiting)} unanswered"

    async def _send(self, room: UUID) -> None:
        seq = self.client.next_seq(room)
        body = f"writer {self.number} number {seq} " + "x" * self.chance.randrange(200)
        self.bodies[room, seq] = body
        value = self._value(room, seq)
        sent = time.monotonic()
        self.ledger.add(self.number, "invoke", "send", value)
        done = await self.client.post(room, body)
        self._waiting.add(done)

        def on_done(future: asyncio.Future[Any]) -> None:
            self._waiting.discard(future)
            self._outstanding.release()
            problem = None if future.cancelled() else future.exception()
            if future.cancelled() or problem is not None:
                type_ = "fail" if isinstance(problem, Refused) else "info"
                self.ledger.add(self.number, type_, "send", value)
                return  # whoever closed the client tells why
            self._note(value, future.result())
            self.newest_ack_sent = max(self.newest_ack_sent, sent)

        done.add_done_callback(on_done)

    def _value(self, room: UUID, seq: int) -> dict[str, Any]:
        return {
            "room": str(room),
            "client": str(self.client.client_id),
            "seq": seq,
            "body": self.bodies[room, seq],
        }

    def _note(self, value: dict[str, Any], ack: MessageAck) -> None:
        told = {
            "op": ack.op,
            "msg_id": str(ack.msg_id),
            "timestamp": ack.timestamp,
            "hash": ack.hash,
        }
        self.ledger.add(self.number, "ok", "send", value | told)

    async def send_again(self, rooms: list[UUID]) -> None:
        """The newest messages once more, as the same device through another node."""
        async with self._client(self.number + 1, self.client.client_id) as client:
            for room in rooms:
                end = self.client.next_seq(room)
                start = max(1, end - RESENT)
                client.start_at(room, start)
                acks = [
                    await client.post(room, self.bodies[room, seq]) for seq in range(start, end)
                ]
                for seq, ack in zip(range(start, end), acks, strict=True):
                    self._note(self._value(room, seq), await ack)


def pace(writers: Iterable[Writer], pace_s: float) -> None:
    """Have writers pause so long between two messages, from now on."""
    for writer in writers:
        writer.pace_s = pace_s


@contextmanager
def unhurried(writers: list[Writer]) -> Iterator[None]:
    """Writers take their time within: a busy machine may write as fast as a node catches up."""
    paces = [writer.pace_s for writer in writers]
    pace(writers, CATCH_UP_PACE_S)
    try:
        yield
    finally:
        for writer, pace_s in zip(writers, paces, strict=True):
            writer.pace_s = pace_s


async def listen(number: int, access: Access, ledger: Ledger, rooms: list[UUID]) -> None:
    """Note every event of all rooms, from the first one on, until cancelled."""
    async with Client(
        access.endpoints, access.token, patience_s=PATIENCE_S, first_endpoint=number
    ) as client:

        async def follow(room: UUID) -> None:
            async for event in await client.subscribe(room, since_op=0):
                value = {
                    "room": str(room),
                    "client": str(event.client_id),
                    "seq": event.client_seq,
                    "body": event.body,
                    "op": event.op,
                }
                ledger.add(number, "ok", "event", value)

        await asyncio.gather(*(follow(room) for room in rooms))
