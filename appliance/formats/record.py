"""The record: 2240 bytes, one chat message or event.

Every offset is of `docs/formats.md`, record.
"""

import hashlib
import struct

import numpy as np

from appliance.base.checksum import crc32c
from appliance.base.layout import bytes_of, int_of, offset_of, struct_of
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record_kind import (
    FLAGS_KIND_MASK,
    KIND_AUDIT,
    KIND_BLOB,
    KIND_CLOCK,
    KIND_EDIT,
    KIND_FEDERATED,
    KIND_IMPORTED,
    KIND_MESSAGE,
    KIND_REDACT,
    KIND_RETAIN,
    KIND_ROOM_CREATE,
    KIND_ROOM_POLICY,
    KIND_SHIPPED,
    KINDS_CLIENT,
    KINDS_KNOWN,
    KINDS_SHARD,
)

__all__ = [  # kinds, under this name too
    "FLAGS_KIND_MASK",
    "KIND_AUDIT",
    "KIND_BLOB",
    "KIND_CLOCK",
    "KIND_EDIT",
    "KIND_FEDERATED",
    "KIND_IMPORTED",
    "KIND_MESSAGE",
    "KIND_REDACT",
    "KIND_RETAIN",
    "KIND_ROOM_CREATE",
    "KIND_ROOM_POLICY",
    "KIND_SHIPPED",
    "KINDS_CLIENT",
    "KINDS_KNOWN",
    "KINDS_SHARD",
]

RECORD = np.dtype(
    [
        ("room_id", "V16"),  # selects the shard
        ("msg_id", "V16"),  # UUIDv7, of what was imported UUIDv8; u128, little-endian
        ("author_id", "<u8"),  # from the token, never from the client's frame
        ("padding_a", "V8"),
        ("parent_id", "V16"),  # message answered to; zero = top level
        # microseconds since the epoch, set by the primary, strictly increasing in the log
        ("timestamp", "<u8"),
        ("body_len", "<u4"),
        ("body", "V2048"),  # zero past body_len
        ("checksum", "<u4"),  # CRC32C of [16, 2124)
        ("prev_hash", "V32"),  # set at commit: hash of the room's record before
        ("client_id", "V16"),  # the device: half of the idempotency key
        ("client_seq", "<u8"),  # 1, 2, 3 ... per device and room: the other half
        ("blob_hash", "V32"),
        ("flags", "<u4"),  # low 8 bits: kind
        ("padding_b", "V4"),
        ("seq", "<u8"),  # set at commit: dense per room, first = 1
        ("log_seq", "<u8"),  # set at commit: dense per shard, first = 1
    ]
)
RECORD_STRUCT = struct_of(RECORD)
assert RECORD.itemsize == RECORD_SIZE

ROOM_ID, MSG_ID, AUTHOR_ID, PARENT_ID = (
    offset_of(RECORD, n) for n in ("room_id", "msg_id", "author_id", "parent_id")
)
TIMESTAMP, BODY_LEN, BODY, CHECKSUM = (
    offset_of(RECORD, n) for n in ("timestamp", "body_len", "body", "checksum")
)
PREV_HASH, CLIENT_ID, CLIENT_SEQ = (
    offset_of(RECORD, n) for n in ("prev_hash", "client_id", "client_seq")
)
# of bytes that are known to begin with a record
room_id_in, msg_id_in, parent_id_in, client_id_in = (
    bytes_of(RECORD, n) for n in ("room_id", "msg_id", "parent_id", "client_id")
)
author_id_in, timestamp_in, body_len_in, flags_in, seq_in, log_seq_in = (
    int_of(RECORD, n) for n in ("author_id", "timestamp", "body_len", "flags", "seq", "log_seq")
)
FLAGS, SEQ, LOG_SEQ = (offset_of(RECORD, n) for n in ("flags", "seq", "log_seq"))
assert (TIMESTAMP, CHECKSUM, PREV_HASH, CLIENT_ID, SEQ, LOG_SEQ) == (
    64,
    2124,
    2128,
    2160,
    2224,
    2232,
)

SHARD_ROOM_ID = b"\xff" * 16  # audit, retain and shipped records of a shard live in this room

_U4 = struct.Struct("<I")


def seal(buffer: bytearray | memoryview, offset: int) -> None:
    """Write the CRC32C of the record that starts at `offset`."""
    view = memoryview(buffer)
    _U4.pack_into(view, offset + CHECKSUM, crc32c(view[offset + MSG_ID : offset + CHECKSUM]))


def sealed(buffer: bytes | bytearray | memoryview, offset: int = 0) -> bool:
    """Whether the record at `offset` has the CRC32C it names."""
    view = memoryview(buffer)
    named: int = _U4.unpack_from(view, offset + CHECKSUM)[0]
    return named == crc32c(view[offset + MSG_ID : offset + CHECKSUM])


def encode(
    *,
    room_id: bytes,
    msg_id: bytes,
    author_id: int,
    body: bytes,
    client_id: bytes,
    client_seq: int,
    parent_id: bytes = bytes(16),
    kind: int = KIND_MESSAGE,
    timestamp: int = 0,
) -> bytes:
    """One sealed record as an edge makes it; commit fills what is zero: prev_hash, seq, log_seq."""
    out = bytearray(RECORD_SIZE)
    RECORD_STRUCT.pack_into(
        out,
        0,
        room_id,
        msg_id,
        author_id,
        b"",
        parent_id,
        timestamp,
        len(body),
        body,
        0,
        b"",
        client_id,
        client_seq,
        b"",
        kind,
        b"",
        0,
        0,
    )
    seal(out, 0)
    return bytes(out)


def room_low(room_id: bytes) -> int:
    """The low half of a room's id, as columns hold it."""
    return int.from_bytes(room_id[:8], "little")


def record_hash(record: bytes | memoryview) -> bytes:
    """SHA-256 of the committed record: the next record of its room names it as `prev_hash`."""
    assert len(record) == RECORD_SIZE
    return hashlib.sha256(record).digest()


_MADE_MS = slice(10, 16)  # of a UUIDv7, as records hold it
_FEW = 8  # records
_VERSION, _VARIANT = 9, 7  # bytes of these
_VARIANT_RFC = 2  # of UUIDs as RFC 9562 lays them out
UUID_OF_NOW = 7  # version of a msg_id that tells when its message was made
UUID_OF_ARCHIVE = 8  # the same, of when the archive says that it was said


def uuid_version_of(msg_id: bytes | memoryview) -> int:
    """Version of the UUID that a msg_id is; 0 when it is none of RFC 9562."""
    return msg_id[_VERSION] >> 4 if msg_id[_VARIANT] >> 6 == _VARIANT_RFC else 0


def last_id_made_by(time_us: int) -> int:
    """The msg_id, as a little-endian number, up to which none tells of a later time than this."""
    return (time_us // 1000 + 1 << 8 * _MADE_MS.start) - 1


def any_made_later(records: bytes | memoryview) -> bool:
    """Whether one of these may tell by its msg_id of a later time than the first one bears."""
    if len(records) < _FEW * RECORD_SIZE:
        return True  # to look at each takes less
    highs = np.ndarray(len(records) // RECORD_SIZE, "<u8", records, MSG_ID + 8, (RECORD_SIZE,))
    time_us = int.from_bytes(records[TIMESTAMP : TIMESTAMP + 8], "little")
    return int(highs.max()) > last_id_made_by(time_us) >> 64


def made_us_of(msg_id: bytes | memoryview) -> int:
    """When its device made a message, by the msg_id of its record; 0 when that tells no time."""
    if msg_id[_VERSION] >> 4 != UUID_OF_NOW:
        return 0
    return int.from_bytes(msg_id[_MADE_MS], "little") * 1000
