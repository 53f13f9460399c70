"""A snapshot renders in its published layout, verifies with one key, and no tampering passes."""

import struct

import pytest

from appliance.base.checksum import sha256
from appliance.base.errors import ChainError, FormatError
from appliance.base.layout import offset_of
from appliance.base.signature import CONTEXT_ENVELOPE, CONTEXT_SNAPSHOT, SigningKey
from appliance.formats import record, snapshot
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.snapshot import HEAD, SEGMENT, Snapshot
from tests.vectors.examples import KEY, segment_records

FIELDS = [
    ("magic", 0, 8),
    ("version", 8, 2),
    ("reserved", 10, 6),
    ("room_id", 16, 16),
    ("op", 32, 8),
    ("record_count", 40, 8),
]
RECORDS = segment_records()
ROOM = b"room" + b"\3" * 12
OF_ROOM = [RECORDS[slot * RECORD_SIZE : (slot + 1) * RECORD_SIZE] for slot in range(0, 30, 3)]


def rendered(records: list[bytes], room_id: bytes, op: int, key: SigningKey = KEY) -> bytes:
    count = sum(len(part) for part in records) // RECORD_SIZE
    return b"".join(snapshot.render(records, room_id=room_id, op=op, record_count=count, key=key))


SEGMENT_FILE = rendered([RECORDS[: 7 * RECORD_SIZE], RECORDS[7 * RECORD_SIZE :]], SEGMENT, 300)
ROOM_FILE = rendered(OF_ROOM, ROOM, 130)


def resigned(raw: bytes | bytearray, context: bytes = CONTEXT_SNAPSHOT) -> bytes:
    """The file with a signature that fits what is in it."""
    body = bytes(raw[:-64])
    return body + KEY.sign(context, sha256(body))


def test_every_offset_of_the_layout_is_pinned() -> None:
    found = [(name, offset_of(HEAD, name), HEAD[name].itemsize) for name in HEAD.names]
    assert found == FIELDS
    assert HEAD.itemsize == 48


def test_the_magic_spells_its_name_from_the_highest_byte() -> None:
    assert snapshot.MAGIC == 0x0054_4947_534E_4150
    assert SEGMENT_FILE[:8] == b"PANSGIT\0"
    assert SEGMENT_FILE[8:16] == b"\1" + bytes(7)
    assert SEGMENT_FILE[48 : 48 + RECORD_SIZE] == RECORDS[:RECORD_SIZE]
    assert len(SEGMENT_FILE) == 48 + 100 * RECORD_SIZE + 64


def test_a_segment_and_a_room_verify_and_say_what_they_hold() -> None:
    last = record.record_hash(RECORDS[-RECORD_SIZE:])
    assert snapshot.parse(SEGMENT_FILE, KEY.public) == Snapshot(SEGMENT, 201, 300, 100, last)
    last = record.record_hash(OF_ROOM[-1])
    assert snapshot.parse(ROOM_FILE, KEY.public) == Snapshot(ROOM, 121, 130, 10, last)


def test_every_flipped_byte_is_found() -> None:
    small = rendered(OF_ROOM[:2], ROOM, 122)
    for at in range(len(small)):
        changed = bytearray(small)
        changed[at] ^= 1
        with pytest.raises(FormatError):
            snapshot.parse(changed, KEY.public)


def test_another_key_and_another_use_of_the_key_are_refused() -> None:
    other = SigningKey(b"o" * 32)
    by_other = rendered(OF_ROOM, ROOM, 130, other)
    for raw, public in (
        (ROOM_FILE, other.public),
        (by_other, KEY.public),
        (resigned(ROOM_FILE, CONTEXT_ENVELOPE), KEY.public),
    ):
        with pytest.raises(FormatError, match="signature"):
            snapshot.parse(raw, public)
    assert snapshot.parse(resigned(ROOM_FILE), KEY.public).last_op == 130


@pytest.mark.parametrize(
    "size", [0, 47, 111, 112, len(ROOM_FILE) - RECORD_SIZE, len(ROOM_FILE) - 1]
)
def test_a_truncated_file_is_refused(size: int) -> None:
    with pytest.raises(FormatError):
        snapshot.parse(ROOM_FILE[:size], KEY.public)


def test_a_longer_file_is_refused() -> None:
    with pytest.raises(FormatError):
        snapshot.parse(ROOM_FILE + b"\0", KEY.public)


@pytest.mark.parametrize(
    ("records", "op", "reason"),
    [
        (OF_ROOM[:4] + OF_ROOM[5:], 130, "number 126 after 124"),
        (OF_ROOM[:4] + [OF_ROOM[5], OF_ROOM[4]] + OF_ROOM[6:], 130, "number 126 after 124"),
        (OF_ROOM[:4] + [OF_ROOM[3]] + OF_ROOM[5:], 130, "number 124 after 124"),
        (
            OF_ROOM[:4] + [RECORDS[RECORD_SIZE : 2 * RECORD_SIZE]] + OF_ROOM[5:],
            130,
            "of another room",
        ),
        (OF_ROOM[:9], 130, "ends at 129, its head says 130"),
        (OF_ROOM, 129, "ends at 130, its head says 129"),
    ],
)
def test_a_signed_room_with_wrong_records_breaks_its_chain(
    records: list[bytes], op: int, reason: str
) -> None:
    with pytest.raises(ChainError, match=reason):
        snapshot.parse(rendered(records, ROOM, op), KEY.public)


def changed_record(index: int, at: int, *, reseal: bool) -> list[bytes]:
    """The room's records, one byte of one changed, its CRC perhaps made right again."""
    raw = bytearray(OF_ROOM[index])
    raw[at] ^= 1
    if reseal:
        record.seal(raw, 0)
    return [*OF_ROOM[:index], bytes(raw), *OF_ROOM[index + 1 :]]


def test_a_changed_record_is_found_by_its_crc_and_with_the_crc_made_right_by_the_next_one() -> None:
    unsealed = changed_record(4, record.BODY, reseal=False)
    with pytest.raises(FormatError, match="record 4 has a wrong CRC"):
        snapshot.parse(rendered(unsealed, ROOM, 130), KEY.public)
    sealed = changed_record(4, record.BODY, reseal=True)
    with pytest.raises(ChainError, match="record 5 does not follow"):
        snapshot.parse(rendered(sealed, ROOM, 130), KEY.public)
    for field in (record.PREV_HASH, record.SEQ):
        with pytest.raises(ChainError, match="record 4 "):
            snapshot.parse(rendered(changed_record(4, field, reseal=True), ROOM, 130), KEY.public)


def test_a_room_that_begins_at_1_must_begin_with_a_zero_hash() -> None:
    first = bytearray(OF_ROOM[0])
    struct.pack_into("<Q", first, record.SEQ, 1)
    with pytest.raises(ChainError, match="record 0 does not follow"):
        snapshot.parse(rendered([bytes(first)], ROOM, 1), KEY.public)
    first[record.PREV_HASH : record.PREV_HASH + 32] = bytes(32)
    assert snapshot.parse(rendered([bytes(first)], ROOM, 1), KEY.public).first_op == 1


def test_in_a_segment_every_rooms_chain_is_followed() -> None:
    records = bytearray(RECORDS)
    at = 50 * RECORD_SIZE
    records[at + record.BODY] ^= 1
    record.seal(records, at)
    with pytest.raises(ChainError, match="record 53 does not follow"):
        snapshot.parse(rendered([bytes(records)], SEGMENT, 300), KEY.public)
