"""Footer and ring: every offset, every lookup, and no flipped byte that goes unnoticed."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import FormatError
from appliance.base.layout import offset_of
from appliance.formats import segment
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE, SMALL, Geometry
from appliance.formats.segment import HEAD, MESSAGE, ROOM, ROW, RingView, SegmentView
from tests.vectors.examples import segment_footer, segment_records

both = pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])

LAYOUTS = {
    "head": (
        HEAD,
        [
            ("magic", 0, 8),
            ("version", 8, 2),
            ("shard", 10, 2),
            ("record_count", 12, 4),
            ("cluster_id", 16, 16),
            ("number", 32, 8),
            ("first_log_seq", 40, 8),
            ("previous_id", 48, 32),
            ("first_timestamp", 80, 8),
            ("last_timestamp", 88, 8),
            ("leaf_count", 96, 4),
            ("room_count", 100, 4),
            ("reserved", 104, 152),
        ],
    ),
    "room": (
        ROOM,
        [("room_id", 0, 16), ("previous", 16, 8), ("first_row", 24, 4), ("row_count", 28, 4)],
    ),
    "row": (ROW, [("seq", 0, 8), ("slot", 8, 4), ("reserved", 12, 4)]),
    "message": (MESSAGE, [("msg_id", 0, 16), ("slot", 16, 4), ("reserved", 20, 4)]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_offset_of_the_layout_is_pinned(name: str) -> None:
    dtype, fields = LAYOUTS[name]
    found = [(field, offset_of(dtype, field), dtype[field].itemsize) for field in dtype.names]
    assert found == fields
    assert sum(size for _, _, size in fields) == dtype.itemsize


def extent() -> bytearray:
    """The sealed extent of the example segment."""
    raw = bytearray(SMALL.extent_size)
    records, footer = segment_records(), segment_footer()
    raw[: len(records)] = records
    raw[SMALL.segment_data_size : SMALL.segment_data_size + len(footer)] = footer
    return raw


EXTENT = extent()
IDENTITY = segment.segment_id(segment_footer())


@both
def test_numbers_slots_and_log_seqs_belong_together(geometry: Geometry) -> None:
    size = geometry.segment_records
    for log_seq, number, slot in ((1, 0, 0), (size, 0, size - 1), (size + 1, 1, 0)):
        assert segment.number_of(geometry, log_seq) == number
        assert segment.slot_of(geometry, log_seq) == slot
        assert segment.first_log_seq_of(geometry, number) + slot == log_seq
    assert (
        sum(segment.leaf_record_count(geometry, i) for i in range(geometry.leaf_count_max)) == size
    )


def test_the_parts_of_a_footer_follow_each_other() -> None:
    footer = segment.decode_footer(segment_footer(), SMALL)
    assert footer.rooms_offset == 256 + 15 * 32
    assert footer.rows_offset == footer.rooms_offset + 3 * 32
    assert footer.messages_offset == footer.rows_offset + 100 * 16
    assert footer.size == footer.messages_offset + 100 * 24 == len(segment_footer())


def test_a_footer_says_what_its_segment_holds() -> None:
    view = SegmentView(EXTENT, SMALL)
    view.verify(IDENTITY)
    view.verify(None)
    footer = view.footer
    assert (footer.shard, footer.number, footer.first_log_seq) == (0x0203, 2, 201)
    assert footer.last_timestamp - footer.first_timestamp == 99
    entry = view.room(b"room" + b"\2" * 12)
    assert entry is not None
    assert (entry.previous, entry.first_row, entry.row_count) == (1, 33, 33)
    assert view.room(b"room" + b"\1" * 12).previous == 0
    assert view.rows(33, 2) == [(41, 2), (42, 5)]
    assert view.rows(33 + 32, 1) == [(73, 98)]
    assert view.records(98, 2) == view.record(98) + view.record(99)


def test_each_message_is_found_by_its_id() -> None:
    view = SegmentView(EXTENT, SMALL)
    for slot in range(100):
        assert view.slot_of_message(view.record(slot)[16:32]) == slot
    assert view.slot_of_message(bytes(15) + b"\x64") is None
    assert view.slot_of_message(b"\xff" * 16) is None


IDS = st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=9, unique=True)


@given(IDS, IDS, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_any_ids_are_found_the_first_of_equal_ones(
    room_ids: list[bytes], msg_ids: list[bytes], chance: random.Random
) -> None:
    records = bytearray(segment_records())
    rooms = [chance.choice(room_ids) for _ in range(100)]
    messages = [chance.choice(msg_ids) for _ in range(100)]
    for slot in range(100):
        at = slot * RECORD_SIZE
        records[at : at + 32] = rooms[slot] + messages[slot]
        records[at + 2224 : at + 2232] = (rooms[:slot].count(rooms[slot]) + 1).to_bytes(8, "little")
    footer = segment.encode_footer(
        bytes(records),
        cluster=bytes(16),
        shard=0,
        number=2,
        previous_id=bytes(32),
        leaf_ids=[bytes(32)] * 15,
        previous_of=lambda room_id: room_id[0],
    )
    raw = bytearray(SMALL.extent_size)
    raw[: len(records)] = records
    raw[SMALL.segment_data_size : SMALL.segment_data_size + len(footer)] = footer
    view = SegmentView(raw, SMALL)
    for msg_id in msg_ids:
        expected = messages.index(msg_id) if msg_id in messages else None
        assert view.slot_of_message(msg_id) == expected
    for room_id in room_ids:
        slots = [slot for slot in range(100) if rooms[slot] == room_id]
        entry = view.room(room_id)
        assert (entry is None) == (not slots)
        if entry is not None:
            assert entry.previous == room_id[0]
            assert view.rows(entry.first_row, entry.row_count) == list(enumerate(slots, start=1))


def refused(raw: bytes | bytearray, identity: bytes | None) -> bool:
    try:
        SegmentView(raw, SMALL).verify(identity)
    except FormatError:
        return True
    return False


def test_every_flipped_byte_of_a_footer_is_found() -> None:
    footer = segment_footer()
    start = SMALL.segment_data_size
    unlinked = (range(10, 12), range(16, 32), range(48, 80))  # shard, cluster, previous segment
    rooms = segment.decode_footer(footer, SMALL).rooms_offset
    links = [range(rooms + i * 32 + 16, rooms + i * 32 + 24) for i in range(3)]
    for at in range(len(footer)):
        changed = bytearray(EXTENT)
        changed[start + at] ^= 1
        assert segment.segment_id(changed[start : start + len(footer)]) != IDENTITY
        if at % 16 == 0 or at < 256:
            assert refused(changed, IDENTITY)
            trusted = any(at in part for part in (*unlinked, *links))
            assert refused(changed, None) != trusted


def test_every_flipped_byte_of_the_records_and_of_the_paddings_is_found() -> None:
    size = SMALL.segment_records * RECORD_SIZE
    footer_end = SMALL.segment_data_size + len(segment_footer())
    places = [
        *range(0, size, 4099),
        size - 1,
        size,
        SMALL.segment_data_size - 1,
        footer_end,
        -(-footer_end // 4096) * 4096 - 1,
    ]
    for at in places:
        changed = bytearray(EXTENT)
        changed[at] ^= 0x80
        assert refused(changed, IDENTITY), at


@pytest.mark.parametrize(
    "size",
    [
        0,
        SMALL.segment_data_size,
        SMALL.segment_data_size + 255,
        SMALL.segment_data_size + len(segment_footer()) - 1,
    ],
)
def test_an_extent_that_ends_too_early_is_refused(size: int) -> None:
    with pytest.raises(FormatError):
        SegmentView(EXTENT[:size], SMALL)


def test_an_extent_of_zeros_is_no_sealed_segment() -> None:
    with pytest.raises(FormatError, match="magic"):
        SegmentView(bytes(SMALL.extent_size), SMALL)


def test_a_closed_view_lets_its_mapping_go() -> None:
    raw = bytearray(EXTENT)
    view = SegmentView(raw, SMALL)
    with pytest.raises(BufferError):
        raw.append(0)
    view.close()
    raw.append(0)


@both
def test_the_ring_has_two_buffers_of_a_head_and_a_segments_records(geometry: Geometry) -> None:
    assert segment.ring_buffer_size(geometry) == 4096 + geometry.segment_data_size
    assert segment.ring_size(geometry) == 2 * segment.ring_buffer_size(geometry)


def test_a_ring_is_read_at_the_buffer_that_its_heads_name() -> None:
    ring = bytearray(segment.ring_size(SMALL))
    second = segment.ring_buffer_size(SMALL)
    records = segment_records()
    ring[second : second + 16] = (5).to_bytes(8, "little") + (60).to_bytes(8, "little")
    ring[second + 4096 : second + 4096 + len(records)] = records
    view = RingView(memoryview(ring), SMALL)
    assert view.record_count(5) == 60
    assert view.record_count(3) is None
    assert view.records(5, 58, 2) == records[58 * RECORD_SIZE : 60 * RECORD_SIZE]
    assert view.records(5, 59, 2) is None
    assert view.records(7, 0, 1) is None
    assert view.record_count(0) == 0  # an empty ring is that of segment 0
    assert view.record_count(1) is None
