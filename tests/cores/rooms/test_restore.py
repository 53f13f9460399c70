"""A restore takes the state that the manifest names, or says which chain is broken."""

import dataclasses
import struct

import pytest

from appliance.base.errors import ChainError, FormatError
from appliance.base.table import Table
from appliance.formats import checkpoint, record
from appliance.formats.checkpoint import TABLE_ROWS, Manifest
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE, SMALL, Geometry
from appliance.formats.segment import leaf_id
from tests.cores.rooms.shard import Durable, Shard, create, make, room_id

both = pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])


def grown(geometry: Geometry, count: int) -> Shard:
    """A shard with `count` records in two rooms."""
    shard = Shard(geometry)
    shard.commit(create(0), create(1, client=901))
    shard.fill(0, 1, count // 2)
    shard.fill(1, 2, count - 2 - count // 2)
    return shard


def forged(shard: Shard, durable: Durable, records: bytearray, **changes: object) -> Durable:
    """The checkpoint with other records in its open segment and ids that fit them."""
    size = shard.geometry.records_max * RECORD_SIZE
    leaves = [bytes(records[at : at + size]) for at in range(0, len(records), size)]
    manifest = checkpoint.decode(durable.manifest, shard.geometry)
    changed = dataclasses.replace(manifest, leaf_ids=[leaf_id(leaf) for leaf in leaves], **changes)
    return Durable(checkpoint.encode(changed), durable.tables, leaves)


@both
@pytest.mark.parametrize("extra", [-1, 0, 1, 150])
def test_a_restart_goes_on_with_the_next_record_and_the_same_bytes(
    geometry: Geometry, extra: int
) -> None:
    first = grown(geometry, geometry.segment_records + extra)
    second = first.restarted(first.checkpoint())
    for shard in (first, second):
        shard.fill(0, 7, geometry.segment_records)
    assert first.checkpoint() == second.checkpoint()
    assert first.extents == second.extents


def test_a_seal_changes_rows_of_rooms_that_were_quiet_since_the_checkpoint_before() -> None:
    shard = Shard(PRODUCTION)
    rooms = 600  # more than a chunk of the table
    for start in range(0, rooms, 100):
        shard.commit(*(create(room, client=room) for room in range(start, start + 100)))
    first, second = shard.checkpoint(), shard.checkpoint()
    assert first.tables == second.tables
    shard.fill(rooms - 1, 5000, PRODUCTION.segment_records - rooms)
    third = shard.checkpoint()  # its chunks fit their ids
    assert third.tables["rooms"][0] != second.tables["rooms"][0]
    row = shard.restarted(third).rooms.room_row(room_id(0))
    assert row is not None
    assert row[64:72] == (1).to_bytes(8, "little")  # segment 0 + 1


def test_the_ring_of_a_restarted_shard_has_the_open_segment_and_not_the_one_before() -> None:
    first = grown(SMALL, 150)
    second = first.restarted(first.checkpoint())
    assert second.rooms.leaf(1, 0, 7) == first.rooms.leaf(1, 0, 7)
    assert second.rooms.leaf(1, 7, 1) == first.rooms.leaf(1, 7, 1)
    assert second.rooms.leaf(0, 0, 1) is None


def test_a_used_state_machine_can_be_restored_to_another_state() -> None:
    first, other = grown(SMALL, 150), grown(SMALL, 333)
    durable = first.checkpoint()
    other.rooms.restore(checkpoint.decode(durable.manifest, SMALL), durable.tables, durable.leaves)
    assert other.rooms.log_seq == 150
    assert other.rooms.room_rows(0, 99) == first.rooms.room_rows(0, 99)
    other.rooms.reset()
    assert other.rooms.log_seq == 0
    assert other.rooms.room_rows(0, 99) == Shard(SMALL).rooms.room_rows(0, 99)


def test_every_flipped_byte_of_a_leaf_is_found() -> None:
    shard = grown(SMALL, 20)
    durable = shard.checkpoint()
    for at in range(0, len(durable.leaves[1]), 97):
        leaf = bytearray(durable.leaves[1])
        leaf[at] ^= 1
        leaves = [durable.leaves[0], bytes(leaf), *durable.leaves[2:]]
        with pytest.raises(FormatError, match="leaves do not hash"):
            shard.restarted(durable._replace(leaves=leaves))


@pytest.mark.parametrize("cut", [0, 1])
def test_a_missing_leaf_or_record_is_found(cut: int) -> None:
    shard = grown(SMALL, 20)
    durable = shard.checkpoint()
    shorter = durable.leaves[:-1] if cut else [*durable.leaves[:-1], durable.leaves[-1][:-2240]]
    with pytest.raises(FormatError, match="bytes for 20 records"):
        shard.restarted(durable._replace(leaves=shorter))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (record.PREV_HASH, b"\1" * 32, "does not follow"),
        (record.SEQ, struct.pack("<Q", 9), "does not follow"),
        (record.LOG_SEQ, struct.pack("<Q", 9), "says it is 9"),
        (record.BODY, b"other words", "does not follow"),
        (record.ROOM_ID, room_id(1), "does not follow"),
    ],
)
def test_a_chain_that_does_not_hold_is_named(field: int, value: bytes, reason: str) -> None:
    shard = grown(SMALL, 20)
    durable = shard.checkpoint()
    records = bytearray(b"".join(durable.leaves))
    records[5 * RECORD_SIZE + field : 5 * RECORD_SIZE + field + len(value)] = value
    with pytest.raises(ChainError, match=reason):
        shard.restarted(forged(shard, durable, records))


def test_a_room_that_begins_with_another_hash_than_zero_is_named_at_its_first_record() -> None:
    shard = grown(SMALL, 20)
    durable = shard.checkpoint()
    records = bytearray(b"".join(durable.leaves))
    records[RECORD_SIZE + record.PREV_HASH] ^= 1
    with pytest.raises(ChainError, match="record 2 does not follow"):
        shard.restarted(forged(shard, durable, records))


def test_a_chain_that_ends_elsewhere_than_the_rooms_row_says_is_found() -> None:
    shard = grown(SMALL, 20)
    durable = shard.checkpoint()
    records = bytearray(b"".join(durable.leaves))
    records[19 * RECORD_SIZE + record.BODY] ^= 1
    with pytest.raises(ChainError, match="does not end at its head"):
        shard.restarted(forged(shard, durable, records))
    with pytest.raises(ChainError, match="does not end at its head"):
        shard.restarted(forged(shard, durable, records[:-RECORD_SIZE], log_seq=19))


def test_tables_without_the_shards_room_or_with_a_room_twice_are_refused() -> None:
    shard = grown(SMALL, 20)
    durable = shard.checkpoint()
    manifest = checkpoint.decode(durable.manifest, SMALL)
    for second_id, reason in ((room_id(0), "is a second row"), (b"\xff" * 16, "is a second row")):
        table = Table(TABLE_ROWS["rooms"], SMALL.rooms_max, SMALL.table_chunk_size)
        for room in (b"\xff" * 16, room_id(0), second_id):
            table.row(table.take())[:16] = room
        assert_refused(shard, durable, manifest, table, reason)
    table = Table(TABLE_ROWS["rooms"], SMALL.rooms_max, SMALL.table_chunk_size)
    table.row(table.take())[:16] = room_id(0)
    assert_refused(shard, durable, manifest, table, "row 0 is not the shard's room")


def assert_refused(
    shard: Shard, durable: Durable, manifest: Manifest, rooms: Table, reason: str
) -> None:
    rows, chunk_ids, writes = rooms.freeze(True)
    tables = {**manifest.tables, "rooms": checkpoint.TableState(rows, chunk_ids)}
    changed = dataclasses.replace(manifest, tables=tables)
    chunks = {**durable.tables, "rooms": [data for _, data in writes]}
    with pytest.raises(FormatError, match=reason):
        shard.rooms.restore(changed, chunks, durable.leaves)


def test_rows_are_listed_in_the_order_of_creation_behind_the_shards_own() -> None:
    shard = Shard(SMALL)
    shard.commit(*(create(room, client=900 + room) for room in (5, 3, 4)))
    assert shard.rooms.room_rows(0, 99)[:16] == record.SHARD_ROOM_ID
    rows = shard.rooms.room_rows(1, 99)
    assert [rows[at : at + 16] for at in range(0, len(rows), 128)] == [
        room_id(5),
        room_id(3),
        room_id(4),
    ]
    assert shard.rooms.room_rows(2, 1) == shard.rooms.room_row(room_id(3))
    assert shard.rooms.room_rows(4, 5) == b""
    assert shard.rooms.room_rows(99, 5) == b""
    assert shard.rooms.room_row(room_id(9)) is None
    assert make(5, 1, 1)[:16] == room_id(5)
