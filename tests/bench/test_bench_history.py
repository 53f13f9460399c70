"""The measurement of checked history runs, and what it compares is equal but for the check."""

import pytest

from appliance.formats.geometry import PRODUCTION
from appliance.formats.verified_segment import SegmentBroken, VerifiedSegments
from tests.bench.bench_history import OneSegment, log_of, measure, unchecked


def test_both_ways_are_measured() -> None:
    row, searched = measure(True, lambda line: None)
    assert row["checked_us"] > 0 and row["unchecked_us"] > 0
    assert searched["value"] > 0


def test_a_segment_is_searched_by_its_footer_alone() -> None:
    log = log_of(OneSegment(named=True))
    assert log.with_message_id(0, bytes([1] * 16)) is None
    assert not log.segments._verified
    assert log.with_message_id(0, bytes(16)) == log.record(1)


def test_both_ways_read_the_same_and_only_one_sees_a_flipped_bit() -> None:
    found = VerifiedSegments(OneSegment(), PRODUCTION, leaves_kept=0).segment(0)
    assert found.at([5, 9999]) == unchecked(found, [5, 9999])
    broken = bytearray(found._records.records(0, PRODUCTION.segment_records))
    broken[5 * len(broken) // PRODUCTION.segment_records + 100] ^= 1
    size = len(broken) // PRODUCTION.segment_records
    flipped = {"record": lambda self, slot: bytes(broken[slot * size : (slot + 1) * size])}
    found._records = type("Flipped", (), flipped)()
    assert unchecked(found, [5])
    with pytest.raises(SegmentBroken, match="record 5"):
        found.at([4, 5, 6])
