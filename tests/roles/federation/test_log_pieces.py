"""What a carrying node takes of its site's log, and what it leaves where it lies."""

from pathlib import Path

import numpy as np
import pytest

from appliance.cores.shipping import source
from appliance.cores.shipping.source import NotHere, Source
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.formats import record as rec
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.segment import RING_HEAD_SIZE
from appliance.roles.federation.log_pieces import of_room, policies_of, read_piece
from tests.cores.rooms.shard import make
from tests.cores.shipping.world import GEOMETRY, World

SHARED, OTHER, ALIKE = b"s" * 16, b"o" * 16, b"s" * 8 + b"a" * 8
MAPPED = 2  # segments
WRONG_CRC, WRONG_PLACE = rec.BODY, rec.LOG_SEQ  # a byte of a record that makes it so


class Log(World):
    """Record 1 is the first of a room, 2 to 4 are those of the rooms above."""

    def __init__(self) -> None:
        super().__init__(1)
        self.said: dict[bytes, int] = {}  # by room
        for client, room in enumerate((SHARED, OTHER, ALIKE), 900):
            self.commit(make(room, client, 1, kind=rec.KIND_ROOM_CREATE, body=b"a room"))
        assert self.source.log_seq == 4

    def say(self, room: bytes, count: int = 1) -> None:
        for _ in range(count):
            self.sent += 1
            seq = self.said[room] = self.said.get(room, 0) + 1
            self.commit(make(room, 1, seq, msg_id=b"%16d" % self.sent))

    def read(self, first: int = 1) -> list[int]:
        """Numbers of what is taken, up to the newest record."""
        found: list[int] = []
        while first <= self.source.log_seq:
            last, records = read_piece(self.source, first, self.source.log_seq, [SHARED])
            found += records["log_seq"].tolist()
            first = last + 1
        return found

    def spoil(self, log_seq: int, at: int) -> None:
        """One byte of a record in the ring's first buffer."""
        self.shard.ring[RING_HEAD_SIZE + (log_seq - 1) * RECORD_SIZE + at] ^= 1


@pytest.fixture
def log() -> Log:
    return Log()


def test_of_other_rooms_only_their_first_record_is_taken(log: Log) -> None:
    log.say(OTHER, 3)
    log.say(SHARED, 2)
    log.say(OTHER)
    assert log.read() == [1, 2, 3, 4, 8, 9]
    assert log.read(4) == [4, 8, 9]


def test_where_the_replica_tells_that_nothing_crosses_nothing_is_read(log: Log) -> None:
    log.say(OTHER, 3)
    for log_seq in (5, 6, 7):
        log.spoil(log_seq, WRONG_PLACE)  # who reads them is told
    log.source.crossing = 4
    assert log.read(5) == []
    log.source.crossing = 5
    with pytest.raises(NotHere):
        log.read(5)


def mapped(folder: Path) -> int:
    """Files there that this process has mapped."""
    return sum(f"{folder}/" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_log_is_read_through_with_a_few_of_its_segments_mapped(
    log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(source, "SEGMENTS_READ_MAX", MAPPED)
    count = 4 * MAPPED
    log.say(SHARED, (count + 2) * GEOMETRY.segment_records)
    folder = tmp_path / "segments"
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:06d}").write_bytes(bytes(log.shard.extent(number)))
    files = MappedSegments(folder, GEOMETRY, log.shard.segments_max, mapped_max=MAPPED)
    log.source = Source(GEOMETRY, log.shard.ring, files)
    log.source.log_seq = count * GEOMETRY.segment_records
    assert len(log.read()) == log.source.log_seq
    assert 0 < mapped(folder) <= 2 * MAPPED  # what is verified keeps the mapping it was made with


def test_a_sealed_segment_gives_what_the_ring_gave(log: Log) -> None:
    for _ in range(GEOMETRY.segment_records // 4):
        log.say(OTHER, 3)
        log.say(SHARED)
    in_ring = log.read()
    log.say(OTHER, 2 * GEOMETRY.segment_records)
    assert log.source._ring.record_count(0) is None
    assert log.read() == in_ring


def test_what_is_taken_is_checked_and_what_is_left_is_not_read(log: Log) -> None:
    log.say(OTHER)
    log.say(SHARED)
    log.spoil(5, WRONG_CRC)
    assert log.read(5) == [6]
    log.spoil(6, WRONG_CRC)
    with pytest.raises(NotHere, match="CRC"):
        log.read(5)


def test_a_record_in_the_place_of_another_is_noticed_though_nobody_takes_it(log: Log) -> None:
    log.say(OTHER, 2)
    log.spoil(5, WRONG_PLACE)
    with pytest.raises(NotHere, match="others lie in their place"):
        log.read(5)


def test_what_is_overwritten_while_it_is_looked_at_is_read_from_its_segment(log: Log) -> None:
    log.say(SHARED, 3)
    looks = 0

    def pick(records: np.ndarray) -> np.ndarray:
        nonlocal looks
        looks += 1
        if looks == 1:
            log.say(OTHER, 2 * GEOMETRY.segment_records)
        return np.ones(len(records), bool)

    found = log.source.picked(5, 7, pick)
    assert looks == 2 and found["log_seq"].tolist() == [5, 6, 7]
    assert {bytes(row) for row in found["room_id"]} == {SHARED}


def test_a_room_is_told_from_one_whose_id_begins_alike(log: Log) -> None:
    log.say(ALIKE)
    log.say(SHARED)
    records = np.frombuffer(log.source.records(1, 6), rec.RECORD)
    assert of_room(records, SHARED, 0)["log_seq"].tolist() == [6]


@pytest.mark.parametrize(("position", "left"), [(0, 4), (4, 4), (6, 2), (7, 2), (9, 0), (20, 0)])
def test_what_was_taken_before_is_not_taken_again(position: int, left: int) -> None:
    records = np.zeros(4, rec.RECORD)
    records["log_seq"] = [5, 6, 8, 9]
    records["room_id"] = np.void(SHARED)
    assert of_room(records, SHARED, position)["log_seq"].tolist() == [5, 6, 8, 9][4 - left :]
    records["flags"] = rec.KIND_ROOM_POLICY
    assert policies_of(records, position)["log_seq"].tolist() == [5, 6, 8, 9][4 - left :]
    assert not len(of_room(records, SHARED, position))


def test_policies_are_found_among_others() -> None:
    records = np.zeros(3, rec.RECORD)
    records["flags"] = [rec.KIND_MESSAGE, rec.KIND_ROOM_POLICY, rec.KIND_ROOM_CREATE]
    records["log_seq"] = [1, 2, 3]
    assert policies_of(records, 0)["log_seq"].tolist() == [2]
