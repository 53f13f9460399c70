"""The store that a replica needs, and the names of what it keeps there.

    O  id 16  letter             state of a field, an object's class, a class
    V  block id 16  V            version vector of a block; the id 0 stands for the whole replica
    X  source 8  progress 8  id 16  letter   what the source's packet of this number touched
    W  id 16  letter  source 8   the number under X: the newest of each field and source
    M  name                      facts about the replica itself

O and V are as in the Go implementation, and so is their order. X and W are local: the index of
changes, from which a diff is made, and which can be made again from O and V.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from appliance.formats.toytlv.ids import BLOCK_MASK, PROGRESS_MASK, Id, id_of_key, key_of_id

DATA, VECTOR, CHANGE, NEWEST, FACT = b"O", b"V", b"X", b"W", b"M"
GLOBAL_VECTOR = VECTOR + bytes(16) + b"V"
SOURCE_FACT, NAME_FACT, INDEXED_FACT = FACT + b"source", FACT + b"name", FACT + b"indexed"

Batch = Mapping[bytes, bytes | None]  # key -> new value, None: removed


class Store(Protocol):
    """An ordered map of bytes that survives a crash."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys in first <= key < end with their values, ascending. Nothing is written meanwhile."""

    def write(self, batch: Batch) -> None:
        """All of the batch or nothing; durable when it returns. ObjectsFull if there is no room."""


def field_name(id: Id, letter: str) -> bytes:
    """17 bytes by which a field is called in the keys."""
    return key_of_id(id) + letter.encode()


def id_of_name(name: bytes) -> Id:
    return id_of_key(name[:16])


def letter_of_name(name: bytes) -> str:
    return chr(name[16])


def block_key(id: Id) -> bytes:
    """The key of the vector of the block that `id` lies in."""
    word = id[0] << 64 | id[1] & PROGRESS_MASK | BLOCK_MASK
    return VECTOR + word.to_bytes(16, "big") + b"V"


def block_of_key(key: bytes) -> Id:
    return id_of_key(key[1:17]).block


def newest_key(name: bytes, source: int) -> bytes:
    return NEWEST + name + source.to_bytes(8, "big")


def change_key(source: int, progress: int, name: bytes = b"") -> bytes:
    return CHANGE + (source << 64 | progress).to_bytes(16, "big") + name


def end_of(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    return prefix + b"\xff" * 40
