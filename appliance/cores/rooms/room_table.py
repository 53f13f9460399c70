"""The table of rooms and its index by room_id. Row 0 is the shard's own room, from the start."""

import struct
from collections.abc import Sequence

import numpy as np

from appliance.base.errors import FormatError
from appliance.base.layout import bytes_of, offset_of
from appliance.base.limits import SHARING_SITES_MAX
from appliance.base.table import Table
from appliance.formats.checkpoint import POLICY, ROOM_ROW
from appliance.formats.geometry import ROOM_ROW_SIZE, Geometry
from appliance.formats.record import SHARD_ROOM_ID

SHARD_ROOM_ROW = 0

_HEAD = struct.Struct("<32sQQ")  # head_hash, message_count, op
_CHAIN = struct.Struct("<32sQ")  # head_hash, message_count
_SEALED = struct.Struct("<Q")
_POLICY = struct.Struct("<QQQ")  # log_seq, created_log_seq, bits
_BITS = struct.Struct("<Q")
_SITES = struct.Struct(f"<{SHARING_SITES_MAX}I")
_room_id_of = bytes_of(ROOM_ROW, "room_id")
_HEAD_HASH = offset_of(ROOM_ROW, "head_hash")
_SEALED_SEGMENT = offset_of(ROOM_ROW, "sealed_segment")
_POLICY_START = offset_of(ROOM_ROW, "policy")
_SITES_START = offset_of(ROOM_ROW, "sites")
_BITS_START = _POLICY_START + offset_of(POLICY, "bits")
assert offset_of(ROOM_ROW, "message_count") == _HEAD_HASH + 32
assert offset_of(ROOM_ROW, "op") == _HEAD_HASH + 40
assert offset_of(POLICY, "created_log_seq") == 8


class RoomTable:
    """Rows of rooms.

    Invariants: row 0 is the shard's room; each row below the high water is indexed under its id; a
    room other than the shard's has at least the record that created it; `shared` has each row whose
    room is shared with other sites.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.table = Table(ROOM_ROW, geometry.rooms_max, geometry.table_chunk_size)
        self.row_of: dict[bytes, int] = {}
        self.shared: set[int] = set()
        self._memory = self.table.memory
        self.create(SHARD_ROOM_ID)

    def clear(self) -> None:
        """Back to the shard's room alone."""
        self.table.clear()
        self.row_of.clear()
        self.shared.clear()
        self.create(SHARD_ROOM_ID)

    def load(self, chunks: list[bytes], row_high_water: int) -> None:
        """Replace everything by verified chunks."""
        self.table.clear()
        self.row_of.clear()
        self.table.load(chunks, row_high_water)
        for row in range(row_high_water):
            room_id = bytes(_room_id_of(self.table.row(row)))
            if self.row_of.setdefault(room_id, row) != row:
                raise FormatError(f"rooms: row {row} is a second row of {room_id.hex()}")
        if self.row_of.get(SHARD_ROOM_ID) != SHARD_ROOM_ROW:
            raise FormatError("rooms: row 0 is not the shard's room")
        shape, strides = (row_high_water, SHARING_SITES_MAX), (ROOM_ROW_SIZE, 4)
        sites = np.ndarray(shape, "<u4", self._memory, _SITES_START, strides)
        self.shared = set(np.flatnonzero(sites.any(axis=1)).tolist())

    def create(self, room_id: bytes) -> int:
        """The row of a new room without records."""
        assert room_id not in self.row_of
        row = self.table.take()
        start = row * ROOM_ROW_SIZE
        self._memory[start : start + len(room_id)] = room_id
        self.row_of[room_id] = row
        return row

    def head(self, row: int) -> tuple[bytes, int]:
        """(hash of the newest record, its seq); zeros for a room without records."""
        return _CHAIN.unpack_from(self._memory, row * ROOM_ROW_SIZE + _HEAD_HASH)

    def advance(self, row: int, head_hash: bytes, message_count: int, op: int) -> None:
        """Note an accepted record as the newest."""
        _HEAD.pack_into(
            self._memory, row * ROOM_ROW_SIZE + _HEAD_HASH, head_hash, message_count, op
        )
        self.table.touch(row)

    def bits(self, row: int) -> int:
        """The policy's bits."""
        bits: int = _BITS.unpack_from(self._memory, row * ROOM_ROW_SIZE + _BITS_START)[0]
        return bits

    def created_log_seq(self, row: int) -> int:
        """The record that created the room."""
        created: int = _POLICY.unpack_from(self._memory, row * ROOM_ROW_SIZE + _POLICY_START)[1]
        return created

    def sites(self, row: int) -> tuple[int, ...]:
        """Who shares the room, as `sharing.site_words` tells it; zeros for nobody."""
        return _SITES.unpack_from(self._memory, row * ROOM_ROW_SIZE + _SITES_START)

    def set_policy(
        self, row: int, log_seq: int, created_log_seq: int, bits: int, sites: Sequence[int] = ()
    ) -> None:
        """Note the policy that record `log_seq` set."""
        unused = (0,) * (SHARING_SITES_MAX - len(sites))
        _SITES.pack_into(self._memory, row * ROOM_ROW_SIZE + _SITES_START, *sites, *unused)
        _POLICY.pack_into(
            self._memory, row * ROOM_ROW_SIZE + _POLICY_START, log_seq, created_log_seq, bits
        )
        if any(sites):
            self.shared.add(row)
        else:
            self.shared.discard(row)
        self.table.touch(row)

    def sealed(self, room_id: bytes) -> int:
        """Newest sealed segment with the room + 1; 0 = none."""
        row = self.row_of[room_id]
        sealed: int = _SEALED.unpack_from(self._memory, row * ROOM_ROW_SIZE + _SEALED_SEGMENT)[0]
        return sealed

    def set_sealed(self, room_id: bytes, number: int) -> None:
        """Note that sealed segment `number` has the room."""
        row = self.row_of[room_id]
        _SEALED.pack_into(self._memory, row * ROOM_ROW_SIZE + _SEALED_SEGMENT, number + 1)
        self.table.touch(row)
