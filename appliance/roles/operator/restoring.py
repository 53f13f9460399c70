"""One shard of a new cluster, made of what is left of a shard of another one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

from appliance.base.errors import StorageError
from appliance.cores.rooms.open_segment import SegmentWrite
from appliance.cores.rooms.rebuild import Rebuild
from appliance.cores.vsr.open import NewReplica
from appliance.cores.vsr.restored import FirstCheckpoint, first_checkpoint, restored_writes
from appliance.drivers.nvme.reader import VolumeReader
from appliance.drivers.nvme.volume import Write
from appliance.formats import session as ses
from appliance.formats.checkpoint import ROOM_ROW
from appliance.formats.envelope import OPERATIONS_APPEND, Message
from appliance.formats.geometry import SESSION_BLOCK_SIZE, Geometry
from appliance.formats.record import SHARD_ROOM_ID
from appliance.formats.room_name import room_id_of
from appliance.formats.segment import ring_size
from appliance.formats.site import shard_of_room_id
from appliance.roles.operator.kept_log import LogBroken, take_kept
from appliance.roles.operator.log_source import LogSource, read_best
from appliance.roles.operator.volume_source import VolumeBroken, VolumeSource

# Beside those that are full: for what comes, and what the shard keeps for itself.
SEGMENTS_SPARE = 4


@dataclass(frozen=True, slots=True)
class RestoredRoom:
    """How far a room goes on, and which of its ops are known to be lost."""

    name: str | None  # None: its first record is lost
    room_id: bytes
    last_op: int
    lost: tuple[int, int] | None = None  # first and last that was seen


@dataclass(slots=True)
class Outcome:
    """What became of a shard."""

    log_seq: int = 0
    rooms: list[RestoredRoom] = field(default_factory=list)
    gap_room: str = ""  # where records stand for others; empty: nowhere
    unreadable: int = 0  # records of which nothing is known
    uncommitted: int = 0  # operations that were taken and may not have been acknowledged
    findings: list[str] = field(default_factory=list)


def gap_room_of(shard: int, shards: int, cluster: bytes) -> str:
    """A name that nobody has used yet, of a room that this shard holds."""
    names = (f"not restored from {cluster.hex()} ({number})" for number in range(1 << 16))
    return next(name for name in names if shard_of_room_id(room_id_of(name), shards) == shard)


class ShardRestore:
    """`writes` is what each volume of the shard begins with: the first call reads the sources and
    makes the state, later ones read the volume in `first`, which is complete by then."""

    def __init__(
        self,
        sources: Sequence[LogSource],
        first: Path,
        gap_room: str,
    ) -> None:
        self._sources, self._first, self._gap_room = sources, first, gap_room
        self.on_progress: Callable[[int], object] = lambda count: None  # records that were read
        self.outcome = Outcome()
        self._counted = 0
        self._rebuilt: Rebuild | None = None
        self._checkpoint: FirstCheckpoint | None = None
        # of each extent: SHA-256 and size of what was written, from its start on
        self._extents: dict[int, tuple[bytes, int]] = {}

    @property
    def last_log_seq(self) -> int:
        """Of what the sources have as committed."""
        return max((source.last_log_seq for source in self._sources), default=0)

    @property
    def first_log_seq(self) -> int:
        """Of the oldest record that any of them should have."""
        return min((source.first_log_seq for source in self._sources), default=1)

    @property
    def state_id(self) -> str:
        """Hexadecimal: equal on every node whose volumes are made from the same."""
        return self._checkpoint.id.hex() if self._checkpoint is not None else ""

    def writes(self, geometry: Geometry, new: NewReplica) -> Iterator[Write]:
        """As `format_writes` gives them, of a new cluster."""
        if self._checkpoint is None:
            yield from self._rebuild(geometry, new)
        else:
            yield from self._copy(geometry)
        assert self._checkpoint is not None
        yield from restored_writes(geometry, new, self._checkpoint)

    # --- the first volume

    def _rebuild(self, geometry: Geometry, new: NewReplica) -> Iterator[Write]:
        cluster, shard, segments_max = new.cluster, new.shard, new.segments_max
        dropped = (self.first_log_seq - 1) // geometry.segment_records
        needed = self.last_log_seq // geometry.segment_records - dropped + SEGMENTS_SPARE
        if needed > segments_max:
            raise StorageError(
                f"shard {shard} holds {needed - SEGMENTS_SPARE} segments, and its new volumes "
                f"could come to hold {segments_max}: say --segments-max, {needed} at least"
            )
        ring = memoryview(bytearray(ring_size(geometry)))

        def begun() -> Rebuild:
            return Rebuild(
                geometry=geometry, cluster=cluster, shard=shard, ring=ring, gap_room=self._gap_room
            )

        hashing, size = sha256(), 0
        for write in self._segment_writes(begun, cluster):
            if write.offset == 0:
                hashing, size = sha256(), 0
            assert write.offset == size
            hashing.update(write.data)
            size += len(write.data)
            extent = write.number % segments_max
            self._extents[extent] = hashing.digest(), size
            address = geometry.data_size + extent * geometry.extent_size + write.offset
            yield address, bytes(write.data)
        rebuild = self._rebuilt
        assert rebuild is not None
        self._checkpoint = first_checkpoint(
            geometry, rebuild.state(), new, timestamp=rebuild.timestamp
        )
        self._tell(rebuild)

    def _segment_writes(
        self, begun: Callable[[], Rebuild], cluster: bytes
    ) -> Iterator[SegmentWrite]:
        """Where a volume is whole up to its checkpoint, that is kept; else all is committed again,
        and what was written until then is written anew."""
        volumes = [source for source in self._sources if isinstance(source, VolumeSource)]
        rebuild = self._rebuilt = begun()
        if volumes:  # a checkpoint is of what was committed, whoever has it
            base = max(volumes, key=lambda volume: volume.begin[0])
            if base.manifest is not None:
                try:
                    yield from take_kept(rebuild, base, self._sources, cluster, self._count)
                except (LogBroken, VolumeBroken):
                    if self.first_log_seq > 1:
                        raise
                    self._count(-self._counted)
                    rebuild = self._rebuilt = begun()
            yield from self._committed(rebuild, base.last_log_seq)
            yield from self._prepared(rebuild, base, volumes)
        yield from self._committed(rebuild, self.last_log_seq)
        yield from rebuild.finish()

    def _committed(self, rebuild: Rebuild, last_log_seq: int) -> Iterator[SegmentWrite]:
        while (log_seq := rebuild.next_log_seq) <= last_log_seq:
            span = read_best(self._sources, log_seq)
            if span is None:
                others = [source.next_from(log_seq) for source in self._sources]
                following = min((other for other in others if other), default=last_log_seq + 1)
                rebuild.skip(following - log_seq)
                continue
            if log_seq + len(span.digests) - 1 > last_log_seq:
                span = span.head(last_log_seq - log_seq + 1)
            yield from rebuild.take(memoryview(span.records), span.digests, span.doubtful)
            self._count(len(span.digests))

    def _count(self, records: int) -> None:
        self._counted += records
        self.on_progress(records)

    def _prepared(
        self, rebuild: Rebuild, base: VolumeSource, volumes: Sequence[VolumeSource]
    ) -> Iterator[SegmentWrite]:
        committed = max(volume.commit_max for volume in volumes)
        alone = base.block.replica_count == 1
        for message in self._log(base, volumes):
            header = message.header
            if header.operation not in OPERATIONS_APPEND:
                continue
            assert ses.decode(message.body) is not None
            records = memoryview(message.body)[SESSION_BLOCK_SIZE:]
            yield from rebuild.apply(header.operation, header.timestamp, records)
            self.outcome.uncommitted += not alone and header.op > committed

    def _log(self, base: VolumeSource, volumes: Sequence[VolumeSource]) -> Iterator[Message]:
        """What was prepared behind the checkpoint of `base`, in order and linked, up to the head of
        the newest log. What cannot be read in that is taken from another volume: as a replica
        repairs its log."""
        newest = max(volumes, key=lambda volume: volume.log)
        op, digest = base.begin
        while op < newest.head_op:
            op, known = op + 1, newest.header(op + 1)
            found = (volume.prepare(op, digest) for volume in (newest, *volumes))
            whole = (message for message in found if message is not None)
            following = newest.header(op + 1)
            named = known.digest if known else following.parent if following else None
            fitting = (m for m in whole if named in (None, m.header.digest))
            message = next(fitting, None)
            if message is None:
                self.outcome.findings.append(
                    f"{newest.name}: operations {op} to {newest.head_op} of its log cannot be read"
                )
                return
            digest = message.header.digest
            yield message

    # --- the other volumes

    def _copy(self, geometry: Geometry) -> Iterator[Write]:
        reader = VolumeReader(self._first)
        try:
            for extent, (digest, size) in self._extents.items():
                data = reader.read_extent(extent)
                if data is None or sha256(data[:size]).digest() != digest:
                    raise StorageError(
                        f"{self._first}: segment {extent} is not what was just written: check the "
                        "disk"
                    )
                yield geometry.data_size + extent * geometry.extent_size, data[:size]
        finally:
            reader.close()

    # --- what is told

    def _tell(self, rebuild: Rebuild) -> None:
        outcome, gap_room = self.outcome, room_id_of(self._gap_room)
        outcome.gap_room = self._gap_room if rebuild.fillers else ""
        outcome.log_seq = rebuild.rooms.log_seq
        outcome.unreadable = rebuild.unreadable
        rows = np.frombuffer(rebuild.rooms.room_rows(0, 1 << 32), ROOM_ROW)
        cuts = dict(rebuild.cuts)
        for row in rows:
            room_id = row["room_id"].tobytes()
            cut = cuts.pop(room_id, None)
            if room_id == gap_room or (room_id == SHARD_ROOM_ID and cut is None):
                continue
            lost = (cut.first, cut.last) if cut is not None else None
            name = rebuild.names.get(room_id)
            text = name.decode(errors="replace") if name is not None else None
            if room_id == SHARD_ROOM_ID:
                text = "(the shard's own)"
            outcome.rooms.append(RestoredRoom(text, room_id, int(row["message_count"]), lost))
        for room_id, cut in cuts.items():
            outcome.rooms.append(RestoredRoom(None, room_id, 0, (cut.first, cut.last)))
        for source in self._sources:
            outcome.findings += [f"{source.name}: {finding}" for finding in source.findings]
