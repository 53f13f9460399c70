"""CPU time of the rooms: µs a record to check, stamp, apply; ms of a checkpoint, a restore.

python -m tests.bench.bench_rooms

Batches of 64 over 16 rooms and 16 devices, four messages of a device to a room at a time, bodies of
256 bytes, in the geometry of production; the disk takes every write at once.
"""

import json
import mmap
import time
from collections.abc import Iterator

from appliance.base.prng import Prng
from appliance.cores.rooms.rooms import Rooms
from appliance.formats import checkpoint, record
from appliance.formats.checkpoint import Manifest, TableState
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE
from appliance.formats.segment import ring_size
from appliance.formats.session import OK, RESULT_STRUCT

BATCH, ROOMS, RUN = 64, 16, 4
RECORDS = 60_000
SEGMENTS_MAX = 4096
CLUSTER, START_US = b"cluster of bench", 1_750_000_000_000_000


def batches(count: int) -> Iterator[bytearray]:
    """As an edge makes them, `count` records in all; the first batch creates the rooms."""
    prng = Prng(1)
    room_ids = [prng.bytes(16) for _ in range(ROOMS)]
    devices = [prng.bytes(16) for _ in range(ROOMS)]
    yield bytearray(
        b"".join(
            record.encode(
                room_id=room_id,
                msg_id=prng.bytes(16),
                author_id=1,
                body=b"room",
                client_id=bytes(16),
                client_seq=1,
                kind=record.KIND_ROOM_CREATE,
            )
            for room_id in room_ids
        )
    )
    for n in range(count // BATCH):
        yield bytearray(
            b"".join(
                record.encode(
                    room_id=room_ids[i // RUN],
                    msg_id=prng.bytes(16),
                    author_id=1,
                    body=b"x" * 256,
                    client_id=devices[i // RUN],
                    client_seq=n * RUN + i % RUN + 1,
                )
                for i in range(BATCH)
            )
        )


def fresh() -> Rooms:
    """Rooms over a ring whose pages exist, as in a process that has run for a while."""
    ring = memoryview(mmap.mmap(-1, ring_size(PRODUCTION)))
    for at in range(0, len(ring), mmap.PAGESIZE):
        ring[at] = 0
    return Rooms(
        geometry=PRODUCTION, cluster=CLUSTER, shard=0, segments_max=SEGMENTS_MAX, ring=ring
    )


def run(records: int = RECORDS) -> dict[str, float]:
    """Figures by name; the first three are for one record."""
    rooms, op = fresh(), 0
    spent = {"check_us": 0.0, "stamp_us": 0.0, "apply_us": 0.0}
    longest = 0.0
    for batch in batches(records):
        body, op = memoryview(batch), op + 1
        begun = time.thread_time()
        assert rooms.input_valid(OPERATION_APPEND, body)
        checked = time.thread_time()
        rooms.prepare(OPERATION_APPEND, START_US + op * 1000, body)
        stamped = time.thread_time()
        results = rooms.commit(op, OPERATION_APPEND, START_US + op * 1000, body)
        applied = time.thread_time()
        assert all(fields[3] == OK for fields in RESULT_STRUCT.iter_unpack(results))
        settle(rooms)
        for name, seconds in (
            ("check_us", checked - begun),
            ("stamp_us", stamped - checked),
            ("apply_us", applied - stamped),
        ):
            spent[name] += seconds
        longest = max(longest, applied - stamped)
    figures = {name: seconds / rooms.log_seq * 1e6 for name, seconds in spent.items()}
    figures["batch_longest_ms"] = longest * 1e3  # one that sealed a segment
    figures |= checkpoint_and_restore(rooms, op)
    return {name: round(value, 2) for name, value in figures.items()}


def settle(rooms: Rooms) -> None:
    """The disk of the bench: every write is durable at once."""
    while writes := rooms.take_writes():
        for write in writes:
            rooms.on_segment_written(write)


def checkpoint_and_restore(rooms: Rooms, op: int) -> dict[str, float]:
    """Milliseconds to freeze the state, and to restore it in another process."""
    begun = time.thread_time()
    rooms.flush()
    settle(rooms)
    state = rooms.checkpoint()
    tables, chunks = {}, {}
    for name, table in state.tables.items():
        rows, chunk_ids, writes = table.freeze(everything=True)
        tables[name] = TableState(rows, chunk_ids)
        chunks[name] = [data for _, data in writes]
    tables["sessions"] = tables["members"] = TableState(0, [])
    raw = checkpoint.encode(
        Manifest(
            cluster=CLUSTER,
            shard=0,
            epoch=0,
            op=op,
            timestamp=0,
            prepare_digest=bytes(16),
            log_seq=state.log_seq,
            shipper_cursor=0,
            oldest_segment=0,
            oldest_segment_before=0,
            newest_segment_id=state.newest_segment_id,
            segments_max=SEGMENTS_MAX,
            leaf_ids=state.leaf_ids,
            tables=tables,
        )
    )
    frozen = time.thread_time()
    number, count = divmod(state.log_seq, PRODUCTION.segment_records)
    size = PRODUCTION.records_max
    leaves = []
    for index in range(len(state.leaf_ids)):
        leaf = rooms.leaf(number, index, min(size, count - index * size))
        assert leaf is not None
        assert len(leaf) % RECORD_SIZE == 0
        leaves.append(leaf)
    other = fresh()
    started = time.thread_time()
    other.restore(checkpoint.decode(raw, PRODUCTION), chunks, leaves)
    restored = time.thread_time()
    assert other.log_seq == rooms.log_seq
    return {
        "checkpoint_ms": (frozen - begun) * 1e3,
        "restore_ms": (restored - started) * 1e3,
        "restore_records": count,
    }


if __name__ == "__main__":
    print(json.dumps(run()))
