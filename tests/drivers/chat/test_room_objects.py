"""What is news to the reader of a room's topic, pins and reactions: each change once."""

import random
from typing import Any
from uuid import UUID

from appliance.base.limits import PINS_MAX, REACTIONS_MAX
from appliance.drivers.chat import room_objects
from appliance.drivers.chat.room_objects import Change, RoomObjects
from appliance.formats.client.objects import ObjectEvent, ObjectItem, ObjectState

ROOM = UUID(int=1)


def of(number: int) -> UUID:
    """The id of a message."""
    return UUID(int=1000 + number)


def topic(text: str) -> dict[str, Any]:
    return {"kind": "topic", "text": text}


def pin(number: int) -> dict[str, Any]:
    return {"kind": "pin", "msg_id": of(number)}


def reaction(number: int, author: str = "anna", emoji: str = "+1") -> dict[str, Any]:
    return {"kind": "reaction", "msg_id": of(number), "author": author, "text": emoji}


def state(*items: dict[str, Any], cursor: UUID | None = None) -> ObjectState:
    return ObjectState(room_id=ROOM, cursor=cursor, items=[ObjectItem(**item) for item in items])


def event(fields: dict[str, Any], present: bool = True) -> ObjectEvent:
    return ObjectEvent(room_id=ROOM, present=present, **fields)


def told(changes: list[Change]) -> list[tuple[Any, ...]]:
    """(kind, number of the message, as it was shown; text, present)."""
    return [(e.kind, op, e.text or "", e.present) for e, op in changes]


def test_what_holds_is_told_at_first_and_reactions_with_their_messages() -> None:
    room = RoomObjects()
    room.shown(of(1), 1)
    first = state(topic("Today"), pin(9), reaction(1), reaction(2), reaction(2, "bob"))
    assert told(room.take(first)) == [
        ("topic", None, "Today", True),
        ("pin", None, "", True),
        ("reaction", 1, "+1", True),
    ]
    assert told(room.shown(of(2), 2)) == [("reaction", 2, "+1", True)] * 2
    assert room.shown(of(2), 2) == [], "each once"
    assert room.shown(of(3), 3) == []


def test_a_change_is_told_at_once_and_what_is_so_already_is_not() -> None:
    room = RoomObjects()
    room.take(state())
    for fields, op in ((topic("Today"), None), (pin(1), None), (reaction(1), None)):
        assert told(room.take(event(fields))) == [
            (fields["kind"], op, fields.get("text", ""), True)
        ]
        assert room.take(event(fields)) == []
    assert room.shown(of(1), 1) == [], "it was told though its message came later"
    assert told(room.take(event(reaction(1), present=False))) == [("reaction", 1, "+1", False)]
    assert room.take(event(reaction(1), present=False)) == []
    assert told(room.take(event(pin(1), present=False))) == [("pin", 1, "", False)]
    assert told(room.take(ObjectEvent(room_id=ROOM, kind="topic"))) == [("topic", None, "", True)]
    for kind in ("presence", "typing"):
        assert room.take(ObjectEvent(room_id=ROOM, kind=kind, author="anna")) == []


def test_of_a_state_that_comes_again_only_what_changed_meanwhile_is_told() -> None:
    room = RoomObjects()
    for number in (1, 2):
        room.shown(of(number), number)
    first = state(topic("Today"), pin(1), reaction(1), reaction(2), reaction(8))
    room.take(first)
    assert room.take(first) == []
    assert told(room.take(state(topic("Now"), pin(2), reaction(2), reaction(2, "bob")))) == [
        ("topic", None, "Now", True),
        ("pin", 1, "", False),
        ("reaction", 1, "+1", False),
        ("pin", 2, "", True),
        ("reaction", 2, "+1", True),
    ], "and nothing of a message that was never shown"


def test_reactions_that_are_older_than_the_state_tells_are_not_taken_for_gone() -> None:
    room = RoomObjects()
    for number in (1, 5):
        room.shown(of(number), number)
    room.take(state(reaction(1), reaction(5)))
    assert told(room.take(state(cursor=of(3)))) == [("reaction", 5, "+1", False)]
    assert told(room.take(event(reaction(1), present=False))) == [("reaction", 1, "+1", False)]


def test_all_that_is_kept_is_bounded() -> None:
    room = RoomObjects()
    for number in range(room_objects.KEPT_MAX + 50):
        room.shown(of(number), number)
        room.take(event(reaction(number)))
        room.take(event(pin(number)))
    for number in range(REACTIONS_MAX + 50):
        room.take(event(reaction(1, f"user-{number}")))
    sizes = (len(room.reactions), len(room._shown), len(room.pins), len(room.reactions[of(1)]))
    assert sizes == (room_objects.KEPT_MAX,) * 2 + (PINS_MAX, REACTIONS_MAX)


def test_what_was_told_adds_up_to_what_holds_whatever_came() -> None:
    """Changes at random, some of them missed; each state brings the reader up to date."""
    chance = random.Random(20261128)
    everything = [pin(n) for n in range(3)] + [
        reaction(n, author, emoji) for n in range(3) for author in "ab" for emoji in ("x", "y")
    ]
    for _ in range(200):
        room, holds, reader = RoomObjects(), set[int](), set[int]()

        def hear(changes: list[Change], reader: set[int] = reader) -> None:
            for one, _ in changes:
                fields = {name: getattr(one, name) for name in ("kind", "msg_id", "author", "text")}
                index = everything.index({k: v for k, v in fields.items() if v is not None})
                assert (index in reader) != one.present, "told twice"
                reader ^= {index}

        for number in range(3):
            hear(room.shown(of(number), number))
        for _ in range(20):
            index = chance.randrange(len(everything))
            holds ^= {index}
            if chance.random() < 0.7:
                hear(room.take(event(everything[index], present=index in holds)))
            if chance.random() < 0.2:
                hear(room.take(state(*(everything[i] for i in sorted(holds)))))
                assert reader == holds
