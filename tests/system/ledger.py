"""What clients sent and what they were told, against what lies on the disks of all replicas.

The ledger is a file of JSON lines, one for each thing a client did or saw:

    {"time": ns, "process": 3, "type": "invoke", "f": "send", "value": {...}}

`type` is `invoke` (asked), `ok` (acknowledged), `fail` (refused for good: never stored) or `info`
(given up without knowing). `f` is `send`, or `event` for what a subscriber was delivered (only
`ok`), or `read` and `final` for pages, which `history.py` judges. `value` names the message:
`room`, `client`, `seq` (its client_seq), `body`, and once it is known `op`, `msg_id`, `timestamp`,
`hash`.

`check` judges a ledger with the histories of the replicas in O(n log n). Violations have a kind:

    diverged     two replicas do not hold the same records
    gap          a room's numbers on disk are not 1, 2, 3 ...
    lost         acknowledged, and not on disk under the op that was told
    altered      on disk with another body, time, id or hash than was told
    doubled      one message stored, or delivered, twice
    reordered    a device's messages stored in another order than sent; events out of order
    stale        acknowledged with an op below one acknowledged before it was asked for
    changed_ack  a repeated message answered with another acknowledgement
    refused      stored although it was refused
    invented     stored and never sent
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

TOLD = ("op", "msg_id", "timestamp", "hash")  # what an acknowledgement says


class Event(NamedTuple):
    """One line of a ledger."""

    time: int
    process: int
    type: str
    f: str
    value: dict[str, Any]


class Stored(NamedTuple):
    """One record of a replica's history; ids and hash in hexadecimal."""

    room: str
    op: int
    client: str
    seq: int
    body: str
    msg_id: str
    timestamp: int
    hash: str


class Violation(NamedTuple):
    """One thing that must not happen."""

    kind: str
    text: str


class Ledger:
    """Appends to a ledger file; one writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = path.open("a", encoding="utf-8")
        self.counts: dict[str, int] = defaultdict(int)

    def add(self, process: int, type_: str, f: str, value: dict[str, Any]) -> None:
        """Write one line, with the time it is written."""
        event = Event(time.monotonic_ns(), process, type_, f, value)
        self._file.write(json.dumps(event._asdict()) + "\n")
        self.counts[type_ if f == "send" else f] += 1

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> list[Event]:
    """The lines of a ledger file, in order."""
    with path.open(encoding="utf-8") as file:
        return [Event(**json.loads(line)) for line in file]


def check(events: Iterable[Event], replicas: list[list[Stored]]) -> list[Violation]:
    """All violations of a ledger and the histories of the replicas; empty is good."""
    assert replicas
    events = sorted(events, key=lambda event: event.time)
    history = max(replicas, key=len)
    found = list(_check_equal(replicas))
    found += _check_numbers(history)
    found += _check_acks(events, history)
    found += _check_real_time(events)
    found += _check_devices(events, history)
    found += _check_events(events, history)
    return found


def _check_equal(replicas: list[list[Stored]]) -> Iterator[Violation]:
    first = replicas[0]
    for index, other in enumerate(replicas[1:], 1):
        if len(other) != len(first):
            yield Violation("diverged", f"replica 0 has {len(first)} records, {index} {len(other)}")
        for position, (a, b) in enumerate(zip(first, other, strict=False)):
            if a != b:
                text = f"record {position}: replica 0 has {a}, replica {index} has {b}"
                yield Violation("diverged", text)
                break


def _check_numbers(history: list[Stored]) -> Iterator[Violation]:
    newest: dict[str, int] = defaultdict(int)
    for record in history:
        if record.op != newest[record.room] + 1:
            yield Violation("gap", f"op {record.op} follows {newest[record.room]}: {record}")
        newest[record.room] = record.op


def _key(value: dict[str, Any]) -> tuple[str, str, int]:
    return value["room"], value["client"], value["seq"]


def _check_acks(events: list[Event], history: list[Stored]) -> Iterator[Violation]:
    """Each acknowledgement is true, and the same each time."""
    stored = {(record.room, record.op): record for record in history}
    told: dict[tuple[str, str, int], dict[str, Any]] = {}
    for event in events:
        if event.f != "send" or event.type != "ok":
            continue
        value, key = event.value, _key(event.value)
        answer = {name: value[name] for name in TOLD}
        if told.setdefault(key, answer) != answer:
            yield Violation("changed_ack", f"{key}: first {told[key]}, then {answer}")
        record = stored.get((value["room"], value["op"]))
        if record is None or (record.client, record.seq) != (value["client"], value["seq"]):
            yield Violation("lost", f"{key} acknowledged as op {value['op']}, there is {record}")
        elif any(getattr(record, name) != value[name] for name in (*TOLD, "body")):
            yield Violation("altered", f"{value} is on disk as {record}")


def _check_real_time(events: list[Event]) -> Iterator[Violation]:
    """Whatever is asked for after an acknowledgement comes behind it in the room."""
    acked: dict[str, int] = defaultdict(int)  # newest op told so far
    floor: dict[tuple[str, str, int], int] = {}  # that, when the message was first sent
    for event in events:
        if event.f != "send":
            continue
        key, room = _key(event.value), event.value["room"]
        if event.type == "invoke":
            floor.setdefault(key, acked[room])
        elif event.type == "ok":
            op = event.value["op"]
            if op <= floor.get(key, 0):
                text = f"{key} got op {op} although op {floor[key]} was told before it was sent"
                yield Violation("stale", text)
            acked[room] = max(acked[room], op)


def _check_devices(events: list[Event], history: list[Stored]) -> Iterator[Violation]:
    """Each message once, in the order of its device, and only what was sent."""
    sent: dict[tuple[str, str, int], str] = {}
    refused, rooms = set(), set()
    for event in events:
        if event.f == "send" and event.type == "invoke":
            sent[_key(event.value)] = event.value["body"]
            rooms.add(event.value["room"])
        elif event.f == "send" and event.type == "fail":
            refused.add(_key(event.value))
    newest: dict[tuple[str, str], int] = defaultdict(int)
    for record in history:
        if record.room not in rooms:
            continue
        key, device = (record.room, record.client, record.seq), (record.room, record.client)
        if key in refused:
            yield Violation("refused", f"{record}")
        if key not in sent and not (record.op == 1 and record.seq == 1):  # 1: the room's creation
            yield Violation("invented", f"{record}")
        elif key in sent and sent[key] != record.body:
            yield Violation("altered", f"sent {sent[key]!r}, on disk {record}")
        if record.seq <= newest[device]:
            kind = "doubled" if record.seq == newest[device] else "reordered"
            yield Violation(kind, f"client_seq {record.seq} after {newest[device]}: {record}")
        elif record.seq > newest[device] + 1:
            yield Violation(
                "reordered", f"client_seq {record.seq} after {newest[device]}: {record}"
            )
        newest[device] = max(newest[device], record.seq)


def _check_events(events: list[Event], history: list[Stored]) -> Iterator[Violation]:
    """Each subscriber saw a room's records from where it began, in order, each once."""
    stored = {(record.room, record.op): record for record in history}
    newest: dict[tuple[int, str], int] = {}
    for event in events:
        if event.f != "event" or event.type != "ok":
            continue
        value, place = event.value, (event.process, event.value["room"])
        op, before = value["op"], newest.get(place, event.value["op"] - 1)
        if op <= before:
            kind = "doubled" if op == before else "reordered"
            yield Violation(kind, f"subscriber {event.process} got op {op} after {before}")
        elif op != before + 1:
            yield Violation("lost", f"subscriber {event.process} got op {op} after {before}")
        newest[place] = op
        record = stored.get((value["room"], op))
        if record is None:
            yield Violation("lost", f"op {op} was delivered and is not on disk: {value}")
        elif (record.client, record.seq, record.body) != (
            value["client"],
            value["seq"],
            value["body"],
        ):
            yield Violation("altered", f"delivered {value}, on disk {record}")
