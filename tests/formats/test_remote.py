"""What an edge and a replica of another node tell each other: what was packed is what is read, and
anything else is told from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import REMOTE_ROOMS_MAX, ROOM_NAME_SIZE_MAX
from appliance.formats import local, remote
from appliance.formats.envelope import COMMAND_NAMES
from appliance.formats.geometry import (
    HEADER_SIZE,
    PRODUCTION,
    RECORD_SIZE,
    ROOM_ROW_SIZE,
    SMALL,
    Geometry,
)
from appliance.formats.remote import STATUSES, decode_records, decode_rooms, encode_rooms
from appliance.formats.status.replica import LogStanding

NUMBERS = st.integers(0, (1 << 64) - 1)
STANDINGS = st.builds(
    LogStanding,
    status=st.sampled_from(STATUSES),
    state_ready=st.booleans(),
    commit_min=NUMBERS,
    commit_max=NUMBERS,
    stale_ms=st.integers(0, (1 << 32) - 1),
    oldest_segment=NUMBERS,
)
NAMES = st.lists(st.binary(max_size=ROOM_NAME_SIZE_MAX), max_size=5)


@given(STANDINGS, NUMBERS, st.integers(0, 3))
def test_records_are_told_with_how_their_replica_stands(
    standing: LogStanding, published: int, count: int
) -> None:
    records = bytes(range(count)) * RECORD_SIZE
    body = remote.encode_records(standing, published, SMALL, records)
    told = decode_records(body, SMALL)
    assert told is not None and told[:2] == (standing, published) and told[2] == records
    assert decode_records(body, PRODUCTION) is None  # of a log of other sizes
    assert decode_records(body[:-1], SMALL) is None
    assert decode_records(body + b"x", SMALL) is None


def test_a_state_without_a_name_of_its_own_is_one_that_nobody_reads_from() -> None:
    standing = LogStanding(
        status="halted", state_ready=True, commit_min=1, commit_max=1, oldest_segment=0
    )
    told = decode_records(remote.encode_records(standing, 1, SMALL), SMALL)
    assert told is not None and told[0].status == STATUSES[-1]


@given(NAMES)
def test_rooms_are_told_with_their_names(names: list[bytes]) -> None:
    rows = b"".join(bytes((i,)) * ROOM_ROW_SIZE for i in range(len(names)))
    body = encode_rooms(rows, names)
    assert decode_rooms(body) == (rows, names)
    assert decode_rooms(body + b"x") is None
    for size in range(len(body)):
        assert decode_rooms(body[:size]) is None


def test_who_tells_of_too_many_rooms_is_not_heard() -> None:
    count = REMOTE_ROOMS_MAX + 1
    assert decode_rooms(encode_rooms(bytes(count * ROOM_ROW_SIZE), [b""] * count)) is None


@pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])
def test_each_answer_fits_a_message_and_the_pieces_are_the_segment(geometry: Geometry) -> None:
    space = geometry.message_size_max - HEADER_SIZE
    assert remote.STANDING_SIZE + geometry.records_max * RECORD_SIZE <= space
    most = remote.rooms_max(geometry)
    names = [b"n" * ROOM_NAME_SIZE_MAX] * most
    assert most > 0 and len(encode_rooms(bytes(most * ROOM_ROW_SIZE), names)) <= space
    size, count = remote.piece_size(geometry), remote.piece_count(geometry)
    assert size <= space and (count - 1) * size < geometry.extent_size <= count * size


def test_none_of_its_commands_is_another_one() -> None:
    own = remote.QUESTIONS | remote.ANSWERS
    others = {value for name, value in vars(local).items() if name.startswith("LOCAL_")}
    assert len(own) == 6 and not own & (others | COMMAND_NAMES.keys())
