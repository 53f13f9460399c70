"""What an archive becomes is the same each time, threads find their ids, changes are noticed."""

from typing import Any
from uuid import UUID

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.archive.entry import Entry
from appliance.formats.archive.plan import Plan, device_of, room_name_of
from appliance.formats.room_name import room_name_valid

DEVICE = device_of("mbox", "/some/where", "", "alice")
SECOND = 1_000_000


def entry(room: str, key: str, parent: str = "", text: str = "words") -> Entry:
    return Entry(room, "Ann", 1_000_000_000 * SECOND, key, parent, text)


ENTRIES = [
    entry("chess", "reply", parent="first"),  # before what it answers
    entry("chess", "first", text="long " * 1000),
    entry("go", "other", parent="first"),  # answers something of another room
    entry("chess", "self", parent="self"),
    entry("chess", "lost", parent="nowhere"),
]


def planned(entries: list[Entry], device: UUID = DEVICE, room: str | None = None) -> Any:
    plan = Plan(device, room)
    assert plan.survey(entries, {}) == []
    return plan, list(plan.messages(entries))


def test_plan_numbers_each_room_and_cuts_nothing_off() -> None:
    plan, messages = planned(ENTRIES)
    assert plan.rooms == {"chess": 6, "go": 1} and plan.entries == 5
    chess = [message for message in messages if message.room == "chess"]
    assert [message.position for message in chess] == [1, 2, 3, 4, 5, 6]
    pieces = chess[1:4]
    texts = [piece.body.removeprefix(f"{1_000_000_000 * SECOND} Ann\n") for piece in pieces]
    assert "".join(texts) == "long " * 1000
    assert all(len(message.body.encode()) <= BODY_SIZE_MAX for message in messages)


def test_plan_threads_replies_and_further_pieces() -> None:
    _, (reply, first, second, third, other, itself, lost) = planned(ENTRIES)
    assert reply.parent_id == first.msg_id
    assert second.parent_id == third.parent_id == first.msg_id
    assert first.parent_id is other.parent_id is itself.parent_id is lost.parent_id is None


def test_plan_is_the_same_each_time_and_another_for_another_device() -> None:
    _, messages = planned(ENTRIES)
    assert planned(ENTRIES)[1] == messages
    _, others = planned(ENTRIES, device=device_of("mbox", "/some/where", "", "bob"))
    assert {message.msg_id for message in messages}.isdisjoint(m.msg_id for m in others)
    assert all(message.msg_id.version == 8 for message in messages)


def test_plan_into_one_room_keeps_the_order_of_the_archive() -> None:
    plan, messages = planned(ENTRIES, room="all")
    assert plan.rooms == {"all": 7}
    assert [message.position for message in messages] == [1, 2, 3, 4, 5, 6, 7]
    assert messages[4].parent_id == messages[1].msg_id  # now in the same room


def test_plan_notices_an_archive_that_changed_before_where_it_got() -> None:
    _, messages = planned(ENTRIES)
    mark = {"chess": (4, messages[3].mark), "go": (1, messages[4].mark)}
    grown = [*ENTRIES, entry("chess", "new")]
    assert Plan(DEVICE).survey(grown, mark) == []
    changed = [ENTRIES[0]._replace(text="other words"), *ENTRIES[1:]]
    assert Plan(DEVICE).survey(changed, mark) == ["chess"]
    assert Plan(DEVICE).survey(ENTRIES[:1], mark) == ["chess", "go"]


def test_room_names_that_are_not_allowed_become_ones_that_are_and_stay_apart() -> None:
    names = ["  x", "x  ", "", "a\tb", "ü" * 200, "\ud800", "\x00"]
    made = [room_name_of(name) for name in names]
    assert all(room_name_valid(name) for name in made)
    assert len(set(made)) == len(made)
    assert room_name_of("fine name") == "fine name"
