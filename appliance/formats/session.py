"""The session block: first 128 bytes of the body of requests, prepares (op > 0) and replies; and
results.

A client of a shard is an edge's session, not a person: see `docs/protocol.md`, sessions.
"""

import struct
from typing import NamedTuple

import numpy as np

from appliance.base.layout import bytes_of, offset_of, struct_of
from appliance.formats.geometry import RESULT_SIZE, SESSION_BLOCK_SIZE

SESSION_BLOCK = np.dtype(
    [
        ("client", "V16"),
        ("session", "<u8"),  # 0 for register, else register's op
        # records that follow (2240 B each); in replies results (64 B each)
        ("record_count", "<u4"),
        ("reserved_a", "V4"),
        # digest of the session's reply before; 0 for register and in replies
        ("reply_parent", "V16"),
        ("request_digest", "V16"),  # 0 in requests
        ("checkpoint_id", "V32"),  # the checkpoint the primary was on; prepares only
        ("reserved_b", "V32"),
    ]
)
_STRUCT = struct_of(SESSION_BLOCK)
assert SESSION_BLOCK.itemsize == SESSION_BLOCK_SIZE
# of a body that is known to begin with a block
client_of = bytes_of(SESSION_BLOCK, "client")
request_digest_of = bytes_of(SESSION_BLOCK, "request_digest")
_STAMP_AT = offset_of(SESSION_BLOCK, "request_digest")
_STAMP = struct.Struct("16s32s")
assert _STAMP_AT + _STAMP.size == offset_of(SESSION_BLOCK, "reserved_b")

RESULT = np.dtype(
    [
        ("seq", "<u8"),
        ("log_seq", "<u8"),
        ("timestamp", "<u8"),
        ("code", "<u4"),
        ("reserved", "V4"),
        ("hash", "V32"),
    ]
)
RESULT_STRUCT = struct_of(RESULT)
assert RESULT.itemsize == RESULT_SIZE

# Codes of a result.
(
    OK,
    DUPLICATE,
    DUPLICATE_EXPIRED,
    SEQUENCE_GAP,
    ROOM_UNKNOWN,
    FORBIDDEN,
    LIMIT,
    STORAGE_FULL,
    MSG_ID_TAKEN,
) = range(9)
RESULT_NAMES = (
    "ok",
    "duplicate",
    "duplicate_expired",
    "sequence_gap",
    "room_unknown",
    "forbidden",
    "limit",
    "storage_full",
    "msg_id_taken",
)


class SessionBlock(NamedTuple):
    """Decoded session block; 16-byte ids and digests are bytes."""

    client: bytes
    session: int
    record_count: int
    reply_parent: bytes
    request_digest: bytes
    checkpoint_id: bytes


def encode(block: SessionBlock) -> bytes:
    """128 bytes."""
    return _STRUCT.pack(
        block.client,
        block.session,
        block.record_count,
        b"",
        block.reply_parent,
        block.request_digest,
        block.checkpoint_id,
        b"",
    )


def encode_into(body: memoryview, block: SessionBlock) -> None:
    """The same, at the start of `body`."""
    body[:SESSION_BLOCK_SIZE] = encode(block)


def stamp(body: bytearray, request_digest: bytes, checkpoint_id: bytes) -> None:
    """Make the body of a request that of a prepare."""
    _STAMP.pack_into(body, _STAMP_AT, request_digest, checkpoint_id)


def decode(body: bytes | bytearray | memoryview) -> SessionBlock | None:
    """The block at the start of `body`; None when it is too short or a reserved byte is set."""
    if len(body) < SESSION_BLOCK_SIZE:
        return None
    client, session, count, pad_a, parent, request, checkpoint, pad_b = _STRUCT.unpack_from(body)
    if any(pad_a) or any(pad_b):
        return None
    return SessionBlock(client, session, count, parent, request, checkpoint)
