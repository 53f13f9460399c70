"""Judges what clients asked and were told, and nothing else: is there one order that explains it?

    python -m tests.system.history LEDGER

A room is an ordered log: its messages are numbered 1, 2, 3 ... by their `op`, and everybody is told
these numbers. So the total order need not be searched for, as it must where answers do not say
where they stand; it is read off, and each line is held against it in one pass after a sort: the
whole costs O(n log n). The lines are those of `ledger.py`, with two more words for `f`:

    read    some page of a room, through some node: may be behind, may not be wrong
    final   all of a room, asked for when every node had caught up: may lack nothing

Both have a `value` with `room` and, when ok, `messages`: a list of `op, client, seq, body`.

Kinds of violations:

    split        two messages under one op
    doubled      one message under two ops, or given twice to a reader
    lost         acknowledged, delivered or read, and later not there; a hole in an order
    stale        told an op that is not above what somebody knew before the question was asked
    reordered    a device's messages, a subscriber's events or a page in another order than the ops
    altered      another body than was sent
    changed_ack  a repeated message answered with another acknowledgement
    invented     told before it was asked for, or never asked for
    refused      told although it was refused
    time_back    a later op with an earlier timestamp
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.system.ledger import TOLD, Event, Violation, read

CREATION_OP = 1  # a room's first record: its creation, which no ledger holds
READS = ("read", "final")

Key = tuple[str, str, int]  # room, client, client_seq


def check_history(events: Iterable[Event]) -> list[Violation]:
    """All violations of a client history; empty is good."""
    ordered = sorted(events, key=lambda event: event.time)
    sightings = [sighting for event in ordered for sighting in _sightings(event)]
    found = list(_check_asked(ordered, sightings))
    found += _check_one_order(sightings)
    found += _check_devices(sightings)
    found += _check_readers(ordered)
    found += _check_real_time(ordered)
    found += _check_acks(ordered)
    return found


def _sightings(event: Event) -> Iterator[tuple[Event, Key, int, str]]:
    """(where, message, op, body) of each message that a line says is stored."""
    if event.type != "ok":
        return
    value = event.value
    for message in value["messages"] if event.f in READS else [value]:
        key = value["room"], message["client"], message["seq"]
        yield event, key, message["op"], message["body"]


def _check_asked(
    events: list[Event], sightings: list[tuple[Event, Key, int, str]]
) -> Iterator[Violation]:
    """What is told was asked for before, with that body, and not refused."""
    asked: dict[Key, tuple[int, str]] = {}
    refused: set[Key] = set()
    for event in events:
        if event.f != "send":
            continue
        key = event.value["room"], event.value["client"], event.value["seq"]
        if event.type == "invoke":
            asked.setdefault(key, (event.time, event.value["body"]))
        elif event.type == "fail":
            refused.add(key)
    for event, key, op, body in sightings:
        if key in refused:
            yield Violation("refused", f"{key} was refused and is op {op} of {event.f}")
        if op == CREATION_OP and key not in asked:
            continue
        when, said = asked.get(key, (None, None))
        if when is None or when > event.time:
            yield Violation("invented", f"{key} is op {op} of {event.f}, asked for at {when}")
        elif said != body:
            yield Violation("altered", f"{key} was {said!r} and is {body!r} in {event.f}")


def _check_one_order(sightings: list[tuple[Event, Key, int, str]]) -> Iterator[Violation]:
    """One message for an op, one op for a message, whoever is told."""
    at: dict[tuple[str, int], Key] = {}
    op_of: dict[Key, int] = {}
    for event, key, op, _ in sightings:
        place = key[0], op
        if at.setdefault(place, key) != key:
            yield Violation("split", f"{place} is {at[place]}, and {key} for {event.process}")
        if op_of.setdefault(key, op) != op:
            yield Violation("doubled", f"{key} is op {op_of[key]}, and {op} for {event.process}")


def _check_devices(sightings: list[tuple[Event, Key, int, str]]) -> Iterator[Violation]:
    """A device's messages stand in the order in which it numbered them."""
    devices: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for _, (room, client, seq), op, _ in sightings:
        devices[room, client].setdefault(seq, op)
    for device, ops in devices.items():
        newest_op = 0
        for seq in sorted(ops):
            if ops[seq] <= newest_op:
                text = f"{device}: message {seq} is op {ops[seq]}, after op {newest_op}"
                yield Violation("reordered", text)
            newest_op = max(newest_op, ops[seq])


def _check_readers(events: list[Event]) -> Iterator[Violation]:
    """Subscribers and pages give ops one by one; what is read at the end is the whole room."""
    newest: dict[tuple[int, str], int] = {}
    for event in events:
        if event.type != "ok" or event.f == "send":
            continue
        room = event.value["room"]
        who = f"{event.f} of {event.process}"
        if event.f == "event":
            place = event.process, room
            yield from _one_by_one([event.value["op"]], newest.get(place), who)
            newest[place] = max(newest.get(place, 0), event.value["op"])
        else:
            ops = [message["op"] for message in event.value["messages"]]
            yield from _one_by_one(ops, 0 if event.f == "final" else None, who)


def _one_by_one(ops: list[int], before: int | None, who: str) -> Iterator[Violation]:
    for op in ops:
        if before is not None and op != before + 1:
            kind = "lost" if op > before + 1 else "doubled" if op == before else "reordered"
            yield Violation(kind, f"{who} got op {op} after {before}")
        before = op if before is None else max(before, op)


def _check_real_time(events: list[Event]) -> Iterator[Violation]:
    """A message asked for after somebody knew an op comes behind it; an end read later has it."""
    known: dict[str, int] = defaultdict(int)  # newest op of a room that anybody was told
    send_floor: dict[Key, int] = {}
    read_floor: dict[tuple[int, str, str], int] = {}
    for event in events:
        value, room = event.value, event.value["room"]
        if event.type == "invoke" and event.f == "send":
            send_floor.setdefault((room, value["client"], value["seq"]), known[room])
        elif event.type == "invoke":
            read_floor[event.process, event.f, room] = known[room]
        if event.type != "ok":
            continue
        ops = [op for _, _, op, _ in _sightings(event)]
        if event.f == "send":
            floor = send_floor.get((room, value["client"], value["seq"]), 0)
            if ops[0] <= floor:
                yield Violation("stale", f"{value} although op {floor} was known when it was sent")
        elif event.f == "final":
            floor = read_floor.get((event.process, event.f, room), known[room])
            if max(ops, default=0) < floor:
                text = f"{event.process} read to op {max(ops, default=0)}, {floor} was known"
                yield Violation("lost", text)
        known[room] = max([known[room], *ops])


def _check_acks(events: list[Event]) -> Iterator[Violation]:
    """The same acknowledgement each time; later ops have no earlier time."""
    told: dict[Key, dict[str, Any]] = {}
    for event in events:
        if event.f == "send" and event.type == "ok":
            key = event.value["room"], event.value["client"], event.value["seq"]
            answer = {name: event.value[name] for name in TOLD}
            if told.setdefault(key, answer) != answer:
                yield Violation("changed_ack", f"{key}: first {told[key]}, then {answer}")
    newest: dict[str, int] = defaultdict(int)
    for key, answer in sorted(told.items(), key=lambda item: item[1]["op"]):
        if answer["timestamp"] < newest[key[0]]:
            yield Violation("time_back", f"{key}: {answer} after time {newest[key[0]]}")
        newest[key[0]] = max(newest[key[0]], answer["timestamp"])


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tests.system.history LEDGER", file=sys.stderr)
        return 2
    events = read(Path(arguments[0]))
    violations = check_history(events)
    for violation in violations:
        print(f"{violation.kind}: {violation.text}")
    print(f"{len(events)} lines, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
