"""A ring that is filled from another node holds the log and nothing else."""

import struct
from collections.abc import Callable

import pytest

from appliance.cores.edge.copied_ring import CopiedRing
from appliance.cores.edge.log import ShardLog
from appliance.formats import record
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.record import LOG_SEQ, PREV_HASH, SEQ, record_hash
from appliance.formats.segment import SegmentView, ring_size

ROOMS = [bytes((room,)) * 16 for room in (1, 2, 3)]
SEGMENT = SMALL.segment_records
_SEQS = struct.Struct("<QQ")


class NoFiles:
    oldest = 0

    def view(self, number: int) -> SegmentView | None:
        return None


def log_of(count: int) -> list[bytes]:
    """Committed records, of three rooms in turn."""
    made: list[bytes] = []
    heads = dict.fromkeys(ROOMS, (0, bytes(32)))
    for log_seq in range(1, count + 1):
        room = ROOMS[log_seq % len(ROOMS)]
        seq, digest = heads[room]
        raw = bytearray(
            record.encode(
                room_id=room,
                msg_id=log_seq.to_bytes(16, "little"),
                author_id=1,
                body=b"said %d" % log_seq,
                client_id=bytes(16),
                client_seq=log_seq,
                timestamp=log_seq,
            )
        )
        raw[PREV_HASH : PREV_HASH + 32] = digest
        _SEQS.pack_into(raw, SEQ, seq + 1, log_seq)
        made.append(bytes(raw))
        heads[room] = seq + 1, record_hash(made[-1])
    return made


def new_ring() -> CopiedRing:
    return CopiedRing(SMALL, memoryview(bytearray(ring_size(SMALL))))


def taken(ring: CopiedRing, records: list[bytes]) -> str:
    return ring.take(memoryview(b"".join(records)))


@pytest.mark.parametrize("step", [1, 7, 30, 250])
def test_what_is_taken_is_read_as_from_the_ring_of_a_replica(step: int) -> None:
    log, ring = log_of(250), new_ring()
    reader = ShardLog(SMALL, ring.memory, NoFiles())
    assert reader.open(0)
    for start in range(0, len(log), step):
        assert taken(ring, log[start : start + step]) == ""
        if step < SEGMENT:
            fresh = reader.advance(ring.log_seq, ROOMS)
            assert fresh is not None
            told = sorted(bytes(one) for records in fresh.values() for one in records)
            assert told == sorted(log[start : start + step])
    assert ring.log_seq == len(log)
    late = ShardLog(SMALL, ring.memory, NoFiles())
    assert late.open(len(log))
    for log_seq in range(SEGMENT + 1, len(log) + 1):
        assert late.record(log_seq) == log[log_seq - 1]


def test_it_begins_where_a_segment_does_and_believes_the_first_of_each_room() -> None:
    log, ring = log_of(2 * SEGMENT + 50), new_ring()
    ring.begin(2 * SEGMENT)
    assert taken(ring, log[2 * SEGMENT :]) == ""
    reader = ShardLog(SMALL, ring.memory, NoFiles())
    assert reader.open(ring.log_seq) and reader.record(ring.log_seq) == log[-1]
    ring.begin(0)
    assert not reader.open(len(log))  # nothing of before is left
    assert taken(ring, log[:10]) == ""


def _with(offset: int, data: bytes, *, whole: bool) -> Callable[[bytes], bytes]:
    def altered(raw: bytes) -> bytes:
        made = bytearray(raw)
        made[offset : offset + len(data)] = data
        if whole:
            record.seal(made, 0)
        return bytes(made)

    return altered


ALTERED = {
    "missing": (lambda raw: b"", "a record is not the next one of the log"),
    "another body": (_with(record.BODY, b"lied", whole=False), "a record is not whole"),
    "another body, whole": (_with(record.BODY, b"lied", whole=True), ""),
    "another place": (
        _with(LOG_SEQ, _SEQS.pack(99, 0)[:8], whole=True),
        "a record is not the next one of the log",
    ),
    "another hash": (
        _with(PREV_HASH, b"\xff" * 32, whole=True),
        "a record does not follow the one before it in its room",
    ),
    "another op": (
        _with(SEQ, _SEQS.pack(77, 0)[:8], whole=True),
        "a record does not follow the one before it in its room",
    ),
}


@pytest.mark.parametrize(("alter", "why"), ALTERED.values(), ids=ALTERED)
def test_what_does_not_follow_is_refused_as_a_whole(
    alter: Callable[[bytes], bytes], why: str
) -> None:
    log, ring = log_of(60), new_ring()
    assert taken(ring, log[:40]) == ""
    before = bytes(ring.memory)
    lied = [*log[40:45], alter(log[45]), *log[46:50]]
    # the record behind it in its room names the hash of the right one
    expected = why or "a record does not follow the one before it in its room"
    assert taken(ring, lied) == expected
    assert ring.log_seq == 40 and bytes(ring.memory) == before
    assert taken(ring, log[40:]) == ""


def test_the_first_record_of_a_room_names_nothing() -> None:
    log, ring = log_of(3), new_ring()
    lied = _with(PREV_HASH, b"\xff" * 32, whole=True)(log[0])
    assert ring.take(memoryview(lied)) == "a record does not follow the one before it in its room"
    assert len(lied) == RECORD_SIZE and taken(ring, log) == ""
