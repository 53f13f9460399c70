"""Sizes and offsets of a shard's data file, and the arithmetic of checkpoints.

    superblock | wal_headers | wal_prepares | client_replies | checkpoints (2 zones) | segments
    256 KiB      S * 4 KiB     S * 1 MiB      64 * 32 KiB      2 * 64 MiB              extents, a
    file each

A geometry is fixed when a shard is formatted. `PRODUCTION` is what nodes use; `SMALL` has the
same relations with small numbers, so that a simulated history wraps its ring and seals segments
within seconds.
"""

from dataclasses import dataclass

from appliance.base.limits import KIB, MIB, SECTOR_SIZE, SUPERBLOCK_COPIES

RECORD_SIZE = 2240
HEADER_SIZE = 128
SESSION_BLOCK_SIZE = 128
RESULT_SIZE = 64
SUPERBLOCK_COPY_SIZE = 8 * KIB
SUPERBLOCK_COPY_STRIDE = 64 * KIB
SUPERBLOCK_ZONE_SIZE = SUPERBLOCK_COPIES * SUPERBLOCK_COPY_STRIDE
MANIFEST_SIZE_MAX = 256 * KIB

ROOM_ROW_SIZE = 128
WINDOW_ROW_SIZE = 320
SESSION_ROW_SIZE = 256
MEMBER_ROW_SIZE = 512


def whole_sectors(size: int) -> int:
    """`size` in bytes, up to the end of its last sector."""
    return -(-size // SECTOR_SIZE) * SECTOR_SIZE


@dataclass(frozen=True, slots=True)
class Geometry:
    """All sizes in bytes, all counts in things.

    See the module's docstring for the order of the zones.
    """

    pipeline_max: int  # P: prepares in flight
    slot_count: int  # S: slots of the write-ahead ring
    checkpoint_ops: int  # K: ops between checkpoints
    message_size_max: int  # header and body of one message; also the size of a slot
    records_max: int  # records in one prepare
    clients_max: int  # sessions of a shard
    reply_size_max: int  # a reply's slot
    segment_records: int  # records in a sealed segment
    table_chunk_size: int  # bytes of a state table that change and travel together
    rooms_max: int
    windows_max: int
    checkpoint_zone_size: int  # manifest and state tables of one checkpoint
    wal_writes_max: int  # concurrent prepare writes: bounds how many tails a crash can tear

    def __post_init__(self) -> None:
        p, k, s = self.pipeline_max, self.checkpoint_ops, self.slot_count
        assert k + 2 * p < s  # no two needed ops share a slot
        assert p <= k <= 10_000
        # one sector of view headers; bitsets of 64
        assert p + 1 + 2 <= 32 and p + 1 <= 64
        assert s * self.message_size_max <= 1 << 30
        size = HEADER_SIZE + SESSION_BLOCK_SIZE + self.records_max * RECORD_SIZE
        assert size <= self.message_size_max < size + RECORD_SIZE
        assert self.message_size_max % SECTOR_SIZE == 0
        assert (
            HEADER_SIZE + SESSION_BLOCK_SIZE + self.records_max * RESULT_SIZE <= self.reply_size_max
        )
        assert self.reply_size_max % SECTOR_SIZE == 0 and self.table_chunk_size % SECTOR_SIZE == 0
        assert self.records_max * RECORD_SIZE <= self.chunk_size_max
        assert self.footer_size_max <= self.chunk_size_max
        assert self.table_chunk_size <= self.chunk_size_max
        assert self.tables_end <= self.checkpoint_zone_size
        assert self.wal_writes_max <= p

    # --- sizes

    @property
    def chunk_size_max(self) -> int:
        """Bytes of a chunk that fit a `chunk` message: header, id 32, place 16, then the bytes."""
        return self.message_size_max - HEADER_SIZE - 48

    @property
    def footer_size_max(self) -> int:
        """Footer of a segment in which every record is of a room of its own."""
        return 256 + 32 * self.leaf_count_max + self.segment_records * (32 + 16 + 24)

    @property
    def leaf_count_max(self) -> int:
        return -(-self.segment_records // self.records_max)

    @property
    def segment_data_size(self) -> int:
        """Bytes of the records of a full segment, zero padded to the sector: where its footer
        starts.
        """
        return whole_sectors(self.segment_records * RECORD_SIZE)

    @property
    def extent_size(self) -> int:
        """A segment's extent; 23 MiB in production."""
        size = self.segment_data_size + whole_sectors(self.footer_size_max)
        return -(-size // MIB) * MIB if size > MIB else size

    # --- zones of the data file

    @property
    def wal_headers_offset(self) -> int:
        return SUPERBLOCK_ZONE_SIZE

    @property
    def wal_prepares_offset(self) -> int:
        return -(-(self.wal_headers_offset + self.slot_count * SECTOR_SIZE) // MIB) * MIB

    @property
    def replies_offset(self) -> int:
        return self.wal_prepares_offset + self.slot_count * self.message_size_max

    @property
    def checkpoints_offset(self) -> int:
        return self.replies_offset + self.clients_max * self.reply_size_max

    @property
    def data_size(self) -> int:
        """Bytes of the data file; segments follow (on a raw device) or lie beside it, a file
        each.
        """
        return self.checkpoints_offset + 2 * self.checkpoint_zone_size

    def checkpoint_zone(self, checkpoint_op: int) -> int:
        """Which of the two zones holds checkpoint `checkpoint_op`."""
        return (checkpoint_op // self.checkpoint_ops) % 2

    # --- state tables inside a checkpoint zone, at fixed offsets after the manifest

    def table_rows_max(self, table: str) -> int:
        return {
            "rooms": self.rooms_max,
            "windows": self.windows_max,
            "sessions": self.clients_max,
            "members": 8,
        }[table]

    def table_row_size(self, table: str) -> int:
        return {
            "rooms": ROOM_ROW_SIZE,
            "windows": WINDOW_ROW_SIZE,
            "sessions": SESSION_ROW_SIZE,
            "members": MEMBER_ROW_SIZE,
        }[table]

    def table_rows_per_chunk(self, table: str) -> int:
        return self.table_chunk_size // self.table_row_size(table)

    def table_chunks_max(self, table: str) -> int:
        return -(-self.table_rows_max(table) // self.table_rows_per_chunk(table))

    def table_offset(self, table: str) -> int:
        """Offset of a table's first chunk from the start of its checkpoint zone."""
        offset = MANIFEST_SIZE_MAX
        for name in TABLES:
            if name == table:
                return offset
            offset += self.table_chunks_max(name) * self.table_chunk_size
        raise KeyError(table)

    @property
    def tables_end(self) -> int:
        return (
            self.table_offset(TABLES[-1])
            + self.table_chunks_max(TABLES[-1]) * self.table_chunk_size
        )

    # --- arithmetic of checkpoints: functions of the op, no negotiation

    def checkpoint_next(self, checkpoint: int) -> int:
        """The op whose apply triggers the checkpoint after `checkpoint`."""
        return checkpoint + self.checkpoint_ops

    def prepare_max(self, checkpoint: int) -> int:
        """The highest op a replica on this checkpoint may hold: the ring never overwrites what it
        needs.
        """
        return checkpoint + self.checkpoint_ops + 2 * self.pipeline_max

    def prepare_ok_max(self, checkpoint: int) -> int:
        """The highest op a replica on this checkpoint may acknowledge."""
        return checkpoint + self.checkpoint_ops + self.pipeline_max

    def durable(self, checkpoint: int, commit_max: int) -> bool:
        """Whether a replication quorum is known to hold this checkpoint."""
        return checkpoint == 0 or commit_max > checkpoint + self.pipeline_max

    def repair_min(self, checkpoint: int, commit_max: int, op: int) -> int:
        """The lowest op whose slot is still worth repairing."""
        if self.durable(checkpoint, commit_max):
            return min(op, checkpoint + 1)
        return max(0, checkpoint - self.checkpoint_ops + 1)


TABLES = ("rooms", "windows", "sessions", "members")  # order of the state tables everywhere

PRODUCTION = Geometry(
    pipeline_max=8,
    slot_count=1024,
    checkpoint_ops=960,
    message_size_max=1 * MIB,
    records_max=468,
    clients_max=64,
    reply_size_max=32 * KIB,
    segment_records=10_000,
    table_chunk_size=64 * KIB,
    rooms_max=131_072,
    windows_max=131_072,
    checkpoint_zone_size=64 * MIB,
    wal_writes_max=8,
)

SMALL = Geometry(
    pipeline_max=4,
    slot_count=64,
    checkpoint_ops=48,
    message_size_max=16 * KIB,
    records_max=7,
    clients_max=6,
    reply_size_max=8 * KIB,
    segment_records=100,
    table_chunk_size=8 * KIB,
    rooms_max=16,
    windows_max=8,
    checkpoint_zone_size=384 * KIB,
    wal_writes_max=4,
)

assert PRODUCTION.extent_size == 23 * MIB and PRODUCTION.segment_data_size == 22_401_024
assert PRODUCTION.footer_size_max == 720_960
assert PRODUCTION.replies_offset == 1029 * MIB and PRODUCTION.checkpoints_offset == 1031 * MIB
assert PRODUCTION.data_size == 1159 * MIB
