"""Records by their number, from the shared ring or from sealed segments; verified copies.

What the ring holds was committed by this node's replica and is checked by its CRCs. What comes from
a sealed segment is believed only if each leaf it lies in hashes to the id in the footer.
"""

from typing import Protocol

import numpy as np

from appliance.base.errors import FormatError
from appliance.formats.event import SHIP_MANIFEST, Shipped, decode_shipped
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import (
    BODY,
    BODY_LEN,
    KIND_SHIPPED,
    LOG_SEQ,
    RECORD,
    SHARD_ROOM_ID,
    TIMESTAMP,
    sealed,
)
from appliance.formats.segment import (
    RingView,
    SegmentView,
    first_log_seq_of,
    footer_leaf_ids,
    leaf_id,
    leaf_record_count,
    number_of,
    slot_of,
)


class Segments(Protocol):
    """Sealed segments of the shard, mapped by whoever owns the files."""

    def view(self, number: int) -> SegmentView | None:
        """Segment `number`, or None when it is not here (now)."""


class NotHere(FormatError):
    """Records that this node cannot give now: still being fetched or repaired, or freed."""


class Source:
    """Reads what is committed; `log_seq` is the newest record that the replica has told of."""

    def __init__(self, geometry: Geometry, ring: memoryview, segments: Segments) -> None:
        self.geometry = geometry
        self.log_seq = 0
        self._ring = RingView(ring, geometry)
        self._segments = segments

    def records(self, first_log_seq: int, last_log_seq: int) -> bytes:
        """The records of a range that lies in one segment. Raises NotHere."""
        assert 1 <= first_log_seq <= last_log_seq <= self.log_seq
        number = number_of(self.geometry, first_log_seq)
        assert number == number_of(self.geometry, last_log_seq)
        slot, count = slot_of(self.geometry, first_log_seq), last_log_seq - first_log_seq + 1
        raw = self._ring.records(number, slot, count)
        if raw is None:
            raw = self._sealed(number, slot, count)
        elif not all(sealed(raw, at) for at in range(0, len(raw), RECORD_SIZE)):
            raise NotHere(f"records {first_log_seq} to {last_log_seq}: a CRC is wrong in the ring")
        found = np.frombuffer(raw, RECORD)["log_seq"]
        if not (found == np.arange(first_log_seq, last_log_seq + 1, dtype=np.uint64)).all():
            raise NotHere(f"records {first_log_seq} to {last_log_seq}: others lie in their place")
        return raw

    def _sealed(self, number: int, slot: int, count: int) -> bytes:
        view = self._view(number)
        stored, size = footer_leaf_ids(view.footer_bytes, view.footer), self.geometry.records_max
        start = slot // size * size
        raw = bytearray()
        for leaf in range(slot // size, (slot + count - 1) // size + 1):
            part = view.records(leaf * size, leaf_record_count(self.geometry, leaf))
            if leaf_id(part) != stored[leaf]:
                raise NotHere(f"segment {number}: leaf {leaf} is broken; it is being repaired")
            raw += part
        return bytes(raw[(slot - start) * RECORD_SIZE : (slot - start + count) * RECORD_SIZE])

    def _view(self, number: int) -> SegmentView:
        view = self._segments.view(number)
        if view is None:
            raise NotHere(f"segment {number} is not on this node now")
        return view

    def timestamp(self, log_seq: int) -> int:
        """Of one record; its leaf is not verified: what is shipped is, before it is signed."""
        assert 1 <= log_seq <= self.log_seq
        number, slot = number_of(self.geometry, log_seq), slot_of(self.geometry, log_seq)
        raw = self._ring.records(number, slot, 1)
        if raw is None:
            raw = self._view(number).record(slot)
        if int.from_bytes(raw[LOG_SEQ : LOG_SEQ + 8], "little") != log_seq:
            raise NotHere(f"record {log_seq}: another lies in its place")
        return int.from_bytes(raw[TIMESTAMP : TIMESTAMP + 8], "little")

    def last_before(self, first_log_seq: int, time_us: int) -> int:
        """The newest record older than `time_us`; first_log_seq - 1 when none of the range is."""
        low, high = first_log_seq, self.log_seq + 1
        while low < high:
            middle = (low + high) // 2
            if self.timestamp(middle) < time_us:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def manifests(self) -> list[Shipped]:
        """What the log tells of shipped manifests, in order, as far back as it is kept."""
        found: list[Shipped] = []
        if self.log_seq == 0:
            return found
        newest = number_of(self.geometry, self.log_seq)
        for number in range(newest, -1, -1):
            try:
                told = self._manifests_of(number)
            except NotHere:
                break
            found[:0] = told
            if found and found[0].number == 0:
                break
        return found

    def _manifests_of(self, number: int) -> list[Shipped]:
        first = first_log_seq_of(self.geometry, number)
        last = min(self.log_seq, first + self.geometry.segment_records - 1)
        in_ring = self._ring.records(number, 0, last - first + 1)
        if in_ring is not None:
            rows = np.frombuffer(in_ring, RECORD)
            slots = np.flatnonzero(
                (rows["flags"] == KIND_SHIPPED) & (rows["room_id"] == np.void(SHARD_ROOM_ID))
            )
            raws = [
                in_ring[slot * RECORD_SIZE : (slot + 1) * RECORD_SIZE] for slot in slots.tolist()
            ]
        else:
            view = self._view(number)
            entry = view.room(SHARD_ROOM_ID)
            if entry is None:
                return []
            raws = [view.record(slot) for _, slot in view.rows(entry.first_row, entry.row_count)]
        bodies = (
            raw[BODY : BODY + int.from_bytes(raw[BODY_LEN : BODY_LEN + 4], "little")]
            for raw in raws
        )
        told = (decode_shipped(body) for body in bodies)
        return [
            shipped for shipped in told if shipped is not None and shipped.action == SHIP_MANIFEST
        ]
