"""A client whose nodes cut its connections still sends each message once and hears each once."""

import asyncio
import random
import time
from typing import Any
from uuid import uuid4

import pytest

from appliance.base.errors import ConfigurationError
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.endpoint import Endpoint, endpoint_of_url
from appliance.drivers.chat.errors import ConnectionLost, Refused, SiteUnreachable
from appliance.formats.client.connection import Pong
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.rooms import CreateRoom, ListRooms, RoomsPage
from appliance.formats.client.subscribing import Subscribed, SubscribeRoom
from tests.drivers.chat.small_site import SmallSite, eventually

BOTH = pytest.mark.parametrize("subprotocol", [SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON])


def client_of(site, **options: Any):
    return Client(site.endpoints, lambda: "token", **options)


async def heard(subscription, count: int):
    events = []
    async for event in subscription:
        events.append(event)
        if len(events) == count:
            return events
    return events


@BOTH
def test_client_sends_each_message_once_and_in_order_whatever_is_cut(
    subprotocol: str, seed: int
) -> None:
    async def story() -> None:
        async with SmallSite(seed=seed, cut_chance=0.01, busy_chance=0.02) as site:
            async with client_of(site, subprotocol=subprotocol) as client:
                rooms = [(await client.create_room(name)).room_id for name in ("a", "b")]
                acks = [await client.post(rooms[i % 2], f"m{i}") for i in range(400)]
                told = [await ack for ack in acks]
            assert site.cuts > 3 and site.busies > 3
            for which, room in enumerate(rooms):
                bodies = [event.body for event in site.rooms[room]]
                assert bodies == [f"m{i}" for i in range(which, 400, 2)]
                assert [ack.op for ack in told[which::2]] == list(range(1, 201))

    asyncio.run(story())


@BOTH
def test_subscription_hears_each_message_once_and_in_order_whatever_is_cut(
    subprotocol: str, seed: int
) -> None:
    async def story() -> None:
        async with (
            SmallSite(seed=seed, cut_chance=0.01, busy_chance=0.3) as site,
            client_of(site, subprotocol=subprotocol) as speaker,
            client_of(site, subprotocol=subprotocol, first_endpoint=1) as listener,
        ):
            room = (await speaker.create_room("a")).room_id
            await speaker.send(room, "before")
            subscription = await listener.subscribe(room, since_op=0)
            for i in range(300):
                await speaker.post(room, f"m{i}")
            events = await heard(subscription, 301)
            assert [event.op for event in events] == list(range(1, 302))
            assert events[1].body == "m0" and listener.connects > 1

    asyncio.run(story())


def test_subscription_that_is_not_read_stays_bounded_and_loses_nothing() -> None:
    async def story() -> None:
        async with (
            SmallSite(nodes=1) as site,
            client_of(site) as speaker,
            client_of(site) as listener,
        ):
            room = (await speaker.create_room("a")).room_id
            subscription = await listener.subscribe(room, since_op=0)
            acks = [await speaker.post(room, "x" * 500) for _ in range(9000)]
            await acks[-1]
            assert subscription.waiting < 6000  # EVENTS_MAX and what one read brought
            events = await heard(subscription, 9000)
            assert [event.op for event in events] == list(range(1, 9001))

    asyncio.run(story())


def test_refused_message_ends_the_numbering_of_its_room_and_of_no_other() -> None:
    async def story() -> None:
        async with SmallSite(nodes=1) as site, client_of(site) as client:
            site.refuse_bodies.add("bad")
            one, two = [(await client.create_room(name)).room_id for name in ("a", "b")]
            await client.send(one, "good")
            refused = [await client.post(one, body) for body in ("bad", "later")]
            for ack in refused:
                with pytest.raises(Refused, match="forbidden"):
                    await ack
            with pytest.raises(Refused):
                await client.post(one, "more")
            await client.send(two, "fine")
            assert [event.body for event in site.rooms[one]] == ["good"]

    asyncio.run(story())


@BOTH
@pytest.mark.parametrize(
    ("request_of", "ask"),
    [
        (CreateRoom, lambda client: client.create_room("a")),
        (ListRooms, lambda client: client.rooms()),
        (SnapshotRequest, lambda client: client.snapshot(uuid4())),
        (SubscribeRoom, lambda client: client.subscribe(uuid4())),
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        lambda request: Pong(request=request),
        lambda request: RoomsPage(rooms=[], next=None, request=request),
        lambda request: Subscribed(
            room_id=uuid4(), status="recovered", next_op=1, epoch=1, request=request
        ),
    ],
)
def test_an_answer_of_another_kind_than_was_asked_for_is_told_as_that(
    subprotocol: str, request_of: Any, ask: Any, answer: Any
) -> None:
    """What a node says is foreign: no assertion of ours may depend on it."""
    fits = {ListRooms: RoomsPage, SubscribeRoom: Subscribed}.get(request_of)
    if isinstance(answer("1"), fits or ()):
        return

    async def story() -> None:
        async with SmallSite(nodes=1) as site:
            site.confused[request_of] = answer
            async with client_of(site, subprotocol=subprotocol) as client:
                told = f"a node answered {request_of.__name__} with {type(answer('1')).__name__}"
                with pytest.raises(ConnectionLost, match=told):
                    await ask(client)

    asyncio.run(story())


@BOTH
def test_a_client_that_is_sent_on_goes_there_in_its_time_and_to_no_stranger(
    subprotocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda least, most: most)

    async def story() -> None:
        async with (
            SmallSite() as site,
            client_of(site, subprotocol=subprotocol, first_endpoint=0) as client,
        ):
            room = (await client.create_room("a")).room_id
            began = time.monotonic()
            await site.send_away(0, site.endpoints[2].url, spread=300)
            await client.send(room, "there")
            assert site.welcomes == [0, 2] and time.monotonic() - began >= 0.3
            await site.send_away(2, "ws://203.0.113.9:1/v1", spread=600_000)
            await client.send(room, "and on, in turn, at once")
            assert site.welcomes == [0, 2, 1]

    asyncio.run(story())


def test_refused_token_fails_at_once_with_the_sites_words() -> None:
    async def story() -> None:
        async with SmallSite(nodes=2) as site:
            with pytest.raises(Refused, match="token_expired"):
                async with Client(site.endpoints, lambda: "expired"):
                    raise AssertionError("the token must not be accepted")

    asyncio.run(story())


def test_a_token_that_is_refused_for_now_is_told_as_refused_though_other_nodes_are_silent(
    free_port: int,
) -> None:
    async def story() -> None:
        async with SmallSite(nodes=1) as site:
            silent = Endpoint("127.0.0.1", free_port, None)
            words = r"token_key_unknown \(2011\): it is"
            with pytest.raises(Refused, match=words):
                endpoints = [*site.endpoints, silent]
                async with Client(endpoints, lambda: "key_unknown", patience_s=0.5):
                    raise AssertionError("the token must not be accepted")

    asyncio.run(story())


def test_unreachable_site_is_given_up_after_the_patience(free_port: int) -> None:
    async def story() -> None:
        endpoints = [Endpoint("127.0.0.1", free_port, None)]
        with pytest.raises(SiteUnreachable, match="no node answers"):
            async with Client(endpoints, lambda: "token", patience_s=0.3):
                raise AssertionError("nobody listens there")

    asyncio.run(story())


def test_numbers_go_on_where_an_earlier_client_of_the_device_ended() -> None:
    async def story() -> None:
        async with SmallSite(nodes=1) as site:
            async with client_of(site) as first:
                room = (await first.create_room("a")).room_id
                await first.send(room, "one")
            async with client_of(site, client_id=first.client_id) as second:
                second.start_at(room, 2)
                assert (await second.send(room, "two")).op == 2
            await eventually(lambda: len(site.rooms[room]) == 2)

    asyncio.run(story())


@pytest.mark.parametrize("url", ["http://x", "wss://", "wss://x:99999", "wss://x/other", "x"])
def test_url_that_is_none_of_a_node_is_a_mistake(url: str) -> None:
    with pytest.raises(ConfigurationError, match="--url"):
        endpoint_of_url(url)
