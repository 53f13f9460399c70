"""The record's 2240 bytes: every offset, what the CRC covers, what an edge leaves to commit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.layout import offset_of, picked
from appliance.formats import record
from appliance.formats.record import RECORD, RECORD_STRUCT

FIELDS = [
    ("room_id", 0, 16),
    ("msg_id", 16, 16),
    ("author_id", 32, 8),
    ("padding_a", 40, 8),
    ("parent_id", 48, 16),
    ("timestamp", 64, 8),
    ("body_len", 72, 4),
    ("body", 76, 2048),
    ("checksum", 2124, 4),
    ("prev_hash", 2128, 32),
    ("client_id", 2160, 16),
    ("client_seq", 2176, 8),
    ("blob_hash", 2184, 32),
    ("flags", 2216, 4),
    ("padding_b", 2220, 4),
    ("seq", 2224, 8),
    ("log_seq", 2232, 8),
]


def example(**how: object) -> bytes:
    values = {
        "room_id": b"r" * 16,
        "msg_id": b"m" * 16,
        "author_id": 7,
        "body": b"hello",
        "client_id": b"c" * 16,
        "client_seq": 1,
    }
    return record.encode(**(values | how))


def test_every_offset_of_the_layout_is_pinned() -> None:
    found = [(name, offset_of(RECORD, name), RECORD[name].itemsize) for name in RECORD.names]
    assert found == FIELDS
    assert sum(size for _, _, size in FIELDS) == RECORD.itemsize == 2240


def test_the_constants_of_the_module_are_those_offsets() -> None:
    offsets = {name: offset for name, offset, _ in FIELDS}
    for name in (
        "room_id",
        "msg_id",
        "author_id",
        "parent_id",
        "timestamp",
        "body_len",
        "body",
        "checksum",
        "prev_hash",
        "client_id",
        "client_seq",
        "flags",
        "seq",
        "log_seq",
    ):
        assert getattr(record, name.upper()) == offsets[name]


def test_kinds_have_their_numbers() -> None:
    assert (
        record.KIND_MESSAGE,
        record.KIND_BLOB,
        record.KIND_EDIT,
        record.KIND_REDACT,
        record.KIND_ROOM_CREATE,
        record.KIND_ROOM_POLICY,
        record.KIND_FEDERATED,
        record.KIND_AUDIT,
        record.KIND_RETAIN,
        record.KIND_SHIPPED,
    ) == tuple(range(10))
    assert record.SHARD_ROOM_ID == b"\xff" * 16


@given(
    room_id=st.binary(min_size=16, max_size=16),
    msg_id=st.binary(min_size=16, max_size=16),
    author_id=st.integers(0, 2**64 - 1),
    body=st.binary(max_size=2048),
    client_id=st.binary(min_size=16, max_size=16),
    client_seq=st.integers(1, 2**64 - 1),
    parent_id=st.binary(min_size=16, max_size=16),
    kind=st.sampled_from(sorted(record.KINDS_KNOWN)),
    timestamp=st.integers(0, 2**64 - 1),
)
def test_what_is_encoded_is_read_back_and_commits_fields_are_zero(**values: Any) -> None:
    raw = record.encode(**values)
    assert record.sealed(raw)
    row = dict(zip(RECORD.names, RECORD_STRUCT.unpack(raw), strict=True))
    assert row["body"] == values["body"].ljust(2048, b"\0")
    assert row["body_len"] == len(values["body"])
    assert row["flags"] == values["kind"]
    for name in (
        "room_id",
        "msg_id",
        "author_id",
        "client_id",
        "client_seq",
        "parent_id",
        "timestamp",
    ):
        assert row[name] == values[name]
    assert (row["prev_hash"], row["seq"], row["log_seq"]) == (bytes(32), 0, 0)
    assert row["blob_hash"] == bytes(32)


@pytest.mark.parametrize(
    ("at", "covered"),
    [
        (0, False),
        (15, False),
        (16, True),
        (2123, True),
        (2124, True),
        (2127, True),
        (2128, False),
        (2239, False),
    ],
)
def test_the_crc_covers_16_to_2124(at: int, covered: bool) -> None:
    raw = bytearray(example())
    raw[at] ^= 1
    assert record.sealed(raw) != covered


def test_a_record_is_sealed_where_it_lies() -> None:
    batch = bytearray(example() + example(client_seq=2))
    batch[2240 + record.BODY] ^= 1
    assert record.sealed(batch, 0)
    assert not record.sealed(batch, 2240)
    record.seal(batch, 2240)
    assert record.sealed(batch, 2240)


def test_picked_fields_are_those_of_the_whole_struct() -> None:
    names = ("room_id", "timestamp", "client_seq", "flags")
    whole = dict(zip(RECORD.names, RECORD_STRUCT.unpack(example()), strict=True))
    assert picked(RECORD, *names).unpack(example()) == tuple(whole[name] for name in names)


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**48 * 1000 - 1))
def test_an_id_up_to_the_last_one_of_a_time_tells_no_later_time(raw: bytes, time_us: int) -> None:
    """What the hot path skips by one comparison is nothing that counts."""
    msg_id = raw[:9] + bytes([0x70 | raw[9] & 15]) + raw[10:]
    skipped = int.from_bytes(msg_id, "little") <= record.last_id_made_by(time_us)
    assert skipped == (record.made_us_of(msg_id) // 1000 <= time_us // 1000)


def test_the_last_id_of_a_time_is_of_its_millisecond() -> None:
    last = record.last_id_made_by(5_999)
    assert last.to_bytes(16, "little")[10:] == (5).to_bytes(6, "little")
    assert (last + 1).to_bytes(16, "little")[10:] == (6).to_bytes(6, "little")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.binary(min_size=10, max_size=10)), max_size=12),
    st.integers(0, 1_999),
)
def test_records_none_of_which_may_tell_of_a_later_time_are_seen_together(
    ids: list[tuple[int, bytes]], time_us: int
) -> None:
    """Few are said to, so that each is looked at; of many, that is said when it is so."""
    records = b"".join(
        record.encode(
            room_id=bytes(16),
            msg_id=low + made_ms.to_bytes(6, "little"),
            author_id=1,
            body=b"",
            client_id=bytes(16),
            client_seq=1,
            timestamp=time_us + number,
        )
        for number, (made_ms, low) in enumerate(ids)
    )
    later = any(made_ms > time_us // 1000 for made_ms, _ in ids)
    assert record.any_made_later(records) == (later or len(ids) < 8)
    assert record.any_made_later(memoryview(records)) == (later or len(ids) < 8)
