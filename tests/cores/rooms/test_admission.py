"""A primary takes records as an edge makes them, stamps them, and refuses everything else."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.cores.rooms.admission import records_valid, stamp
from appliance.formats import record
from appliance.formats.geometry import RECORD_SIZE, SMALL
from tests.cores.rooms.shard import make


def changed(at: int, value: bytes, *, body: bytes = b"hello") -> bytes:
    """A record with other bytes at `at`, sealed again."""
    raw = bytearray(make(0, 1, 1, body=body))
    raw[at : at + len(value)] = value
    record.seal(raw, 0)
    return bytes(raw)


@pytest.mark.parametrize("kind", sorted(record.KINDS_KNOWN))
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 2048])
def test_records_of_every_known_kind_and_length_are_taken(kind: int, body: bytes) -> None:
    assert records_valid(make(0, 1, 1, kind=kind, body=body), 1)


@pytest.mark.parametrize(("count", "valid"), [(0, False), (1, True), (7, True), (8, False)])
def test_a_batch_has_at_least_one_record_and_at_most_records_max(count: int, valid: bool) -> None:
    batch = b"".join(make(0, 1, n + 1) for n in range(count))
    assert records_valid(batch, SMALL.records_max) == valid


@pytest.mark.parametrize("size", [1, RECORD_SIZE - 1, RECORD_SIZE + 1, 2 * RECORD_SIZE - 1])
def test_a_batch_of_a_broken_size_is_refused(size: int) -> None:
    assert not records_valid((make(0, 1, 1) * 2)[:size], SMALL.records_max)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (40, b"\1"),
        (47, b"\1"),  # padding behind author_id
        (2220, b"\1"),
        (2223, b"\1"),  # padding behind flags
        (72, struct.pack("<I", 2049)),
        (72, struct.pack("<I", 2**32 - 1)),
        (72, struct.pack("<I", 4)),  # the fifth byte of the body is behind it
        (2123, b"\1"),  # the last byte of the body, behind it
        (2128, b"\1"),
        (2159, b"\1"),  # prev_hash
        (2224, b"\1"),
        (2232, b"\1"),
        (2239, b"\1"),  # seq, log_seq
        (2176, bytes(8)),  # client_seq 0
        (0, bytes(16)),  # room 0
        (2216, b"\1"),
        (2216, b"\2"),
        (2216, b"\x0c"),
        (2216, b"\xff"),  # kinds not known
        (2217, b"\1"),
        (2219, b"\x80"),  # flags not known
    ],
)
def test_one_wrong_field_refuses_the_batch(at: int, value: bytes) -> None:
    assert not records_valid(make(0, 1, 1) + changed(at, value), SMALL.records_max)


@settings(max_examples=300)
@given(st.integers(16, 2127), st.integers(0, 7))
def test_any_flipped_bit_under_the_crc_is_found(at: int, bit: int) -> None:
    raw = bytearray(make(0, 1, 1, body=b"x" * 2048))
    raw[at] ^= 1 << bit
    assert not records_valid(raw, 1)


@settings(max_examples=300)
@given(st.binary(max_size=3 * RECORD_SIZE))
def test_random_bytes_are_refused(raw: bytes) -> None:
    assert not records_valid(raw, SMALL.records_max)


def test_the_last_record_has_the_prepares_time_and_each_before_a_microsecond_less() -> None:
    batch = bytearray(b"".join(make(0, 1, n + 1) for n in range(5)))
    stamp(memoryview(batch), 1_000_000)
    times = [
        struct.unpack_from("<Q", batch, n * RECORD_SIZE + record.TIMESTAMP)[0] for n in range(5)
    ]
    assert times == [999_996, 999_997, 999_998, 999_999, 1_000_000]
    assert records_valid(batch, SMALL.records_max)
