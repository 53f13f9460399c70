"""What a subscription keeps of a room's objects, and where it stands between the messages."""

import asyncio
from uuid import UUID

from appliance.drivers.chat.subscription import Subscription
from appliance.formats.client.objects import ObjectEvent, ObjectState
from appliance.formats.client.subscribing import MessageEvent, SubscribeRoom

ROOM = UUID(int=1)
STATE = ObjectState(room_id=ROOM, items=[])
TOPIC = ObjectEvent(room_id=ROOM, kind="topic", text="Today")
TYPING = ObjectEvent(room_id=ROOM, kind="typing", author="bob")


def message(op: int) -> MessageEvent:
    ids = {"room_id": ROOM, "msg_id": UUID(int=op), "client_id": UUID(int=9), "author_id": "7"}
    return MessageEvent(op=op, author="anna", timestamp=op, client_seq=op, kind=0, body="", **ids)


def subscription(*, objects: bool) -> Subscription:
    """One that was told of two messages, of objects before, between and behind them, and ended."""
    made = Subscription(SubscribeRoom(room_id=ROOM), lambda: None, objects=objects)
    made.next_op = 1
    made.on_objects(STATE)
    assert made.on_event(message(1))
    made.on_objects(TYPING)
    made.on_objects(TOPIC)
    assert made.on_event(message(2))
    made.end()
    return made


def test_objects_stand_between_the_messages_as_they_came_if_they_are_wished() -> None:
    async def everything(made: Subscription) -> list[object]:
        return [event async for event in made.everything()]

    wished, others = subscription(objects=True), subscription(objects=False)
    assert (wished.waiting, others.waiting) == (4, 2)
    assert asyncio.run(everything(wished)) == [STATE, message(1), TOPIC, message(2)]
    assert asyncio.run(everything(others)) == [message(1), message(2)]


def test_who_reads_messages_alone_gets_these() -> None:
    async def messages(made: Subscription) -> list[MessageEvent]:
        return [event async for event in made]

    found = asyncio.run(messages(subscription(objects=True)))
    assert found == [message(1), message(2)]
