"""Where faults of the disks may fall: a map, drawn before the run.

Replication can mend a broken copy from another one, not create a copy that nobody has. So each
area (a slot of the ring, a reply, a chunk of a checkpoint, a segment's extent) is assigned to at
most one replica less than a replication quorum, and only there may reads and writes of that area
fail. Of the four superblock copies one may fail on each replica. What a crash tears is exempt: the
protocol must survive that anywhere.

Slots of the ring are special: a replica that cannot read a slot beyond its head cannot vote until
another one tells it the log. So in most worlds the same replicas may lose any slot, and the others
can always form a quorum. In *spread* worlds each slot has its own such replicas: nothing may be
lost there either, but a group in which everybody has lost some slot may stand still for ever. Of a
slot's two writes one at most is lost without a trace: nobody could know of the other. One slot
stays whole on all: a replica that can read none halts, for its volume may be another one's.

A standby may lose anything else: nobody counts on it, unless it may be promoted; then it is one of
those of whom so few may lose an area. In *overload* worlds everybody may.
"""

from typing import NamedTuple

from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.base.prng import Prng
from appliance.cores.vsr.quorums import quorums
from appliance.formats.geometry import MANIFEST_SIZE_MAX, SUPERBLOCK_COPY_STRIDE, Geometry

SUPERBLOCK, WITNESS, PREPARE, REPLY, CHECKPOINT, SEGMENT = range(6)


class Area(NamedTuple):
    """One thing that is written and broken as a whole."""

    zone: int
    number: int  # copy, slot, session, chunk inside its checkpoint zone, extent


class Map:
    """Finds the area of an address. The bounds are computed once: it is asked at every access."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self._witnesses = geometry.wal_headers_offset
        self._witnesses_end = geometry.wal_headers_offset + geometry.slot_count * SECTOR_SIZE
        self._prepares = geometry.wal_prepares_offset
        self._replies = geometry.replies_offset
        self._checkpoints = geometry.checkpoints_offset
        self._segments = geometry.data_size
        self._extent_size = geometry.extent_size

    def area(self, address: int) -> Area:
        """The area that holds `address`."""
        geometry = self.geometry
        if address < self._witnesses:
            return Area(SUPERBLOCK, address // SUPERBLOCK_COPY_STRIDE)
        if address < self._witnesses_end:
            return Area(WITNESS, (address - self._witnesses) // SECTOR_SIZE)
        if address < self._replies:
            assert address >= self._prepares
            return Area(PREPARE, (address - self._prepares) // geometry.message_size_max)
        if address < self._checkpoints:
            return Area(REPLY, (address - self._replies) // geometry.reply_size_max)
        if address < self._segments:
            offset = (address - self._checkpoints) % geometry.checkpoint_zone_size
            return Area(
                CHECKPOINT,
                0
                if offset < MANIFEST_SIZE_MAX
                else 1 + (offset - MANIFEST_SIZE_MAX) // geometry.table_chunk_size,
            )
        return Area(SEGMENT, (address - self._segments) // self._extent_size)


class Atlas:
    """`allows(replica, area)`: whether this replica's copy of this area may be lost."""

    def __init__(
        self,
        *,
        geometry: Geometry,
        replica_count: int,
        member_count: int,
        voters_max: int,
        segments_max: int,
        spread: bool,
        overload: bool,
        prng: Prng,
    ) -> None:
        self.area = Map(geometry).area
        self.copies = [prng.below(SUPERBLOCK_COPIES) for _ in range(member_count)]
        self._solo, self._overload = replica_count == 1, overload
        self._voters_max = voters_max
        replication, view_change, _ = quorums(replica_count)
        draw = _Draw(prng, voters_max, replication - 1)
        chunks_max = geometry.checkpoint_zone_size // geometry.table_chunk_size
        # One mask for both rings: they hold two copies of one truth.
        slots = draw.masks(geometry.slot_count)
        if not spread:  # and the others can elect a primary: not so in a group of two
            mask = slots[0] if replica_count - slots[0].bit_count() >= view_change else 0
            slots = [mask] * geometry.slot_count
        self._sound = prng.below(geometry.slot_count)
        self._masks = {
            WITNESS: slots,
            PREPARE: slots,
            REPLY: draw.masks(geometry.clients_max),
            CHECKPOINT: draw.masks(chunks_max if replica_count >= 3 else 0),
            SEGMENT: draw.masks(segments_max if replica_count >= 3 else 0),
        }

    def allows(self, replica: int, area: Area) -> bool:
        if self._solo:
            return False
        if area.number == self._sound and area.zone in (WITNESS, PREPARE):
            return False
        if self._overload:
            return True
        if area.zone == SUPERBLOCK:
            return self.copies[replica] == area.number
        if replica >= self._voters_max:
            return True
        masks = self._masks[area.zone]
        return area.number < len(masks) and bool(masks[area.number] >> replica & 1)


class _Draw:
    """Draws masks of at most `faulty_max` of `replica_count` replicas."""

    def __init__(self, prng: Prng, replica_count: int, faulty_max: int) -> None:
        self.prng, self.replica_count, self.faulty_max = prng, replica_count, faulty_max

    def masks(self, count: int) -> list[int]:
        return [self._mask() for _ in range(count)]

    def _mask(self) -> int:
        members = list(range(self.replica_count))
        self.prng.shuffle(members)
        return sum(1 << member for member in members[: self.faulty_max])
