"""The judge of the kill tests is judged: a good history passes, each planted fault is named."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.formats import record
from appliance.formats.event import SHIP_CLAIM, Shipped, encode_shipped
from tests.system import disk_history
from tests.system.ledger import Event, Ledger, Stored, check, read

ROOM = "aa" * 16


def history(count: int, devices: int = 3) -> Any:
    """A ledger of devices that take turns, and the records they left."""
    events, records, clock = [], [], 0
    for op in range(1, count + 1):
        client, seq = f"{op % devices:032x}", (op - 1) // devices + 1
        value = {"room": ROOM, "client": client, "seq": seq, "body": f"message {op}"}
        answer = {"op": op, "msg_id": f"{op:032x}", "timestamp": 1000 + op, "hash": f"{op:064x}"}
        events.append(Event(clock, op % devices, "invoke", "send", value))
        events.append(Event(clock + 1, op % devices, "ok", "send", value | answer))
        events.append(Event(clock + 1, 9, "ok", "event", value | {"op": op}))
        records.append(
            Stored(
                ROOM,
                op,
                client,
                seq,
                value["body"],
                answer["msg_id"],
                answer["timestamp"],
                answer["hash"],
            )
        )
        clock += 2
    return events, records


def kinds(events: list[Event], *replicas: list[Stored]) -> set[str]:
    return {violation.kind for violation in check(events, list(replicas))}


def altered(event: Event, **changes: int) -> Event:
    return event._replace(value=event.value | changes)


@pytest.fixture
def good() -> tuple[list[Event], list[Stored]]:
    return history(60)


def test_ledger_of_a_good_run_has_no_violation(good: tuple[list[Event], list[Stored]]) -> None:
    events, records = good
    assert check(events, [records, list(records), list(records)]) == []


def test_ledger_survives_its_file(tmp_path: Path, good: tuple[list[Event], list[Stored]]) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for event in good[0]:
        ledger.add(event.process, event.type, event.f, event.value)
    ledger.close()
    again = read(tmp_path / "ledger.jsonl")
    assert [event.value for event in again] == [event.value for event in good[0]]
    assert kinds(again, good[1]) == set()


def test_ledger_allows_messages_whose_fate_nobody_knows(
    good: tuple[list[Event], list[Stored]],
) -> None:
    events, records = good
    silent = [event for event in events if not (event.type == "ok" and event.value["op"] > 50)]
    assert kinds(silent, records) == set()  # stored, never acknowledged
    assert kinds(silent, records[:50]) == set()  # or never stored


def test_ledger_names_an_acknowledged_message_that_is_lost(
    good: tuple[list[Event], list[Stored]],
) -> None:
    events, records = good
    assert "lost" in kinds(events, records[:-1])


def test_ledger_names_a_hole_in_the_middle(good: tuple[list[Event], list[Stored]]) -> None:
    events, records = good
    assert {"lost", "gap"} <= kinds(events, records[:30] + records[31:])


def test_ledger_names_two_replicas_that_differ(good: tuple[list[Event], list[Stored]]) -> None:
    events, records = good
    other = list(records)
    other[7] = other[7]._replace(timestamp=5)
    assert kinds(events, records, other) == {"diverged"}
    assert kinds(events, records, records[:-1]) == {"diverged"}


def test_ledger_names_a_message_stored_twice(good: tuple[list[Event], list[Stored]]) -> None:
    events, records = good
    twice = [*records, records[-1]._replace(op=61)]
    assert "doubled" in kinds(events, twice)


def test_ledger_names_messages_of_a_device_stored_in_another_order(
    good: tuple[list[Event], list[Stored]],
) -> None:
    events, records = good
    swapped = list(records)
    swapped[10] = records[13]._replace(op=11)
    swapped[13] = records[10]._replace(op=14)
    assert "reordered" in kinds(events, swapped)


def test_ledger_names_a_stale_acknowledgement() -> None:
    events, records = history(4, devices=2)
    a, b = 3, 6  # positions of two `invoke`s: ops 2 and 3
    assert events[a].type == events[b].type == "invoke"
    swapped = list(records)
    swapped[1], swapped[2] = records[2]._replace(op=2), records[1]._replace(op=3)
    told = []
    for event in events:
        op = event.value.get("op")
        told.append(altered(event, op={2: 3, 3: 2}[op]) if op in {2, 3} else event)
    assert "stale" in kinds(told, swapped)


def test_ledger_names_a_repeated_message_with_another_answer(
    good: tuple[list[Event], list[Stored]],
) -> None:
    events, records = good
    again = altered(events[1], timestamp=7)._replace(time=10_000)
    assert {"changed_ack", "altered"} <= kinds([*events, again], records)


def test_ledger_names_an_altered_body(good: tuple[list[Event], list[Stored]]) -> None:
    events, records = good
    records[20] = records[20]._replace(body="forged")
    assert "altered" in kinds(events, records)


def test_ledger_names_what_nobody_sent_and_what_was_refused(
    good: tuple[list[Event], list[Stored]],
) -> None:
    events, records = good
    forged = records[-1]._replace(op=61, client="ee" * 16, seq=1)
    assert kinds(events, [*records, forged]) == {"invented"}
    last = events[-3]
    assert last.type == "invoke"
    refusal = last._replace(type="fail")
    assert "refused" in kinds([*events[:-3], last, refusal], records)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda seen: seen[:5] + seen[6:], "lost"),
        (lambda seen: seen[:6] + [seen[5]] + seen[6:], "doubled"),
        (lambda seen: seen[:5] + [seen[6], seen[5]] + seen[7:], "reordered"),
    ],
)
def test_ledger_names_what_a_subscriber_got_wrong(
    good: tuple[list[Event], list[Stored]], change: Callable[..., object], kind: str
) -> None:
    events, records = good
    seen = change([event for event in events if event.f == "event"])
    seen = [event._replace(time=1000 + i) for i, event in enumerate(seen)]
    rest = [event for event in events if event.f != "event"]
    assert kind in kinds(rest + seen, records)


def test_ledger_of_many_messages_is_judged_fast() -> None:
    events, records = history(40_000, devices=8)
    random.Random(1).shuffle(events)
    events.sort(key=lambda event: event.time)
    begin = time.perf_counter()
    assert kinds(events, records, records, records) == set()
    assert time.perf_counter() - begin < 20


def claim(op: int, generation: int) -> list[dict[str, Any]]:
    """The rows of a prepare with a claim of the shipper, by a client of its own."""
    body = encode_shipped(Shipped(SHIP_CLAIM, 0, generation))
    row = {"op": op, "room_id": disk_history.SHARD_ROOM, "record_kind": record.KIND_SHIPPED}
    ids = {"client_id": f"{op:032x}", "msg_id": f"{op:032x}", "parent_id": "00" * 16}
    row |= ids | {"author_id": "0", "client_seq": 1, "timestamp": 1000 + op, "body": body.hex()}
    slot = {"kind": "slot", "op": op, "prepare": "op", "body_ok": True}
    return [
        slot | {"parent": str(op - 1), "digest": str(op)},
        {"kind": "prepared_record", **row},
    ]


def test_a_claim_that_does_not_follow_is_in_the_log_and_not_in_the_history() -> None:
    claims = [row for op, generation in ((1, 1), (2, 1), (3, 2)) for row in claim(op, generation)]
    found = disk_history.history([], [{"kind": "wal", "checkpoint": 0}, *claims], 0)
    assert [(stored.op, stored.timestamp) for stored in found] == [(1, 1001), (2, 1003)]


def test_a_log_with_a_gap_has_a_history_only_if_that_is_expected() -> None:
    rows = [{"kind": "wal", "checkpoint": 0}]
    rows += [row for op in (1, 2, 4) for row in claim(op, op)]
    with pytest.raises(AssertionError, match="op 3 is not in the log, which goes on to 4"):
        disk_history.history([], rows, 0)
    assert [stored.op for stored in disk_history.history([], rows, 0, level=False)] == [1, 2]
