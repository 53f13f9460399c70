"""What a primary does to a request's records before they become a prepare: check, then stamp."""

import struct

from appliance.base.checksum import crc32c
from appliance.base.layout import picked
from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.event import Correction, decode_correction, encode_correction
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import (
    BODY,
    BODY_LEN,
    CHECKSUM,
    FLAGS,
    KIND_CLOCK,
    KINDS_KNOWN,
    MSG_ID,
    RECORD,
    TIMESTAMP,
    seal,
)

_CHECKED = picked(
    RECORD,
    "room_id",
    "padding_a",
    "body_len",
    "checksum",
    "prev_hash",
    "client_seq",
    "flags",
    "padding_b",
    "seq",
    "log_seq",
)
_TIMESTAMP = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_ZERO4, _ZERO8, _ZERO16, _ZERO32 = bytes(4), bytes(8), bytes(16), bytes(32)
_ZERO_BODY = bytes(BODY_SIZE_MAX)


def records_valid(body: bytes | memoryview, records_max: int) -> bool:
    """Whether `body` is 1 to `records_max` records as an edge makes them.

    Paddings, what commit fills and the body past its length are zero; the CRC is right; the kind is
    known; the room is not zero, which names a segment in snapshots; client_seq counts from 1.
    """
    if not 0 < len(body) <= records_max * RECORD_SIZE or len(body) % RECORD_SIZE:
        return False
    raw = bytes(body)
    view = memoryview(raw)
    start = 0
    for (
        room_id,
        padding_a,
        body_len,
        checksum,
        prev_hash,
        client_seq,
        flags,
        padding_b,
        seq,
        log_seq,
    ) in _CHECKED.iter_unpack(raw):
        if (
            flags not in KINDS_KNOWN
            or body_len > BODY_SIZE_MAX
            or seq
            or log_seq
            or not client_seq
            or padding_a != _ZERO8
            or padding_b != _ZERO4
            or prev_hash != _ZERO32
            or room_id == _ZERO16
        ):
            return False
        if raw[start + BODY + body_len : start + CHECKSUM] != _ZERO_BODY[body_len:]:
            return False
        if crc32c(view[start + MSG_ID : start + CHECKSUM]) != checksum:
            return False
        start += RECORD_SIZE
    return True


def correction_of(body: bytes | memoryview) -> Correction | None:
    """What one valid clock record asks for; None: `body` is something else."""
    if len(body) != RECORD_SIZE or not records_valid(body, 1):
        return None
    if _U32.unpack_from(body, FLAGS)[0] != KIND_CLOCK:
        return None
    return decode_correction(body_of(body))


def body_of(record: bytes | bytearray | memoryview) -> bytes:
    """The body of one record."""
    return bytes(record[BODY : BODY + _U32.unpack_from(record, BODY_LEN)[0]])


def put_correction(body: bytearray | memoryview, own_us: int, ahead_us: int) -> int:
    """Note in a clock record what was so until it; the time that it is to bear. `own_us`: what it
    would bear without."""
    asked = decode_correction(body_of(body))
    assert asked is not None
    noted = encode_correction(Correction(asked.wanted_us, own_us, ahead_us))
    body[BODY : BODY + len(noted)] = noted
    return max(1, min(asked.wanted_us, own_us))


def stamp(body: bytearray | memoryview, timestamp: int) -> None:
    """Give the last record `timestamp`, each one before a microsecond less, and seal them again."""
    count = len(body) // RECORD_SIZE
    assert count * RECORD_SIZE == len(body)
    assert timestamp >= count
    for i in range(count):
        _TIMESTAMP.pack_into(body, i * RECORD_SIZE + TIMESTAMP, timestamp - (count - 1 - i))
        seal(body, i * RECORD_SIZE)
