"""Random histories against the model: the same answers, the same log, whatever is batched how."""

import copy
import dataclasses
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.prng import Prng
from appliance.formats import checkpoint, event, record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.room_name import room_creator_id
from tests.cores.rooms.model import Model
from tests.cores.rooms.shard import SEGMENTS_MAX, START_US, Shard, client_id, make, room_id

# One wish: (room, device, author, number relative to the newest + 1, what, how many in a row).
OFFSETS = [0] * 6 + [1, -1, -63, -64, -65]
WHATS = (
    ["message"] * 12
    + ["create"] * 4
    + ["close", "open", "odd", "audit", "ship", "retain", "checkpoint", "wait"]
)
ROOMS = [0, 0, 0, 0, 1, 1, 2, 3]
WISH = st.tuples(
    st.sampled_from(ROOMS),
    st.integers(0, 3),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(OFFSETS),
    st.sampled_from(WHATS),
    st.integers(1, 70),
)
WISHES = st.lists(WISH, min_size=1, max_size=40).map(
    lambda wishes: [(0, 8, 1, 0, "create", 1), (1, 9, 1, 0, "create", 1), *wishes]
)


def shipped_body(model: Model, count: int) -> bytes:
    """What a shipper that knows the state writes next; each seventh time something near it."""
    generation, node = model.shipper
    if generation == 0 or count % 10 == 0:
        return event.encode_shipped(event.Shipped(event.SHIP_CLAIM, count % 3, generation + 1))
    start, length = START_US // 10**6 * 10**6, 10**6 * (1 + count % 2)
    if model.shipped:
        start = sum(model.shipped[-1][:2])
    shipped = event.Shipped(
        event.SHIP_ANNOUNCE,
        node,
        generation,
        number=len(model.shipped),
        period_start_us=start,
        period_us=length,
        first_log_seq=model.cursor + 1,
        last_log_seq=max(model.cursor, len(model.log) - count % 3),
        seen_log_seq=len(model.log),
    )
    if model.announced is not None:
        start, length, last = model.announced
        shipped = shipped._replace(
            action=event.SHIP_MANIFEST,
            period_start_us=start,
            period_us=length,
            last_log_seq=last,
            seen_log_seq=0,
            manifest_hash=b"%32d" % count,
        )
    if count % 7 == 0:
        field = shipped._fields[1 + count % 8]
        shipped = shipped._replace(**{field: getattr(shipped, field) + 1})
    return event.encode_shipped(shipped)


def message_id(model: Model, chance: int) -> bytes:
    """An id that tells nothing of its time, or that of now, or of some minutes ago."""
    if chance % 3 == 0 or not model.log:
        return b"%16d" % (len(model.log) + chance)
    newest_us = struct.unpack_from("<Q", model.log[-1], 64)[0]
    made_ms = newest_us // 1000 - (chance % 3 - 1) * chance * 20_000
    return (made_ms << 80 | 7 << 76 | 2 << 62 | len(model.log) + chance).to_bytes(16, "little")


def records_of(model: Model, wish: tuple[int, int, int, int, str, int]) -> list[bytes]:
    """The records a wish stands for, numbered as a device that knows the answers would."""
    room, client, author, offset, what, count = wish
    room_bytes = room_id(room)
    kind, body = record.KIND_MESSAGE, b"text %d" % count
    if what in ("audit", "ship", "retain"):
        room_bytes, author = record.SHARD_ROOM_ID, 0
        kind, body = {
            "audit": (record.KIND_AUDIT, b"who did what"),
            "ship": (record.KIND_SHIPPED, shipped_body(model, count)),
            "retain": (record.KIND_RETAIN, event.encode_retain(model.oldest + count % 3)),
        }[what]
    elif what == "create":
        kind, body = record.KIND_ROOM_CREATE, b"name"
    elif what in ("close", "open", "odd"):
        bits = {"close": 1, "open": 0, "odd": 2}[what]
        kind, body = record.KIND_ROOM_POLICY, struct.pack("<Q", bits)
    if what != "message":
        count = 1
    device = client_id(client)
    if what == "create" and count % 2:  # as edges make it
        device = room_creator_id(room_bytes, author)
    first = max(1, model.newest(device, room_bytes, author) + 1 + offset)
    return [
        make(
            room_bytes,
            device,
            first + i,
            author=author,
            kind=kind,
            body=body,
            msg_id=message_id(model, count + i),
        )
        for i in range(count)
    ]


def play(shard: Shard, model: Model, wishes: list[tuple[Any, ...]]) -> list[int]:
    """Let both take the same prepares; compare each answer, and list the codes."""
    codes = []
    for wish in wishes:
        if wish[4] == "checkpoint":
            shard.checkpoint()
            model.checkpoint()
            continue
        if wish[4] == "wait":
            shard.timestamp += 601_000_000
            continue
        records = records_of(model, wish)
        for at in range(0, len(records), SMALL.records_max):
            body = bytearray(b"".join(records[at : at + SMALL.records_max]))
            assert shard.rooms.input_valid(OPERATION_APPEND, memoryview(body))
            timestamp = shard.timestamp + 1000
            shard.rooms.prepare(OPERATION_APPEND, timestamp, memoryview(body))
            results = shard.apply(shard.op + 1, timestamp, bytes(body))
            assert [tuple(result) for result in results] == model.apply(timestamp, bytes(body))
            codes += [result.code for result in results]
    return codes


def log_of(shard: Shard) -> bytes:
    """All records on the disk, from the oldest extent that is still whole."""
    shard.rooms.flush()
    shard.write()
    out = []
    number, count = divmod(shard.rooms.log_seq, shard.geometry.segment_records)
    for n in range(max(0, number - shard.segments_max + 1), number + 1):
        size = (count if n == number else shard.geometry.segment_records) * RECORD_SIZE
        out.append(bytes(shard.extent(n)[:size]) if size else b"")
    return b"".join(out)


@settings(max_examples=150)
@given(WISHES)
def test_rooms_answer_and_keep_what_the_model_does(
    wishes: list[tuple[int, int, int, int, str, int]],
) -> None:
    shard, model = Shard(SMALL), Model(SMALL, SEGMENTS_MAX)
    play(shard, model, wishes)
    assert shard.rooms.log_seq == len(model.log)
    kept = log_of(shard)
    assert kept == b"".join(model.log)[-len(kept) :] if kept else not model.log
    for room, entry in model.rooms.items():
        row = shard.rooms.room_row(room)
        assert row is not None
        assert struct.unpack_from("<Q", row, 48)[0] == len(entry["log"])
        assert row[16:48] == (record.record_hash(entry["log"][-1]) if entry["log"] else bytes(32))


def deep_history(seed: int) -> list[tuple[Any, ...]]:
    """Hundreds of wishes over many rooms and devices, which come and go."""
    prng = Prng(seed)
    wishes: list[tuple[Any, ...]] = []
    for _ in range(prng.between(200, 500)):
        what = prng.choice(WHATS)
        client = prng.choice([0, 1, 2, prng.below(40)])
        room = prng.below(20) if what == "create" or prng.chance(1, 4) else prng.choice(ROOMS)
        author = 1 + client % 2 if prng.chance(9, 10) else 3
        if what in ("ship", "retain"):
            wishes += [
                (room, 5, 0, 0, what, prng.between(1, 70)),
                (room, 5, 0, 0, what, prng.between(1, 5)),
            ]
        elif what == "wait" or prng.chance(1, 8):
            wishes.append((0, 0, 0, 0, "wait", 1))
        wishes.append((room, client, author, prng.choice(OFFSETS), what, prng.between(1, 70)))
    return [(0, 8, 1, 0, "create", 1), *wishes]


# An author's share is a third of these windows: most histories have one who holds it.
SHARED = dataclasses.replace(SMALL, windows_max=24)


def test_deep_histories_equal_the_model_and_reach_every_answer(seed: int) -> None:
    answers: dict[int, int] = {}
    sealed = []
    for i in range(12):
        geometry = SHARED if i % 2 else SMALL
        shard, model = Shard(geometry), Model(geometry, SEGMENTS_MAX)
        for code in play(shard, model, deep_history(seed + i)):
            answers[code] = answers.get(code, 0) + 1
        kept = log_of(shard)
        assert kept == b"".join(model.log)[-len(kept) :]
        sealed.append(len(model.log) // SMALL.segment_records)
    assert sorted(answers) == list(range(8)), answers
    assert max(sealed) >= SEGMENTS_MAX  # extents were used again
    assert min(answers.values()) > 10, answers


@settings(max_examples=40)
@given(WISHES, st.integers(0, 39))
def test_restored_rooms_have_the_same_bytes_and_the_same_future(
    wishes: list[tuple[int, int, int, int, str, int]], cut: int
) -> None:
    first, model = Shard(SMALL), Model(SMALL, SEGMENTS_MAX)
    play(first, model, wishes[:cut])
    durable = first.checkpoint()
    model.checkpoint()
    second = first.restarted(durable)
    assert second.rooms.log_seq == first.rooms.log_seq == second.rooms.durable_log_seq()
    assert second.rooms.room_rows(0, 99) == first.rooms.room_rows(0, 99)
    manifest = checkpoint.decode(durable.manifest, SMALL)
    for name, table in second.rooms.checkpoint().tables.items():
        assert table.freeze(True)[1] == manifest.tables[name].chunk_ids
    second, later = first.restarted(durable), copy.deepcopy(model)
    play(first, model, wishes[cut:])
    play(second, later, wishes[cut:])
    assert log_of(first) == log_of(second)
    assert first.checkpoint() == second.checkpoint()


def test_a_deep_history_goes_on_after_a_restart_as_if_there_had_been_none(seed: int) -> None:
    for i in range(6):
        wishes = deep_history(seed + i)
        cut = Prng(seed + i).below(len(wishes))
        first, model = Shard(SMALL), Model(SMALL, SEGMENTS_MAX)
        play(first, model, wishes[:cut])
        second = first.restarted(first.checkpoint())
        model.checkpoint()
        later = copy.deepcopy(model)
        play(first, model, wishes[cut:])
        play(second, later, wishes[cut:])
        assert log_of(first) == log_of(second)
        assert first.checkpoint() == second.checkpoint()
        assert first.extents == second.extents


@settings(max_examples=30)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=60))
def test_equal_records_in_other_batches_become_equal_segments_and_tables(sizes: list[int]) -> None:
    records = [make(0, 900, 1, kind=record.KIND_ROOM_CREATE, body=b"a room")]
    records += [make(0, n % 3, n // 3 + 1) for n in range(sum(sizes))]
    whole = len(records)
    sevens = [7] * (whole // 7) + ([whole % 7] if whole % 7 else [])
    assert commit_in_batches(records, [1, *sizes]) == commit_in_batches(records, sevens)


def commit_in_batches(records: list[bytes], sizes: list[int]) -> tuple[Any, ...]:
    """Ring, extents and state after `records`, each stamped with its place."""
    shard, start = Shard(SMALL), 0
    for size in sizes:
        body = bytearray(b"".join(records[start : start + size]))
        start += size
        shard.rooms.prepare(OPERATION_APPEND, START_US + start, memoryview(body))
        shard.apply(1, START_US + start, bytes(body))
    assert start == len(records)
    durable = shard.checkpoint()
    return bytes(shard.ring), shard.extents, durable
