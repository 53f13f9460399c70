"""A disk in memory: writes are in flight until performed; a crash keeps what it is told to."""

from collections.abc import Callable
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
    Geometry,
)
from appliance.formats.superblock import Superblock


class Write(NamedTuple):
    """A write in flight. `zone` names where it goes: superblock, witness, prepare, reply, ..."""

    token: int
    address: int
    data: bytes
    zone: str


class Disk:
    """One replica's medium. Reads and writes of a process are kept in order of their start."""

    def __init__(self, geometry: Geometry, segments_max: int) -> None:
        self.geometry = geometry
        self.data = bytearray(geometry.data_size + segments_max * geometry.extent_size)
        self.writes: list[Write] = []
        self.reads: list[tuple[int, int, int]] = []
        self.bad: list[tuple[int, int]] = []  # (address, length) that cannot be read
        self._superblock: Superblock | None = None

    # --- what a process asks for

    def start_write(self, token: int, address: int, buffers: list[Any]) -> None:
        data = b"".join(buffers)
        assert data and address % SECTOR_SIZE == 0 and len(data) % SECTOR_SIZE == 0
        for other in self.writes:
            apart = address >= other.address + len(other.data) or other.address >= address + len(
                data
            )
            assert apart, "two writes in flight overlap"
        self.writes.append(Write(token, address, data, self.zone(address)))

    def start_read(self, token: int, address: int, length: int) -> None:
        assert length > 0 and address % SECTOR_SIZE == 0 and length % SECTOR_SIZE == 0
        self.reads.append((token, address, length))

    def perform(self, write: Write) -> None:
        """Make a write durable; the caller tells the process."""
        self.writes.remove(write)
        self.poke(write.address, write.data)

    def read(self, address: int, length: int) -> bytes | None:
        for bad, size in self.bad:
            if address < bad + size and bad < address + length:
                return None
        return bytes(self.data[address : address + length])

    def read_many(self, wanted: list[tuple[int, int]]) -> list[bytes | None]:
        return [self.read(address, length) for address, length in wanted]

    def flush_all(self) -> None:
        """What can be read is on the medium: this disk has no cache."""

    def crash(self, keep: Callable[[Write], list[int]]) -> None:
        """The process is gone; `keep(write)` lists the sectors of each write that made it."""
        for write in self.writes:
            for sector in keep(write):
                at = sector * SECTOR_SIZE
                self.poke(write.address + at, write.data[at : at + SECTOR_SIZE])
        self.writes, self.reads = [], []

    # --- what a test does to it, and sees of it

    def poke(self, address: int, data: bytes) -> None:
        self.data[address : address + len(data)] = data
        if address < SUPERBLOCK_ZONE_SIZE:
            self._superblock = None

    def flip(self, address: int) -> None:
        """Rot one bit."""
        self.poke(address, bytes([self.data[address] ^ 1]))

    def zone(self, address: int) -> str:
        geometry = self.geometry
        bounds = [
            ("superblock", geometry.wal_headers_offset),
            ("witness", geometry.wal_prepares_offset),
            ("prepare", geometry.replies_offset),
            ("reply", geometry.checkpoints_offset),
            ("checkpoint", geometry.data_size),
            ("segment", len(self.data)),
        ]
        return next(name for name, end in bounds if address < end)

    def witness_at(self, op: int) -> int:
        return self.geometry.wal_headers_offset + op % self.geometry.slot_count * SECTOR_SIZE

    def prepare_at(self, op: int) -> int:
        geometry = self.geometry
        return geometry.wal_prepares_offset + op % geometry.slot_count * geometry.message_size_max

    def extent_at(self, number: int) -> int:
        extents = (len(self.data) - self.geometry.data_size) // self.geometry.extent_size
        return self.geometry.data_size + number % extents * self.geometry.extent_size

    def superblock(self) -> Superblock:
        """What a process that starts now would find."""
        if self._superblock is None:
            copies = self.read_many(
                [
                    (i * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE)
                    for i in range(SUPERBLOCK_COPIES)
                ]
            )
            self._superblock = choose(copies)[0]
        return self._superblock

    def holds(self, op: int, digest: bytes) -> bool:
        """Whether both rings hold exactly this prepare, whole."""
        at = self.prepare_at(op)
        witness = self.header_at(self.witness_at(op))
        prepare = self.header_at(at)
        if witness is None or prepare is None or not witness.digest == prepare.digest == digest:
            return False
        body = bytes(self.data[at + HEADER_SIZE : at + HEADER_SIZE + prepare.body_size])
        return envelope.body_valid(prepare, body)

    def header_at(self, address: int) -> Header | None:
        return envelope.decode_stored(self.data[address : address + HEADER_SIZE])
