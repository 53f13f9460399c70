"""A shard on one machine: the rooms, a disk of extents that takes their writes, and checkpoints."""

from typing import NamedTuple

from appliance.base.checksum import sha256
from appliance.cores.rooms.open_segment import SegmentWrite
from appliance.cores.rooms.rooms import Rooms
from appliance.formats import checkpoint, record
from appliance.formats.checkpoint import Manifest, TableState
from appliance.formats.envelope import OPERATION_APPEND, OPERATION_APPEND_SPARING
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.segment import ring_size
from appliance.formats.session import RESULT_STRUCT

CLUSTER = b"cluster of tests"
SHARD = 3
SEGMENTS_MAX = 8
START_US = 1_750_000_000_000_000


class Result(NamedTuple):
    """A decoded result."""

    code: int
    seq: int
    log_seq: int
    timestamp: int
    hash: bytes


def room_id(i: int) -> bytes:
    return b"room%12d" % i


def client_id(i: int) -> bytes:
    return b"client%10d" % i


def make(
    room: int | bytes,
    client: int | bytes,
    client_seq: int,
    *,
    author: int = 1,
    kind: int = record.KIND_MESSAGE,
    body: bytes = b"hello",
    msg_id: bytes | None = None,
) -> bytes:
    """A record as an edge makes it."""
    room = room_id(room) if isinstance(room, int) else room
    if msg_id is None:
        number = client if isinstance(client, int) else 0
        msg_id = b"%16d" % (client_seq * 1000 + number)
    return record.encode(
        room_id=room,
        msg_id=msg_id,
        author_id=author,
        body=body,
        client_id=client_id(client) if isinstance(client, int) else client,
        client_seq=client_seq,
        kind=kind,
    )


def create(room: int, *, client: int = 900, author: int = 1) -> bytes:
    return make(room, client, 1, author=author, kind=record.KIND_ROOM_CREATE, body=b"a room")


def shard_record(kind: int, client_seq: int, body: bytes, client: int = 800) -> bytes:
    return make(record.SHARD_ROOM_ID, client, client_seq, author=0, kind=kind, body=body)


class Durable(NamedTuple):
    """What a checkpoint left on the disk."""

    manifest: bytes
    tables: dict[str, list[bytes]]
    leaves: list[bytes]


class Shard:
    """Commits batches and performs the segment writes; `hold` keeps them from becoming durable."""

    def __init__(self, geometry: Geometry, segments_max: int = SEGMENTS_MAX) -> None:
        self.operation = OPERATION_APPEND
        self.geometry = geometry
        self.segments_max = segments_max
        self.ring = memoryview(bytearray(ring_size(geometry)))
        self.rooms = Rooms(
            geometry=geometry,
            cluster=CLUSTER,
            shard=SHARD,
            segments_max=segments_max,
            ring=self.ring,
        )
        self.extents: dict[int, bytearray] = {}
        self.zones: list[dict[str, dict[int, bytes]]] = [{}, {}]  # of checkpoints, newest first
        self.op = 0
        self.timestamp = START_US
        self.hold = False
        self.held: list[SegmentWrite] = []

    def sparing(self, *records: bytes) -> list[Result]:
        """As `commit`, of a prepare whose primary spares the disks."""
        self.operation = OPERATION_APPEND_SPARING
        try:
            return self.commit(*records)
        finally:
            self.operation = OPERATION_APPEND

    def commit(self, *records: bytes, advance_us: int = 1000) -> list[Result]:
        """One prepare of these records, through the checks and the stamping of a primary."""
        body = bytearray(b"".join(records))
        assert self.rooms.input_valid(OPERATION_APPEND, memoryview(body))
        self.timestamp += advance_us
        self.op += 1
        self.rooms.prepare(OPERATION_APPEND, self.timestamp, memoryview(body))
        return self.apply(self.op, self.timestamp, bytes(body))

    def apply(self, op: int, timestamp: int, body: bytes) -> list[Result]:
        """Commit a stamped batch."""
        assert self.rooms.can_commit(len(body) // RECORD_SIZE)
        self.op, self.timestamp = op, timestamp
        results = self.rooms.commit(op, self.operation, timestamp, memoryview(body))
        self.write()
        return [
            Result(code, seq, log_seq, ts, digest)
            for seq, log_seq, ts, code, _, digest in RESULT_STRUCT.iter_unpack(results)
        ]

    def one(self, raw: bytes, **how: int) -> Result:
        """Commit a single record."""
        return self.commit(raw, **how)[0]

    def fill(self, room: int, client: int, count: int, first: int = 1, author: int = 1) -> None:
        """Commit `count` accepted records in batches as large as they may be."""
        for start in range(first, first + count, self.geometry.records_max):
            end = min(start + self.geometry.records_max, first + count)
            results = self.commit(
                *(make(room, client, n, author=author) for n in range(start, end))
            )
            assert all(result.code == 0 for result in results)

    def write(self) -> None:
        """Perform the writes that may start."""
        self.held += self.rooms.take_writes()
        while self.held and not self.hold:
            self.perform(self.held.pop(0))
            self.held += self.rooms.take_writes()

    def perform(self, write: SegmentWrite) -> None:
        """Make one write durable and report it."""
        assert len(write.data) % 4096 == 0
        assert write.offset % 4096 == 0
        extent = self.extents.setdefault(
            write.number % self.segments_max, bytearray(self.geometry.extent_size)
        )
        assert write.offset + len(write.data) <= len(extent)
        extent[write.offset : write.offset + len(write.data)] = write.data
        self.rooms.on_segment_written(write)

    def extent(self, number: int) -> bytearray:
        return self.extents[number % self.segments_max]

    def checkpoint(self) -> Durable:
        """Freeze the state, make it durable, and read back what a restart would find."""
        self.rooms.flush()
        self.write()
        state = self.rooms.checkpoint()
        assert self.rooms.durable_log_seq() == state.log_seq
        self.zones.reverse()
        tables, chunks = {}, {}
        for name, table in state.tables.items():
            rows, chunk_ids, writes = table.freeze(False)
            place = self.zones[0].setdefault(name, {})
            place.update(writes)
            tables[name] = TableState(rows, chunk_ids)
            chunks[name] = [place[i] for i in range(len(chunk_ids))]
            assert [sha256(chunk) for chunk in chunks[name]] == chunk_ids
        tables["sessions"] = tables["members"] = TableState(0, [])
        manifest = Manifest(
            cluster=CLUSTER,
            shard=SHARD,
            epoch=0,
            op=self.op,
            timestamp=self.timestamp,
            prepare_digest=bytes(16),
            log_seq=state.log_seq,
            shipper_cursor=state.shipper_cursor,
            oldest_segment=state.oldest_segment,
            oldest_segment_before=state.oldest_segment_before,
            newest_segment_id=state.newest_segment_id,
            segments_max=self.segments_max,
            leaf_ids=state.leaf_ids,
            tables=tables,
            shipping=state.shipping,
            carrying=state.carrying,
        )
        return Durable(checkpoint.encode(manifest), chunks, self.leaves(state.log_seq))

    def leaves(self, log_seq: int) -> list[bytes]:
        """The leaves of the segment that is open at `log_seq`, from the disk."""
        number, count = divmod(log_seq, self.geometry.segment_records)
        if count == 0:
            return []
        raw = bytes(self.extent(number)[: count * RECORD_SIZE])
        size = self.geometry.records_max * RECORD_SIZE
        return [raw[at : at + size] for at in range(0, len(raw), size)]

    def restarted(self, durable: Durable) -> "Shard":
        """Another process on the same disk, restored from `durable`."""
        other = Shard(self.geometry, self.segments_max)
        other.extents = {n: bytearray(extent) for n, extent in self.extents.items()}
        other.zones[0] = {name: dict(enumerate(chunks)) for name, chunks in durable.tables.items()}
        manifest = checkpoint.decode(durable.manifest, self.geometry)
        other.rooms.restore(manifest, durable.tables, durable.leaves)
        other.op, other.timestamp = manifest.op, manifest.timestamp
        return other
