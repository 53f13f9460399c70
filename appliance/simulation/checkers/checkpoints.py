"""Durable states: the same on everybody, and really on the medium.

When a superblock names a checkpoint, its id must be the one that everybody has for that op, its
manifest must lie in its zone, and each record up to its log_seq must lie in its segment, byte for
byte.
"""

import hashlib

from appliance.formats import segment as seg
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.superblock import Superblock
from appliance.simulation import atlas as zones
from appliance.simulation.atlas import Area
from appliance.simulation.checkers.log import CommittedLog
from appliance.simulation.checkers.rooms import RoomsModel
from appliance.simulation.failure import violated
from appliance.simulation.storage import Disk

NAME = "checkpoints"


class Checkpoints:
    """Checkpoint ids by op, and how far each replica's segments have been seen to be right."""

    def __init__(
        self,
        *,
        geometry: Geometry,
        segments_max: int,
        replica_count: int,
        log: CommittedLog,
        rooms: RoomsModel,
    ) -> None:
        self.geometry, self.segments_max, self.log, self.rooms = geometry, segments_max, log, rooms
        self.ids: dict[int, tuple[bytes, int]] = {0: (bytes(32), 0)}  # op -> id, log_seq
        self._verified = [0] * replica_count  # log_seq up to which the medium was compared

    def on_durable(self, replica: int, block: Superblock, disk: Disk) -> None:
        """A superblock has become durable on `replica`."""
        state = block.checkpoint
        op = state.header.op
        if op == 0:
            return
        if op > self.log.op or self.log.entries[op].digest != state.header.digest:
            violated(NAME, f"replica {replica} has a checkpoint at op {op}, not committed so")
        known = self.ids.setdefault(op, (state.checkpoint_id, state.log_seq))
        if known != (state.checkpoint_id, state.log_seq):
            violated(NAME, f"replica {replica} has another checkpoint at op {op} than the others")
        if block.sync_op_max or block.sync_log_seq:
            return  # what a state sync skipped is still on its way
        self._manifest(replica, block, disk)
        self.verify_records(replica, state.log_seq, disk)

    def _manifest(self, replica: int, block: Superblock, disk: Disk) -> None:
        state = block.checkpoint
        if disk.atlas.allows(replica, Area(zones.CHECKPOINT, 0)):
            return
        zone = self.geometry.checkpoint_zone(state.header.op)
        address = self.geometry.checkpoints_offset + zone * self.geometry.checkpoint_zone_size
        raw = disk.peek(address, state.manifest_size)
        if hashlib.sha256(raw).digest() != state.checkpoint_id:
            violated(
                NAME,
                f"replica {replica}: the manifest of checkpoint {state.header.op} is "
                "not on the medium",
            )

    def verify_records(self, replica: int, log_seq: int, disk: Disk) -> None:
        """Compare the records after those already compared, up to `log_seq`, with the model; those
        that are kept."""
        geometry = self.geometry
        freed = self.rooms.oldest * geometry.segment_records  # may be used again
        first = max(self._verified[replica], freed) + 1
        for number in range(first, log_seq + 1):
            segment = seg.number_of(geometry, number)
            extent = segment % self.segments_max
            if disk.atlas.allows(replica, Area(zones.SEGMENT, extent)):
                continue
            address = (
                geometry.data_size
                + extent * geometry.extent_size
                + seg.slot_of(geometry, number) * RECORD_SIZE
            )
            record = disk.peek(address, RECORD_SIZE)
            if hashlib.sha256(record).digest() != self.rooms.hashes[number - 1]:
                violated(
                    NAME, f"replica {replica}: record {number} of a checkpoint is not on the medium"
                )
        self._verified[replica] = max(self._verified[replica], log_seq)

    def forget(self, replica: int) -> None:
        """Compare everything again: at the end of a run."""
        self._verified[replica] = 0
