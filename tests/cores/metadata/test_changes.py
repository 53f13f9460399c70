"""What is told of a batch: each change once, whatever way it came."""

from typing import Any

import pytest

from appliance.base.limits import OBJECT_CHANGES_MAX
from appliance.cores.metadata import product
from appliance.cores.metadata.changes import changes
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.objects import Objects
from appliance.cores.metadata.replica import Replica
from appliance.simulation.objects.memory_store import MemoryStore
from tests.cores.metadata.pair import A, B, Wire, run

ROOM, MESSAGE = "lobby", "0190b6d0-0000-7000-8000-000000000001"


class Told(Exchange):
    """Notes what each batch changes before it is written."""

    def settle(self) -> None:
        if self.replica.table.changed:
            self.told += changes(self.objects, self.replica.table)
        super().settle()


def node(source: int) -> Told:
    end = Told(Replica(MemoryStore(), source=source, shared=product.PACKETS))
    end.objects, end.told = Objects(end.replica), []
    return end


def take(end: Told) -> list[dict[str, Any]]:
    end.settle()
    told, end.told = end.told, []
    return told


def test_each_kind_of_change_is_told_with_what_it_changed() -> None:
    one = node(A)
    one.objects.set_topic(ROOM, "Today")
    one.objects.describe(ROOM, product.DESCRIPTION, "Where we meet")
    one.objects.pin(ROOM, MESSAGE, pinned=True)
    one.objects.react(MESSAGE, "ann@1", "+1", present=True, room=ROOM)
    one.objects.mark_read("ann@1", "lobby@1", 7)
    one.objects.set_profile("ann@1", product.SHOWN_NAME, "Ann")
    one.objects.see("ann@1", 1000)
    reaction = {"kind": "reaction", "room": ROOM, "message": MESSAGE, "user": "ann@1", "text": "+1"}
    expected = [
        {"kind": "topic", "room": ROOM, "text": "Today"},
        {"kind": "description", "room": ROOM, "text": "Where we meet"},
        {"kind": "pin", "room": ROOM, "message": MESSAGE, "present": True},
        reaction | {"present": True},
        {"kind": "read_marker", "user": "ann@1", "room": "lobby@1", "op": 7},
        {"kind": "profile", "user": "ann@1", "name": "Ann", "about": "", "picture": ""},
        {"kind": "seen", "user": "ann@1", "seen_ms": 1000},
    ]
    assert take(one) == expected
    assert take(one) == []
    one.objects.react(MESSAGE, "ann@1", "+1", present=False, room=ROOM)
    one.objects.pin(ROOM, MESSAGE, pinned=False)
    told = take(one)
    assert {"kind": "pin", "room": ROOM, "message": MESSAGE, "present": False} in told
    assert reaction | {"present": False} in told and len(told) == 2


def test_what_was_told_already_is_not_told_again_when_it_comes_from_another() -> None:
    one, two = node(A), node(B)
    for end in (one, two):  # each alone makes the objects of the same keys
        end.objects.set_topic(ROOM, "Same")
        end.objects.react(MESSAGE, "ann@1", "+1", present=True, room=ROOM)
    two.objects.react(MESSAGE, "bob@1", "+1", present=True, room=ROOM)
    assert len(take(one)) == 2 and len(take(two)) == 3
    run(Wire(one, two))
    told = take(one)
    assert [(row["kind"], row["user"]) for row in told] == [("reaction", "bob@1")]
    assert take(two) == []
    assert one.objects.reactions(MESSAGE, ROOM) == [("ann@1", "+1"), ("bob@1", "+1")]


def test_reactions_made_in_another_room_do_not_count() -> None:
    one = node(A)
    one.objects.react(MESSAGE, "eve@1", "+1", present=True, room="elsewhere")
    one.objects.react(MESSAGE, "ann@1", "+1", present=True, room=ROOM)
    told = take(one)
    assert [(row["room"], row["user"]) for row in told] == [("elsewhere", "eve@1"), (ROOM, "ann@1")]
    assert one.objects.reactions(MESSAGE, ROOM) == [("ann@1", "+1")]
    assert one.objects.reacted(ROOM) == one.objects.reacted("elsewhere") == [MESSAGE]


def test_messages_with_reactions_come_newest_first_and_in_pages() -> None:
    one = node(A)
    messages = [f"0190b6d0-0000-7000-8000-{number:012x}" for number in range(30)]
    for message in messages:
        one.objects.react(message, "ann@1", "+1", present=True, room=ROOM)
        one.objects.react(message, "ann@1", "+1", present=True, room="other")
    one.settle()
    found, before = [], ""
    while page := one.objects.reacted(ROOM, before, 7):
        assert len(page) <= 7
        found += page
        before = page[-1]
    assert found == messages[::-1]


def test_too_much_at_once_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OBJECT_CHANGES_MAX > 40
    monkeypatch.setattr("appliance.cores.metadata.changes.OBJECT_CHANGES_MAX", 40)
    one = node(A)
    for count, told in ((40, 40), (41, 1)):
        for number in range(count):
            one.objects.set_topic(f"room {number}", f"of {count}")
        found = take(one)
        assert len(found) == told
    assert found == [{"kind": "reset"}]
