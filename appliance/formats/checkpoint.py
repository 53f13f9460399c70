"""A checkpoint: the manifest that names a state, the rows of its tables, and places of chunks.

    manifest = head (256) | leaf ids of the open segment | chunk ids, table by table; 32 bytes each

`checkpoint_id` is the SHA-256 of the manifest. Equal histories give equal bytes on every member, so
nothing in it belongs to one of them: no signature, no address, no time of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from appliance.base.checksum import sha256
from appliance.base.errors import FormatError
from appliance.base.layout import BytesOf, struct_of
from appliance.base.limits import SHARING_SITES_MAX, WINDOW_LENGTH
from appliance.formats.geometry import (
    MANIFEST_SIZE_MAX,
    MEMBER_ROW_SIZE,
    PRODUCTION,
    ROOM_ROW_SIZE,
    SESSION_ROW_SIZE,
    TABLES,
    WINDOW_ROW_SIZE,
    Geometry,
)

MAGIC = b"TIGRMNFT"
VERSION = 1
ID_SIZE = 32
HEAD_SIZE = 256

HEAD = np.dtype(
    [
        ("magic", "V8"),
        ("version", "<u2"),
        ("shard", "<u2"),
        ("epoch", "<u4"),
        ("cluster_id", "V16"),
        ("op", "<u8"),  # the last op in this state
        ("timestamp", "<u8"),  # of that prepare
        ("prepare_digest", "V16"),  # of that prepare
        ("log_seq", "<u8"),  # of the last record in this state
        ("shipper_cursor", "<u8"),  # last record that is known to be shipped
        ("oldest_segment", "<u8"),  # oldest segment kept now
        (
            "oldest_segment_before",
            "<u8",
        ),  # and at the checkpoint before: below it extents are reused
        ("newest_segment_id", "V32"),  # of the newest sealed segment; zero = none
        ("segments_max", "<u4"),
        ("leaf_count", "<u4"),
        ("tables", "<u4", (8,)),  # of each table: row high water, chunk count
        ("shipping", "V72"),  # SHIPPING
        ("carrying", "V8"),  # CARRYING
        ("ahead_us", "<u8"),  # the log's time less that of records, since the last correction
    ]
)
assert HEAD.itemsize == HEAD_SIZE
_HEAD = struct_of(HEAD)

SHIPPING = np.dtype(
    [
        ("generation", "<u4"),  # of the newest claim; 0 = nobody has claimed yet
        ("node", "<u2"),  # that claimed it: index in the site
        ("reserved", "V2"),
        ("manifest_count", "<u8"),  # periods shipped; the number of the next manifest
        ("manifest_hash", "V32"),  # of the newest manifest; zero = none
        (
            "period_start_us",
            "<u8",
        ),  # of the announced period, or else of the next; 0 = not known yet
        ("period_us", "<u8"),  # of the announced period, or else of the last one shipped
        ("announced_end", "<u8"),  # last record of the announced period + 1; 0 = none is announced
    ]
)
SHIPPING_SIZE = 72
assert SHIPPING.itemsize == SHIPPING_SIZE
_SHIPPING = struct_of(SHIPPING)

CARRYING = np.dtype(
    [
        ("generation", "<u4"),  # of the newest claim; 0 = nobody has claimed yet
        ("node", "<u2"),  # that claimed it: index in the site
        ("reserved", "V2"),
    ]
)
_CARRYING = struct_of(CARRYING)
assert CARRYING.itemsize == 8

ROOM_ROW = np.dtype(
    [
        ("room_id", "V16"),
        ("head_hash", "V32"),  # of the room's newest record; zero while it has none
        ("message_count", "<u8"),  # also the seq of that record
        ("op", "<u8"),  # of the last prepare that touched the room
        ("sealed_segment", "<u8"),  # newest sealed segment with the room + 1; 0 = none
        ("policy", "V24"),  # POLICY
        # of a shared room: numbers of its sites, the lowest bit set for who may send; 0 = none
        ("sites", "<u4", (SHARING_SITES_MAX,)),
    ]
)
assert ROOM_ROW.itemsize == ROOM_ROW_SIZE

POLICY = np.dtype(
    [
        ("log_seq", "<u8"),  # of the record (room_create, room_policy) that set this policy
        ("created_log_seq", "<u8"),  # of the room_create record, whose body is the room's name
        ("bits", "<u8"),  # event.POLICY_*
    ]
)
assert POLICY.itemsize == 24

WINDOW_ROW = np.dtype(
    [
        ("client_id", "V16"),
        ("room_id", "V16"),
        ("author_id", "<u8"),  # the author to whom this client_id belongs in this room
        ("client_seq", "<u8"),
        ("log_seq", "<u8"),
        ("timestamp", "<u8"),  # µs: the latest that a record was given, or its id says
        ("log_seqs", "<u4", (WINDOW_LENGTH,)),  # low half of the log_seq of client_seq n, at n % 64
    ]
)
assert WINDOW_ROW.itemsize == WINDOW_ROW_SIZE

SESSION_ROW = np.dtype(
    [
        ("client", "V16"),
        ("session", "<u8"),  # op of its register
        ("request", "<u4"),  # number of the latest request
        ("reserved_a", "V4"),
        ("reply_digest", "V16"),
        ("reply_header", "V128"),  # of the latest reply
        ("reserved_b", "V80"),
    ]
)
assert SESSION_ROW.itemsize == SESSION_ROW_SIZE

MEMBER_ROW = np.dtype(
    [
        ("replica_id", "V16"),
        ("public_key", "V32"),  # Ed25519
        ("fingerprint", "V32"),  # SHA-256 of the certificate's public key (SPKI)
        ("address", "V256"),  # host:port in UTF-8, zero padded
        ("votes", "u1"),  # 1: a replica, 0: a standby
        ("reserved", "V175"),
    ]
)
assert MEMBER_ROW.itemsize == MEMBER_ROW_SIZE

TABLE_ROWS = {
    "rooms": ROOM_ROW,
    "windows": WINDOW_ROW,
    "sessions": SESSION_ROW,
    "members": MEMBER_ROW,
}
assert tuple(TABLE_ROWS) == TABLES


class TableState(NamedTuple):
    """What a manifest says of one table."""

    row_high_water: int  # rows ever used
    chunk_ids: list[bytes]  # SHA-256 of each chunk up to there, in order


class ShippingState(NamedTuple):
    """How far a shard is shipped, beside the cursor; fields as in SHIPPING."""

    generation: int = 0
    node: int = 0
    manifest_count: int = 0
    manifest_hash: bytes = bytes(32)
    period_start_us: int = 0
    period_us: int = 0
    announced_end: int = 0


class CarryingState(NamedTuple):
    """Who carries the shared rooms of a shard; fields as in CARRYING."""

    generation: int = 0
    node: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """Names one durable state of a shard, the same on every member.

    Invariants (`check`): leaf ids cover exactly the records of the open segment; each table has the
    chunks that its rows need; oldest_segment_before <= oldest_segment <= the open segment.
    """

    cluster: bytes
    shard: int
    epoch: int
    op: int
    timestamp: int
    prepare_digest: bytes
    log_seq: int
    shipper_cursor: int
    oldest_segment: int
    oldest_segment_before: int
    newest_segment_id: bytes
    segments_max: int
    leaf_ids: list[bytes]
    tables: dict[str, TableState]
    shipping: ShippingState = ShippingState()
    carrying: CarryingState = CarryingState()
    ahead_us: int = 0

    def check(self, geometry: Geometry) -> None:
        """Raise FormatError, naming the field, when an invariant does not hold."""
        number, open_count = divmod(self.log_seq, geometry.segment_records)
        _expect("leaf ids", len(self.leaf_ids), -(-open_count // geometry.records_max))
        _expect("newest segment set", any(self.newest_segment_id), number > 0)
        if not self.oldest_segment_before <= self.oldest_segment <= number:
            raise FormatError(
                f"manifest: oldest segment {self.oldest_segment} of {number}, "
                f"{self.oldest_segment_before} before"
            )
        if self.shipper_cursor > self.log_seq:
            raise FormatError(f"manifest: shipped {self.shipper_cursor} of {self.log_seq} records")
        announced_end = self.shipping.announced_end
        if announced_end and not self.shipper_cursor < announced_end <= self.log_seq:
            raise FormatError(
                f"manifest: records below {announced_end} announced as shipped next, "
                f"of {self.log_seq}, {self.shipper_cursor} shipped"
            )
        for name in TABLES:
            rows, chunk_ids = self.tables[name]
            if rows > geometry.table_rows_max(name):
                raise FormatError(f"manifest: {rows} rows in table {name}")
            _expect(
                f"chunks of table {name}",
                len(chunk_ids),
                -(-rows // geometry.table_rows_per_chunk(name)),
            )


def _expect(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise FormatError(f"manifest: {what}: {int(found)}, expected {int(wanted)}")


def encode(manifest: Manifest) -> bytes:
    """The manifest's bytes; the SHA-256 of them is the checkpoint's id."""
    m = manifest
    assert tuple(m.tables) == TABLES
    counts: list[int] = []
    for rows, chunk_ids in m.tables.values():
        counts += (rows, len(chunk_ids))
    ids = [*m.leaf_ids, *(i for table in m.tables.values() for i in table.chunk_ids)]
    assert all(len(i) == ID_SIZE for i in ids)
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        m.shard,
        m.epoch,
        m.cluster,
        m.op,
        m.timestamp,
        m.prepare_digest,
        m.log_seq,
        m.shipper_cursor,
        m.oldest_segment,
        m.oldest_segment_before,
        m.newest_segment_id,
        m.segments_max,
        len(m.leaf_ids),
        *counts,
        _encode_shipping(m.shipping),
        _CARRYING.pack(*m.carrying, b""),
        m.ahead_us,
    )
    raw = head + b"".join(ids)
    assert len(raw) <= MANIFEST_SIZE_MAX
    return raw


def decode(raw: bytes | memoryview, geometry: Geometry) -> Manifest:
    """The manifest in exactly these bytes; raises FormatError when anything in it is wrong."""
    if not HEAD_SIZE <= len(raw) <= MANIFEST_SIZE_MAX:
        raise FormatError(f"manifest: {len(raw)} bytes")
    (
        magic,
        version,
        shard,
        epoch,
        cluster,
        op,
        timestamp,
        digest,
        log_seq,
        cursor,
        oldest,
        oldest_before,
        newest_id,
        segments_max,
        leaf_count,
        *counts,
        shipping,
        carrying,
        ahead_us,
    ) = _HEAD.unpack_from(raw)
    if magic != MAGIC or version != VERSION:
        raise FormatError(f"manifest: magic {magic!r}, version {version}")
    if ahead_us > timestamp:
        raise FormatError(f"manifest: the log is {ahead_us} µs ahead at {timestamp}")
    if len(raw) != _size(leaf_count, counts):
        raise FormatError(f"manifest: {len(raw)} bytes do not hold {leaf_count} leaf ids, {counts}")
    ids = [bytes(raw[at : at + ID_SIZE]) for at in range(HEAD_SIZE, len(raw), ID_SIZE)]
    tables, first = {}, leaf_count
    for i, name in enumerate(TABLES):
        rows, chunk_count = counts[2 * i : 2 * i + 2]
        tables[name] = TableState(rows, ids[first : first + chunk_count])
        first += chunk_count
    manifest = Manifest(
        cluster=cluster,
        shard=shard,
        epoch=epoch,
        op=op,
        timestamp=timestamp,
        prepare_digest=digest,
        log_seq=log_seq,
        shipper_cursor=cursor,
        oldest_segment=oldest,
        oldest_segment_before=oldest_before,
        newest_segment_id=newest_id,
        segments_max=segments_max,
        leaf_ids=ids[:leaf_count],
        tables=tables,
        shipping=_decode_shipping(shipping),
        carrying=_decode_carrying(carrying),
        ahead_us=ahead_us,
    )
    manifest.check(geometry)
    return manifest


def size_of(raw: bytes | memoryview) -> int:
    """How long the manifest is that begins here, by the counts in its head; what is not one gets a
    size as well, HEAD_SIZE..MANIFEST_SIZE_MAX.
    """
    leaf_count, *counts = _HEAD.unpack_from(raw)[14:23]
    return min(_size(leaf_count, counts), MANIFEST_SIZE_MAX)


def _size(leaf_count: int, counts: Sequence[int]) -> int:
    return HEAD_SIZE + ID_SIZE * (leaf_count + sum(counts[1::2]))


def _encode_shipping(state: ShippingState) -> bytes:
    generation, node, *rest = state
    return _SHIPPING.pack(generation, node, b"", *rest)


def _decode_shipping(raw: bytes) -> ShippingState:
    generation, node, reserved, *rest = _SHIPPING.unpack(raw)
    if any(reserved):
        raise FormatError("manifest: reserved bytes are set")
    return ShippingState(generation, node, *rest)


def _decode_carrying(raw: bytes) -> CarryingState:
    generation, node, reserved = _CARRYING.unpack(raw)
    if any(reserved):
        raise FormatError("manifest: reserved bytes are set")
    return CarryingState(generation, node)


def checkpoint_id(raw: bytes) -> bytes:
    """The id of the checkpoint that `raw` is the manifest of."""
    return sha256(raw)


# of a checkpoint's id: the half that a ping has room for
short_id: BytesOf = itemgetter(slice(ID_SIZE // 2))

# --- places of chunks ---------------------------------------------------------------------------

# A chunk is what members fetch from each other: found by its place, verified by its id.
KIND_MANIFEST, KIND_TABLE, KIND_FOOTER, KIND_LEAF = 1, 2, 3, 4

PLACE = np.dtype(
    [
        ("kind", "<u2"),
        ("count", "<u2"),  # of a leaf: records wanted, from its first on; else 0
        ("index", "<u4"),  # of a leaf in its segment, or of a table chunk in its zone
        ("number", "<u8"),  # segment number (footer, leaf) or op of the checkpoint
    ]
)
LOCATION_SIZE = 16
assert PLACE.itemsize == LOCATION_SIZE
_LOCATION = struct_of(PLACE)


class ChunkLocation(NamedTuple):
    """Where to look for a chunk."""

    kind: int
    count: int  # type: ignore[assignment]
    index: int  # type: ignore[assignment]
    number: int


def encode_location(location: ChunkLocation) -> bytes:
    """16 bytes."""
    return _LOCATION.pack(*location)


def decode_location(raw: bytes | memoryview, geometry: Geometry) -> ChunkLocation | None:
    """The place in 16 bytes; None when no chunk can be there."""
    location = ChunkLocation(*_LOCATION.unpack(raw))
    if location.kind == KIND_LEAF:
        start = location.index * geometry.records_max
        full = min(geometry.records_max, geometry.segment_records - start)
        return location if 1 <= location.count <= full else None
    if location.count:
        return None
    if location.kind == KIND_TABLE:
        return location if location.index < table_chunks_total(geometry) else None
    known = location.kind in (KIND_MANIFEST, KIND_FOOTER) and location.index == 0
    return location if known else None


def table_chunk_index(geometry: Geometry, table: str, chunk: int) -> int:
    """Index of a table's chunk among all chunks of a checkpoint zone."""
    assert chunk < geometry.table_chunks_max(table)
    offset = geometry.table_offset(table) - MANIFEST_SIZE_MAX
    return offset // geometry.table_chunk_size + chunk


def table_chunks_total(geometry: Geometry) -> int:
    """Chunks of all tables at their largest."""
    return sum(geometry.table_chunks_max(table) for table in TABLES)


def zone_offset(geometry: Geometry, location: ChunkLocation) -> int:
    """Where in its checkpoint zone a manifest or a table chunk starts."""
    assert location.kind in (KIND_MANIFEST, KIND_TABLE)
    if location.kind == KIND_MANIFEST:
        return 0
    return MANIFEST_SIZE_MAX + location.index * geometry.table_chunk_size


assert (
    HEAD_SIZE + ID_SIZE * (PRODUCTION.leaf_count_max + table_chunks_total(PRODUCTION))
    <= MANIFEST_SIZE_MAX
)
