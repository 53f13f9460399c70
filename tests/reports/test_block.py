"""Blocks of records as columns: sound ones pass, each thing that can be wrong is found in place."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.formats import record
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import record_hash, sealed
from appliance.reports import block
from tests.reports.maker import START_US, Shard, Site, resealed

COUNT = 60


def made(seed: int = 3) -> bytearray:
    shard = Shard(Site(seed), Path("unused"), 0)
    return bytearray(shard.records([START_US + 1000 * i for i in range(COUNT)]))


def verified(data: bytearray) -> block.Verified:
    return block.verify(memoryview(data), COUNT, 1, START_US - 1)


def test_a_sound_block_has_no_problem_and_says_its_hashes() -> None:
    data = made()
    found = verified(data)
    assert found.problem is None
    wanted = [record_hash(data[i * RECORD_SIZE : (i + 1) * RECORD_SIZE]) for i in range(COUNT)]
    assert [bytes(row) for row in found.hashes] == wanted
    assert sum(found.spans["last_seq"] - found.spans["first_seq"] + 1) == COUNT


@given(st.integers(0, COUNT - 1), st.integers(record.MSG_ID * 8, (record.CHECKSUM + 4) * 8 - 1))
def test_any_bit_flipped_under_the_crc_is_found_at_its_record(index, bit) -> None:
    data = made()
    data[index * RECORD_SIZE + bit // 8] ^= 1 << bit % 8
    problem = verified(data).problem
    assert problem is not None
    assert problem.record == index


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (record.BODY + 2040, b"\1", "padding"),
        (record.FLAGS + 1, b"\1", "padding"),
        (record.BODY_LEN, struct.pack("<I", 2049), "padding"),
        (40, b"\1", "padding"),
        (record.TIMESTAMP, struct.pack("<Q", START_US - 5), "clock"),
        (record.AUTHOR_ID, b"\xff", "chain"),
    ],
)
def test_what_a_right_crc_hides_is_found(offset: int, value: bytes, reason: str) -> None:
    data = made()
    at = 30 * RECORD_SIZE
    data[at + offset : at + offset + len(value)] = value
    data[at : at + RECORD_SIZE] = resealed(data[at : at + RECORD_SIZE])
    assert sealed(data, at)
    problem = verified(data).problem
    assert problem is not None
    assert problem.reason == reason
    assert problem.record == 30 or (reason == "chain" and problem.record > 30)


def test_two_records_that_changed_places_are_found() -> None:
    data = made()
    a, b = 10 * RECORD_SIZE, 11 * RECORD_SIZE
    data[a:b], data[b : b + RECORD_SIZE] = data[b : b + RECORD_SIZE], data[a:b]
    problem = verified(data).problem
    assert problem is not None and problem.record == 10
