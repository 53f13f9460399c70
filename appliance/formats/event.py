"""Bodies of the records that a shard's state machine itself reads: policy, retention, shipping.

    room_create   name of the room, 1 to 128 bytes of UTF-8
    room_policy   bits 8
    retain        oldest segment to keep 8
    shipped       first log_seq 8, last log_seq 8, hash of the manifest 32 (zero: announced only)

A reader gets None for a body that is none of these: such a record is refused, never half applied.
"""

import struct

from appliance.base.limits import ROOM_NAME_SIZE_MAX

POLICY_CLOSED = 1                 # the room takes policies, nothing else
_POLICY_KNOWN = POLICY_CLOSED

_WORD = struct.Struct("<Q")
_SHIPPED = struct.Struct("<QQ32s")


def encode_policy(bits: int) -> bytes:
    """Body of a room_policy record."""
    assert bits & ~_POLICY_KNOWN == 0
    return _WORD.pack(bits)


def decode_policy(body: bytes) -> int | None:
    """The bits of a room_policy record."""
    if len(body) != _WORD.size:
        return None
    bits: int = _WORD.unpack(body)[0]
    return None if bits & ~_POLICY_KNOWN else bits


def decode_name(body: bytes) -> str | None:
    """The name in a room_create record."""
    if not 1 <= len(body) <= ROOM_NAME_SIZE_MAX:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def encode_retain(oldest_segment: int) -> bytes:
    """Body of a retain record."""
    return _WORD.pack(oldest_segment)


def decode_retain(body: bytes) -> int | None:
    """The oldest segment that a retain record keeps."""
    return _WORD.unpack(body)[0] if len(body) == _WORD.size else None


def encode_shipped(first_log_seq: int, last_log_seq: int, manifest_hash: bytes) -> bytes:
    """Body of a shipped record; the hash is zero while the range is only announced."""
    assert 1 <= first_log_seq <= last_log_seq
    assert len(manifest_hash) == 32
    return _SHIPPED.pack(first_log_seq, last_log_seq, manifest_hash)


def decode_shipped(body: bytes) -> tuple[int, int, bytes] | None:
    """(first log_seq, last log_seq, manifest hash) of a shipped record."""
    return _SHIPPED.unpack(body) if len(body) == _SHIPPED.size else None
