"""The ring, the disk and the footers hold the same records, whenever one looks."""

import pytest

from appliance.base.prng import Prng
from appliance.cores.rooms.open_segment import SegmentWrite
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE, SMALL, Geometry
from appliance.formats.segment import RingView, SegmentView, leaf_id, leaf_record_count
from tests.cores.rooms.shard import CLUSTER, SHARD, Shard, create, make, room_id

both = pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])


def filled(geometry: Geometry, count: int) -> Shard:
    """A shard with `count` records in rooms 0 to 2."""
    shard = Shard(geometry)
    shard.commit(*(create(room, client=900 + room) for room in range(3)))
    for start in range(3, count, geometry.records_max):
        shard.commit(
            *(
                make(n % 3, n % 3, n // 3)
                for n in range(start, min(start + geometry.records_max, count))
            )
        )
    assert shard.rooms.log_seq == count
    return shard


@both
def test_a_sealed_segment_verifies_and_finds_each_record_by_place_room_and_message(
    geometry: Geometry,
) -> None:
    count = geometry.segment_records
    shard = filled(geometry, 2 * count + 1)
    first = SegmentView(shard.extent(0), geometry)
    second = SegmentView(shard.extent(1), geometry)
    first.verify(second.footer.previous_id)
    second.verify(shard.rooms.checkpoint().newest_segment_id)
    assert second.footer[:6] == (SHARD, count, CLUSTER, 1, count + 1, first.id)
    for room in range(3):
        entry = first.room(room_id(room))
        assert entry is not None
        assert (entry.previous, second.room(room_id(room)).previous) == (0, 1)
        rows = first.rows(entry.first_row, entry.row_count)
        assert [seq for seq, _ in rows] == list(range(1, entry.row_count + 1))
        assert [slot for _, slot in rows] == list(range(room, count, 3))
    assert first.room(room_id(9)) is None
    for slot in (0, 1, count - 1):
        message = first.record(slot)[16:32]
        assert first.record(first.slot_of_message(message))[16:32] == message
    assert first.slot_of_message(b"no such message!") is None


def test_a_room_pages_backwards_over_segments_that_it_skipped() -> None:
    shard = Shard(SMALL)
    shard.commit(create(0), create(1, client=901), make(1, 1, 1))
    shard.fill(0, 1, 297)
    shard.commit(make(1, 1, 2))
    shard.fill(0, 1, 99, first=298)
    assert shard.rooms.log_seq == 400
    views = [SegmentView(shard.extent(n), SMALL) for n in range(4)]
    assert [view.room(room_id(0)).previous for view in views] == [0, 1, 2, 3]
    assert [entry and entry.previous for view in views for entry in [view.room(room_id(1))]] == [
        *(0, None, None, 1)
    ]


@both
def test_a_leaf_is_served_the_same_while_open_when_sealed_and_from_the_disk(
    geometry: Geometry,
) -> None:
    size = geometry.segment_records
    shard = filled(geometry, 2 * geometry.records_max + 3)
    assert shard.rooms.leaf(0, 2, 4) is None
    open_leaves = [
        shard.rooms.leaf(0, i, n)
        for i, n in ((0, geometry.records_max), (1, geometry.records_max), (1, 1), (2, 3))
    ]
    shard.fill(0, 5, size - shard.rooms.log_seq)
    sealed = [
        shard.rooms.leaf(0, i, n)
        for i, n in ((0, geometry.records_max), (1, geometry.records_max), (1, 1), (2, 3))
    ]
    assert open_leaves == sealed
    assert open_leaves[0] + open_leaves[1] == bytes(
        shard.extent(0)[: 2 * geometry.records_max * RECORD_SIZE]
    )
    assert (
        shard.rooms.leaf(
            0, geometry.leaf_count_max - 1, leaf_record_count(geometry, geometry.leaf_count_max - 1)
        )
        is not None
    )
    assert shard.rooms.leaf(1, 0, 1) is None
    shard.fill(0, 6, size + 1)
    assert shard.rooms.leaf(0, 0, 1) is None  # segment 2 has taken the buffer
    assert shard.rooms.leaf(1, 0, 1) is not None
    assert shard.rooms.leaf(2, 0, 1) is not None


def test_leaf_ids_of_a_checkpoint_are_those_of_its_leaves_at_every_length() -> None:
    shard = Shard(SMALL)
    shard.commit(create(0))
    for n in range(1, 2 * SMALL.segment_records + 10):
        shard.commit(make(0, 1, n))
        durable = shard.checkpoint()
        state = shard.rooms.checkpoint()
        assert [leaf_id(leaf) for leaf in durable.leaves] == state.leaf_ids


@both
def test_no_batch_begins_a_segment_before_the_buffer_it_takes_is_durable(
    geometry: Geometry,
) -> None:
    count, batch = geometry.segment_records, geometry.records_max
    shard = Shard(geometry)
    shard.commit(create(0))
    shard.hold = True
    shard.fill(0, 1, 2 * count - 1 - batch // 2)
    left = batch // 2
    assert shard.rooms.can_commit(left)
    assert not shard.rooms.can_commit(left + 1)  # segment 2 would take the buffer of segment 0
    *others, footer = [write for write in shard.held if write.number == 0]
    assert footer.offset == geometry.segment_data_size
    for write in others:
        shard.perform(write)
    assert shard.rooms.durable_log_seq() == count
    assert not shard.rooms.can_commit(left + 1)
    shard.perform(footer)
    assert shard.rooms.can_commit(left + 1)


def sectors(write: SegmentWrite) -> range:
    return range(write.offset, write.offset + len(write.data))


def test_what_is_durable_is_never_overstated_whatever_order_writes_complete_in(seed: int) -> None:
    prng, shard = Prng(seed), Shard(SMALL, segments_max=64)
    shard.commit(create(0))
    shard.hold = True
    waited = 0
    while shard.rooms.log_seq < 1500:
        if shard.rooms.can_commit(1):
            assert shard.one(make(0, 1, shard.rooms.log_seq)).code == 0
        else:
            waited += 1
        if prng.chance(1, 6):
            shard.rooms.flush()
            shard.write()
        for i, write in enumerate(shard.held):
            assert all(
                write.number != other.number or not overlap(write, other)
                for other in shard.held[:i]
            )
        while shard.held and (len(shard.held) > 6 or prng.chance(1, 4)):
            shard.perform(shard.held.pop(prng.below(len(shard.held))))
            shard.write()
        assert shard.rooms.durable_log_seq() <= shard.rooms.log_seq
        assert_on_disk(shard, shard.rooms.durable_log_seq())
    assert waited > 0


def overlap(one: SegmentWrite, other: SegmentWrite) -> bool:
    return one.offset < other.offset + len(other.data) and other.offset < one.offset + len(one.data)


def assert_on_disk(shard: Shard, log_seq: int) -> None:
    """The newest records up to `log_seq` are on the disk as they are in the ring."""
    ring = RingView(shard.ring, shard.geometry)
    for number in range(
        max(0, (log_seq - 1) // shard.geometry.segment_records - 1),
        log_seq // shard.geometry.segment_records + 1,
    ):
        count = min(
            shard.geometry.segment_records, log_seq - number * shard.geometry.segment_records
        )
        if count > 0 and ring.record_count(number) is not None:
            assert ring.records(number, 0, count) == shard.extent(number)[: count * RECORD_SIZE]


def test_a_flush_makes_every_record_durable_and_a_second_one_writes_nothing() -> None:
    shard = Shard(SMALL)
    shard.commit(create(0))
    for n in range(1, 3 * SMALL.segment_records):
        shard.commit(make(0, 1, n))
        shard.rooms.flush()
        shard.write()
        assert shard.rooms.durable_log_seq() == shard.rooms.log_seq
        assert_on_disk(shard, shard.rooms.log_seq)
        shard.rooms.flush()
        assert shard.rooms.take_writes() == []


def test_what_follows_the_tail_in_its_sector_is_zero_though_the_buffer_was_used_before() -> None:
    shard = filled(SMALL, 2 * SMALL.segment_records + 3)
    shard.checkpoint()
    end = 3 * RECORD_SIZE
    assert not any(shard.extent(2)[end : -(-end // 4096) * 4096])


def test_the_ring_shows_committed_records_and_nothing_of_a_segment_that_has_left_it() -> None:
    shard = filled(SMALL, SMALL.segment_records - 1)
    ring = RingView(shard.ring, SMALL)
    assert ring.record_count(0) == SMALL.segment_records - 1
    assert ring.record_count(1) is None
    assert ring.records(0, 0, 4) == bytes(shard.extent(0)[: 4 * RECORD_SIZE])
    assert ring.records(0, SMALL.segment_records - 3, 3) is None
    shard.fill(0, 5, SMALL.segment_records + 2)
    assert ring.record_count(0) is None
    assert ring.records(0, 0, 4) is None
    assert ring.record_count(1) == SMALL.segment_records
    assert ring.record_count(2) == 1


def test_reports_of_writes_from_before_a_reset_change_nothing() -> None:
    shard = filled(SMALL, 3)
    shard.hold = True
    shard.fill(0, 5, 50)
    stale = list(shard.held)
    assert stale
    shard.rooms.reset()
    for write in stale:
        shard.rooms.on_segment_written(write)
    assert shard.rooms.durable_log_seq() == 0
    assert shard.rooms.take_writes() == []
    assert RingView(shard.ring, SMALL).record_count(0) == 0


def test_a_write_that_would_overlap_a_tail_waits_until_the_tail_is_durable() -> None:
    shard = Shard(SMALL)
    shard.commit(create(0), make(0, 1, 1))
    shard.hold = True
    shard.rooms.flush()
    shard.write()
    whole, tail = shard.held
    assert (whole.offset, len(whole.data), whole.last_log_seq) == (0, 4096, 1)
    assert (tail.offset, len(tail.data), tail.last_log_seq) == (4096, 4096, 2)
    shard.fill(0, 1, SMALL.segment_records - 2, first=2)
    assert shard.held == [whole, tail]  # a whole segment waits
    shard.perform(tail)
    assert shard.rooms.durable_log_seq() == 0  # the one before it is still on its way
    shard.perform(whole)
    assert shard.rooms.durable_log_seq() == 2
    shard.held.clear()
    shard.write()
    assert shard.held[0].offset == 4096  # over the tail
    assert shard.held[-1].offset == SMALL.segment_data_size
    shard.hold = False
    shard.write()
    assert shard.rooms.durable_log_seq() == SMALL.segment_records
