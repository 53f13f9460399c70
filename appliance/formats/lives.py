"""Lives of members: what one says of itself when it pings, and what the others keep of that.

A life is one process on one volume; its number is the *incarnation*, which grows with each start.
A volume that knows nothing of a life that others have heard of is an older copy, or a new one under
an old name: whoever runs on it has forgotten what it promised. See `cores/vsr/lives`.
"""

from typing import NamedTuple

import numpy as np

from appliance.base.layout import struct_of

TOLD = np.dtype(
    [
        ("incarnation", "<u4"),  # of the newest life that was heard of; 0 = of none
        ("reserved", "V4"),
        ("checkpoint", "<u8"),  # the highest op of each that it told
        ("commit", "<u8"),
    ]
)
TOLD_SIZE = TOLD.itemsize
assert TOLD_SIZE == 24

LIFE = np.dtype(
    [
        ("incarnation", "<u4"),  # of this life
        ("before", "<u4"),  # what the volume held when this life began
        ("flags", "u1"),
        ("reserved", "V7"),
        ("checkpoint", "<u8"),  # durable
        ("commit", "<u8"),  # the newest op that is committed and durable there
        ("held", "<u8"),  # the newest op that its rings may have held when this life began
    ]
)
LIFE_SIZE = LIFE.itemsize
assert LIFE_SIZE == 40

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

FLAG_UNVOUCHED, FLAG_REMADE = 1, 2  # of a volume: in the superblock and in a ping
FLAG_REFUSED = 1  # of an answer: this life is not accepted
_TOLD, _LIFE, _ANSWER = struct_of(TOLD), struct_of(LIFE), struct_of(ANSWER)


class Told(NamedTuple):
    """What is kept of a member."""

    incarnation: int = 0
    checkpoint: int = 0
    commit: int = 0


class Life(NamedTuple):
    """The body of a ping."""

    incarnation: int
    before: int
    flags: int
    checkpoint: int
    commit: int
    held: int


class Answer(NamedTuple):
    """The body of a pong."""

    incarnation: int
    flags: int
    told: Told


def encode_told(told: Told) -> bytes:
    """24 bytes."""
    return _TOLD.pack(told.incarnation, b"", told.checkpoint, told.commit)


def decode_told(raw: bytes | memoryview) -> Told | None:
    """What lies in 24 bytes; None when a reserved byte is set."""
    incarnation, reserved, checkpoint, commit = _TOLD.unpack(raw)
    return None if any(reserved) else Told(incarnation, checkpoint, commit)


def encode_life(life: Life) -> bytes:
    """40 bytes."""
    return _LIFE.pack(
        life.incarnation, life.before, life.flags, b"", life.checkpoint, life.commit, life.held
    )


def decode_life(body: bytes | memoryview) -> Life | None:
    """None: of another size, as versions before this one send it, or a reserved byte is set."""
    if len(body) != LIFE_SIZE:
        return None
    incarnation, before, flags, reserved, checkpoint, commit, held = _LIFE.unpack(body)
    if any(reserved):
        return None
    return Life(incarnation, before, flags, checkpoint, commit, held)


def encode_answer(answer: Answer) -> bytes:
    """32 bytes."""
    return _ANSWER.pack(answer.incarnation, answer.flags, b"", encode_told(answer.told))


def decode_answer(body: bytes | memoryview) -> Answer | None:
    """As `decode_life`."""
    if len(body) != ANSWER_SIZE:
        return None
    incarnation, flags, reserved, raw = _ANSWER.unpack(body)
    told = decode_told(raw)
    return None if any(reserved) or told is None else Answer(incarnation, flags, told)
