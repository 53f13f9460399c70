"""Zones do not overlap, and the ring never overwrites what is still needed."""

import dataclasses

import pytest

from appliance.base.limits import KIB, MIB, SECTOR_SIZE
from appliance.formats.geometry import PRODUCTION, SMALL, TABLES, Geometry

both = pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])


def test_production_has_its_published_sizes_and_offsets() -> None:
    assert PRODUCTION.wal_headers_offset == 256 * KIB
    assert PRODUCTION.wal_prepares_offset == 5 * MIB
    assert PRODUCTION.replies_offset == 1029 * MIB
    assert PRODUCTION.checkpoints_offset == 1031 * MIB
    assert PRODUCTION.data_size == 1159 * MIB
    assert PRODUCTION.extent_size == 23 * MIB
    assert PRODUCTION.chunk_size_max == 1_048_400
    assert SMALL.chunk_size_max == 16_208
    assert PRODUCTION.leaf_count_max == 22
    assert PRODUCTION.segment_data_size == 22_401_024
    assert PRODUCTION.footer_size_max == 720_960


@both
def test_every_zone_starts_on_a_sector_behind_the_one_before(geometry: Geometry) -> None:
    starts = [
        0,
        geometry.wal_headers_offset,
        geometry.wal_prepares_offset,
        geometry.replies_offset,
        geometry.checkpoints_offset,
        geometry.data_size,
    ]
    sizes = [
        256 * KIB,
        geometry.slot_count * SECTOR_SIZE,
        geometry.slot_count * geometry.message_size_max,
        geometry.clients_max * geometry.reply_size_max,
        2 * geometry.checkpoint_zone_size,
    ]
    assert all(start % SECTOR_SIZE == 0 for start in starts)
    for start, size, following in zip(starts, sizes, starts[1:], strict=False):
        assert start + size <= following
    assert geometry.extent_size % SECTOR_SIZE == 0
    assert geometry.segment_data_size + geometry.footer_size_max <= geometry.extent_size


@both
def test_tables_lie_one_behind_the_other_in_a_checkpoint_zone(geometry: Geometry) -> None:
    end = 256 * KIB
    for table in TABLES:
        assert geometry.table_offset(table) == end
        rows = geometry.table_rows_per_chunk(table) * geometry.table_chunks_max(table)
        assert rows >= geometry.table_rows_max(table)
        end += geometry.table_chunks_max(table) * geometry.table_chunk_size
    assert geometry.tables_end == end <= geometry.checkpoint_zone_size
    with pytest.raises(KeyError):
        geometry.table_offset("no such table")


@both
def test_checkpoints_take_the_zones_in_turn(geometry: Geometry) -> None:
    k = geometry.checkpoint_ops
    assert [geometry.checkpoint_zone(n * k) for n in range(5)] == [0, 1, 0, 1, 0]


@both
def test_no_slot_is_needed_twice_whatever_the_checkpoint_and_head(geometry: Geometry) -> None:
    for checkpoint in range(0, 5 * geometry.checkpoint_ops, geometry.checkpoint_ops):
        head = geometry.prepare_max(checkpoint)
        for commit_max in (
            checkpoint,
            checkpoint + geometry.pipeline_max,
            checkpoint + geometry.pipeline_max + 1,
            head,
        ):
            first = geometry.repair_min(checkpoint, commit_max, head)
            durable = geometry.durable(checkpoint, commit_max)
            assert durable == (checkpoint == 0 or commit_max > checkpoint + geometry.pipeline_max)
            if durable:
                assert first == checkpoint + 1
                assert head - first < geometry.slot_count
            else:
                assert first == max(0, checkpoint - geometry.checkpoint_ops + 1)


@both
def test_what_may_be_acknowledged_proves_the_checkpoint_before_it_is_overwritten(
    geometry: Geometry,
) -> None:
    """Ops that reuse slots of the interval before a checkpoint come after one that proves it."""
    for checkpoint in range(
        geometry.checkpoint_ops, 5 * geometry.checkpoint_ops, geometry.checkpoint_ops
    ):
        before = checkpoint - geometry.checkpoint_ops
        assert geometry.prepare_ok_max(before) == checkpoint + geometry.pipeline_max
        oldest_needed = before + 1  # until the checkpoint is known to be durable
        newest_possible = geometry.prepare_max(before)
        assert newest_possible - oldest_needed < geometry.slot_count


@pytest.mark.parametrize(
    "change",
    [
        {"slot_count": 56},
        {"checkpoint_ops": 3},
        {"pipeline_max": 30},
        {"message_size_max": 16_000},
        {"records_max": 8},
        {"records_max": 6},
        {"reply_size_max": 512},
        {"table_chunk_size": 20_480},
        {"checkpoint_zone_size": 264 * KIB},
        {"wal_writes_max": 5},
    ],
)
def test_a_geometry_that_breaks_a_rule_cannot_be_made(change: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        dataclasses.replace(SMALL, **change)


def test_a_full_batch_fits_a_message_and_one_record_more_does_not() -> None:
    size = 128 + 128 + SMALL.records_max * 2240
    assert size <= SMALL.message_size_max < size + 2240
    assert 128 + 128 + PRODUCTION.records_max * 2240 == PRODUCTION.message_size_max
