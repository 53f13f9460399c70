"""Lives of members: what one says of itself when it pings, and what the others keep of that.

A life is one process on one volume; its number is the *incarnation*, which grows with each start.
A volume that knows nothing of a life that others have heard of is an older copy, or a new one under
an old name: whoever runs on it has forgotten what it promised. See `cores/vsr/lives`.
"""

import struct
from typing import NamedTuple

import numpy as np

from appliance.base.layout import struct_of
from appliance.base.limits import MEMBERS_MAX

TOLD = np.dtype(
    [
        ("incarnation", "<u4"),  # of the newest life that was heard of; 0 = of none
        ("start", "<u4"),  # drawn by that life: two can have one number where a clock is behind
        ("checkpoint", "<u8"),  # the highest op of each that it told
        ("commit", "<u8"),
    ]
)
TOLD_SIZE = TOLD.itemsize
assert TOLD_SIZE == 24

# Of them the newest that others are known to remember, the first after it, and the newest.
LIVES_MAX = 17
LIFE_ROW = struct.Struct("<II")  # incarnation, start
# Seconds since the epoch, in 2097: no clock is so far ahead, and whoever went on above a higher
# number would soon have none left.
INCARNATION_MAX = 0xF000_0000
_REMEMBERED = struct.Struct(f"<{MEMBERS_MAX}I")

LIFE = np.dtype(
    [
        ("incarnation", "<u4"),  # of this life
        ("start", "<u4"),
        ("flags", "u1"),
        ("lives_count", "u1"),
        ("reserved", "V6"),
        ("checkpoint", "<u8"),  # durable
        ("commit", "<u8"),  # the newest op that is committed and durable there
        ("held", "<u8"),  # the newest op that its rings may have held when this life began
        ("lives", "V136"),  # that this volume knows of: rows of incarnation 4, start 4
        ("remembered", "V32"),  # incarnations of all members by index, as the sender knows them
    ]
)
LIFE_SIZE = LIFE.itemsize
assert LIFE_SIZE == 208 and LIFE["lives"].itemsize == LIVES_MAX * LIFE_ROW.size

ANSWER = np.dtype(
    [
        ("incarnation", "<u4"),  # of the ping that is answered
        ("flags", "u1"),
        ("reserved", "V3"),
        ("told", "V24"),  # what whoever answers holds durably of whoever asked
    ]
)
ANSWER_SIZE = ANSWER.itemsize
assert ANSWER_SIZE == 32

_START = struct.Struct("<I")


def start_of(nonce: bytes) -> int:
    """What tells a life from another one of its number: the first word of its random nonce."""
    start: int = _START.unpack_from(nonce)[0]
    return start


FLAG_UNVOUCHED, FLAG_REMADE = 1, 2  # of a volume: in the superblock and in a ping
FLAG_SHORT = 4  # of a life, in a ping: its disk is about to be full
# In the route byte of a ping, zero in those of former programs and looked at by none of them: the
# sender's program takes a corrected clock (operation 18); it knows binding prepares (operation 19).
ROUTE_CORRECTS, ROUTE_BINDS = 1, 2
# Of an answer: this life is not accepted; whoever answers is not vouched for either; the life is
# not accepted because its state differs from that of most, whatever its volume knows.
ANSWER_REFUSED, ANSWER_NEW, ANSWER_DIVERGED = 1, 2, 4
GONE = b""  # in place of a replica id: whoever was a member once
_TOLD, _LIFE, _ANSWER = struct_of(TOLD), struct_of(LIFE), struct_of(ANSWER)


class Told(NamedTuple):
    """What is kept of a member."""

    incarnation: int = 0
    start: int = 0
    checkpoint: int = 0
    commit: int = 0


class Life(NamedTuple):
    """The body of a ping."""

    incarnation: int
    start: int
    flags: int
    checkpoint: int
    commit: int
    held: int
    lives: list[tuple[int, int]]
    remembered: list[int]


class Refusal(NamedTuple):
    """Why a member is not listened to, in words, and the flags of the answers that it gets."""

    reason: str
    flags: int = ANSWER_REFUSED


class Answer(NamedTuple):
    """The body of a pong."""

    incarnation: int
    flags: int
    told: Told


def keep(told: dict[bytes, Told], members: list[bytes]) -> dict[bytes, Told]:
    """What is kept of `told` when these are the members: of all others together the highest number,
    above which a member begins that comes back.
    """
    kept = {known: told[known] for known in members if known in told and told[known].incarnation}
    gone = max((told[known].incarnation for known in told if known not in kept), default=0)
    return kept | {GONE: Told(gone)} if gone else kept


def encode_told(told: Told) -> bytes:
    """24 bytes."""
    return _TOLD.pack(*told)


def decode_told(raw: bytes | memoryview) -> Told:
    """What lies in 24 bytes."""
    return Told(*_TOLD.unpack(raw))


def encode_lives(lives: list[tuple[int, int]]) -> bytes:
    """8 bytes each, the oldest first."""
    assert len(lives) <= LIVES_MAX
    return b"".join(LIFE_ROW.pack(*life) for life in lives)


def decode_lives(raw: bytes, count: int) -> list[tuple[int, int]] | None:
    """The first `count` rows; None if there are not so many, or a byte is set behind them."""
    if count > LIVES_MAX or any(raw[count * LIFE_ROW.size :]):
        return None
    rows = LIFE_ROW.iter_unpack(raw[: count * LIFE_ROW.size])
    return [(incarnation, start) for incarnation, start in rows]


def encode_life(life: Life) -> bytes:
    """208 bytes."""
    return _LIFE.pack(
        life.incarnation,
        life.start,
        life.flags,
        len(life.lives),
        b"",
        life.checkpoint,
        life.commit,
        life.held,
        encode_lives(life.lives),
        _REMEMBERED.pack(*life.remembered, *[0] * (MEMBERS_MAX - len(life.remembered))),
    )


def decode_life(body: bytes | memoryview) -> Life | None:
    """None: of another size, as versions before this one send it, or a reserved byte is set."""
    if len(body) != LIFE_SIZE:
        return None
    incarnation, start, flags, count, reserved, *ops, raw, remembered = _LIFE.unpack(body)
    lives = decode_lives(raw, count)
    if any(reserved) or not lives:
        return None
    checkpoint, commit, held = ops
    known = list(_REMEMBERED.unpack(remembered))
    return Life(incarnation, start, flags, checkpoint, commit, held, lives, known)


def encode_answer(answer: Answer) -> bytes:
    """32 bytes."""
    return _ANSWER.pack(answer.incarnation, answer.flags, b"", encode_told(answer.told))


def decode_answer(body: bytes | memoryview) -> Answer | None:
    """As `decode_life`."""
    if len(body) != ANSWER_SIZE:
        return None
    incarnation, flags, reserved, raw = _ANSWER.unpack(body)
    return None if any(reserved) else Answer(incarnation, flags, decode_told(raw))
