"""Bodies of the records that a shard's state machine itself reads: policy, retention, shipping.

    room_create   name of the room, 1 to 128 bytes of UTF-8
    room_policy   bits 8; of a shared room, who shares it (`sharing`)
    retain        oldest segment to keep 8; also what is not shipped may go 8, if it is there
    shipped       SHIPPED: who ships from now on, a range that is announced, or its manifest; or
                  who carries the shared rooms from now on
    clock         CORRECTION: from this record on, times are those of the clock again

A reader gets None for a body that is none of these: such a record is refused, never half applied.
"""

import struct
from typing import NamedTuple

import numpy as np

from appliance.base.layout import struct_of
from appliance.base.limits import ROOM_NAME_SIZE_MAX
from appliance.formats.policy_bits import POLICY_CLOSED, POLICY_SHARED
from appliance.formats.sharing import Sharing, decode_sharing, encode_sharing

_POLICY_KNOWN = POLICY_CLOSED | POLICY_SHARED

_WORD = struct.Struct("<Q")
POLICY_BITS_SIZE = _WORD.size  # bytes at the start of a policy's body

# What a shipped record does.
SHIP_CLAIM, SHIP_ANNOUNCE, SHIP_MANIFEST, CARRY_CLAIM = 1, 2, 3, 4
_ACTIONS = (SHIP_CLAIM, SHIP_ANNOUNCE, SHIP_MANIFEST, CARRY_CLAIM)

SHIPPED = np.dtype(
    [
        ("action", "<u2"),  # SHIP_*, CARRY_CLAIM
        ("node", "<u2"),  # who writes it: index in the site
        ("generation", "<u4"),  # of the claim; a claim's own is one more than the last one's
        ("number", "<u8"),  # of the manifest: 0, 1, 2 ... of the shard; zero in a claim,
        ("period_start_us", "<u8"),
        ("period_us", "<u8"),  # and so is all that follows
        ("first_log_seq", "<u8"),
        ("last_log_seq", "<u8"),  # last = first - 1: an idle period
        ("seen_log_seq", "<u8"),  # newest record that the shipper had read when it chose `last`
        ("manifest_hash", "V32"),  # zero unless the manifest is what is told
    ]
)
assert SHIPPED.itemsize == 88
_SHIPPED = struct_of(SHIPPED)


CORRECTION = np.dtype(
    [
        ("wanted_us", "<u8"),  # the time that this record is to bear, as whoever asks has it
        ("was_us", "<u8"),  # the time that it would have borne; zero in a request
        ("ahead_us", "<u8"),  # of the log before records' times, until here; zero in a request
    ]
)
assert CORRECTION.itemsize == 24
_CORRECTION = struct_of(CORRECTION)


class Policy(NamedTuple):
    """A room_policy record's body. `sharing` is there if the bits say that the room is shared."""

    bits: int
    sharing: Sharing | None = None


def encode_policy(bits: int, sharing: Sharing | None = None) -> bytes:
    """Body of a room_policy record; `sharing` sets its bit."""
    assert bits & ~_POLICY_KNOWN == 0
    if sharing is None:
        return _WORD.pack(bits & ~POLICY_SHARED)
    return _WORD.pack(bits | POLICY_SHARED) + encode_sharing(sharing)


def decode_policy(body: bytes) -> Policy | None:
    """What a room_policy record says."""
    if len(body) < _WORD.size:
        return None
    bits: int = _WORD.unpack_from(body)[0]
    if bits & ~_POLICY_KNOWN:
        return None
    if not bits & POLICY_SHARED:
        return Policy(bits) if len(body) == _WORD.size else None
    sharing = decode_sharing(body[_WORD.size :])
    return None if sharing is None else Policy(bits, sharing)


def decode_name(body: bytes) -> str | None:
    """The name in a room_create record."""
    if not 1 <= len(body) <= ROOM_NAME_SIZE_MAX:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


class Retain(NamedTuple):
    """A retain record's body. `unshipped`: shipping is off, so what is older counts as given up."""

    oldest: int
    unshipped: bool = False


def encode_retain(oldest_segment: int, *, unshipped: bool = False) -> bytes:
    """Body of a retain record."""
    return _WORD.pack(oldest_segment) + (_WORD.pack(1) if unshipped else b"")


def decode_retain(body: bytes) -> Retain | None:
    """The oldest segment that a retain record keeps, and on what condition."""
    if len(body) == _WORD.size:
        return Retain(_WORD.unpack(body)[0])
    if len(body) == 2 * _WORD.size and body[_WORD.size :] == _WORD.pack(1):
        return Retain(_WORD.unpack_from(body)[0], unshipped=True)
    return None


class Shipped(NamedTuple):
    """A shipped record's body; fields as in SHIPPED."""

    action: int
    node: int
    generation: int
    number: int = 0
    period_start_us: int = 0
    period_us: int = 0
    first_log_seq: int = 0
    last_log_seq: int = 0
    seen_log_seq: int = 0
    manifest_hash: bytes = bytes(32)


def encode_shipped(shipped: Shipped) -> bytes:
    """Body of a shipped record."""
    assert shipped.action in _ACTIONS
    assert len(shipped.manifest_hash) == 32
    return _SHIPPED.pack(*shipped)


def decode_shipped(body: bytes) -> Shipped | None:
    """What a shipped record says; whether it may be said now is for the state machine to judge."""
    if len(body) != SHIPPED.itemsize:
        return None
    shipped = Shipped(*_SHIPPED.unpack(body))
    return shipped if shipped.action in _ACTIONS else None


class Correction(NamedTuple):
    """A clock record's body; fields as in CORRECTION."""

    wanted_us: int
    was_us: int = 0
    ahead_us: int = 0


def encode_correction(correction: Correction) -> bytes:
    """Body of a clock record."""
    return _CORRECTION.pack(*correction)


def decode_correction(body: bytes) -> Correction | None:
    """What a clock record says."""
    if len(body) != CORRECTION.itemsize:
        return None
    return Correction(*_CORRECTION.unpack(body))
