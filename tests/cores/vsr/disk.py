"""The simulator's disk, whose reads and writes are in flight until a test performs them.

Nothing of it breaks by itself. A crash keeps of the writes in flight what it is told to.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.cores.vsr.open import choose
from appliance.formats import envelope
from appliance.formats.envelope import Header
from appliance.formats.geometry import (
    HEADER_SIZE,
    SUPERBLOCK_COPY_SIZE,
    SUPERBLOCK_COPY_STRIDE,
    SUPERBLOCK_ZONE_SIZE,
)
from appliance.formats.superblock import Superblock
from appliance.simulation import storage
from appliance.simulation.atlas import Map

ZONES = ("superblock", "witness", "prepare", "reply", "checkpoint", "segment")


class Write(NamedTuple):
    """A write in flight. `zone` names where it goes, one of ZONES."""

    token: int
    address: int
    data: bytes
    zone: str


class Disk(storage.Disk):
    """What it is asked for is in `reads` and `writes` until `perform_read` or `perform`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._area = Map(self.geometry).area
        self._superblock: Superblock | None = None

    @property
    def data(self) -> bytes:
        """All that lies there, as one: `poke` takes it back."""
        extents = [self.extent_at(number) for number in range(self.options.segments_max)]
        whole = [self.peek(extent, self._extent_size) for extent in extents]
        return b"".join((self.peek(0, self._data_size), *whole))

    def poke(self, address: int, data: bytes) -> None:
        behind = address - self._data_size
        room = -behind if behind < 0 else self._extent_size - behind % self._extent_size
        super().poke(address, data[:room])
        if len(data) > room:
            self.poke(address + room, data[room:])

    @property
    def waiting(self) -> list[Write]:
        """Writes in flight, in order of their start."""
        return list(self.in_order())

    def in_order(self) -> Iterator[Write]:
        """The same, made one by one: most look at the first alone, very often."""
        for token, write in self.writes.items():
            yield Write(token, write.address, write.data, self.zone(write.address))

    def perform_read(self) -> None:
        """Answer the oldest read."""
        self._read_done(self.life, next(iter(self.reads)))

    def perform(self, write: Write) -> None:
        """Make a write durable, and tell the process."""
        self._write_done(self.life, write.token)

    def _apply(self, write: storage.Write) -> None:
        self.poke(write.address, write.data)

    def keep(self, kept: Callable[[Write], list[int]]) -> None:
        """Of each write in flight the sectors that `kept` names lie there, and no more will."""
        for write in self.waiting:
            for at in (sector * SECTOR_SIZE for sector in kept(write)):
                self.poke(write.address + at, write.data[at : at + SECTOR_SIZE])
        self.writes.clear()

    # --- what a test does to it, and sees of it

    def _put(self, address: int, data: bytes) -> None:
        super()._put(address, data)
        if address < SUPERBLOCK_ZONE_SIZE:
            self._superblock = None

    def spoil(self, address: int) -> None:
        """The sector that begins there cannot be read."""
        self._unreadable.add(address)

    def flip(self, address: int) -> None:
        """Rot one bit."""
        self.poke(address, bytes([self.peek(address, 1)[0] ^ 1]))

    def zone(self, address: int) -> str:
        return ZONES[self._area(address).zone]

    def witness_at(self, op: int) -> int:
        return self.geometry.wal_headers_offset + op % self.geometry.slot_count * SECTOR_SIZE

    def prepare_at(self, op: int) -> int:
        return self._prepare_at(op % self.geometry.slot_count)

    def extent_at(self, number: int) -> int:
        return self.geometry.data_size + number % self.options.segments_max * self._extent_size

    def superblock(self) -> Superblock:
        """What a process that starts now would find."""
        if self._superblock is None:
            copies = [i * SUPERBLOCK_COPY_STRIDE for i in range(SUPERBLOCK_COPIES)]
            found = self.read_many([(at, SUPERBLOCK_COPY_SIZE) for at in copies])
            self._superblock = choose(found)[0]
        return self._superblock

    def holds(self, op: int, digest: bytes) -> bool:
        """Whether both rings hold exactly this prepare, whole."""
        at = self.prepare_at(op)
        witness = self.header_at(self.witness_at(op))
        prepare = self.header_at(at)
        if witness is None or prepare is None or not witness.digest == prepare.digest == digest:
            return False
        return envelope.body_valid(prepare, self.peek(at + HEADER_SIZE, prepare.body_size))

    def header_at(self, address: int) -> Header | None:
        return envelope.decode_stored(self.peek(address, HEADER_SIZE))
