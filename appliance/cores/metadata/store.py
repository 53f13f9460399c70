"""The store that a replica needs, and the names of what it keeps there.

    O  id 16  letter             state of a field, an object's class, a class
    O  id 16  letter  source 8   the number under X: the newest of the field and that source
    V  block id 16  V            version vector of a block; the id 0 stands for the whole replica
    X  source 8  progress 8  id 16  letter   what the source's packet of this number touched, or
                                 once did: where the number beside the state is larger it is passed
                                 over, and swept away in its turn
    W  id 16  letter  source 8   the same number, where earlier versions put it
    M  name                      facts about the replica itself

States and vectors are as in the Go implementation, and so is their order. The rest is local: the
index of changes, from which a diff is made, and which can be made again from O and V. Pages are
what a batch costs: an edit changes the one on which state and number lie, and the last one of X. A
number under W counts as long as the field has none beside its state, and goes with its next edit.
"""

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Protocol

from appliance.base.limits import BLOCK_VECTORS_CACHED_MAX
from appliance.formats.toytlv.ids import BLOCK_MASK, PROGRESS_MASK, Id, id_of_key, key_of_id

DATA, VECTOR, CHANGE, EARLIER_NEWEST, FACT = b"O", b"V", b"X", b"W", b"M"
_STATE_KEY_SIZE = 18
GLOBAL_VECTOR = VECTOR + bytes(16) + b"V"
SOURCE_FACT, NAME_FACT, INDEXED_FACT = FACT + b"source", FACT + b"name", FACT + b"indexed"
SWEPT_FACT = FACT + b"swept"  # the key of the index from which it is swept on

SOURCE_SIZE = PROGRESS_SIZE = 8  # bytes of them in the keys of the index; a number is a progress
ID_SIZE = SOURCE_SIZE + PROGRESS_SIZE
_SOURCE_END = len(CHANGE) + SOURCE_SIZE
_PROGRESS_END = _SOURCE_END + PROGRESS_SIZE
Batch = Mapping[bytes, bytes | None]  # key -> new value, None: removed


class Store(Protocol):
    """An ordered map of bytes that survives a crash."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    def get_all(self, keys: list[bytes]) -> Mapping[bytes, bytes]:
        """Key to value of those keys that are there. Ascending keys are found fastest."""

    def keys(self, first: bytes, end: bytes, count: int) -> list[bytes]:
        """The keys of `scan`, at most `count` of them."""

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys in first <= key < end with their values, ascending. Nothing is written meanwhile."""

    def write(self, batch: Batch) -> None:
        """All of the batch or nothing; durable when it returns. ObjectsFull if there is no room."""


_state_key = struct.Struct(">cQQc").pack


def state_key(id: Id, letter: str) -> bytes:
    """Under which the state of a field stands: its name behind DATA."""
    return _state_key(DATA, id[0], id[1] & PROGRESS_MASK, letter.encode())


def field_name(id: Id, letter: str) -> bytes:
    """17 bytes by which a field is called in the keys."""
    return key_of_id(id) + letter.encode()


def id_of_name(name: bytes) -> Id:
    return id_of_key(name[:ID_SIZE])


def letter_of_name(name: bytes) -> str:
    return chr(name[ID_SIZE])


@lru_cache(BLOCK_VECTORS_CACHED_MAX)  # one edit after the other falls into the same few
def block_key(id: Id) -> bytes:
    """The key of the vector of the block that `id` lies in."""
    word = id[0] << 64 | id[1] & PROGRESS_MASK | BLOCK_MASK
    return VECTOR + word.to_bytes(16, "big") + b"V"


def block_of_key(key: bytes) -> Id:
    return id_of_key(key[len(VECTOR) : len(VECTOR) + ID_SIZE]).block


def is_state(key: bytes) -> bool:
    """Whether a key from DATA on is that of a state, and no number beside one."""
    return len(key) == _STATE_KEY_SIZE


def change_key(source: int, progress: int, name: bytes = b"") -> bytes:
    return CHANGE + (source << 64 | progress).to_bytes(16, "big") + name


def change_of(newest: bytes, progress: bytes) -> bytes:
    """Key under X of a field and source, by that of their number: the state's, and the source."""
    return CHANGE + newest[-SOURCE_SIZE:] + progress + newest[1:-SOURCE_SIZE]


def newest_of_all(changes: list[bytes]) -> list[bytes]:
    """Keys of the numbers beside the states, by keys under X."""
    return [DATA + change[_PROGRESS_END:] + change[len(CHANGE) : _SOURCE_END] for change in changes]


def changes_of(source: int) -> bytes:
    """How keys under X begin of what the source touched."""
    return change_key(source, 0)[:_SOURCE_END]


def progress_of(change: bytes) -> bytes:
    """The number of a key under X."""
    return change[_SOURCE_END:_PROGRESS_END]


def touched_by(change: bytes) -> bytes:
    """The name of the field that a key under X is about."""
    return change[_PROGRESS_END:]


def source_of(state: bytes) -> bytes:
    """The source of the id in a state's key."""
    return state[len(DATA) : len(DATA) + SOURCE_SIZE]


def end_of(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    return prefix + b"\xff" * 40
