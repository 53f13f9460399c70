"""Copies of segments of another node: whole, the one that was asked for, and bounded."""

import os
from pathlib import Path

import pytest

from appliance.drivers.nvme.copied_segments import CopiedSegments
from appliance.formats import record
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.remote import piece_count, piece_size
from appliance.formats.segment import (
    encode_footer,
    leaf_id,
    leaf_record_count,
    segment_id,
)

COUNT = SMALL.segment_records


def extents(count: int, said: bytes = b"said") -> list[bytes]:
    """So many sealed segments, each naming the one before."""
    made, previous = [], bytes(32)
    for number in range(count):
        records = b"".join(
            record.encode(
                room_id=b"r" * 16,
                msg_id=(number * COUNT + slot + 1).to_bytes(16, "little"),
                author_id=1,
                body=said,
                client_id=bytes(16),
                client_seq=1,
            )
            for slot in range(COUNT)
        )
        step = SMALL.records_max * RECORD_SIZE
        leaves = [
            leaf_id(records[i * step : i * step + leaf_record_count(SMALL, i) * RECORD_SIZE])
            for i in range(SMALL.leaf_count_max)
        ]
        footer = encode_footer(
            records,
            cluster=bytes(16),
            shard=0,
            number=number,
            previous_id=previous,
            leaf_ids=leaves,
            previous_of=lambda room_id: 0,
        )
        previous = segment_id(footer)
        data = records.ljust(SMALL.segment_data_size, b"\0") + footer
        made.append(data.ljust(SMALL.extent_size, b"\0"))
    return made


def put(segments: CopiedSegments, number: int, data: bytes) -> str | None:
    """All pieces of a segment, in order; what was said of the last one."""
    said: str | None = None
    for index in range(piece_count(SMALL)):
        assert said is None and segments.missing(number) == index
        size = piece_size(SMALL)
        said = segments.put(number, data[index * size : (index + 1) * size])
    return said


def test_a_segment_is_there_when_all_of_it_is_and_leaves_nothing_on_the_disk(
    tmp_path: Path,
) -> None:
    (first, second), segments = extents(2), CopiedSegments(tmp_path, SMALL)
    files = len(os.listdir("/proc/self/fd"))
    assert segments.missing(0) == 0 and segments.view(0) is None
    assert put(segments, 0, first) == "" and put(segments, 1, second) == ""
    for number, data in enumerate((first, second)):
        view = segments.view(number)
        assert view is not None and bytes(view.data) == data
        view.verify(None)
    assert os.listdir(tmp_path) == []
    segments.missing(2)
    segments.clear()
    assert segments.view(0) is None
    del view
    assert len(os.listdir("/proc/self/fd")) == files


def test_copies_that_do_not_name_each_other_are_refused(tmp_path: Path) -> None:
    (first, second, third), other = extents(3), extents(3, b"lied")
    segments = CopiedSegments(tmp_path, SMALL)
    assert put(segments, 1, second) == ""
    assert put(segments, 0, other[0]) == "the segment behind it does not follow it"
    assert put(segments, 2, other[2]) == "it does not follow the segment before it"
    assert put(segments, 2, second) == "it is another segment"
    assert segments.view(0) is None and segments.view(2) is None
    assert put(segments, 0, first) == "" and put(segments, 2, third) == ""


def test_what_is_no_segment_is_refused(tmp_path: Path) -> None:
    segments = CopiedSegments(tmp_path, SMALL)
    said = put(segments, 0, bytes(SMALL.extent_size))
    assert said is not None and said.startswith("segment footer")
    segments.missing(0)
    assert segments.put(0, b"short") == "a piece is not as large as it should be"


def test_one_that_is_dropped_or_left_begins_anew(tmp_path: Path) -> None:
    first, second = extents(2)
    segments = CopiedSegments(tmp_path, SMALL)
    assert segments.missing(0) == 0
    assert segments.put(0, first[: piece_size(SMALL)]) is None and segments.missing(0) == 1
    segments.drop(0)
    assert segments.missing(0) == 0
    assert segments.put(0, first[: piece_size(SMALL)]) is None
    assert put(segments, 1, second) == "" and segments.missing(0) == 0
    segments.drop(1)
    assert segments.view(1) is None


def test_the_longest_unused_are_let_go(tmp_path: Path) -> None:
    made, segments = extents(4), CopiedSegments(tmp_path, SMALL, kept_max=3)
    for number in range(3):
        assert put(segments, number, made[number]) == ""
    assert segments.view(0) is not None
    assert put(segments, 3, made[3]) == ""
    there = [number for number in range(4) if segments.view(number) is not None]
    assert there == [0, 2, 3]


def test_a_folder_that_is_gone_is_an_error_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        CopiedSegments(tmp_path / "gone", SMALL).missing(0)
