"""A transport that nobody has heard of brings messages into the real edge: the door is wide enough,
and asks no transport who it is."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

from appliance.base.limits import STRANGER_FRAME_SIZE_MAX, TURN_COST_MAX
from appliance.drivers.chat.access import local_token
from appliance.formats.client.connection import ErrorFrame, Ping, Pong
from appliance.formats.client.frame import Frame, encode_json
from appliance.formats.client.parse import parse_json_edge
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from appliance.roles.edge.role import EdgeRole
from tests.roles.conftest import MakeSite
from tests.roles.edge_site import RIGHTS
from tests.roles.test_wired_edge import Wire
from tests.roles.toy_transport import ToyConnection
from tests.roles.wired_site import WiredSite, until


class ToyClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def say(self, *frames: Frame) -> None:
        self._writer.writelines([encode_json(frame) + b"\n" for frame in frames])

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def next(self, *kinds: type) -> Any:
        """The next frame of these kinds; those before it are passed over."""
        while line := await self._reader.readline():
            frame = parse_json_edge(line)
            if type(frame) in kinds:
                return frame
        raise EOFError

    async def ended(self) -> None:
        assert await self._reader.read() == b""

    async def hello(self, site: WiredSite, user: str) -> None:
        token = local_token(site.folder, user, RIGHTS, 3600)
        self.say(Hello(token=token, client_id=uuid.uuid5(uuid.NAMESPACE_DNS, user)))
        await self.next(Welcome)


class Port:
    """The transport, as a listener of the edge opens it."""

    def __init__(self, edge: EdgeRole) -> None:
        self.server = edge._listeners.server
        self.number = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Port"]:
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: ToyConnection(self.server), "127.0.0.1", 0)
        self.number = listening.sockets[0].getsockname()[1]
        async with listening:
            yield self

    @contextlib.asynccontextmanager
    async def dial(self) -> AsyncIterator[ToyClient]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        yield ToyClient(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def run(make_site: MakeSite, story: Any) -> None:
    """A story of a site, its edge, and the port of the toy."""

    async def whole(site: WiredSite) -> None:
        await site.start_replica(0)
        edge = await site.start_edge(0)
        await until(lambda: not edge.health())
        async with Port(edge).open() as port:
            await story(site, edge, port)
            await until(lambda: not edge.status().connections)
            assert not edge._listeners.server.entrance.visitors

    make_site(1).run(whole)


def test_a_message_sent_by_the_toy_is_read_by_websocket_and_the_other_way_round(
    make_site: MakeSite,
) -> None:
    async def story(site: WiredSite, edge: EdgeRole, port: Port) -> None:
        wire = await Wire.dial(site, edge)
        async with port.dial() as toy:
            await toy.hello(site, "berta")
            toy.say(CreateRoom(name="toys"))
            room = (await toy.next(RoomAnswer)).room_id
            wire.say(SubscribeRoom(room_id=room, since_op=1))
            await wire.next(Subscribed)
            toy.say(SubscribeRoom(room_id=room, since_op=1))
            await toy.next(Subscribed)
            toy.say(SendMessage(room_id=room, client_seq=1, body="by toy"))
            assert (await toy.next(MessageAck)).op == (await wire.next(MessageEvent)).op
            wire.say(SendMessage(room_id=room, client_seq=1, body="by websocket"))
            await wire.next(MessageAck)
            heard = [await toy.next(MessageEvent) for _ in range(2)]
            assert [(one.author, one.body) for one in heard] == [
                ("berta", "by toy"), ("anna", "by websocket"),
            ]  # fmt: skip
            status = edge.status()
            assert status.connections_by_transport["toy"] == 1
            assert status.bytes_received["toy"] and status.bytes_sent["toy"]
            assert edge._listeners.server.entrance.strangers == 0
        await wire.close()

    run(make_site, story)


def test_what_ends_others_ends_it_too_by_the_same_error(make_site: MakeSite) -> None:
    async def story(site: WiredSite, edge: EdgeRole, port: Port) -> None:
        async with port.dial() as toy:
            toy.say(Hello(token="wrong", client_id=uuid.UUID(int=7)))
            assert (await toy.next(ErrorFrame)).name == "token_invalid"
            await toy.ended()
        async with port.dial() as toy:
            toy.raw(b"x" * (STRANGER_FRAME_SIZE_MAX + 1))
            assert (await toy.next(ErrorFrame)).name == "frame_too_large"
            await toy.ended()
        assert edge.status().ended_by_transport["toy"] == {
            "token_invalid": 1, "frame_too_large": 1,
        }  # fmt: skip

    run(make_site, story)


def test_frames_that_come_together_are_answered_in_order_though_turns_end(
    make_site: MakeSite,
) -> None:
    async def story(site: WiredSite, edge: EdgeRole, port: Port) -> None:
        async with port.dial() as toy:
            await toy.hello(site, "berta")
            asked = [f"{number}" for number in range(2 * TURN_COST_MAX)]
            toy.say(*[Ping(request=one) for one in asked])
            assert [(await toy.next(Pong)).request for _ in asked] == asked

    run(make_site, story)
