"""What is committed again has the bytes that it had; what cannot be shown to be whole is not taken,
nor what follows it in its room."""

import numpy as np
import pytest

from appliance.base.errors import ChainError
from appliance.base.layout import offset_of
from appliance.cores.rooms.rebuild import Cut, Rebuild
from appliance.formats import record
from appliance.formats.checkpoint import ROOM_ROW, ShippingState
from appliance.formats.envelope import OPERATION_APPEND, OPERATION_APPEND_CLOCK
from appliance.formats.event import (
    SHIP_CLAIM,
    Correction,
    Shipped,
    encode_correction,
    encode_retain,
    encode_shipped,
)
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE, SMALL, Geometry
from appliance.formats.record import RECORD, record_hash
from appliance.formats.room_name import room_id_of
from appliance.formats.segment import ring_size
from appliance.formats.session import DUPLICATE, OK, RESULT
from tests.cores.rooms.shard import CLUSTER, SHARD, Shard, create, make, room_id, shard_record
from tests.cores.rooms.test_carrying import claim, foreign, shared

GAPS = "what is missing"
both = pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])


class Anew:
    """A rebuild and the disk that takes its writes."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        ring = memoryview(bytearray(ring_size(geometry)))
        self.rebuild = Rebuild(
            geometry=geometry, cluster=CLUSTER, shard=SHARD, ring=ring, gap_room=GAPS
        )
        self.extents: dict[int, bytearray] = {}

    def take(self, raw: bytes, *doubtful: tuple[int, int]) -> None:
        digests = [
            record_hash(raw[at : at + RECORD_SIZE]) for at in range(0, len(raw), RECORD_SIZE)
        ]
        self._write(self.rebuild.take(memoryview(raw), digests, doubtful))

    def apply(self, timestamp: int, body: bytes) -> None:
        self._write(self.rebuild.apply(OPERATION_APPEND, timestamp, memoryview(body)))

    def finish(self) -> None:
        self._write(self.rebuild.finish())

    def _write(self, writes: object) -> None:
        for write in writes:  # type: ignore[attr-defined]
            extent = self.extents.setdefault(write.number, bytearray(self.geometry.extent_size))
            extent[write.offset : write.offset + len(write.data)] = write.data

    def log(self) -> bytes:
        return log_of(self.extents, self.rebuild.rooms.log_seq, self.geometry)

    def heads(self) -> dict[bytes, int]:
        rows = np.frombuffer(self.rebuild.rooms.room_rows(0, 1000), ROOM_ROW)
        return {row["room_id"].tobytes(): int(row["message_count"]) for row in rows}


def log_of(extents: dict[int, bytearray], count: int, geometry: Geometry) -> bytes:
    parts = [bytes(extents[n][: geometry.segment_records * RECORD_SIZE]) for n in sorted(extents)]
    return b"".join(parts)[: count * RECORD_SIZE]


def grown(geometry: Geometry, count: int) -> tuple[Shard, bytes]:
    """A shard with records in two rooms by turns, and its log."""
    shard = Shard(geometry)
    shard.commit(create(0), create(1, client=901))
    for number in range(1, count + 1):
        shard.commit(make(0, 1, number), make(1, 2, number))
    shard.rooms.flush()
    shard.write()
    return shard, log_of(shard.extents, 2 * count + 2, geometry)


def flipped(raw: bytes, slot: int, field: str) -> bytes:
    offset = slot * RECORD_SIZE + offset_of(RECORD, field)
    changed = bytearray(raw)
    changed[offset] ^= 4
    return bytes(changed)


@both
def test_a_whole_log_becomes_the_same_segments_and_tables(geometry: Geometry) -> None:
    shard, log = grown(geometry, geometry.segment_records // 2 + 30)
    anew = Anew(geometry)
    half = len(log) // RECORD_SIZE // 2 * RECORD_SIZE
    anew.take(log[:half])
    anew.take(log[half:])
    anew.finish()
    assert anew.log() == log
    assert anew.extents == {n: bytes(extent) for n, extent in shard.extents.items()}
    mine, theirs = anew.rebuild.state(), shard.rooms.checkpoint()
    assert (mine.newest_segment_id, mine.leaf_ids) == (theirs.newest_segment_id, theirs.leaf_ids)
    windows = [state.tables["windows"].freeze(everything=True) for state in (mine, theirs)]
    assert windows[0] == windows[1], "what devices have sent is known as before"
    assert anew.rebuild.names == {room_id(0): b"a room", room_id(1): b"a room"}


def test_what_was_prepared_behind_goes_on_and_what_was_sent_before_is_a_duplicate() -> None:
    shard, log = grown(SMALL, 40)
    anew = Anew(SMALL)
    anew.take(log)
    body = bytearray(make(0, 1, 41) + make(0, 1, 41))
    shard.rooms.prepare(OPERATION_APPEND, shard.timestamp + 1000, memoryview(body))
    results = np.frombuffer(
        shard.rooms.commit(100, OPERATION_APPEND, shard.timestamp + 1000, memoryview(body)), RESULT
    )
    assert results["code"].tolist() == [OK, DUPLICATE]
    anew.apply(shard.timestamp + 1000, bytes(body))
    assert anew.rebuild.rooms.log_seq == 83
    mine, theirs = anew.rebuild.rooms.room_row(room_id(0)), shard.rooms.room_row(room_id(0))
    assert mine is not None and theirs is not None
    assert mine[:56] == theirs[:56], "room, hash and number of its newest record"


@pytest.mark.parametrize(
    "field",
    [
        "room_id",
        "body",
        "msg_id",
        "client_id",
        "client_seq",
        "flags",
        "prev_hash",
        "seq",
        "log_seq",
    ],
)
def test_a_broken_record_and_what_follows_in_its_room_is_not_taken(field: str) -> None:
    _, log = grown(SMALL, 60)  # room 0 has even slots from 2 on
    slot, leaf = 24, 24 // SMALL.records_max * SMALL.records_max
    anew = Anew(SMALL)
    anew.take(flipped(log, slot, field), (leaf, leaf + SMALL.records_max))
    anew.finish()
    kept, heads = anew.log(), anew.heads()
    assert heads[room_id(1)] == 61, "the other room is whole"
    taken = heads[room_id(0)]
    assert 10 <= taken <= 12, "up to the broken one; the one before may hang on its word"
    for at in range(122):
        is_same = (
            kept[at * RECORD_SIZE : (at + 1) * RECORD_SIZE]
            == log[at * RECORD_SIZE : (at + 1) * RECORD_SIZE]
        )
        of_room_1 = at == 1 or at % 2 == 1
        assert is_same == (of_room_1 or at == 0 or at // 2 < taken), at
    assert anew.rebuild.cuts[room_id(0)].last == 61
    assert heads[room_id_of(GAPS)] == 61 - taken - (0 if kept.endswith(log[-RECORD_SIZE:]) else 1)


def test_whose_room_has_nothing_later_to_vouch_for_it_is_not_taken() -> None:
    _, log = grown(SMALL, 3)
    anew = Anew(SMALL)
    anew.take(log, (6, 8))
    anew.finish()
    assert (anew.rebuild.rooms.log_seq, anew.rebuild.unreadable) == (6, 2)
    assert anew.log() == log[: 6 * RECORD_SIZE]


def test_places_of_which_nobody_has_anything_are_filled_only_if_something_follows() -> None:
    _, log = grown(SMALL, 60)
    anew = Anew(SMALL)
    anew.take(log[: 50 * RECORD_SIZE])
    anew.rebuild.skip(10)
    assert anew.rebuild.next_log_seq == 61
    anew.take(log[60 * RECORD_SIZE :])
    anew.finish()
    assert anew.rebuild.rooms.log_seq == 50
    assert anew.rebuild.cuts == {room_id(0): Cut(26, 61), room_id(1): Cut(26, 61)}


def test_a_clock_that_was_corrected_is_once_more() -> None:
    shard, _ = grown(SMALL, 5)
    wanted = encode_correction(Correction(shard.timestamp - 900_000, 0, 0))
    body = bytearray(shard_record(record.KIND_CLOCK, 1, wanted))
    shard.rooms.prepare(OPERATION_APPEND_CLOCK, shard.timestamp + 1000, memoryview(body))
    shard.operation = OPERATION_APPEND_CLOCK
    assert shard.apply(50, shard.timestamp + 1000, bytes(body))[0].code == OK
    shard.operation = OPERATION_APPEND
    shard.commit(make(0, 1, 6), advance_us=1)  # a microsecond behind it
    shard.rooms.flush()
    shard.write()
    anew = Anew(SMALL)
    anew.take(log_of(shard.extents, shard.rooms.log_seq, SMALL))
    assert anew.rebuild.rooms.ahead_us == shard.rooms.ahead_us > 0
    assert anew.rebuild.timestamp == shard.timestamp


def test_what_the_rules_refuse_is_no_log_of_ours() -> None:
    _, log = grown(SMALL, 2)
    stranger = bytearray(log[: 2 * RECORD_SIZE])
    offset = offset_of(RECORD, "client_seq")
    stranger[offset] = 7  # of a device that has sent nothing yet
    with pytest.raises(ChainError, match="record 1 is whole, and refused .*: sequence_gap"):
        Anew(SMALL).take(bytes(stranger))


def test_a_new_cluster_keeps_all_and_has_shipped_nothing_and_claims_go_on_counting() -> None:
    shard, _ = grown(SMALL, 60)
    claim = encode_shipped(Shipped(SHIP_CLAIM, 2, 1))
    dropped = encode_retain(1, unshipped=True)
    for number, (kind, body) in enumerate(
        ((record.KIND_SHIPPED, claim), (record.KIND_RETAIN, dropped)), 1
    ):
        assert shard.one(shard_record(kind, number, body)).code == OK
    shard.rooms.flush()
    shard.write()
    assert (shard.rooms.oldest_segment, shard.rooms.shipper_cursor) == (1, 100)
    anew = Anew(SMALL)
    anew.take(log_of(shard.extents, shard.rooms.log_seq, SMALL))
    anew.finish()
    state = anew.rebuild.state()
    assert (state.oldest_segment, state.oldest_segment_before, state.shipper_cursor) == (0, 0, 0)
    assert state.shipping == ShippingState(generation=1, node=2)


def test_what_another_site_made_is_not_taken_once_the_claim_to_carry_it_is_lost() -> None:
    shard = shared()
    for raw in (claim(2), foreign(1, generation=2), make(0, 5, 1)):
        assert shard.one(raw).code == OK
    shard.rooms.flush()
    shard.write()
    log = log_of(shard.extents, 6, SMALL)
    anew = Anew(SMALL)
    anew.take(flipped(log, 3, "body"), (3, 4))  # the second claim
    assert anew.rebuild.rooms.log_seq == 3
    assert anew.rebuild.cuts[room_id(0)] == Cut(3, 4)
    whole = Anew(SMALL)
    whole.take(log)
    assert whole.rebuild.rooms.log_seq == 6
