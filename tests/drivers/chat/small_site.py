"""A site of one process for tests of clients: it speaks the client protocol and loses connections.

It keeps rooms in memory, deduplicates as a site does, and answers on several ports, each a node. A
seeded generator decides when a connection is cut (before or after a message is stored) and when a
message is answered with `busy`, a subscription with `unavailable`.
"""

import asyncio
import random
from collections import defaultdict
from typing import Any
from uuid import UUID

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from appliance.drivers.chat.endpoint import Endpoint
from appliance.formats.client.connection import ErrorFrame, NextNode, Ping, Pong
from appliance.formats.client.directory import DirectoryAnswer, DirectoryRequest
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import (
    SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON,
    encode_binary,
    encode_json,
)
from appliance.formats.client.parse import parse_binary, parse_json
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import ConnectionLimits, Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from appliance.formats.client_errors import RoomUnknown, Unavailable
from appliance.formats.room_name import room_id_of
from tests.patience import HUNG_S

LIMITS = ConnectionLimits(
    frame_size_max=1 << 20,
    body_size_max=2048,
    room_name_size_max=128,
    snapshot_limit_max=1000,
    subscriptions_max=64,
    sends_in_flight_max=4096,
)


class SmallSite:
    """Use `async with`; `endpoints` are its nodes."""

    def __init__(self, *, nodes=3, seed: int = 0, cut_chance=0.0, busy_chance=0.0) -> None:
        self.rooms = defaultdict(list)  # room_id -> messages, op = position + 1
        self.windows = defaultdict(int)  # (client_id, room_id) -> newest client_seq
        self.cuts = self.busies = 0
        self.refuse_bodies = set()
        self.confused = {}  # requests that are answered by a frame of another kind: which
        self._random = random.Random(seed)
        self._nodes, self._cut, self._busy = nodes, cut_chance, busy_chance
        self._followers = {}  # (connection, room_id) -> None
        self.endpoints = []
        self.welcomes = []  # by which nodes
        self.directory = b""  # what all nodes hand out

    async def __aenter__(self):
        self._servers = [
            await serve(
                self._talk,
                "127.0.0.1",
                0,
                compression=None,
                subprotocols=[SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON],
            )
            for _ in range(self._nodes)
        ]
        ports = [server.sockets[0].getsockname()[1] for server in self._servers]
        self.endpoints = [Endpoint("127.0.0.1", port, None) for port in ports]
        return self

    async def __aexit__(self, *_: Any) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()

    async def _talk(self, connection: ServerConnection) -> None:
        binary = connection.subprotocol == SUBPROTOCOL_BINARY
        client_id = None
        try:
            async for data in connection:
                received = parse_binary(data) if binary else [parse_json(data)]
                for frame in received:
                    if isinstance(frame, Hello):
                        client_id = frame.client_id
                    if self._random.random() < self._cut:
                        self._drop(connection)
                        return
                    await self._answer(connection, binary, client_id, frame)
                    if self._random.random() < self._cut:
                        self._drop(connection)
                        return
        except ConnectionClosed:
            pass
        finally:
            for key in [key for key in self._followers if key[0] is connection]:
                del self._followers[key]

    async def send_away(self, node: int, to: str, spread: int) -> None:
        """Every client of that node, as if it stopped."""
        for connection in list(self._servers[node].connections):
            await self._say(connection, NextNode(url=to, spread=spread))
            await connection.close(1001)

    def _drop(self, connection) -> None:
        self.cuts += 1
        connection.transport.abort()

    async def _say(self, connection, *answers: Any) -> None:
        binary = connection.subprotocol == SUBPROTOCOL_BINARY
        for answer in answers:
            data = encode_binary(answer) if binary else encode_json(answer).decode()
            await connection.send(data)

    async def _answer(self, connection, binary, client_id, frame) -> None:
        request = getattr(frame, "request", None)
        if type(frame) in self.confused:
            await self._say(connection, self.confused[type(frame)](request))
        elif isinstance(frame, Hello):
            await self._hello(connection, frame)
        elif isinstance(frame, CreateRoom):
            room_id = id_of(room_id_of(frame.name))
            created = room_id not in self.rooms
            self.rooms[room_id]
            await self._say(
                connection,
                RoomAnswer(room_id=room_id, created=created, name=frame.name, request=request),
            )
        elif isinstance(frame, SendMessage):
            await self._store(connection, client_id, frame)
        elif isinstance(frame, SubscribeRoom):
            await self._subscribe(connection, frame)
        elif isinstance(frame, DirectoryRequest):
            await self._say(
                connection,
                DirectoryAnswer(version=0, signed=self.directory.decode(), request=request),
            )
        elif isinstance(frame, Ping):
            await self._say(connection, Pong(request=request))

    async def _hello(self, connection, frame) -> None:
        refusals = {"expired": (2012, False), "key_unknown": (2011, True)}
        if frame.token in refusals:
            error, temporary = refusals[frame.token]
            await self._say(
                connection,
                ErrorFrame(
                    error=error,
                    temporary=temporary,
                    name=f"token_{frame.token}",
                    detail="it is",
                    request=frame.request,
                ),
            )
            return
        ports = [endpoint.port for endpoint in self.endpoints]
        self.welcomes.append(ports.index(connection.local_address[1]))
        await self._say(
            connection,
            Welcome(
                author_id="1",
                author="a",
                client_id=frame.client_id,
                expires_at=1,
                node=0,
                epoch=1,
                limits=LIMITS,
                request=frame.request,
            ),
        )

    async def _store(self, connection, client_id, frame) -> None:
        key, room = (client_id, frame.room_id), self.rooms[frame.room_id]
        error = {"room_id": frame.room_id, "client_seq": frame.client_seq, "detail": ""}
        if frame.body in self.refuse_bodies:
            await self._say(
                connection, ErrorFrame(error=2020, name="forbidden", temporary=False, **error)
            )
            return
        if frame.client_seq <= self.windows[key]:
            event = next(
                e for e in room if (e.client_id, e.client_seq) == (client_id, frame.client_seq)
            )
            assert event.body == frame.body
            await self._say(connection, self._ack(event))
        elif frame.client_seq > self.windows[key] + 1:
            await self._say(
                connection,
                ErrorFrame(
                    error=2026,
                    name="sequence_gap",
                    temporary=False,
                    expected=self.windows[key] + 1,
                    **error,
                ),
            )
        elif self._random.random() < self._busy:
            self.busies += 1
            await self._say(
                connection,
                ErrorFrame(error=2041, name="busy", temporary=True, retry_after=2, **error),
            )
        else:
            self.windows[key] = frame.client_seq
            event = MessageEvent(
                room_id=frame.room_id,
                op=len(room) + 1,
                msg_id=frame.msg_id or UUID(int=len(room) + 1),
                author_id="1",
                author="a",
                parent_id=frame.parent_id,
                timestamp=1000 + len(room),
                client_id=client_id,
                client_seq=frame.client_seq,
                kind=0,
                body=frame.body,
            )
            room.append(event)
            await self._say(connection, self._ack(event))
            await self._publish(event)

    def _ack(self, event):
        return MessageAck(
            room_id=event.room_id,
            client_seq=event.client_seq,
            op=event.op,
            msg_id=event.msg_id,
            timestamp=event.timestamp,
            hash="00" * 32,
        )

    async def _publish(self, event) -> None:
        for connection, room_id in list(self._followers):
            if room_id != event.room_id:
                continue
            if self._random.random() < self._cut:
                self._drop(connection)
                continue
            try:
                await self._say(connection, event)
            except ConnectionClosed:
                continue

    async def _subscribe(self, connection, frame) -> None:
        if self._random.random() < self._busy:
            self.busies += 1
            behind = self._random.random() < 0.5  # a node that is behind may not know the room yet
            error = RoomUnknown if behind and frame.epoch else Unavailable
            await self._say(
                connection,
                ErrorFrame(
                    error=error.code,
                    name=error.name,
                    temporary=error is Unavailable,
                    retry_after=2,
                    request=frame.request,
                    detail="",
                ),
            )
            return
        room = self.rooms[frame.room_id]
        start = len(room)
        if frame.since_op is not None:
            start = frame.since_op
        elif frame.last is not None:
            start = max(0, len(room) - frame.last)
        await self._say(
            connection,
            Subscribed(
                room_id=frame.room_id,
                status="recovered",
                next_op=start + 1,
                epoch=1,
                request=frame.request,
            ),
        )
        done = start
        while done < len(room):  # the room may grow while it is sent
            await self._say(connection, room[done])
            done += 1
        self._followers[connection, frame.room_id] = None


async def eventually(condition, timeout_s: float = HUNG_S) -> None:
    """Wait until `condition()`; the test fails when that takes too long."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
