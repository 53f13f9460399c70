"""CPU time of the objects: merges a second, edits a second to the store, restart, size of a diff.

python -m tests.bench.bench_objects

The store is the product's, LMDB on the disk of TMPDIR. Edits are parsed from bytes, as those of
another replica, and committed: 4,000 in a transaction. When edits come faster than they can be
taken, what came while a transaction was written is the next one, of one peer up to 4 MiB: some
90,000 edits. Rates are of CPU time, on one core; how long the same takes with all waiting for the
disk, and what is left of the rate when only 1,000 share a transaction, is shown beside.
"""

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from appliance.cores.metadata import packets
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.packets import parse_change
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.states import merge
from appliance.cores.metadata.terms import Term, encode_terms
from appliance.formats.rdx.stamps import bare, count_record
from appliance.formats.rdx.values import encode_value
from appliance.formats.toytlv.ids import FIELD_BITS, ID0, Id
from appliance.formats.toytlv.records import record
from appliance.roles.metadata.object_store import ObjectStore

A, B = 0x1000, 0x1001
FIELDS = 1_000_000  # of the large store
OBJECT_FIELDS = 10
OBJECTS_AT_ONCE = 1000  # made in one transaction
SHARED, SHARED_BY_FEW = 4000, 1000  # edits in one
MERGES, EDITS = 100_000, 60_000
ROUNDS = 5  # of edits; the median counts
MAP_SIZE = 4 << 30
MERGES_MIN, EDITS_MIN = 50_000, 30_000  # a second, on one core
RESTART_MS_MAX, DIFF_BYTES_MAX = 1000, 100_000


def merges(count: int) -> float:
    """Merges of two registers and of two counters of three sources, a second."""
    pairs = [
        ("S", bare(n % 7, 1, b"one value"), bare(n % 5, 2, b"another value")) for n in range(100)
    ]
    counts = b"".join(count_record(5, source) for source in (1, 2, 3))
    pairs += [("N", counts, count_record(9, 2))] * 20
    started = time.process_time()
    for number in range(count):
        letter, old, new = pairs[number % len(pairs)]
        merge(letter, old, new)
    return count / (time.process_time() - started)


def store_of(folder: Path, source: int) -> Exchange:
    return Exchange(Replica(ObjectStore(folder, MAP_SIZE), source=source))


def fill(end: Exchange, fields: int) -> list[Id]:
    """Objects of ten fields each, made by another source; their ids."""
    terms = [Term(number, "S", f"f{number}") for number in range(1, OBJECT_FIELDS + 1)]
    made = Id(B, 1 << FIELD_BITS)
    replica = end.replica
    replica.receive(parse_change(packets.change("C", made, ID0, encode_terms(terms))))
    text = record("S", bare(0, 0, b"a text of some length"))
    objects = []
    for number in range(fields // OBJECT_FIELDS):
        of = Id(B, number + 2 << FIELD_BITS)
        packet = packets.change("O", of, made, text * OBJECT_FIELDS)
        replica.receive(parse_change(packet))
        objects.append(of)
        if number % OBJECTS_AT_ONCE == 0:
            end.settle()
    end.settle()
    return objects


def edits(end: Exchange, objects: list[Id], count: int, shared: int) -> tuple[float, float]:
    """Edits a second of CPU time and of the clock, from bytes to the flushed store: a register
    each; so many share a transaction."""
    first = (end.replica.table.vector[B] >> FIELD_BITS) + 1
    made = []
    for number in range(first, first + count):
        of = objects[number * 7919 % len(objects)]
        field = number % OBJECT_FIELDS + 1
        value = bare(number, 0, encode_value("S", f"text {number}"))
        body = packets.edited(field, "S", value)
        made.append(packets.change("E", Id(B, number << FIELD_BITS), of, body))
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    for number, packet in enumerate(made):
        end.replica.receive(parse_change(packet))
        if number % shared == shared - 1:
            end.settle()
    end.settle()
    cpu_s, passed_s = time.process_time() - started_cpu_s, time.perf_counter() - started_s
    return count / cpu_s, count / passed_s


def diff_size(one: Exchange, two: Exchange) -> int:
    """Bytes of both directions of a session."""
    sessions = one.open(bytes(10), 0), two.open(bytes([1]) + bytes(9), 0)
    size = 0
    for _ in range(100_000):
        one.settle()
        two.settle()
        here, there = (session.take(1 << 20) for session in sessions)
        if not here and not there:
            break
        size += sum(map(len, here + there))
        for packet in here:
            two.receive(sessions[1], packet, 0)
        for packet in there:
            one.receive(sessions[0], packet, 0)
    one.close(sessions[0])
    two.close(sessions[1])
    return size


def run(fields: int = FIELDS, edit_count: int = EDITS, merge_count: int = MERGES) -> dict[str, Any]:
    """All figures; the folder is removed."""
    folder = Path(tempfile.mkdtemp(prefix="objects-"))
    try:
        one = store_of(folder / "one", A)
        objects = fill(one, fields)
        figures: dict[str, Any] = {"merges_per_s": round(merges(merge_count)), "fields": fields}
        two = store_of(folder / "two", 0x1002)
        figures["first_diff_bytes"] = diff_size(one, two)
        for number in range(100):
            of = objects[number * len(objects) // 100]
            text = bare(1, 0, b"changed in between")
            (one if number % 2 else two).replica.edit(of, [(number % 10 + 1, "S", text)])
        figures["diff_bytes_of_100_fields"] = diff_size(one, two)
        figures["diff_bytes_of_nothing"] = diff_size(one, two)
        rounds = [edits(one, objects, edit_count // ROUNDS, SHARED) for _ in range(ROUNDS)]
        rate, rate_of_clock = (statistics.median(rates) for rates in zip(*rounds, strict=True))
        few, _ = edits(one, objects, edit_count // ROUNDS, SHARED_BY_FEW)
        figures["edits_per_s"], figures["edits_per_s_of_clock"] = round(rate), round(rate_of_clock)
        figures["edits_per_s_shared_by_few"] = round(few)
        one.replica.table.store.close()  # type: ignore[attr-defined]
        started = time.perf_counter()
        again = store_of(folder / "one", A)
        figures["restart_ms"] = round(1000 * (time.perf_counter() - started), 1)
        for end in (again, two):
            end.replica.table.store.close()  # type: ignore[attr-defined]
        return figures
    finally:
        shutil.rmtree(folder)


def missed(figures: dict[str, Any]) -> list[str]:
    """The bars that the figures fall short of, in words."""
    falls = [
        f"{figures[name]} {name}; at least {least}"
        for name, least in (("merges_per_s", MERGES_MIN), ("edits_per_s", EDITS_MIN))
        if figures[name] < least
    ]
    for name, most in (
        ("restart_ms", RESTART_MS_MAX),
        ("diff_bytes_of_100_fields", DIFF_BYTES_MAX),
    ):
        if figures[name] >= most:
            falls.append(f"{figures[name]} {name}; below {most}")
    return falls


if __name__ == "__main__":
    print(json.dumps(run()))
