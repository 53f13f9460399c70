"""Manifest, rows and places: every offset, equal bytes for equal states, nothing broken read."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from appliance.base.errors import FormatError
from appliance.base.layout import offset_of
from appliance.formats import checkpoint
from appliance.formats.checkpoint import (
    CARRYING,
    HEAD,
    PLACE,
    POLICY,
    SHIPPING,
    TABLE_ROWS,
    ChunkLocation,
    Manifest,
    ShippingState,
    TableState,
)
from appliance.formats.geometry import MANIFEST_SIZE_MAX, PRODUCTION, SMALL, TABLES, Geometry
from tests.vectors.examples import manifest_value

both = pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])

LAYOUTS = {
    "manifest": (
        HEAD,
        [
            ("magic", 0, 8),
            ("version", 8, 2),
            ("shard", 10, 2),
            ("epoch", 12, 4),
            ("cluster_id", 16, 16),
            ("op", 32, 8),
            ("timestamp", 40, 8),
            ("prepare_digest", 48, 16),
            ("log_seq", 64, 8),
            ("shipper_cursor", 72, 8),
            ("oldest_segment", 80, 8),
            ("oldest_segment_before", 88, 8),
            ("newest_segment_id", 96, 32),
            ("segments_max", 128, 4),
            ("leaf_count", 132, 4),
            ("tables", 136, 32),
            ("shipping", 168, 72),
            ("carrying", 240, 8),
            ("ahead_us", 248, 8),
        ],
    ),
    "shipping": (
        SHIPPING,
        [
            ("generation", 0, 4),
            ("node", 4, 2),
            ("reserved", 6, 2),
            ("manifest_count", 8, 8),
            ("manifest_hash", 16, 32),
            ("period_start_us", 48, 8),
            ("period_us", 56, 8),
            ("announced_end", 64, 8),
        ],
    ),
    "carrying": (CARRYING, [("generation", 0, 4), ("node", 4, 2), ("reserved", 6, 2)]),
    "rooms": (
        TABLE_ROWS["rooms"],
        [
            ("room_id", 0, 16),
            ("head_hash", 16, 32),
            ("message_count", 48, 8),
            ("op", 56, 8),
            ("sealed_segment", 64, 8),
            ("policy", 72, 24),
            ("sites", 96, 32),
        ],
    ),
    "policy": (
        POLICY,
        [("log_seq", 0, 8), ("created_log_seq", 8, 8), ("bits", 16, 8)],
    ),
    "windows": (
        TABLE_ROWS["windows"],
        [
            ("client_id", 0, 16),
            ("room_id", 16, 16),
            ("author_id", 32, 8),
            ("client_seq", 40, 8),
            ("log_seq", 48, 8),
            ("timestamp", 56, 8),
            ("log_seqs", 64, 256),
        ],
    ),
    "sessions": (
        TABLE_ROWS["sessions"],
        [
            ("client", 0, 16),
            ("session", 16, 8),
            ("request", 24, 4),
            ("reserved_a", 28, 4),
            ("reply_digest", 32, 16),
            ("reply_header", 48, 128),
            ("reserved_b", 176, 80),
        ],
    ),
    "members": (
        TABLE_ROWS["members"],
        [
            ("replica_id", 0, 16),
            ("public_key", 16, 32),
            ("fingerprint", 48, 32),
            ("address", 80, 256),
            ("votes", 336, 1),
            ("reserved", 337, 175),
        ],
    ),
    "place": (PLACE, [("kind", 0, 2), ("count", 2, 2), ("index", 4, 4), ("number", 8, 8)]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_offset_of_the_layout_is_pinned(name: str) -> None:
    dtype, fields = LAYOUTS[name]
    found = [(field, offset_of(dtype, field), dtype[field].itemsize) for field in dtype.names]
    assert found == fields
    assert sum(size for _, _, size in fields) == dtype.itemsize


# --- manifests ------------------------------------------------------------------------------------


def manifest_of(geometry: Geometry, log_seq: int, rows: tuple[int, ...]) -> Manifest:
    """A manifest that fits its own numbers."""
    number, count = divmod(log_seq, geometry.segment_records)
    tables = {}
    for i, name in enumerate(TABLES):
        chunks = -(-rows[i] // geometry.table_rows_per_chunk(name))
        tables[name] = TableState(
            rows[i], [bytes([i]) * 30 + n.to_bytes(2, "little") for n in range(chunks)]
        )
    return dataclasses.replace(
        manifest_value(),
        log_seq=log_seq,
        shipper_cursor=log_seq // 2,
        oldest_segment=number // 2,
        oldest_segment_before=number // 3,
        tables=tables,
        newest_segment_id=(b"n" if number else b"\0") * 32,
        leaf_ids=[bytes([n]) * 32 for n in range(-(-count // geometry.records_max))],
    )


@both
@given(data=st.data())
def test_a_manifest_is_read_back_and_equal_ones_are_equal_bytes(
    geometry: Geometry, data: DataObject
) -> None:
    rows = tuple(data.draw(st.integers(0, geometry.table_rows_max(name))) for name in TABLES)
    log_seq = data.draw(st.integers(0, 5 * geometry.segment_records))
    raw = checkpoint.encode(manifest_of(geometry, log_seq, rows))
    read = checkpoint.decode(raw, geometry)
    assert read == manifest_of(geometry, log_seq, rows)
    assert checkpoint.encode(read) == raw
    assert checkpoint.checkpoint_id(raw) == checkpoint.checkpoint_id(bytes(raw))


@both
def test_the_largest_manifest_fits_its_zone(geometry: Geometry) -> None:
    rows = tuple(geometry.table_rows_max(name) for name in TABLES)
    raw = checkpoint.encode(manifest_of(geometry, geometry.segment_records - 1, rows))
    assert len(raw) <= MANIFEST_SIZE_MAX
    assert len(raw) <= geometry.chunk_size_max
    assert checkpoint.decode(raw, geometry).tables["windows"].row_high_water == rows[1]


def test_no_flipped_bit_of_a_manifest_is_read_as_the_same_state() -> None:
    raw = checkpoint.encode(manifest_value())
    for at in range(len(raw)):
        for bit in (0, 7):
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            assert checkpoint.checkpoint_id(bytes(changed)) != checkpoint.checkpoint_id(raw)
            try:
                read = checkpoint.decode(changed, SMALL)
            except FormatError:
                continue
            assert read != manifest_value()
            assert checkpoint.encode(read) == changed


@pytest.mark.parametrize("size", [0, 255, 256, 479, 481, MANIFEST_SIZE_MAX + 1])
def test_a_manifest_of_another_size_is_refused(size: int) -> None:
    raw = checkpoint.encode(manifest_value()).ljust(MANIFEST_SIZE_MAX + 1, b"\0")[:size]
    with pytest.raises(FormatError):
        checkpoint.decode(raw, SMALL)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"log_seq": 700}, "leaf ids: 3, expected 0"),
        ({"log_seq": 722}, "leaf ids: 3, expected 4"),
        ({"newest_segment_id": bytes(32)}, "newest segment"),
        ({"oldest_segment": 8}, "oldest segment 8 of 7"),
        ({"oldest_segment_before": 4}, "oldest segment 3 of 7, 4 before"),
        ({"shipper_cursor": 717}, "shipped 717 of 716"),
        ({"shipping": ShippingState(announced_end=717)}, "below 717 announced"),
        ({"shipping": ShippingState(announced_end=345)}, "345 shipped"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(change: dict[str, Any], reason: str) -> None:
    raw = checkpoint.encode(dataclasses.replace(manifest_value(), **change))
    with pytest.raises(FormatError, match=reason):
        checkpoint.decode(raw, SMALL)


@pytest.mark.parametrize(
    ("rows", "chunks", "reason"),
    [
        (17, 1, "17 rows in table rooms"),
        (16, 0, "chunks of table rooms: 0, expected 1"),
        (16, 2, "chunks of table rooms: 2, expected 1"),
        (0, 1, "chunks of table rooms: 1, expected 0"),
    ],
)
def test_a_table_with_too_many_rows_or_the_wrong_chunks_is_refused(
    rows: int, chunks: int, reason: str
) -> None:
    tables = {**manifest_value().tables, "rooms": TableState(rows, [bytes(32)] * chunks)}
    raw = checkpoint.encode(dataclasses.replace(manifest_value(), tables=tables))
    with pytest.raises(FormatError, match=reason):
        checkpoint.decode(raw, SMALL)


# --- places ---------------------------------------------------------------------------------------


@both
def test_each_table_chunk_has_an_index_and_a_place_of_its_own(geometry: Geometry) -> None:
    seen = []
    for table in TABLES:
        for chunk in range(geometry.table_chunks_max(table)):
            index = checkpoint.table_chunk_index(geometry, table, chunk)
            location = ChunkLocation(checkpoint.KIND_TABLE, 0, index, 48)
            assert checkpoint.zone_offset(geometry, location) == (
                geometry.table_offset(table) + chunk * geometry.table_chunk_size
            )
            seen.append(index)
    assert seen == list(range(checkpoint.table_chunks_total(geometry)))
    assert checkpoint.zone_offset(geometry, ChunkLocation(checkpoint.KIND_MANIFEST, 0, 0, 48)) == 0


@both
@pytest.mark.parametrize("last", [False, True])
def test_a_leaf_has_at_least_one_record_and_at_most_its_own(geometry: Geometry, last: bool) -> None:
    index = geometry.leaf_count_max - 1 if last else 0
    rest = geometry.segment_records - (geometry.leaf_count_max - 1) * geometry.records_max
    full = rest if last else geometry.records_max
    for count, valid in ((0, False), (1, True), (full, True), (full + 1, False)):
        location = ChunkLocation(checkpoint.KIND_LEAF, count, index, 3)
        read = checkpoint.decode_location(checkpoint.encode_location(location), geometry)
        assert read == (location if valid else None)
    beyond = ChunkLocation(checkpoint.KIND_LEAF, 1, geometry.leaf_count_max, 3)
    assert checkpoint.decode_location(checkpoint.encode_location(beyond), geometry) is None


@both
def test_places_where_nothing_can_be_are_refused(geometry: Geometry) -> None:
    total = checkpoint.table_chunks_total(geometry)
    for location, valid in (
        (ChunkLocation(checkpoint.KIND_MANIFEST, 0, 0, 9), True),
        (ChunkLocation(checkpoint.KIND_MANIFEST, 0, 1, 9), False),
        (ChunkLocation(checkpoint.KIND_MANIFEST, 1, 0, 9), False),
        (ChunkLocation(checkpoint.KIND_FOOTER, 0, 0, 9), True),
        (ChunkLocation(checkpoint.KIND_FOOTER, 0, 1, 9), False),
        (ChunkLocation(checkpoint.KIND_TABLE, 0, total - 1, 9), True),
        (ChunkLocation(checkpoint.KIND_TABLE, 0, total, 9), False),
        (ChunkLocation(checkpoint.KIND_TABLE, 1, 0, 9), False),
        (ChunkLocation(0, 0, 0, 9), False),
        (ChunkLocation(5, 0, 0, 9), False),
    ):
        read = checkpoint.decode_location(checkpoint.encode_location(location), geometry)
        assert read == (location if valid else None)
