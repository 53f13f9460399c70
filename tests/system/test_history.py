"""The judge of client histories is judged: twenty and more planted faults are named, good ones
pass."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.history import check_history
from tests.system.ledger import Event, Ledger
from tests.system.local_site import TOP, environment

ROOM, OTHER_ROOM = "aa" * 16, "bb" * 16
COUNT, DEVICES = 60, 3
SUBSCRIBERS = (9, 10)


def message_of(op: int, room: str = ROOM) -> dict[str, Any]:
    return {
        "room": room,
        "client": f"{op % DEVICES:032x}",
        "seq": (op - 1) // DEVICES + 1,
        "body": f"message {op}",
    }


def answer_of(op: int) -> dict[str, Any]:
    told = {"op": op, "msg_id": f"{op:032x}", "timestamp": 1000 + op, "hash": f"{op:064x}"}
    return message_of(op) | told


def page(ops, room: str = ROOM) -> dict[str, Any]:
    return {"room": room, "messages": [message_of(op) | {"op": op} for op in ops]}


def good(count: int = COUNT) -> list[Event]:
    """Devices take turns, two subscribers hear each message, one reads a page now and then, one
    everything in the end."""
    events = []
    for op in range(1, count + 1):
        clock = 100 * op
        events.append(Event(clock, op % DEVICES, "invoke", "send", message_of(op)))
        events.append(Event(clock + 10, op % DEVICES, "ok", "send", answer_of(op)))
        for process in SUBSCRIBERS:
            events.append(
                Event(clock + 10 + process, process, "ok", "event", message_of(op) | {"op": op})
            )
        if op % 20 == 0:
            events.append(Event(clock + 30, 20, "invoke", "read", {"room": ROOM}))
            events.append(Event(clock + 40, 20, "ok", "read", page(range(op - 9, op + 1))))
    clock = 100 * count + 100
    events.append(Event(clock, 30, "invoke", "final", {"room": ROOM}))
    events.append(Event(clock + 1, 30, "ok", "final", page(range(1, count + 1))))
    return events


def place(events: list[Event], process: int, type_: str, f: str, op: int | None = None) -> int:
    """Index of the first such line, about this op."""
    return next(
        i
        for i, event in enumerate(events)
        if (event.process, event.type, event.f) == (process, type_, f)
        and (op is None or event.value.get("op") == op)
    )


def ack(events: list[Event], op: int) -> int:
    return place(events, op % DEVICES, "ok", "send", op)


def told(events: list[Event], process: int, op: int) -> int:
    return place(events, process, "ok", "event", op)


def change(events: list[Event], index: int, **values: Any) -> None:
    events[index] = events[index]._replace(value=events[index].value | values)


# --- planted faults: each changes a good history in one way ---------------------------------------


def acknowledged_message_is_missing_in_the_end(events: list[Event]) -> None:
    events[-1] = events[-1]._replace(value=page([*range(1, 30), *range(31, COUNT + 1)]))


def end_is_cut_off(events: list[Event]) -> None:
    events[-1] = events[-1]._replace(value=page(range(1, COUNT - 4)))


def subscriber_misses_one(events: list[Event]) -> None:
    del events[told(events, 9, 25)]


def page_has_a_hole(events: list[Event]) -> None:
    index = place(events, 20, "ok", "read")
    events[index] = events[index]._replace(value=page([11, 12, 14, 15, 16]))


def room_is_empty_in_the_end(events: list[Event]) -> None:
    events[-1] = events[-1]._replace(value=page([]))


def acknowledged_below_an_earlier_acknowledgement(events: list[Event]) -> None:
    first, second = ack(events, 20), ack(events, 24)
    events[first], events[second] = (
        events[first]._replace(value=events[first].value | {"op": 24}),
        events[second]._replace(value=events[second].value | {"op": 20}),
    )


def known_early(events: list[Event], process: int, f: str, value: dict[str, Any]) -> None:
    """Message 35 is sent, and somebody told of it, before message 30 is asked for."""
    before = events[ack(events, 30) - 1].time
    index = ack(events, 35) - 1
    events[index] = events[index]._replace(time=before - 3)
    events.append(Event(before - 2, process, "invoke", f, {"room": ROOM}))
    events.append(Event(before - 1, process, "ok", f, value))


def acknowledged_below_what_a_subscriber_knew(events: list[Event]) -> None:
    known_early(events, 11, "event", message_of(35) | {"op": 35})


def acknowledged_below_what_a_page_showed(events: list[Event]) -> None:
    known_early(events, 21, "read", page([35]))


def stored_under_two_ops(events: list[Event]) -> None:
    again = page(range(1, COUNT + 1))
    again["messages"].append(message_of(7) | {"op": COUNT + 1})
    events[-1] = events[-1]._replace(value=again)


def delivered_twice(events: list[Event]) -> None:
    index = told(events, 10, 33)
    events.insert(index + 1, events[index]._replace(time=events[index].time + 1))


def read_twice_in_one_page(events: list[Event]) -> None:
    index = place(events, 20, "ok", "read")
    events[index] = events[index]._replace(value=page([11, 12, 12, 13]))


def two_messages_acknowledged_as_one_op(events: list[Event]) -> None:
    change(events, ack(events, 41), op=40)


def subscribers_disagree_about_an_op(events: list[Event]) -> None:
    index = told(events, 10, 18)
    events[index] = events[index]._replace(value=message_of(15) | {"op": 18})


def room_ends_otherwise_than_acknowledged(events: list[Event]) -> None:
    swapped = page(range(1, COUNT + 1))
    swapped["messages"][49]["op"], swapped["messages"][50]["op"] = 51, 50
    swapped["messages"].sort(key=lambda message: message["op"])
    events[-1] = events[-1]._replace(value=swapped)


def device_overtakes_itself(events: list[Event]) -> None:
    for process in SUBSCRIBERS:
        change(events, told(events, process, 12), op=15)
    del events[ack(events, 15)]


def events_out_of_order(events: list[Event]) -> None:
    first, second = told(events, 9, 44), told(events, 9, 45)
    events[first], events[second] = (
        events[first]._replace(value=events[second].value),
        events[second]._replace(value=events[first].value),
    )


def page_out_of_order(events: list[Event]) -> None:
    index = place(events, 20, "ok", "read")
    events[index] = events[index]._replace(value=page([12, 11, 13]))


def body_altered_on_its_way_to_a_subscriber(events: list[Event]) -> None:
    change(events, told(events, 9, 50), body="message 5O")


def body_altered_on_disk(events: list[Event]) -> None:
    events[-1].value["messages"][5]["body"] = "nothing of that kind"


def repeated_message_has_another_hash(events: list[Event]) -> None:
    index = ack(events, 10)
    changed = events[index].value | {"hash": "ff" * 32}
    events.append(events[index]._replace(time=events[-1].time + 1, value=changed))


def repeated_message_is_stored_again(events: list[Event]) -> None:
    index = ack(events, 10)
    changed = events[index].value | {"op": COUNT + 1}
    events.append(events[index]._replace(time=events[-1].time + 1, value=changed))


def delivered_and_never_sent(events: list[Event]) -> None:
    change(events, told(events, 9, 60), seq=4000)


def delivered_before_it_was_sent(events: list[Event]) -> None:
    index = told(events, 9, 60)
    events[index] = events[index]._replace(time=events[index].time - 50)


def acknowledged_and_never_sent(events: list[Event]) -> None:
    del events[place(events, 35 % DEVICES, "ok", "send", 35) - 1]


def delivered_in_another_room(events: list[Event]) -> None:
    change(events, told(events, 9, 50), room=OTHER_ROOM)


def refused_and_delivered(events: list[Event]) -> None:
    index = ack(events, 52)
    events[index] = events[index]._replace(type="fail", value=message_of(52))


def refused_and_acknowledged(events: list[Event]) -> None:
    index = ack(events, 53)
    events.append(events[index]._replace(type="fail", value=message_of(53)))


def time_runs_backwards(events: list[Event]) -> None:
    change(events, ack(events, 40), timestamp=900)


PLANTED = [
    (acknowledged_message_is_missing_in_the_end, "lost"),
    (end_is_cut_off, "lost"),
    (subscriber_misses_one, "lost"),
    (page_has_a_hole, "lost"),
    (room_is_empty_in_the_end, "lost"),
    (acknowledged_below_an_earlier_acknowledgement, "stale"),
    (acknowledged_below_what_a_subscriber_knew, "stale"),
    (acknowledged_below_what_a_page_showed, "stale"),
    (stored_under_two_ops, "doubled"),
    (delivered_twice, "doubled"),
    (read_twice_in_one_page, "doubled"),
    (two_messages_acknowledged_as_one_op, "split"),
    (subscribers_disagree_about_an_op, "split"),
    (room_ends_otherwise_than_acknowledged, "split"),
    (device_overtakes_itself, "reordered"),
    (events_out_of_order, "reordered"),
    (page_out_of_order, "reordered"),
    (body_altered_on_its_way_to_a_subscriber, "altered"),
    (body_altered_on_disk, "altered"),
    (repeated_message_has_another_hash, "changed_ack"),
    (repeated_message_is_stored_again, "changed_ack"),
    (delivered_and_never_sent, "invented"),
    (delivered_before_it_was_sent, "invented"),
    (acknowledged_and_never_sent, "invented"),
    (delivered_in_another_room, "invented"),
    (refused_and_delivered, "refused"),
    (refused_and_acknowledged, "refused"),
    (time_runs_backwards, "time_back"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda item: getattr(item, "__name__", ""))
def test_history_with_a_planted_fault_is_rejected(plant: Callable[..., object], kind: str) -> None:
    events = good()
    assert check_history(events) == []
    plant(events)
    assert kind in {violation.kind for violation in check_history(events)}


def test_history_is_good_however_answers_overlap() -> None:
    """Asked at once, answered in another order; one given up and stored all the same."""
    events = [Event(op, op, "invoke", "send", message_of(op)) for op in range(1, 10)]
    for position, op in enumerate(random.Random(1).sample(range(1, 9), 8)):
        events.append(Event(20 + position, op, "ok", "send", answer_of(op)))
    events.append(Event(40, 9, "info", "send", message_of(9)))
    events.append(Event(50, 30, "invoke", "final", {"room": ROOM}))
    events.append(Event(51, 30, "ok", "final", page(range(1, 10))))
    assert check_history(events) == []


def test_room_creation_that_no_client_noted_is_no_fault() -> None:
    events = good()
    made = {"room": OTHER_ROOM, "client": "ff" * 16, "seq": 1, "body": "a room", "op": 1}
    events.append(Event(events[-1].time + 1, 9, "ok", "event", made))
    assert check_history(events) == []


def test_history_of_fifty_thousand_messages_is_judged() -> None:
    """A judge that compares each line with each other one would not come to an end."""
    assert check_history(good(50_000)) == []


def test_history_judge_as_a_command_names_faults_and_ends_with_1(tmp_path: Path) -> None:
    for name, plant, code in (("good", None, 0), ("bad", end_is_cut_off, 1)):
        events = good()
        if plant:
            plant(events)
        path = tmp_path / name
        path.write_text("".join(json.dumps(event._asdict()) + "\n" for event in events))
        done = subprocess.run(
            [sys.executable, "-m", "tests.system.history", str(path)],
            env=environment(), cwd=TOP, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert ("lost: " in done.stdout) == bool(plant)


def test_history_lines_are_one_json_object_each(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for event in good():
        ledger.add(event.process, event.type, event.f, event.value)
    ledger.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == len(good())
    assert all(set(row) == {"time", "process", "type", "f", "value"} for row in rows)
