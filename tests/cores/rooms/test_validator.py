"""Every answer at its limit and one past it."""

import dataclasses
import struct

import pytest

from appliance.formats import event, record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.geometry import PRODUCTION, SMALL, Geometry
from appliance.formats.imported import encode_head
from appliance.formats.record import (
    KIND_AUDIT,
    KIND_IMPORTED,
    KIND_MESSAGE,
    KIND_RETAIN,
    KIND_ROOM_CREATE,
    KIND_ROOM_POLICY,
    KIND_SHIPPED,
)
from appliance.formats.room_name import room_creator_id
from appliance.formats.session import (
    DUPLICATE,
    DUPLICATE_EXPIRED,
    FORBIDDEN,
    LIMIT,
    OK,
    ROOM_UNKNOWN,
    SEQUENCE_GAP,
    STORAGE_FULL,
)
from tests.cores.rooms.shard import Result, Shard, create, make, room_id, shard_record

TEN_MINUTES_US = 600_000_000
both = pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])


def opened(geometry: Geometry, segments_max: int = 8) -> Shard:
    """A shard with room 0."""
    shard = Shard(geometry, segments_max)
    assert shard.one(create(0)).code == OK
    return shard


def ship_first_period(shard: Shard, last_log_seq: int) -> None:
    """Ship records 1 to `last_log_seq` as the first period, by a device of its own."""
    shard.timestamp += 10_000_000
    start = shard.timestamp // 10**6 * 10**6 - 5_000_000
    claim = event.Shipped(event.SHIP_CLAIM, 2, shard.rooms.shipping.generation + 1)
    assert shard.one(shard_record(KIND_SHIPPED, 1, event.encode_shipped(claim), 801)).code == OK
    announced = event.Shipped(
        event.SHIP_ANNOUNCE,
        2,
        claim.generation,
        period_start_us=start,
        period_us=1_000_000,
        first_log_seq=1,
        last_log_seq=last_log_seq,
        seen_log_seq=shard.rooms.log_seq,
    )
    done = announced._replace(action=event.SHIP_MANIFEST, seen_log_seq=0, manifest_hash=b"h" * 32)
    for number, shipped in ((2, announced), (3, done)):
        body = event.encode_shipped(shipped)
        assert shard.one(shard_record(KIND_SHIPPED, number, body, 801)).code == OK


def answer(code: int, *, seq: int = 0, log_seq: int = 0) -> Result:
    """What a refused record is told; nothing else is filled."""
    return Result(code, seq, log_seq, 0, bytes(32))


@both
def test_an_accepted_record_is_told_its_places_its_time_and_its_hash(geometry: Geometry) -> None:
    shard = opened(geometry)
    result = shard.one(make(0, 1, 1))
    stored = shard.rooms.leaf(0, 0, 2)[2240:]
    assert result == Result(OK, 2, 2, shard.timestamp, record.record_hash(stored))
    assert struct.unpack_from("<QQ", stored, record.SEQ) == (2, 2)


@both
def test_of_65_records_the_newest_64_are_duplicates_and_the_first_is_expired(
    geometry: Geometry,
) -> None:
    shard = opened(geometry)
    shard.fill(0, 1, 65)
    assert shard.one(make(0, 1, 65)) == answer(DUPLICATE, log_seq=66)
    assert shard.one(make(0, 1, 2)) == answer(DUPLICATE, log_seq=3)
    assert shard.one(make(0, 1, 1)) == answer(DUPLICATE_EXPIRED)


@both
def test_the_next_number_is_accepted_and_the_one_after_it_is_a_gap(geometry: Geometry) -> None:
    shard = opened(geometry)
    assert shard.one(make(0, 1, 2)) == answer(SEQUENCE_GAP, seq=1)
    assert shard.one(make(0, 1, 1)).code == OK
    assert shard.one(make(0, 1, 3)) == answer(SEQUENCE_GAP, seq=2)
    assert shard.one(make(0, 1, 2**64 - 1)) == answer(SEQUENCE_GAP, seq=2)
    assert shard.one(make(0, 1, 2)).code == OK


@both
def test_a_number_of_zero_is_never_accepted(geometry: Geometry) -> None:
    shard = opened(geometry)
    zero = bytearray(make(0, 1, 0))
    shard.rooms.prepare(OPERATION_APPEND, shard.timestamp, zero)
    assert shard.apply(2, shard.timestamp, bytes(zero)) == [answer(SEQUENCE_GAP, seq=1)]
    shard.one(make(0, 1, 1))
    assert shard.apply(4, shard.timestamp, bytes(zero)) == [answer(DUPLICATE_EXPIRED)]


@both
def test_an_unknown_room_takes_nothing_but_its_creation(geometry: Geometry) -> None:
    shard = Shard(geometry)
    assert shard.one(make(0, 1, 1)) == answer(ROOM_UNKNOWN)
    assert shard.one(create(0)).code == OK
    assert shard.one(make(0, 1, 1)).code == OK


@both
def test_a_device_of_one_author_is_another_device_than_that_of_another(geometry: Geometry) -> None:
    """Its id is shown to every reader: who writes under it takes nothing from its owner."""
    shard = opened(geometry)
    shard.commit(create(1, client=901))
    assert shard.one(make(0, 1, 1, author=1)).code == OK
    assert shard.one(make(0, 1, 2, author=2)) == answer(SEQUENCE_GAP, seq=1)
    assert shard.one(make(0, 1, 1, author=2)).code == OK
    assert shard.one(make(1, 1, 1, author=2)).code == OK
    assert shard.one(make(0, 1, 2, author=1)).code == OK
    assert shard.one(make(0, 1, 2, author=2)).code == OK
    assert shard.one(make(0, 1, 1, author=1)).code == DUPLICATE


@both
def test_creating_a_known_room_points_to_the_record_that_created_it(geometry: Geometry) -> None:
    shard = opened(geometry)
    assert shard.one(create(0)) == answer(DUPLICATE, log_seq=1)
    assert shard.one(create(0, client=7, author=9)) == answer(DUPLICATE, log_seq=1)
    closed = make(0, 1, 1, kind=KIND_ROOM_POLICY, body=event.encode_policy(1))
    assert shard.one(closed).code == OK
    assert shard.one(create(0, client=7, author=9)) == answer(DUPLICATE, log_seq=1)
    assert shard.rooms.log_seq == 2
    row = shard.rooms.room_row(room_id(0))
    assert row is not None
    assert struct.unpack_from("<QQQ", row, 72) == (2, 1, 1)  # set by 2, created by 1, closed


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (b"x", OK),
        (b"x" * 128, OK),
        ("é".encode() * 64, OK),
        (b"", FORBIDDEN),
        (b"x" * 129, FORBIDDEN),
        (b"\xff\xfe", FORBIDDEN),
    ],
)
def test_a_room_has_a_name_of_1_to_128_bytes_of_text(name: bytes, code: int) -> None:
    assert Shard(SMALL).one(make(0, 1, 1, kind=KIND_ROOM_CREATE, body=name)).code == code


@both
def test_a_closed_room_takes_policies_only_until_it_is_opened(geometry: Geometry) -> None:
    shard = opened(geometry)
    shard.one(make(0, 1, 1))
    policy = [event.encode_policy(bits) for bits in (1, 0)]
    assert shard.one(make(0, 2, 1, kind=KIND_ROOM_POLICY, body=policy[0])).code == OK
    assert shard.one(make(0, 1, 2)) == answer(FORBIDDEN)
    assert shard.one(make(0, 1, 1)) == answer(DUPLICATE, log_seq=2)
    assert shard.one(make(0, 2, 2, kind=KIND_ROOM_POLICY, body=policy[1])).code == OK
    assert shard.one(make(0, 1, 2)).code == OK


def test_an_imported_record_tells_when_and_by_whom_it_was_said_and_closed_rooms_take_none() -> None:
    shard = opened(SMALL)
    body = encode_head(852_076_800_123_000, "Ada") + b"text"
    assert shard.one(make(0, 1, 1, kind=KIND_IMPORTED, body=b"text")) == answer(FORBIDDEN)
    assert shard.one(make(0, 1, 1, kind=KIND_IMPORTED, body=body)).code == OK
    assert shard.one(make(0, 1, 1, kind=KIND_IMPORTED, body=body)) == answer(DUPLICATE, log_seq=2)
    assert shard.one(make(0, 1, 2)).code == OK
    assert shard.one(make(record.SHARD_ROOM_ID, 1, 1, kind=KIND_IMPORTED, body=body)) == answer(
        FORBIDDEN
    )
    closed = make(0, 2, 1, kind=KIND_ROOM_POLICY, body=event.encode_policy(1))
    assert shard.one(closed).code == OK
    assert shard.one(make(0, 1, 3, kind=KIND_IMPORTED, body=body)) == answer(FORBIDDEN)


@pytest.mark.parametrize("body", [b"", bytes(7), bytes(9), struct.pack("<Q", 2)])
def test_a_policy_that_is_not_understood_is_forbidden(body: bytes) -> None:
    shard = opened(SMALL)
    assert shard.one(make(0, 1, 1, kind=KIND_ROOM_POLICY, body=body)) == answer(FORBIDDEN)


def test_the_shards_room_takes_records_of_the_shard_and_other_rooms_take_none() -> None:
    shard = opened(SMALL)
    assert shard.one(shard_record(KIND_AUDIT, 1, b"")).code == OK
    assert shard.one(make(record.SHARD_ROOM_ID, 1, 1, author=0)) == answer(FORBIDDEN)
    assert shard.one(make(record.SHARD_ROOM_ID, 1, 1, author=1, kind=KIND_AUDIT)) == answer(
        FORBIDDEN
    )
    assert shard.one(make(record.SHARD_ROOM_ID, 1, 1, author=0, kind=KIND_ROOM_CREATE)) == answer(
        FORBIDDEN
    )
    assert shard.one(make(0, 1, 1, author=0, kind=KIND_AUDIT)) == answer(FORBIDDEN)


def test_the_last_room_is_created_and_one_more_is_not() -> None:
    shard = Shard(SMALL)
    for room in range(SMALL.rooms_max - 1):  # one row is the shard's own
        shard.timestamp += TEN_MINUTES_US + 1_000_000
        assert shard.one(create(room, client=room)).code == OK
    shard.timestamp += TEN_MINUTES_US + 1_000_000
    assert shard.one(create(99, client=99)) == answer(LIMIT)
    assert shard.one(create(0, client=99)) == answer(DUPLICATE, log_seq=1)


@pytest.mark.parametrize(("age_us", "code"), [(TEN_MINUTES_US, LIMIT), (TEN_MINUTES_US + 1, OK)])
def test_a_window_gives_way_when_it_is_older_than_ten_minutes(age_us: int, code: int) -> None:
    shard = opened(SMALL)
    for client in range(SMALL.windows_max - 1):
        assert shard.one(make(0, client, 1, author=2 + client)).code == OK
    first_us = shard.timestamp - (SMALL.windows_max - 1) * 1000  # of the room's creation
    result = shard.one(make(0, 77, 1, author=99), advance_us=first_us + age_us - shard.timestamp)
    assert result.code == code
    creator = shard.one(create(0))  # its window has gone, or not
    assert creator == answer(DUPLICATE, log_seq=1)
    assert shard.one(make(0, 0, 1, author=2)) == answer(DUPLICATE, log_seq=2)


def made_at(time_us: int, number: int) -> bytes:
    """A msg_id, as a client that made its message then gives it."""
    return (time_us // 1000 << 80 | 7 << 76 | 2 << 62 | number).to_bytes(16, "little")


def test_a_retry_whose_window_was_given_up_is_not_stored_twice() -> None:
    shard = opened(SMALL)
    made = made_at(shard.timestamp, 1)
    lost = make(0, 50, 1, author=50, msg_id=made)  # its answer was lost
    assert shard.one(lost).code == OK
    for client in range(SMALL.windows_max):
        late = make(0, client, 1, author=2 + client)
        assert shard.one(late, advance_us=2 * TEN_MINUTES_US).code == OK
    count = shard.rooms.log_seq
    assert shard.one(lost, advance_us=1000) == answer(DUPLICATE_EXPIRED)
    assert shard.rooms.log_seq == count
    # the same device goes on with what it has to say now, and so does anybody
    again = make(0, 50, 1, author=50, msg_id=made_at(shard.timestamp, 2))
    assert shard.one(again, advance_us=2 * TEN_MINUTES_US).code == OK
    unstamped = make(0, 51, 1, author=51)  # an id that tells no time
    assert shard.one(unstamped, advance_us=2 * TEN_MINUTES_US).code == OK


@pytest.mark.parametrize("ahead_us", [15_000, 59_000_000])
def test_a_retry_from_a_clock_that_is_ahead_is_not_stored_twice(ahead_us: int) -> None:
    """Its id is later than the record, and than those of windows that are left."""
    shard = opened(SMALL)
    first = make(0, 50, 1, author=50, msg_id=made_at(shard.timestamp + ahead_us, 1))
    assert shard.one(first, advance_us=1000).code == OK
    for client in range(12):  # of one author, who holds most: his own oldest go
        ours = make(0, 60 + client, 1, author=50, msg_id=made_at(shard.timestamp + ahead_us, 2))
        assert shard.one(ours, advance_us=1000).code == OK
    count = shard.rooms.log_seq
    assert shard.one(first, advance_us=1) == answer(DUPLICATE_EXPIRED)
    assert shard.rooms.log_seq == count


def test_an_id_from_far_in_the_future_keeps_nobody_out() -> None:
    shard = opened(SMALL)
    future = make(0, 50, 1, author=50, msg_id=made_at(2 * shard.timestamp, 1))
    assert shard.one(future, advance_us=1000).code == OK
    for client in range(3 * SMALL.windows_max):
        ours = make(0, client, 1, author=2 + client, msg_id=made_at(shard.timestamp, 2))
        assert shard.one(ours, advance_us=2 * TEN_MINUTES_US).code == OK


@pytest.mark.parametrize(
    ("whose", "kind"), [(0, KIND_AUDIT), (51, KIND_MESSAGE)], ids=["the shard's", "another's"]
)
def test_a_fresh_message_is_taken_whatever_times_others_name(whose: int, kind: int) -> None:
    """Records of the shard have random ids, of which one in sixteen looks as if it told a time; and
    a user may name his messages as he likes."""
    shard = opened(SMALL)
    for client in range(SMALL.windows_max):  # one who has a device for each message
        ours = make(0, 100 + client, 1, author=50, msg_id=made_at(shard.timestamp, 2))
        assert shard.one(ours, advance_us=1_000_000).code == OK
    future = made_at(2 * shard.timestamp, 1)
    room = record.SHARD_ROOM_ID if kind == KIND_AUDIT else 0
    told = make(room, 1, 1, author=whose, kind=kind, msg_id=future)
    assert shard.one(told, advance_us=1_000_000).code == OK
    for client in range(2 * SMALL.windows_max):
        ours = make(0, 200 + client, 1, author=50, msg_id=made_at(shard.timestamp, 3))
        assert shard.one(ours, advance_us=1_000_000).code == OK


def test_an_evicted_device_starts_again_at_one() -> None:
    shard = opened(SMALL)
    for client in range(SMALL.windows_max - 1):
        shard.one(make(0, client, 1))
    shard.timestamp += TEN_MINUTES_US
    shard.one(make(0, 0, 2))  # device 1's window is the oldest but for the creator's
    shard.commit(make(0, 50, 1), make(0, 51, 1))
    assert shard.one(make(0, 0, 2)) == answer(DUPLICATE, log_seq=9)
    assert shard.one(make(0, 2, 1)) == answer(DUPLICATE, log_seq=4)
    assert shard.one(make(0, 1, 2)) == answer(SEQUENCE_GAP, seq=1)


@both
def test_ordinary_records_stop_when_two_extents_are_left(geometry: Geometry) -> None:
    shard = opened(geometry, segments_max=4)
    shard.fill(0, 1, geometry.segment_records - 1)
    assert shard.rooms.log_seq == geometry.segment_records  # segment 1 would be the next
    assert shard.one(make(0, 2, 1)) == answer(STORAGE_FULL)
    assert shard.one(create(1)) == answer(STORAGE_FULL)
    assert shard.one(make(0, 1, 1)).code == DUPLICATE_EXPIRED
    assert shard.one(shard_record(KIND_AUDIT, 1, b"full")).code == OK


@both
def test_a_sparing_prepare_takes_the_shard_s_own_records_alone(geometry: Geometry) -> None:
    """Also in the middle of a run of one device; a duplicate is answered as ever."""
    shard = opened(geometry)
    assert shard.one(make(0, 1, 1)).code == OK
    told = shard.sparing(make(0, 1, 1), make(0, 1, 2), create(1), make(0, 2, 1))
    assert [result.code for result in told] == [DUPLICATE, *[STORAGE_FULL] * 3]
    before = shard.rooms.log_seq
    assert shard.sparing(shard_record(KIND_AUDIT, 1, b"full"))[0].code == OK
    assert shard.rooms.log_seq == before + 1
    assert shard.one(make(0, 1, 2)).code == OK, "the refused one is taken when there is room"


def test_records_of_the_shard_stop_when_no_extent_is_left() -> None:
    shard = opened(SMALL, segments_max=4)
    for n in range(1, 4 * SMALL.segment_records):
        assert shard.one(shard_record(KIND_AUDIT, n, b"x")).code == OK
    assert shard.rooms.log_seq == 4 * SMALL.segment_records
    audit = shard_record(KIND_AUDIT, 4 * SMALL.segment_records, b"x")
    assert shard.one(audit) == answer(STORAGE_FULL)


def test_what_was_shipped_may_be_dropped_and_its_extents_return_two_checkpoints_later() -> None:
    shard = opened(SMALL, segments_max=4)
    shard.fill(0, 1, 99)
    retain = event.encode_retain(1)
    assert shard.one(shard_record(KIND_RETAIN, 1, retain)) == answer(FORBIDDEN)
    ship_first_period(shard, 100)
    assert shard.one(shard_record(KIND_RETAIN, 1, event.encode_retain(2))) == answer(FORBIDDEN)
    assert shard.one(shard_record(KIND_RETAIN, 1, retain)).code == OK
    assert shard.one(shard_record(KIND_RETAIN, 2, event.encode_retain(0))) == answer(FORBIDDEN)
    assert shard.one(make(0, 1, 99)) == answer(DUPLICATE_EXPIRED)  # the retry of a freed record
    assert shard.one(make(0, 1, 100)) == answer(STORAGE_FULL)
    shard.checkpoint()
    assert shard.one(make(0, 1, 100)) == answer(STORAGE_FULL)
    shard.checkpoint()
    assert shard.one(make(0, 1, 100)).code == OK


def test_after_a_refused_record_the_later_ones_of_that_device_and_room_are_gaps() -> None:
    shard = opened(SMALL)
    shard.commit(create(1, client=901))
    results = shard.commit(
        make(0, 1, 1), make(0, 1, 3), make(0, 1, 4), make(0, 2, 1), make(1, 1, 1), make(0, 1, 2)
    )
    assert [result.code for result in results] == [OK, SEQUENCE_GAP, SEQUENCE_GAP, OK, OK, OK]
    assert [result.seq for result in results] == [2, 2, 2, 3, 2, 4]


def test_a_refused_record_leaves_no_trace_and_its_retry_is_judged_again() -> None:
    shard = opened(SMALL)
    before = (bytes(shard.ring), shard.rooms.room_rows(0, 9), shard.checkpoint().tables)
    for bad in (make(5, 1, 1), make(0, 1, 2), make(0, 900, 2, author=5), create(0, client=3)):
        assert shard.one(bad).code != OK
    assert before == (bytes(shard.ring), shard.rooms.room_rows(0, 9), shard.checkpoint().tables)
    assert shard.one(create(5, client=1)).code == OK
    assert shard.one(make(5, 1, 2)).code == OK


def test_within_a_batch_each_record_is_judged_by_what_those_before_it_did() -> None:
    shard = opened(PRODUCTION)  # the small one takes 7 records at once
    closed, opened_again = event.encode_policy(1), event.encode_policy(0)
    told = [
        (make(0, 1, 1), OK),
        (make(0, 1, 2, author=2), SEQUENCE_GAP),  # another author's device
        (make(0, 1, 2), OK),
        (make(0, 2, 1, kind=KIND_ROOM_POLICY, body=closed), OK),
        (make(0, 1, 3), FORBIDDEN),
        (make(0, 2, 2, kind=KIND_ROOM_POLICY, body=opened_again), OK),
        (make(0, 1, 3), OK),
        (make(0, 1, 4, kind=KIND_ROOM_POLICY, body=b"no policy"), FORBIDDEN),
        (make(0, 1, 4), OK),
        (make(0, 1, 4), DUPLICATE),
        (make(0, 1, 6), SEQUENCE_GAP),
        (make(0, 1, 5), OK),
    ]
    results = shard.commit(*(raw for raw, _ in told))
    assert [result.code for result in results] == [code for _, code in told]
    assert [result.seq for result in results if result.code == OK] == list(range(2, 9))


def test_an_author_makes_no_more_rooms_than_his_share() -> None:
    """As edges make them: under a client_id that follows from room and author."""
    geometry = dataclasses.replace(SMALL, rooms_max=40, windows_max=40)
    shard = Shard(geometry)

    def created(number: int, author: int) -> int:
        made = room_creator_id(room_id(number), author)
        kind = record.KIND_ROOM_CREATE
        return shard.one(make(number, made, 1, author=author, kind=kind, body=b"name")).code

    assert [created(i, author=7) for i in range(10)] == [OK] * 8 + [LIMIT] * 2
    assert created(20, author=8) == OK
    assert created(0, author=7) == DUPLICATE


def test_a_window_that_goes_within_a_batch_takes_no_more_of_it() -> None:
    shard = Shard(dataclasses.replace(SMALL, windows_max=24))
    assert shard.one(create(0, author=50)).code == OK
    for client in range(3):
        assert shard.one(make(0, client, 1, author=1)).code == OK
    for client in range(20):
        assert shard.one(make(0, 100 + client, 1, author=100 + client)).code == OK
    results = shard.commit(
        *(make(0, client, 2, author=1) for client in range(3)),
        make(0, 7, 1, author=7),  # the table is full of young ones: the first device's goes
        make(0, 0, 3, author=1),
        make(0, 7, 2, author=7),
    )
    assert [result.code for result in results] == [OK] * 4 + [SEQUENCE_GAP, OK]
    assert results[4].seq == 1
