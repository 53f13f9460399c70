"""Restoring the open segment: its records go back into the ring, every chain in it is walked."""

import struct

from appliance.base.errors import ChainError, FormatError
from appliance.base.layout import picked
from appliance.cores.rooms.open_segment import OpenSegment
from appliance.cores.rooms.room_table import RoomTable
from appliance.formats.checkpoint import Manifest
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import RECORD

_CHAINED: struct.Struct = picked(RECORD, "room_id", "prev_hash", "seq", "log_seq")
_ZERO32 = bytes(32)


def open_segment(
    geometry: Geometry,
    manifest: Manifest,
    leaves: list[bytes],
    segment: OpenSegment,
    rooms: RoomTable,
) -> None:
    """Load `leaves` into a segment resumed at `manifest.log_seq`, `rooms` being loaded already.

    Raises FormatError or ChainError; the caller then holds a state that must be reset.
    """
    first = manifest.log_seq - manifest.log_seq % geometry.segment_records + 1
    records = b"".join(leaves)
    if len(records) != (manifest.log_seq + 1 - first) * RECORD_SIZE:
        raise FormatError(
            f"open segment: {len(records)} bytes for {manifest.log_seq + 1 - first} records"
        )
    digests = segment.load(records)
    if segment.leaf_ids_so_far() != manifest.leaf_ids:
        raise FormatError("open segment: leaves do not hash to the ids in the manifest")
    _walk(records, digests, first, rooms)


def _walk(records: bytes, digests: list[bytes], log_seq: int, rooms: RoomTable) -> None:
    """Follow each room's chain through `records` up to the head that its row names."""
    heads: dict[bytes, tuple[bytes, int]] = {}
    for digest, (room_id, prev_hash, seq, stored) in zip(
        digests, _CHAINED.iter_unpack(records), strict=True
    ):
        if stored != log_seq:
            raise ChainError(f"open segment: record {log_seq} says it is {stored}")
        expected = heads.get(room_id)
        if expected is None and seq == 1:
            expected = (_ZERO32, 0)
        if expected is not None and expected != (prev_hash, seq - 1):
            raise ChainError(f"open segment: record {log_seq} does not follow its room's chain")
        heads[room_id] = (digest, seq)
        log_seq += 1
    for room_id, head in heads.items():
        row = rooms.row_of.get(room_id)
        if row is None or rooms.head(row) != head:
            raise ChainError(f"open segment: room {room_id.hex()} does not end at its head")
