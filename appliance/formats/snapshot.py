"""A snapshot file (TIG_SNAP): committed records of a room or of a segment, signed.

    0 magic 8 | 8 version 2, zero 6 | 16 room_id 16 (zero = a segment) | 32 op 8 | 40 record count 8
    48 records, 2240 each | Ed25519 over context and SHA-256 of all before, 64

`op` is the last `seq` of a room, the last `log_seq` of a segment. The chains are in the records:
each names the hash of its room's record before, so a reader needs the file and one public key.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

import numpy as np

from appliance.base.errors import ChainError, FormatError
from appliance.base.layout import picked, struct_of
from appliance.base.signature import CONTEXT_SNAPSHOT, SIGNATURE_SIZE, SigningKey, verify
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import RECORD, record_hash, sealed

MAGIC = 0x0054_4947_534E_4150  # "TIGSNAP", read from the highest byte down
VERSION = 1
SEGMENT = bytes(16)  # room_id of a snapshot of a whole segment

HEAD = np.dtype(
    [
        ("magic", "<u8"),
        ("version", "<u2"),
        ("reserved", "V6"),
        ("room_id", "V16"),
        ("op", "<u8"),
        ("record_count", "<u8"),
    ]
)
HEAD_SIZE = 48
assert HEAD.itemsize == HEAD_SIZE
_HEAD = struct_of(HEAD)
_CHAINED = picked(RECORD, "room_id", "prev_hash", "seq", "log_seq")
_ZERO32 = bytes(32)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a verified snapshot holds; positions are both inclusive."""

    room_id: bytes  # SEGMENT for a segment
    first_op: int  # seq in a room, log_seq in a segment
    last_op: int
    record_count: int
    last_hash: bytes  # of the last record

    def plain(self) -> dict[str, str | int]:
        """For people and programs. The file's head calls both of its numbers op."""
        is_segment = self.room_id == SEGMENT
        number = "log_seq" if is_segment else "seq"
        return {
            "of": "segment"
            if is_segment
            else str(UUID(int=int.from_bytes(self.room_id, "little"))),
            "records": self.record_count,
            f"first_{number}": self.first_op,
            f"last_{number}": self.last_op,
            "last_hash": self.last_hash.hex(),
        }


def file_size(record_count: int) -> int:
    """Bytes of a file with so many records."""
    return HEAD_SIZE + record_count * RECORD_SIZE + SIGNATURE_SIZE


def head_of(*, room_id: bytes, op: int, record_count: int) -> bytes:
    """What stands before the records."""
    return _HEAD.pack(MAGIC, VERSION, b"", room_id, op, record_count)


def render(
    records: Iterable[bytes | memoryview],
    *,
    room_id: bytes,
    op: int,
    record_count: int,
    key: SigningKey,
) -> Iterator[bytes | memoryview]:
    """The parts of the file, in order; `records` yields whole records, any number at a time."""
    head = head_of(room_id=room_id, op=op, record_count=record_count)
    digest = sha256(head)
    yield head
    size = 0
    for part in records:
        digest.update(part)
        size += len(part)
        yield part
    assert size == record_count * RECORD_SIZE
    yield key.sign(CONTEXT_SNAPSHOT, digest.digest())


def parse(raw: bytes | memoryview, public_key: bytes) -> Snapshot:
    """Verify a whole snapshot file made by the owner of `public_key`.

    Raises FormatError (shape, signature, a record's CRC) or ChainError, with the record's position.
    """
    view = memoryview(raw)
    if len(view) < HEAD_SIZE + SIGNATURE_SIZE:
        raise FormatError(f"snapshot: {len(view)} bytes")
    magic, version, reserved, room_id, op, count = _HEAD.unpack_from(view)
    if magic != MAGIC or version != VERSION or any(reserved):
        raise FormatError(f"snapshot: magic {magic:#x}, version {version}")
    end = len(view) - SIGNATURE_SIZE
    if count == 0 or len(view) != file_size(count):
        raise FormatError(f"snapshot: {len(view)} bytes for {count} records")
    digest = sha256(view[:end]).digest()
    if not verify(public_key, CONTEXT_SNAPSHOT, digest, bytes(view[end:])):
        raise FormatError("snapshot: the signature is not of this file and key")
    first_op, last_op, last_hash = _walk(view[HEAD_SIZE:end], room_id)
    if last_op != op:
        raise ChainError(f"snapshot: ends at {last_op}, its head says {op}")
    return Snapshot(room_id, first_op, last_op, count, last_hash)


def parse_of_any(
    raw: bytes | memoryview, keys: Iterable[tuple[str, bytes]]
) -> tuple[str, Snapshot]:
    """(name, what it holds) by the first (name, public key) that made the file; raises as `parse`
    does with the first of them."""
    first: FormatError | None = None
    for name, key in keys:
        try:
            return name, parse(raw, key)
        except FormatError as error:
            first = first or error
    raise first or FormatError("snapshot: no key to verify it with")


def _walk(records: memoryview, room_id: bytes) -> tuple[int, int, bytes]:
    """(first position, last position, last hash) of records that chain without a gap."""
    heads: dict[bytes, tuple[bytes, int]] = {}
    first = position = 0
    digest = _ZERO32
    for i in range(len(records) // RECORD_SIZE):
        record = records[i * RECORD_SIZE : (i + 1) * RECORD_SIZE]
        room, prev_hash, seq, log_seq = _CHAINED.unpack(record)
        if not sealed(record):
            raise FormatError(f"snapshot: record {i} has a wrong CRC")
        if room_id not in (SEGMENT, room):
            raise ChainError(f"snapshot: record {i} is of another room")
        at = log_seq if room_id == SEGMENT else seq
        if i and at != position + 1:
            raise ChainError(f"snapshot: record {i} is number {at} after {position}")
        head = heads.get(room)
        if head is None and seq == 1:
            head = (_ZERO32, 0)
        if head is not None and head != (prev_hash, seq - 1):
            raise ChainError(f"snapshot: record {i} does not follow its room's chain")
        first = at if i == 0 else first
        position = at
        digest = record_hash(record)
        heads[room] = (digest, seq)
    return first, position, digest
