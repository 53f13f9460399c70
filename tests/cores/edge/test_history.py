"""History: pages of a room, both ways, out of ring, index and sealed segments."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.limits import CHUNK_FRAME_SIZE_MAX
from appliance.base.prng import Prng
from appliance.cores.edge.log import ShardLog
from appliance.cores.edge.session import Session
from appliance.formats import segment
from appliance.formats.client.connection import Ping, Pong
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.records import message_of
from appliance.formats.client.subscribing import Subscribed, SubscribeRoom
from appliance.formats.client_errors import Unavailable
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.record import log_seq_in, seq_in
from appliance.formats.segment import SegmentView
from appliance.formats.verified_segment import VerifiedSegments
from tests.cores.edge.world import World, acks, errors

ROOMS = ("general", "random", "rare")


def written(records: list[int], world: World | None = None) -> tuple[Any, ...]:
    """Rooms whose records come in that order, each number a room; the creating ones first."""
    world = world or World(log_sessions=1)
    session = world.open(number=50)
    rooms = [world.room(session, name) for name in ROOMS]
    seqs = [1, 1, 1]
    for at, number in enumerate(records):
        world.say(session, rooms[number], seqs[number], 1, at % 40)
        seqs[number] += 1
        world.process()
    world.settle()
    world.take(session)
    return world, session, rooms


def page(world: World, session: Session, room: UUID, **fields: Any) -> SnapshotChunk:
    world.send(session, SnapshotRequest(room_id=room, **fields))
    world.tick(3)
    (chunk,) = world.take(session)
    assert type(chunk) is SnapshotChunk, chunk
    return chunk


def test_a_room_followed_from_its_beginning_begins_where_it_is_kept_once_older_is_dropped() -> None:
    world, session, (room, _, _) = written([])
    world.send(session, SubscribeRoom(room_id=room))  # its segments are noted as they are sealed
    for first in range(1, 3 * SMALL.segment_records, 10):
        world.say(session, room, first, 10)
        world.settle()
    world.take(session)
    for oldest in (1, 2):
        world.shard.files.oldest = oldest
        kept = [record for record in world.shard.log if record in world.ops(room)]
        kept = [raw for raw in kept if log_seq_in(raw) > oldest * SMALL.segment_records]
        chunk = page(world, session, room, limit=1000)
        assert [message.op for message in chunk.messages] == [seq_in(raw) for raw in kept]
        world.send(session, SubscribeRoom(room_id=room, since_op=1))
        subscribed, *_ = world.take(session)
        assert (subscribed.status, subscribed.next_op) == ("gap", seq_in(kept[0]))


def walked(
    world: World, session: Session, room: UUID, limit: int, backward: bool, **fields: Any
) -> list[int]:
    """Ops of all pages of a walk, in the order of the room."""
    ops: list[int] = []
    for _ in range(1000):
        chunk = page(world, session, room, limit=limit, backward=backward, **fields)
        found = [message.op for message in chunk.messages]
        ops = found + ops if backward else ops + found
        if not chunk.has_more:
            return ops
        assert found
        fields["until_op" if backward else "from_op"] = chunk.cursor
    raise AssertionError("the walk does not end")


def test_a_page_holds_what_was_said() -> None:
    world, session, rooms = written([0, 0, 0])
    chunk = page(world, session, rooms[0], limit=2, from_op=2, request="q")
    stored = [message_of(record) for record in world.ops(rooms[0])]
    assert chunk.messages == stored[1:3]
    assert (chunk.has_more, chunk.cursor, chunk.request, chunk.room_id) == (True, 4, "q", rooms[0])


def test_json_and_binary_tell_the_same() -> None:
    world, session, rooms = written([0] * 20)
    other = world.open(number=51, binary=False)
    assert page(world, session, rooms[0], limit=9) == page(world, other, rooms[0], limit=9)


def test_a_range_that_holds_nothing_is_an_empty_page() -> None:
    world, session, rooms = written([0])
    for fields in (
        {"from_op": 3},
        {"until_op": 0},
        {"from_op": 2, "until_op": 1},
        {"from_op": 1 << 60},
        {"until_op": 0, "backward": True},
    ):
        chunk = page(world, session, rooms[0], **fields)
        assert (chunk.messages, chunk.has_more) == ([], False)


def test_a_page_is_bounded_in_bytes() -> None:
    world = World(log_sessions=1)
    session = world.open()
    room = world.room(session)
    for at in range(1, 601, 28):
        world.say(session, room, at, min(28, 601 - at), 2048)
        world.settle()
    world.take(session)
    most = CHUNK_FRAME_SIZE_MAX // 2048
    for backward in (False, True):
        chunk = page(world, session, room, limit=1000, backward=backward)
        assert most * 3 // 4 < len(chunk.messages) < most
        assert chunk.has_more
        assert walked(world, session, room, 1000, backward) == list(range(1, 602))


def test_little_more_is_read_than_a_page_holds(monkeypatch: pytest.MonkeyPatch):
    world, session, rooms = written([])
    world.say(session, rooms[0], 1, 28, 2048)
    for at in range(29, 301, 28):
        world.settle()
        world.say(session, rooms[0], at, 28, 2048)
    world.settle()
    world.take(session)
    read: list[int] = []
    whole = ShardLog.read

    def counted(log: ShardLog, room_id: bytes, op: int, count: int) -> list[bytes]:
        found = whole(log, room_id, op, count)
        read.append(len(found))
        return found

    monkeypatch.setattr(ShardLog, "read", counted)
    for backward in (False, True):
        read.clear()
        chunk = page(world, session, rooms[0], limit=1000, backward=backward)
        assert len(chunk.messages) <= sum(read) <= 2 * len(chunk.messages) + 16


@pytest.mark.parametrize("pairs", [170, 198], ids=["open segment", "last segment full"])
def test_history_survives_a_restart_of_the_replica_and_of_the_edge(pairs: int) -> None:
    world, session, rooms = written([0, 1] * pairs + [2])
    world.edge.on_detached(0)
    world.shard.fetch()
    world.shard.fetched()  # a fresh ring holds the open segment only
    world.attach()
    world.tick(2)
    for room in rooms:
        count = len(world.ops(room))
        assert walked(world, session, room, 50, False) == list(range(1, count + 1))
    world.say(session, rooms[2], 2, 1)
    world.settle()
    world.take(session)
    assert walked(world, session, rooms[2], 50, True) == [1, 2, 3]


def broken_in(sound: bytes, at: int, bit: int = 0) -> bytes:
    """A segment of which one bit has flipped."""
    broken = bytearray(sound)
    broken[at] ^= 1 << bit
    return bytes(broken)


BODY_BIT = 5 * RECORD_SIZE + 80  # of the sixth record


class Counted:
    """A segment's view that tells which of its records were copied."""

    def __init__(self, view: SegmentView) -> None:
        self.view, self.copied = view, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.view, name)

    def record(self, slot: int) -> bytes:
        self.copied += 1
        return self.view.record(slot)

    def records(self, slot: int, count: int) -> bytes:
        self.copied += count
        return self.view.records(slot, count)


@pytest.mark.parametrize(
    ("leaves_kept", "copied"),
    [
        (100, 0),  # what was verified in memory is not read from the disk again
        (1, 14),  # a leaf that is read as a whole comes back, and puts another out
        (0, 14),
    ],
)
def test_leaves_in_memory_are_bounded_and_spare_the_disk(leaves_kept: int, copied: int) -> None:
    world, _, _ = written([0] * 320)
    segments = world.edge.logs[0].segments.segments
    verified = VerifiedSegments(segments, SMALL, leaves_kept=leaves_kept)
    segment = verified.segment(0)
    assert segment is not None
    first = segment.records(0, 14)  # two leaves
    view = segments.view(0)
    assert view is not None
    counted = Counted(view)
    segment.renewed(counted)  # type: ignore[arg-type]
    assert segment.records(0, 14) == first
    assert counted.copied == copied


def test_what_a_broken_segment_holds_is_never_served() -> None:
    world, session, rooms = written([0] * 320)
    files = world.shard.files.extents
    sound = files[0]
    files[0] = broken_in(sound, BODY_BIT)
    world.send(session, SnapshotRequest(room_id=rooms[0], from_op=1, limit=20))
    world.mending_fails()
    assert errors(world.take(session)) == ["unavailable"]
    files[0] = sound  # repaired
    assert len(page(world, session, rooms[0], from_op=1, limit=20).messages) == 20


@pytest.mark.parametrize("leaves_kept", [0, 3, 100])
def test_what_breaks_after_it_was_read_is_never_served(seed: int, leaves_kept: int) -> None:
    """Whether its leaf lies in memory, does no more, or never did."""
    prng = Prng(seed)
    world, session, rooms = written([0] * 320)
    log = world.edge.logs[0]
    log.segments = VerifiedSegments(log.segments.segments, SMALL, leaves_kept=leaves_kept)
    files = world.shard.files.extents
    sound = files[0]
    expected = page(world, session, rooms[0], from_op=1, limit=90).messages
    for _ in range(100):
        files[0] = broken_in(sound, prng.below(SMALL.segment_data_size), prng.below(8))
        world.send(session, SnapshotRequest(room_id=rooms[0], from_op=1, limit=90))
        world.tick(3)
        files[0] = sound
        world.tick(2)
        (frame,) = world.take(session)
        assert frame.messages == expected


@pytest.mark.parametrize(
    "frame",
    [
        lambda room: SnapshotRequest(room_id=room, from_op=1, limit=20),
        lambda room: SubscribeRoom(room_id=room, since_op=1),
    ],
)
def test_a_reader_waits_while_what_is_broken_is_mended_and_then_gets_it(
    frame: Callable[..., object],
) -> None:
    world, session, rooms = written([0] * 320)
    sound = world.shard.files.extents[0]
    world.shard.files.extents[0] = broken_in(sound, BODY_BIT)
    world.send(session, frame(rooms[0]))
    world.send(session, Ping(request="after"))
    world.tick(5)
    assert world.mends == {0}
    assert world.take(session) == [], "the frames behind it wait as well"
    world.shard.files.extents[0] = sound
    world.tick()
    first, *others = world.take(session)
    assert type(first) in (SnapshotChunk, Subscribed)
    assert [type(other) for other in others].count(Pong) == 1
    assert session.mended_by_ns == 0


def test_one_who_waits_for_a_mended_segment_is_charged_once() -> None:
    world, session, rooms = written([0] * 320)
    world.shard.files.extents[0] = broken_in(world.shard.files.extents[0], BODY_BIT)
    charged = []
    charge = world.edge._charges.charge
    world.edge._charges.charge = lambda session, count: charged.append(charge(session, count))
    world.send(session, SnapshotRequest(room_id=rooms[0], from_op=1, limit=20))
    world.tick(50)
    assert len(charged) == 1


def test_every_bit_of_a_footer_may_flip_and_nothing_wrong_is_served(seed: int) -> None:
    prng = Prng(seed)
    world, session, rooms = written([0, 1] * 160)
    sound = world.shard.files.extents[0]
    expected = [message_of(record) for record in world.ops(rooms[0])][:30]
    used = SMALL.segment_data_size + 256 + 32 * 15 + 32 * 3 + 16 * 100
    for _ in range(60):
        broken = bytearray(sound)
        at = prng.between(SMALL.segment_data_size, used)
        broken[at] ^= 1 << prng.below(8)
        world.shard.files.extents[0] = bytes(broken)
        world.attach()  # forget what was verified
        world.send(session, SnapshotRequest(room_id=rooms[0], from_op=1, limit=30))
        world.tick(3)
        if not session.mended_by_ns:  # a link to others, which is checked when it is followed
            (frame,) = world.take(session)
            assert frame.messages == expected
            continue
        assert world.mends
        if prng.chance(1, 2):
            world.mending_fails()
            assert errors(world.take(session)) == ["unavailable"]
            continue
        world.shard.files.extents[0] = sound
        world.tick(2)
        (frame,) = world.take(session)
        assert frame.messages == expected


def test_a_segment_that_cannot_be_read_is_unavailable_and_a_freed_one_is_not_missed() -> None:
    world, session, rooms = written([0] * 320)
    del world.shard.files.extents[0]
    world.send(session, SnapshotRequest(room_id=rooms[0], from_op=1, limit=5))
    world.mending_fails()
    assert errors(world.take(session)) == ["unavailable"]
    world.shard.files.oldest = 1
    chunk = page(world, session, rooms[0], from_op=1, limit=5)
    first = 101 - 2  # two other rooms were created before
    assert [message.op for message in chunk.messages] == list(range(first, first + 5))


def test_what_the_ring_of_a_fetching_replica_lacks_is_unavailable_and_not_freed() -> None:
    world, session, rooms = written([0] * 150)
    asked = (
        SnapshotRequest(room_id=rooms[0], from_op=120, limit=5),
        SubscribeRoom(room_id=rooms[0], since_op=120),
    )
    assert len(page(world, session, rooms[0], from_op=120, limit=5).messages) == 5
    world.shard.fetch()
    for frame in asked:
        world.send(session, frame)
        assert errors(world.take(session)) == ["unavailable"]
    with pytest.raises(Unavailable):
        world.edge.logs[0].record(130)
    assert len(page(world, session, rooms[0], from_op=50, limit=5).messages) == 5
    world.shard.fetched()
    chunk = page(world, session, rooms[0], from_op=120, limit=2)
    assert [message.op for message in chunk.messages] == [120, 121]


def test_a_full_segment_that_left_the_ring_is_read_from_its_file() -> None:
    world, session, rooms = written([0] * 90)  # and three that create the rooms
    assert len(page(world, session, rooms[0], from_op=80, limit=5).messages) == 5
    world.say(session, rooms[0], 91, 7)
    world.settle()
    assert [op for _, op in acks(world.take(session))] == list(range(92, 99))
    assert len(world.shard.log) == SMALL.segment_records
    world.shard.fetch()
    chunk = page(world, session, rooms[0], from_op=90, limit=2)
    assert [message.op for message in chunk.messages] == [90, 91]


def test_a_segment_that_is_overwritten_while_it_is_indexed_hides_nothing() -> None:
    world, session, rooms = written([0] * 110 + [2] + [0] * 60 + [2] + [0] * 60)
    base = segment.ring_buffer_size(SMALL)  # of segment 1, from which the newest leave
    world.shard.ring[base : base + 16].cast("Q")[1] = 60
    world.attach()
    assert walked(world, session, rooms[2], 50, False) == [1, 2, 3]
    assert walked(world, session, rooms[0], 50, True) == list(range(1, 232))


def test_a_row_from_before_what_is_indexed_does_not_place_a_room() -> None:
    world, session, rooms = written([0] * 150)
    room_id = id_bytes(rooms[2])
    world.lookups_answered = False
    world.send(session, SnapshotRequest(room_id=rooms[2]))
    log_seq, row = len(world.shard.log), world.shard.row(room_id)
    world.shard.fetch()
    sender = world.open(number=51)
    world.say(sender, rooms[2], 1, 1)
    world.process()
    for first in range(1, 85, 28):
        world.say(sender, rooms[0], first, 28)
        world.process()
    world.shard.fetched()
    world.publish()
    world.edge.on_rooms(0, log_seq, [room_id], row)  # an answer that took its time
    world.lookups_answered = True
    world.tick(3)
    (chunk,) = world.take(session)
    assert [message.op for message in chunk.messages] == [1, 2]


def test_records_are_found_by_log_seq_wherever_they_lie() -> None:
    world, _, _ = written([0, 1, 2] * 120)
    log = world.edge.logs[0]
    for log_seq in range(1, len(world.shard.log) + 1):
        assert log.record(log_seq) == world.shard.log[log_seq - 1]
    world.shard.files.oldest = 1
    assert log.record(7) is None
    world.shard.files.oldest = 0
    world.shard.files.extents.clear()
    with pytest.raises(Unavailable):
        log.record(7)


def test_an_empty_log_opens() -> None:
    world = World()
    log = ShardLog(SMALL, world.shard.ring, world.shard.files)
    assert log.open(0)
    assert log.log_seq == 0


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=330),
    st.integers(1, 60),
    st.booleans(),
    st.integers(0, 2),
)
def test_a_walk_meets_every_record_once_in_order(
    records: list[int], limit: int, backward: bool, number: int
) -> None:
    world, session, rooms = written(records)
    count = len(world.ops(rooms[number]))
    assert walked(world, session, rooms[number], limit, backward) == list(range(1, count + 1))
