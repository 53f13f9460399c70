"""One conversation over every way in, in each encoding: the same frames, but for times and ids."""

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from appliance.drivers.chat.client import Client
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.transports import transport_named
from appliance.formats.client.address import TRANSPORTS
from appliance.formats.client.connection import Ping
from appliance.formats.client.frame import SUBPROTOCOL_TOKEN, Frame
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.rooms import CreateRoom
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import Hello, RefreshToken
from appliance.formats.client.subscribing import SubscribeRoom, UnsubscribeRoom
from tests.drivers.network.quic.quic_client import dial as dial_quic
from tests.ports import FreePorts
from tests.removal import folder_on_disk
from tests.roles.edge_site import EdgeSite, insecure
from tests.roles.ways import (
    WAYS,
    Ended,
    EventsHttp3,
    EventsTcp,
    PollingHttp3,
    PollingTcp,
    Way,
    WebSocketHttp3,
    WebSocketTcp,
    WebTransport,
    plain,
)
from tests.system.local_site import wait_until

UNLIMITED = dict.fromkeys(("device_rate", "user_rate", "room_rate", "address_rate"), 10_000_000)
VARYING = {"timestamp", "hash", "expires_at", "detail", "stale_since"}
KINDS = [(way, binary) for way in WAYS for binary in (True, False) if way.speaks(binary)]


@pytest.fixture(scope="module")
def site(free_ports: FreePorts) -> Iterator[EdgeSite]:
    """Two nodes; tests leave them as they were."""
    ports = next(port for port in free_ports(310) if port % 10 == 0)
    with folder_on_disk() as place:
        with EdgeSite(place / "a", nodes=2, ports=ports, **UNLIMITED) as made:
            made.start_all()
            yield made


class Told:
    """A transcript: of each step what was answered, with the ids by their first appearance."""

    def __init__(self, room_name: str) -> None:
        self.steps: list[tuple[str, list[Any]]] = []
        self._room_name = room_name
        self._ids: dict[str, str] = {}

    def add(self, step: str, answers: list[Any]) -> None:
        self.steps.append((step, [self._normal(one) for one in answers]))

    def _normal(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._normal(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self._normal(one) for one in value]
        if key in VARYING:
            return "varies"
        if isinstance(value, str) and len(value) == 36 and value.count("-") == 4:
            return self._ids.setdefault(value, f"id {len(self._ids)}")
        return value.replace(self._room_name, "ROOM") if isinstance(value, str) else value


class Conversation:
    """The steps, in one way."""

    def __init__(self, site: EdgeSite, way: type[Way], binary: bool) -> None:
        self.site, self.way, self.binary = site, way, binary
        self.name = f"ways-{uuid.uuid4()}"[:30]
        self.told = Told(self.name)
        self.device, self.other = uuid.uuid4(), uuid.uuid4()

    def open(self, node: int = 0) -> Way:
        return self.way(self.site.ports[node], binary=self.binary)

    async def step(self, way: Way, name: str, *frames: Frame, answers: int = 1) -> list[Any]:
        if frames:
            await way.send(*frames)
        got = [plain(await way.next()) for _ in range(answers)]
        print(f"{time.monotonic():.2f} {name}")
        self.told.add(name, got)
        return got

    async def ended(self, way: Way, name: str) -> None:
        try:
            frame = await way.next()
        except Ended as error:
            self.told.add(name, [error.code])
        else:
            raise AssertionError(f"not closed but {frame}")

    def hello(self, user: str = "anna", **named: Any) -> Hello:
        token = named.pop("token", None) or self.site.token(user)
        return Hello(token=token, client_id=self.device, **named)

    async def run(self) -> list[tuple[str, list[Any]]]:
        async with self.open() as way:
            await self.step(way, "wrong token", self.hello(token="wrong"))
            await self.ended(way, "and its end")
        async with self.open() as way:
            await self.step(way, "no hello", Ping())
            await self.ended(way, "and its end")
        async with self.open() as way:
            await self.step(way, "hello", self.hello(request="first"))
            await self._rooms(way)
            await self._sends(way)
            await self._follows(way)
            await self._reads(way)
            await self._refuses(way)
        async with self.open(node=1) as way:
            await self._resumes(way)
        return self.told.steps

    async def _rooms(self, way: Way) -> None:
        create = CreateRoom(name=self.name, request="r1")
        (room,) = await self.step(way, "create", create)
        self.room = uuid.UUID(room["room_id"])
        await self.step(way, "create again", create)
        await self.step(way, "create without a name", CreateRoom(name="", request="r2"))
        await self.step(way, "create with a long name", CreateRoom(name="x" * 200))
        await self.step(way, "ping", Ping(request="p"))

    def message(self, seq: int, body: str = "", **named: Any) -> SendMessage:
        room = named.pop("room_id", self.room)
        return SendMessage(room_id=room, client_seq=seq, body=body or f"message {seq}", **named)

    async def _sends(self, way: Way) -> None:
        await self.step(way, "send", self.message(1))
        await self.step(way, "send again", self.message(1))
        await self.step(way, "send another", self.message(2, "größer ✓"))
        await self.step(way, "leave a gap", self.message(5))
        await self.step(way, "fill it", self.message(3))
        await self.step(way, "a body that is too large", self.message(4, "x" * 2049))
        await self.step(way, "an empty body", SendMessage(room_id=self.room, client_seq=4, body=""))
        nowhere = uuid.UUID(int=77)
        await self.step(way, "an unknown room", self.message(1, room_id=nowhere))
        await self.step(way, "the largest body", self.message(4, "y" * 2048))
        many = [self.message(seq) for seq in range(5, 25)]
        await self.step(way, "many at once", *many, answers=len(many))
        (ack,) = await self.step(way, "once more", self.message(25))
        assert "msg_id" in ack, ack
        parent = uuid.UUID(ack["msg_id"])
        await self.step(way, "a reply", self.message(26, parent_id=parent))

    async def _follows(self, way: Way) -> None:
        room = self.room
        await self.step(way, "from 1", SubscribeRoom(room_id=room, since_op=0), answers=28)
        await self.step(way, "an event and its ack", self.message(27), answers=2)
        unsubscribe = UnsubscribeRoom(room_id=room, request="u")
        await self.step(way, "unsubscribe", unsubscribe)
        await self.step(way, "unsubscribe again", unsubscribe)
        await self.step(way, "only an ack", self.message(28))
        await self.step(way, "the last 3", SubscribeRoom(room_id=room, last=3), answers=4)
        await self.step(way, "only what follows", SubscribeRoom(room_id=room))
        other = SubscribeRoom(room_id=room, since_op=3, epoch=7)
        await self.step(way, "another site's", other, answers=30)
        await self.step(way, "nobody's", SubscribeRoom(room_id=uuid.UUID(int=78), since_op=0))

    async def _reads(self, way: Way) -> None:
        room = self.room
        await self.step(way, "history", SnapshotRequest(room_id=room, limit=5))
        await self.step(way, "to its end", SnapshotRequest(room_id=room, from_op=25))
        back = SnapshotRequest(room_id=room, limit=2, backward=True, request="b")
        await self.step(way, "backward", back)
        within = SnapshotRequest(room_id=room, from_op=3, until_op=4)
        await self.step(way, "a range", within)
        await self.step(way, "no such limit", SnapshotRequest(room_id=room, limit=5000))
        await self.step(way, "nobody's history", SnapshotRequest(room_id=uuid.UUID(int=79)))

    async def _refuses(self, way: Way) -> None:
        token = self.site.token()
        await self.step(way, "refresh", RefreshToken(token=token, request="t"))
        await self.step(way, "another's token", RefreshToken(token=self.site.token("bert")))
        await self.step(way, "a broken token", RefreshToken(token="x.y.z"))
        await self.step(way, "it lives", Ping(request="alive"))

    async def _resumes(self, way: Way) -> None:
        await self.step(way, "elsewhere", self.hello())
        resume = SubscribeRoom(room_id=self.room, since_op=20)
        await self.step(way, "resume", resume, answers=10)
        await self.step(way, "a double send there", self.message(28))
        await self.step(way, "send there", self.message(29), answers=2)
        async with self.open() as reader:
            rights = {"*": ["read"]}
            token = self.site.token("carl", rights)
            await self.step(reader, "a reader", self.hello(token=token))
            await self.step(reader, "may not send", self.message(1))
            await self.step(reader, "nor create", CreateRoom(name=self.name + "2"))


def figures(site: EdgeSite, name: str) -> dict[tuple[str, ...], float]:
    """A metric of the first edge, by transport, and by reason where it has one."""
    families = text_string_to_metric_families(site.figures(0).decode())
    return {
        tuple(one.labels[label] for label in ("transport", "reason") if label in one.labels): (
            one.value
        )
        for family in families
        for one in family.samples
        if one.name == f"tigerchat_edge_{name}"
    }


def test_every_way_is_counted_by_what_carries_it_and_so_is_why_it_was_refused(
    site: EdgeSite,
) -> None:
    """Before the others: what they do not leave is counted for half a minute."""
    kinds = {"websocket", "websocket_http3", "webtransport", "events", "long_poll"}

    def nobody_is_there() -> bool:
        now = figures(site, "transport_connections")
        return not any(now[name,] for name in kinds)

    wait_until(nobody_is_there, 60, "conversations that nobody has left end when they are silent")

    async def test() -> None:
        bytes_before = figures(site, "received_bytes_total"), figures(site, "sent_bytes_total")
        refused_before = figures(site, "refusals_total")
        ended_before = figures(site, "ends_total")
        async with contextlib.AsyncExitStack() as stack:
            ways = [
                await stack.enter_async_context(way(site.ports[0], binary=False)) for way in WAYS
            ]
            for way in ways:
                await way.send(Hello(token=site.token(), client_id=uuid.uuid4()))
                assert plain(await way.next())["type"] == "welcome"
                for _ in range(2):  # a stream of events begins when it is read from
                    await way.send(Ping())
                    assert plain(await way.next())["type"] == "pong"
            now = figures(site, "transport_connections")
            assert {name for (name,) in now} == kinds | {"http", "http3"}
            assert {name: now[name,] for name in kinds} == {
                **dict.fromkeys(kinds, 1),
                "events": 2,  # by HTTP/1.1 and HTTP/3
                "long_poll": 2,
            }
            assert now["http",] >= 1 and now["http3",] == 2  # which bear those
        size = len((await asyncio.to_thread(site.get, 0, "/"))[1])
        async with dial_quic(site.ports[0]) as client:
            assert len((await client.fetch("/")).body) == size
        for before, name in zip(bytes_before, ("received", "sent"), strict=True):
            after = figures(site, f"{name}_bytes_total")
            for kind in kinds:
                assert after[kind,] > before[kind,], (name, kind)
        for kind in ("http", "http3"):
            assert after[kind,] - bytes_before[1][kind,] == size
        for way in (WebSocketTcp, WebSocketHttp3, WebTransport):
            with pytest.raises(Ended):
                async with with_token(site, way, "authorization", "x.y.z"):
                    pass
            async with way(site.ports[0], binary=False) as one:
                await one.send(Hello(token="wrong", client_id=uuid.uuid4()))
                with pytest.raises(Ended):
                    while True:
                        await one.next()
        refused, ended = figures(site, "refusals_total"), figures(site, "ends_total")
        for kind in ("websocket", "websocket_http3", "webtransport"):
            row = kind, "token_invalid"
            assert refused[row] - refused_before.get(row, 0) == 1, row
            assert ended[row] - ended_before.get(row, 0) == 1, row

    asyncio.run(test())


@pytest.fixture(scope="module")
def first(site: EdgeSite) -> list[tuple[str, list[Any]]]:
    """What is said over TCP, in binary."""
    return asyncio.run(Conversation(site, WebSocketTcp, True).run())


@pytest.mark.parametrize(("way", "binary"), KINDS[1:], ids=lambda one: getattr(one, "name", one))
def test_a_conversation_is_the_same_by_every_way(
    site: EdgeSite, first: list[tuple[str, list[Any]]], way: type[Way], binary: bool
) -> None:
    assert len(first) >= 40
    said = asyncio.run(Conversation(site, way, binary).run())
    for ours, theirs in zip(said, first, strict=True):
        assert ours == theirs, ours[0]


HANDSHAKES = [
    (way, by) for way in (WebSocketTcp, WebSocketHttp3) for by in ("authorization", "subprotocol")
] + [(WebTransport, "authorization")]


def with_token(site: EdgeSite, way: type[Way], by: str, token: str) -> Way:
    """A conversation to be, whose handshake brings `token`."""
    made = way(site.ports[0], binary=False)
    if by == "authorization":
        made.authorization = f"Bearer {token}"
    else:
        made.offers = [SUBPROTOCOL_TOKEN + token]
    return made


@pytest.mark.parametrize(("way", "by"), HANDSHAKES, ids=lambda one: getattr(one, "name", one))
def test_a_token_at_the_handshake_is_judged_there_and_hello_needs_none(
    site: EdgeSite, way: type[Way], by: str
) -> None:
    def token(**named: Any) -> str:
        return site.token("anna", **named)

    async def refused(token: str) -> dict[str, Any]:
        one = with_token(site, way, by, token)
        with pytest.raises(Ended):
            async with one:
                pass
        assert one.refused is not None and one.refused.status == 401
        assert one.refused.fields["www-authenticate"] == "Bearer"
        assert one.refused.fields["content-type"] == "application/json"
        return json.loads(one.refused.body)["error"]

    async def greeted(hello: Hello, brought: str = "") -> dict[str, Any]:
        async with with_token(site, way, by, brought or token()) as one:
            await one.send(hello)
            return plain(await one.next())

    async def test() -> None:
        device = uuid.uuid4()
        good = token()
        forged = good[:-8] + ("B" * 8 if good.endswith("A" * 8) else "A" * 8)
        for bad in ("x.y.z", forged):
            told = await refused(bad)
            assert told["name"] == "token_invalid" and told["code"] == 2010, told
        old = token(ttl_s=-1)
        assert (await refused(old))["name"] == "token_expired"
        welcome = await greeted(Hello(client_id=device))
        assert (welcome["type"], welcome["author"]) == ("welcome", "anna")
        welcome = await greeted(Hello(token=token(), client_id=device))
        assert welcome["type"] == "welcome"
        bert = site.token("bert")
        assert (await greeted(Hello(token=bert, client_id=device)))["name"] == "token_invalid"
        assert (await greeted(Hello(client_id=uuid.UUID(int=0))))["name"] == "field_invalid"

    asyncio.run(test())


def test_a_handshake_brings_one_token_which_is_a_bearers_and_is_never_told_back(
    site: EdgeSite,
) -> None:
    async def test() -> None:
        one = WebSocketTcp(site.ports[0], binary=True)
        one.offers = [SUBPROTOCOL_TOKEN + site.token()]
        async with one:
            assert one.socket.subprotocol == one.subprotocol
        for authorization, offers in (
            ("Basic YW5uYTphbm5h", []),
            (f"Bearer {site.token()}", [SUBPROTOCOL_TOKEN + site.token()]),
            ("", [SUBPROTOCOL_TOKEN + site.token("anna"), SUBPROTOCOL_TOKEN + site.token("bert")]),
        ):
            one = WebSocketTcp(site.ports[0], binary=True)
            one.authorization, one.offers = authorization, offers
            with pytest.raises(Ended) as ended:
                async with one:
                    pass
            assert ended.value.code == 401
        async with WebSocketTcp(site.ports[0], binary=False) as one:
            await one.send(Hello(client_id=uuid.uuid4()))
            assert plain(await one.next())["name"] == "token_invalid"

    asyncio.run(test())


MESSAGES = 60


@pytest.mark.parametrize(
    ("way", "next_way"),
    [
        (WebSocketTcp, WebTransport),
        (WebTransport, EventsTcp),
        (EventsTcp, PollingHttp3),
        (PollingHttp3, WebSocketHttp3),
        (WebSocketHttp3, PollingTcp),
        (PollingTcp, EventsHttp3),
        (EventsHttp3, WebSocketTcp),
    ],
    ids=lambda way: way.name,
)
def test_a_killed_edge_is_left_for_another_way_and_node_and_each_message_is_there_once(
    site: EdgeSite, way: type[Way], next_way: type[Way]
) -> None:
    hello = Hello(token=site.token("anna"), client_id=uuid.uuid4())

    async def begin(one: Way, room: uuid.UUID, since_op: int) -> None:
        await one.send(hello)
        assert plain(await one.next())["type"] == "welcome"
        await one.send(SubscribeRoom(room_id=room, since_op=since_op))

    async def test() -> None:
        bodies: dict[int, str] = {}  # of the events that came, by their op
        acked: set[int] = set()

        async def take(one: Way) -> None:
            said = plain(await one.next())
            if said["type"] == "message_ack":
                acked.add(said["client_seq"])
            elif said["type"] == "message_event" and said["kind"] == 0:
                assert said["op"] not in bodies and said["op"] > max(bodies, default=0)
                bodies[said["op"]] = said["body"]
            assert said["type"] != "error", said

        async with way(site.ports[0], binary=way.speaks(True)) as first:
            await first.send(hello)
            await first.next()
            await first.send(CreateRoom(name=f"killed-{uuid.uuid4()}"[:30]))
            room = uuid.UUID(plain(await first.next())["room_id"])
            sends = [
                SendMessage(room_id=room, client_seq=seq, body=f"message {seq}")
                for seq in range(1, MESSAGES + 1)
            ]
            await first.send(SubscribeRoom(room_id=room, since_op=0))
            for send in sends[: MESSAGES // 3]:
                await first.send(send)
                while send.client_seq not in acked:
                    await take(first)
            await first.send(*sends[MESSAGES // 3 : 2 * MESSAGES // 3])  # nobody hears of these
            site.edges[0].kill()
        seen_op = max(bodies, default=0)
        async with next_way(site.ports[1], binary=False) as second:
            await begin(second, room, seen_op)
            await second.send(*[send for send in sends if send.client_seq not in acked])
            while len(acked) < MESSAGES or len(bodies) < MESSAGES:
                await take(second)
        assert [bodies[op] for op in sorted(bodies)] == [send.body for send in sends]

    try:
        asyncio.run(test())
    finally:
        site.stop_edge(0)
        site.start_edge(0)
        site.wait_serving(0)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_client_of_ours_has_each_message_once_and_in_order_by_every_transport(
    site: EdgeSite, name: str
) -> None:
    """Also over a connection that breaks in between."""
    count, room_name = 100, f"ours-{name}"
    endpoints = [Endpoint("127.0.0.1", port, insecure()) for port in site.ports]
    carried = transport_named(name)

    async def story() -> None:
        speaker = Client(endpoints, site.token, **carried._asdict())
        listener = Client(endpoints, site.token, **carried._asdict(), first_endpoint=1)
        async with speaker, listener:
            room_id = (await speaker.create_room(room_name)).room_id
            await speaker.send(room_id, "0")
            subscription = await listener.subscribe(room_id, since_op=1)
            bodies: list[str] = []
            for upto in (count // 2, count):
                acks = [
                    await speaker.post(room_id, str(number))
                    for number in range(max(1, len(bodies)), upto)
                ]
                assert [(await ack).op for ack in acks][-1] == upto + 1
                async for event in subscription:
                    bodies.append(event.body)
                    if len(bodies) == upto:
                        break
                assert listener._connection is not None
                if upto < count:
                    listener._connection.abort()
            assert bodies == [str(number) for number in range(count)]
            assert (speaker.connects, listener.connects) == (1, 2)

    asyncio.run(story())
