"""Segments: 10,000 committed records, sealed by a footer; and the ring of the newest two.

    log_seq 1 .. 10,000 = segment 0, slots 0 .. 9,999        extent = number % segments_max

    extent  records, zero padded to the sector | footer, zero padded to the sector
    footer  head (256) | leaf ids | rooms | rows by room, then seq | message ids, sorted
    ring    buffer 0 | buffer 1        a segment lives in buffer number % 2
    buffer  head (4096): segment number, committed records | as the records of an extent

A leaf is `records_max` records of a segment (the last one holds the rest). Its id is the SHA-256
over the hashes of its records, the same hashes that chain a room. The id of a segment is the
SHA-256 of its footer, which names the footer before: the newest id names the whole history.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from appliance.base.checksum import sha256
from appliance.base.errors import FormatError
from appliance.base.layout import int_of, struct_of
from appliance.base.limits import SECTOR_SIZE
from appliance.base.padding import is_zero
from appliance.formats.geometry import RECORD_SIZE, Geometry, whole_sectors
from appliance.formats.record import MSG_ID, RECORD, record_hash

MAGIC = b"TIGRSEGM"
VERSION = 1
HEAD_SIZE = 256
ID_SIZE = 32

HEAD = np.dtype(
    [
        ("magic", "V8"),
        ("version", "<u2"),
        ("shard", "<u2"),
        ("record_count", "<u4"),
        ("cluster_id", "V16"),
        ("number", "<u8"),
        ("first_log_seq", "<u8"),
        ("previous_id", "V32"),  # id of segment number - 1; zero for number 0
        ("first_timestamp", "<u8"),
        ("last_timestamp", "<u8"),
        ("leaf_count", "<u4"),
        ("room_count", "<u4"),
        ("reserved", "V152"),
    ]
)
ROOM = np.dtype(
    [  # sorted by the bytes of room_id
        ("room_id", "V16"),
        ("previous", "<u8"),  # newest earlier segment that has the room + 1; 0 = none
        ("first_row", "<u4"),
        ("row_count", "<u4"),
    ]
)
ROW = np.dtype([("seq", "<u8"), ("slot", "<u4"), ("reserved", "V4")])
MESSAGE = np.dtype(
    [  # sorted by the bytes of msg_id, then slot
        ("msg_id", "V16"),
        ("slot", "<u4"),
        ("reserved", "V4"),
    ]
)
assert (HEAD.itemsize, ROOM.itemsize, ROW.itemsize, MESSAGE.itemsize) == (HEAD_SIZE, 32, 16, 24)
_HEAD = struct_of(HEAD)
sealed_number = int_of(HEAD, "number")  # of bytes that are known to begin with a footer
_ROOM = struct_of(ROOM)
_ROW = struct_of(ROW)
_MESSAGE = struct_of(MESSAGE)


class Footer(NamedTuple):
    """The head of a footer, decoded."""

    shard: int
    record_count: int
    cluster: bytes
    number: int
    first_log_seq: int
    previous_id: bytes
    first_timestamp: int
    last_timestamp: int
    leaf_count: int
    room_count: int

    @property
    def rooms_offset(self) -> int:
        return HEAD_SIZE + ID_SIZE * self.leaf_count

    @property
    def rows_offset(self) -> int:
        return self.rooms_offset + ROOM.itemsize * self.room_count

    @property
    def messages_offset(self) -> int:
        return self.rows_offset + ROW.itemsize * self.record_count

    @property
    def size(self) -> int:
        """Bytes of the whole footer."""
        return self.messages_offset + MESSAGE.itemsize * self.record_count


# --- arithmetic -----------------------------------------------------------------------------------


def number_of(geometry: Geometry, log_seq: int) -> int:
    """The segment that holds record `log_seq`."""
    assert log_seq >= 1
    return (log_seq - 1) // geometry.segment_records


def slot_of(geometry: Geometry, log_seq: int) -> int:
    """The slot of record `log_seq` in its segment."""
    assert log_seq >= 1
    return (log_seq - 1) % geometry.segment_records


def first_log_seq_of(geometry: Geometry, number: int) -> int:
    """The record in slot 0 of segment `number`."""
    return number * geometry.segment_records + 1


def leaf_record_count(geometry: Geometry, index: int) -> int:
    """Records of leaf `index` once it is full."""
    count = min(geometry.records_max, geometry.segment_records - index * geometry.records_max)
    assert count > 0
    return count


# --- identity -------------------------------------------------------------------------------------


def leaf_id(records: bytes | memoryview) -> bytes:
    """The id of a leaf, whole or as far as it goes, from the bytes of its records."""
    assert len(records) % RECORD_SIZE == 0
    view = memoryview(records)
    return sha256(
        b"".join(
            record_hash(view[at : at + RECORD_SIZE]) for at in range(0, len(view), RECORD_SIZE)
        )
    )


def segment_id(footer: bytes | memoryview) -> bytes:
    """The id of the segment that `footer` (without padding) seals."""
    return sha256(footer)


# --- the footer -----------------------------------------------------------------------------------


def encode_footer(
    records: bytes | memoryview,
    *,
    cluster: bytes,
    shard: int,
    number: int,
    previous_id: bytes,
    leaf_ids: list[bytes],
    previous_of: Callable[[bytes], int],
) -> bytes:
    """The footer that seals `records`, all those of segment `number`.

    `previous_of` gives, for a room id, the newest earlier segment with that room + 1, or 0.
    """
    rows = np.frombuffer(records, RECORD)
    count = len(rows)
    order, starts = _groups(np.ascontiguousarray(rows["room_id"]))
    by_room = np.zeros(count, ROW)
    by_room["seq"] = rows["seq"][order]
    by_room["slot"] = order
    rooms = np.zeros(len(starts), ROOM)
    rooms["room_id"] = rows["room_id"][order[starts]]
    rooms["previous"] = [previous_of(room_id.tobytes()) for room_id in rooms["room_id"]]
    rooms["first_row"] = starts
    rooms["row_count"] = np.diff(starts, append=count)
    order, _ = _groups(np.ascontiguousarray(rows["msg_id"]))
    messages = np.zeros(count, MESSAGE)
    messages["msg_id"] = rows["msg_id"][order]
    messages["slot"] = order
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        shard,
        count,
        cluster,
        number,
        number * count + 1,
        previous_id,
        int(rows["timestamp"][0]),
        int(rows["timestamp"][-1]),
        len(leaf_ids),
        len(rooms),
        b"",
    )
    return b"".join((head, *leaf_ids, rooms.tobytes(), by_room.tobytes(), messages.tobytes()))


def _groups(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(slots sorted by their id's bytes, then slot; where in that order each id starts)."""
    words = ids.view(">u8").reshape(-1, 2).astype(np.uint64)
    order = np.lexsort((words[:, 1], words[:, 0]))
    ordered = words[order]
    first = np.ones(len(order), bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, np.flatnonzero(first)


def decode_footer(raw: bytes | memoryview, geometry: Geometry) -> Footer:
    """The head of the footer that starts at `raw`; raises FormatError if it cannot be one.

    `raw` may be longer than the footer. Only the shape is judged; `segment_id` judges the bytes.
    """
    if len(raw) < HEAD_SIZE:
        raise FormatError(f"segment footer: {len(raw)} bytes")
    magic, version, *fields, reserved = _HEAD.unpack_from(raw)
    footer = Footer(*fields)
    if magic != MAGIC or version != VERSION or any(reserved):
        raise FormatError(f"segment footer: magic {magic!r}, version {version}")
    if footer.record_count != geometry.segment_records:
        raise FormatError(f"segment footer: {footer.record_count} records")
    if footer.leaf_count != geometry.leaf_count_max:
        raise FormatError(f"segment footer: {footer.leaf_count} leaves")
    if footer.first_log_seq != first_log_seq_of(geometry, footer.number):
        raise FormatError(
            f"segment footer: segment {footer.number} begins at log_seq {footer.first_log_seq}"
        )
    if not 1 <= footer.room_count <= footer.record_count:
        raise FormatError(f"segment footer: {footer.room_count} rooms")
    if len(raw) < footer.size:
        raise FormatError(f"segment footer: {len(raw)} of {footer.size} bytes")
    return footer


def footer_leaf_ids(raw: bytes | memoryview, footer: Footer) -> list[bytes]:
    """The ids of all leaves, in order."""
    return [bytes(raw[at : at + ID_SIZE]) for at in range(HEAD_SIZE, footer.rooms_offset, ID_SIZE)]


# --- reading a sealed segment ---------------------------------------------------------------------


class RoomEntry(NamedTuple):
    """What a footer says of one room."""

    room_id: bytes
    previous: int  # newest earlier segment that has the room + 1; 0 = none
    first_row: int
    row_count: int


class SegmentView:
    """Lookups in the bytes of a sealed extent, usually mapped from its file; copies what it gives.

    Pages of a room: `room` finds its rows, `rows` reads some, `record` fetches each; then go on in
    segment `previous - 1`. An extent may be reused under a mapping: a reader compares the `log_seq`
    of what it copied.
    """

    def __init__(self, data: bytes | memoryview, geometry: Geometry) -> None:
        """Raises FormatError when `data` does not have the shape of a sealed extent."""
        if len(data) < geometry.segment_data_size + HEAD_SIZE:
            raise FormatError(f"segment: {len(data)} bytes")
        self.geometry = geometry
        self.data = memoryview(data)
        self._tail = self.data[geometry.segment_data_size :]
        self.footer = decode_footer(self._tail, geometry)
        self.number = self.footer.number

    def with_footer(self, footer: bytes) -> "SegmentView":
        """The same records, looked up by this copy of the footer, which may be without padding.

        What is not looked up in the copy, `verify` takes from `data`.
        """
        other = SegmentView.__new__(SegmentView)
        other.geometry, other.data = self.geometry, self.data
        other._tail = memoryview(footer)
        other.footer = decode_footer(footer, self.geometry)
        other.number = other.footer.number
        return other

    def close(self) -> None:
        """Let go of `data`, so that a mapping can be closed."""
        self._tail.release()
        self.data.release()

    @property
    def footer_bytes(self) -> memoryview:
        """The footer without its padding."""
        return self._tail[: self.footer.size]

    @property
    def id(self) -> bytes:
        """SHA-256 of the footer."""
        return segment_id(self.footer_bytes)

    def record(self, slot: int) -> bytes:
        """A copy of the record in `slot`."""
        return self.records(slot, 1)

    def records(self, slot: int, count: int) -> bytes:
        """A copy of `count` records from `slot` on."""
        assert slot + count <= self.geometry.segment_records
        return bytes(self.data[slot * RECORD_SIZE : (slot + count) * RECORD_SIZE])

    def room(self, room_id: bytes) -> RoomEntry | None:
        """The entry of a room, if any record of it lies here."""
        at = self._search(self.footer.rooms_offset, ROOM.itemsize, self.footer.room_count, room_id)
        if at is None:
            return None
        return RoomEntry(*_ROOM.unpack_from(self._tail, at))

    def rooms(self) -> Iterator[RoomEntry]:
        """The entries of all rooms of which a record lies here, by id."""
        raw = self._tail[self.footer.rooms_offset : self.footer.rows_offset]
        return map(RoomEntry._make, _ROOM.iter_unpack(raw))

    def rows(self, first_row: int, count: int) -> list[tuple[int, int]]:
        """(seq, slot) of `count` rows from `first_row` on; those of a room are dense and ascend."""
        assert first_row + count <= self.footer.record_count
        start = self.footer.rows_offset + first_row * ROW.itemsize
        raw = self._tail[start : start + count * ROW.itemsize]
        return [(seq, slot) for seq, slot, _ in _ROW.iter_unpack(raw)]

    def slot_of_message(self, msg_id: bytes) -> int | None:
        """Where the (first) record with this msg_id lies, if here."""
        at = self._search(
            self.footer.messages_offset, MESSAGE.itemsize, self.footer.record_count, msg_id
        )
        if at is None:
            return None
        slot: int = _MESSAGE.unpack_from(self._tail, at)[1]
        return slot

    def _search(self, start: int, stride: int, count: int, key: bytes) -> int | None:
        """Offset of the first of `count` sorted entries that begins with `key` (16 bytes)."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            at = start + middle * stride
            if bytes(self._tail[at : at + 16]) < key:
                low = middle + 1
            else:
                high = middle
        at = start + low * stride
        return at if low < count and bytes(self._tail[at : at + 16]) == key else None

    def verify(self, expected_id: bytes | None) -> None:
        """Read all bytes and compare them with what they name; raises FormatError with the place.

        With no `expected_id` the links to earlier segments, cluster and shard are taken on trust.
        """
        if expected_id is not None and self.id != expected_id:
            raise FormatError(f"segment {self.number}: footer does not hash to its id")
        size = self.geometry.segment_records * RECORD_SIZE
        records = self.data[:size]
        for index, stored in enumerate(footer_leaf_ids(self._tail, self.footer)):
            start = index * self.geometry.records_max * RECORD_SIZE
            end = start + leaf_record_count(self.geometry, index) * RECORD_SIZE
            if leaf_id(records[start:end]) != stored:
                raise FormatError(f"segment {self.number}: leaf {index} does not hash to its id")
        links = {
            entry[0]: entry[1]
            for entry in _ROOM.iter_unpack(
                self._tail[self.footer.rooms_offset : self.footer.rows_offset]
            )
        }
        rebuilt = encode_footer(
            records,
            cluster=self.footer.cluster,
            shard=self.footer.shard,
            number=self.number,
            previous_id=self.footer.previous_id,
            leaf_ids=footer_leaf_ids(self._tail, self.footer),
            previous_of=lambda room_id: links.get(room_id, 0),
        )
        if rebuilt != self.footer_bytes:
            raise FormatError(f"segment {self.number}: footer does not index its records")
        footer_end = whole_sectors(self.footer.size)
        if not (
            is_zero(self.data[size : self.geometry.segment_data_size])
            and is_zero(self.data[self.geometry.segment_data_size :][self.footer.size : footer_end])
        ):
            raise FormatError(f"segment {self.number}: padding is set")


# --- the ring -------------------------------------------------------------------------------------

RING_HEAD_SIZE = SECTOR_SIZE


def ring_buffer_size(geometry: Geometry) -> int:
    """Bytes of one buffer: its head and the records of a segment."""
    return RING_HEAD_SIZE + geometry.segment_data_size


def ring_size(geometry: Geometry) -> int:
    """Bytes of the whole ring."""
    return 2 * ring_buffer_size(geometry)


class RingView:
    """Reads the newest committed records that another process writes into a shared ring.

    The writer names the new segment before it overwrites a buffer, and counts a record after it is
    written; so what was copied is right if the buffer's name is still the same afterwards.
    """

    def __init__(self, ring: memoryview, geometry: Geometry) -> None:
        assert len(ring) >= ring_size(geometry)
        self._geometry = geometry
        self._ring = ring
        self._words = ring[: ring_size(geometry)].cast("Q")

    def record_count(self, number: int) -> int | None:
        """Committed records of segment `number`; None when the ring does not hold that segment."""
        base = number % 2 * ring_buffer_size(self._geometry) // 8
        return self._words[base + 1] if self._words[base] == number else None

    def view(self, number: int, slot: int, count: int) -> memoryview | None:
        """`count` records from `slot` on, as they lie there; None when (some of) them are not here.
        What was copied out of it counts if `record_count` is not None afterwards."""
        committed = self.record_count(number)
        if committed is None or slot + count > committed:
            return None
        start = number % 2 * ring_buffer_size(self._geometry) + RING_HEAD_SIZE + slot * RECORD_SIZE
        return self._ring[start : start + count * RECORD_SIZE]

    def records(self, number: int, slot: int, count: int) -> bytes | None:
        """A copy of them."""
        seen = self.view(number, slot, count)
        if seen is None:
            return None
        copied = bytes(seen)
        return copied if self.record_count(number) is not None else None

    def slots_of_message(self, number: int, count: int, msg_id: bytes) -> list[int] | None:
        """Slots of segment `number`, among its first `count`, whose record has this msg_id; None
        when (some of) those records are not here."""
        committed = self.record_count(number)
        if committed is None or count > committed:
            return None
        start = number % 2 * ring_buffer_size(self._geometry) + RING_HEAD_SIZE + MSG_ID
        ids = np.ndarray((count, 2), "<u8", self._ring, start, (RECORD_SIZE, 8))
        found = np.flatnonzero((ids == np.frombuffer(msg_id, "<u8")).all(axis=1)).tolist()
        return found if self.record_count(number) is not None else None
