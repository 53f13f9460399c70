"""The protocol by which an edge reads the log of a shard of which its own node holds no replica:
frames of the envelope, signed, on the edge's link to a replica of another node.

    edge                                      replica
      │ ── REMOTE_READ, op = wanted next ───▶ │   kept until something of that is committed, or a
      │ ◀─ REMOTE_RECORDS, records ────────── │   moment has passed
      │ ── REMOTE_READ_ROOMS, ids or rows ──▶ │
      │ ◀─ REMOTE_ROOMS, rows and names ───── │
      │ ── REMOTE_READ_SEGMENT, op, aux ────▶ │   op = a sealed segment, aux = which piece of it
      │ ◀─ REMOTE_SEGMENT, its bytes ──────── │   none: it is not to be had there

One question of each kind is under way on a connection, so nothing collects anywhere: an answer is
what asks for more. Questions and answers are numbered as those of `local`. `op` of REMOTE_RECORDS
is the first record that it brings: not the one that was asked for when this replica's ring does
not hold that any more, or when 0 was asked. A program that does not know these commands drops them.
"""

import struct
from collections.abc import Sequence

import numpy as np

from appliance.base.layout import struct_of
from appliance.base.limits import REMOTE_ROOMS_MAX, ROOM_NAME_SIZE_MAX, SECTOR_SIZE
from appliance.formats.geometry import (
    HEADER_SIZE,
    RECORD_SIZE,
    ROOM_ROW_SIZE,
    SESSION_BLOCK_SIZE,
    Geometry,
)
from appliance.formats.status.replica import NORMAL, VIEW_CHANGE, LogStanding

(
    REMOTE_READ,
    REMOTE_RECORDS,
    REMOTE_READ_ROOMS,
    REMOTE_ROOMS,
    REMOTE_READ_SEGMENT,
    REMOTE_SEGMENT,
) = range(0x50, 0x56)
QUESTIONS = frozenset((REMOTE_READ, REMOTE_READ_ROOMS, REMOTE_READ_SEGMENT))
ANSWERS = frozenset((REMOTE_RECORDS, REMOTE_ROOMS, REMOTE_SEGMENT))

STANDING = np.dtype(
    [
        ("published", "<u8"),  # newest committed record that can be read there
        ("commit_min", "<u8"),
        ("commit_max", "<u8"),
        ("oldest_segment", "<u8"),  # the first that is not freed
        ("segment_records", "<u4"),  # of the geometry
        ("stale_ms", "<u4"),  # for so long it has heard no quorum; 0 while it does
        ("status", "u1"),  # position in STATUSES
        ("state_ready", "u1"),
        ("reserved", "V6"),
    ]
)
STANDING_SIZE = STANDING.itemsize
assert STANDING_SIZE == 48 <= SESSION_BLOCK_SIZE  # so records fit, as they do in a request
_STANDING = struct_of(STANDING)
STATUSES = (NORMAL, VIEW_CHANGE, "recovering", "recovering_head", "away")
_STALE_MS_MAX = (1 << 32) - 1
_COUNT = struct.Struct("<I")  # of the rows in an answer


def encode_records(
    standing: LogStanding, published: int, geometry: Geometry, records: bytes = b""
) -> bytes:
    """The body of REMOTE_RECORDS."""
    status = standing.status if standing.status in STATUSES else STATUSES[-1]
    head = _STANDING.pack(
        published,
        standing.commit_min,
        standing.commit_max,
        standing.oldest_segment,
        geometry.segment_records,
        min(standing.stale_ms, _STALE_MS_MAX),
        STATUSES.index(status),
        standing.state_ready,
        b"",
    )
    return head + records


def decode_records(
    body: bytes | memoryview, geometry: Geometry
) -> tuple[LogStanding, int, memoryview] | None:
    """How the replica stands, its newest record, and the records; None: this is no such body, or
    of a log of other sizes."""
    if len(body) < STANDING_SIZE or (len(body) - STANDING_SIZE) % RECORD_SIZE:
        return None
    published, commit_min, commit_max, oldest, segment_records, stale_ms, status, ready, _ = (
        _STANDING.unpack_from(body)
    )
    if segment_records != geometry.segment_records or status >= len(STATUSES) or ready > 1:
        return None
    standing = LogStanding(
        status=STATUSES[status],
        state_ready=bool(ready),
        commit_min=commit_min,
        commit_max=commit_max,
        stale_ms=stale_ms,
        oldest_segment=oldest,
    )
    return standing, published, memoryview(body)[STANDING_SIZE:]


def rooms_max(geometry: Geometry) -> int:
    """Rooms that one question may be about: their rows and names fit the answer."""
    space = geometry.message_size_max - HEADER_SIZE - _COUNT.size
    return min(REMOTE_ROOMS_MAX, space // (ROOM_ROW_SIZE + 1 + ROOM_NAME_SIZE_MAX))


def encode_rooms(rows: bytes, names: Sequence[bytes]) -> bytes:
    """The body of REMOTE_ROOMS: how many rows, these, and the name of each room in UTF-8 behind
    its size, a byte; empty where it is not known."""
    assert len(rows) == len(names) * ROOM_ROW_SIZE
    told = b"".join(bytes((len(name),)) + name for name in names)
    return _COUNT.pack(len(names)) + rows + told


def decode_rooms(body: bytes | memoryview) -> tuple[bytes, list[bytes]] | None:
    """Rows and names; None: this is no such body."""
    if len(body) < _COUNT.size:
        return None
    (count,) = _COUNT.unpack_from(body)
    at = _COUNT.size + count * ROOM_ROW_SIZE
    if count > REMOTE_ROOMS_MAX or at > len(body):
        return None
    rows, names = bytes(body[_COUNT.size : at]), []
    for _ in range(count):
        if at >= len(body) or at + 1 + body[at] > len(body):
            return None
        end = at + 1 + body[at]
        names.append(bytes(body[at + 1 : end]))
        at = end
    return (rows, names) if at == len(body) else None


def piece_size(geometry: Geometry) -> int:
    """Bytes of a segment's extent in one answer: whole sectors."""
    return geometry.message_size_max - SECTOR_SIZE


def piece_count(geometry: Geometry) -> int:
    """Pieces of an extent."""
    return -(-geometry.extent_size // piece_size(geometry))
