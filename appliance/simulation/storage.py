"""A replica's disk: one linear space of sectors, with latency, and with what disks do.

        address 0 ............ data_size | extent 0 | extent 1 | ... | extent segments_max - 1
                data file, zero-filled     preallocated with zeros, made here when first touched

A write is durable when it is done, not before; until then a crash may leave any part of its sectors
behind. What a process that was killed leaves lies in the disk's cache: it can be read, and is
durable once the disk is flushed, or, where each write flushes itself (`_through`), once it is
written again; the power takes it. Where flushes fail, two lanes write: each write lies in the cache
until its own flush, and a flush that fails may take along what the other lane has written.

A sector is written whole or not at all. Lost, corrupt, unreadable and misdirected sectors come only
where the atlas allows them, and stay until they are written again.
Reads of other sectors tell the truth.
"""

from collections.abc import Callable

from appliance.base.failures import Failures
from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.base.prng import Prng
from appliance.cores.vsr.wal import parse_prepare
from appliance.formats import envelope
from appliance.formats.geometry import HEADER_SIZE, SUPERBLOCK_COPY_STRIDE, Geometry
from appliance.simulation import atlas as zones
from appliance.simulation import trace as kinds
from appliance.simulation.atlas import Area, Atlas
from appliance.simulation.delay import exponential
from appliance.simulation.device_cache import DeviceCache
from appliance.simulation.failure import violated
from appliance.simulation.options import Options
from appliance.simulation.schedule import Schedule
from appliance.simulation.trace import Trace

MILLION = 1_000_000
SLOW_FACTOR = 10
HAND_OVER_US_MAX = 300  # from an I/O thread to the one that acts on it
FAILURE_US_MAX = 10_000  # the same, when the others do not let it have the interpreter
BACK_WEIGHT = 10  # there are so many fewer flushes in the back lane, and its writes are large
IN_FLIGHT_MAX = 512  # reads and writes a replica may have in flight


class Write:
    """A write in flight: what it will leave at `address`, and when it was started."""

    __slots__ = ("address", "data", "buffers", "front")

    def __init__(
        self, address: int, data: bytes, buffers: list[bytes | memoryview], front: bool
    ) -> None:
        self.address, self.data, self.buffers = address, data, buffers
        self.front = front  # which lane writes it


class Disk:
    """One replica's medium and what is on its way to it. Survives crashes of the process.

    A crash begins a new `life`; what an older one started is never reported.
    `done(token, data, address)` is called when a write is over, with the address where it went, and
    when a read is: then with -1 and the bytes, or None for what cannot be read. `failed(reason)`: a
    write failed, which ends the process. `faulty()`: something has broken, which nobody knows yet.
    """

    def __init__(
        self,
        *,
        replica: int,
        geometry: Geometry,
        options: Options,
        atlas: Atlas,
        schedule: Schedule,
        prng: Prng,
        trace: Trace,
        done: Callable[[int, bytes | None, int], None],
        failed: Callable[[str], None],
        faulty: Callable[[], None],
    ) -> None:
        self.replica, self.geometry, self.options, self.atlas = replica, geometry, options, atlas
        self.schedule, self.prng, self.trace, self._done = schedule, prng, trace, done
        self._failed, self._faulty = failed, faulty
        self.faults = True
        self.full = False  # a write to an extent that was not there yet fails
        self.life = 0
        self._data_size, self._extent_size = geometry.data_size, geometry.extent_size
        self._data = bytearray(self._data_size)
        self._extents: dict[int, bytearray] = {}
        self.writes: dict[int, Write] = {}  # token -> in flight, of the life that runs
        self.reads: dict[int, tuple[int, int]] = {}
        self._unreadable: set[int] = set()  # addresses of sectors that give an error
        self.faulted: dict[str, int] = {}  # faults so far, by kind
        own = Prng(options.seed << 8 | replica)  # of the cache alone
        self._through = own.chance(2, 3)
        self._cache = DeviceCache(own)
        self._failures = Failures()  # of the process that runs
        self._stopped: set[bool] = set()  # lanes of which a flush has failed

    @property
    def tearable(self) -> int:
        """Appends in flight of which a crash may leave a part."""
        return sum(
            len(write.data) > SECTOR_SIZE and self.atlas.area(write.address).zone == zones.PREPARE
            for write in self.writes.values()
        )

    # --- the medium

    def peek(self, address: int, length: int) -> bytes:
        """What lies there, truly: for checkers."""
        if address >= self._data_size and self._extent_of(address) not in self._extents:
            return bytes(length)
        buffer, offset = self._located(address, length)
        return bytes(buffer[offset : offset + length])

    def medium(self, address: int, length: int) -> bytes:
        """What is durable there: `peek` but for what only the cache holds."""
        found = bytearray(self.peek(address, length))
        for sector in _sectors(address, length) if len(self._cache) else ():
            durable = self._cache.on_medium(sector)
            if durable is not None:
                low, high = max(address, sector), min(address + length, sector + SECTOR_SIZE)
                found[low - address : high - address] = durable[low - sector : high - sector]
        return bytes(found)

    def flush_all(self) -> None:
        """Make durable all that can be read."""
        self._cache.flush()

    def lose_power(self) -> None:
        """Only what is durable is left."""
        for sector, durable in self._cache.drop():
            self._count("cache_lost")
            self.poke(sector, durable)

    def _take(self, address: int, data: bytes) -> None:
        """Write whole sectors to the cache."""
        for at, sector in enumerate(_sectors(address, len(data))):
            self._cache.take(sector, self.peek(sector, SECTOR_SIZE))
            self._put(sector, data[at * SECTOR_SIZE : (at + 1) * SECTOR_SIZE])

    def poke(self, address: int, data: bytes) -> None:
        """Put `data` there, at once and durably: for `format`, and for tests that break a disk on
        purpose."""
        self._cache.settle(_sectors(address, len(data)))
        self._put(address, data)

    def _put(self, address: int, data: bytes) -> None:
        buffer, offset = self._located(address, len(data))
        buffer[offset : offset + len(data)] = data
        if self._unreadable:
            self._unreadable.difference_update(_sectors(address, len(data)))

    def _extent_of(self, address: int) -> int:
        return (address - self._data_size) // self._extent_size

    def _located(self, address: int, length: int) -> tuple[bytearray, int]:
        assert address >= 0
        if address < self._data_size:
            assert address + length <= self._data_size
            return self._data, address
        number, offset = divmod(address - self._data_size, self._extent_size)
        assert number < self.options.segments_max
        assert offset + length <= self._extent_size
        extent = self._extents.get(number)
        if extent is None:
            extent = self._extents[number] = bytearray(self._extent_size)
        return extent, offset

    # --- reads

    def read_many(self, reads: list[tuple[int, int]]) -> list[bytes | None]:
        """All of it, now: how a process reads at its start."""
        return [self._read(address, length) for address, length in reads]

    def read(self, token: int, address: int, length: int) -> None:
        """Start a read."""
        assert token not in self.reads
        if len(self.reads) >= IN_FLIGHT_MAX:
            violated("bounds", f"replica {self.replica} has {len(self.reads)} reads in flight")
        self.reads[token] = (address, length)
        delay = self._latency(self.options.read_us_min, self.options.read_us_mean)
        self.schedule.after(delay, self._read_done, self.life, token)

    def _read_done(self, life: int, token: int) -> None:
        if life == self.life:
            address, length = self.reads.pop(token)
            self._done(token, self._read(address, length), -1)

    def _read(self, address: int, length: int) -> bytes | None:
        if self.faults:
            if self.options.read_corruption:
                self._maybe_corrupt(
                    address, length, self.options.read_corruption, "read_corruption"
                )
            if self.options.read_error and self._dice(self.options.read_error):
                self._lose_sector(address, length)
        if self._unreadable and not self._unreadable.isdisjoint(_sectors(address, length)):
            return None
        return self.peek(address, length)

    def misreads(self) -> bool:
        """Whether a page that is read now, by another process of this machine, comes wrong."""
        return self.faults and self._dice(self.options.read_corruption)

    def _lose_sector(self, address: int, length: int) -> None:
        sector = self.prng.choice(_sectors(address, length))
        area = self.atlas.area(sector)
        if self._breakable(area):
            self._faulted(area, sector, "read_error")
            self._unreadable.add(sector)

    # --- writes

    def write(self, token: int, address: int, buffers: list[bytes | memoryview]) -> None:
        """Start a write of whole sectors that no other write in flight touches."""
        data = b"".join(buffers)
        assert token not in self.writes
        assert address % SECTOR_SIZE == 0 and len(data) % SECTOR_SIZE == 0 and data
        if len(self.writes) >= IN_FLIGHT_MAX:
            violated("bounds", f"replica {self.replica} has {len(self.writes)} writes in flight")
        end = address + len(data)
        for other in self.writes.values():
            if address < other.address + len(other.data) and other.address < end:
                violated("journal", f"replica {self.replica}: two writes in flight at {address}")
        front = address < self.geometry.checkpoints_offset
        self.writes[token] = Write(address, data, buffers, front)
        delay = self._latency(self.options.write_us_min, self.options.write_us_mean)
        done = self._write_landed if self.options.flush_error else self._write_done
        self.schedule.after(delay, done, self.life, token)

    # --- lanes whose flushes may fail

    def _write_landed(self, life: int, token: int) -> None:
        """It can be read, and lies in the cache; its lane flushes."""
        if life != self.life:
            return
        write = self.writes[token]
        self._take(write.address, write.data)
        delay = self._latency(self.options.write_us_min, self.options.write_us_mean)
        self.schedule.after(delay, self._flushed, life, token)

    def _flushed(self, life: int, token: int) -> None:
        write = self.writes.get(token)
        if life != self.life or write is None or write.front in self._stopped:
            return
        chance = self.options.flush_error * (1 if write.front else BACK_WEIGHT)
        if self.faults and self._dice(chance):
            self._faulted(self.atlas.area(write.address), write.address, "flush_error")
            self.lose_power()  # of the cache: whatever had no flush of its own yet
            self._failures.add()
            self._stopped.add(write.front)
            self.schedule.after(self.prng.between(1, FAILURE_US_MAX), self._lane_ended, life)
            return
        self._cache.flush()
        self.schedule.after(self.prng.between(1, HAND_OVER_US_MAX), self._confirm, life, token)

    def _confirm(self, life: int, token: int) -> None:
        """The lane tells, if it may, that a write of its own is durable."""
        if life != self.life or not self._failures.may_confirm():
            return
        write = self.writes.pop(token)
        self._done(token, None, write.address)

    def _lane_ended(self, life: int) -> None:
        """The driver hears of it: until then the other lane was at work."""
        if life == self.life:
            self._failed("flush_error")

    # --- writes, each durable by itself

    def _write_done(self, life: int, token: int) -> None:
        if life != self.life:
            return  # a crash took it
        write = self.writes.pop(token)
        if write.address < self._data_size and b"".join(write.buffers) != write.data:
            violated(
                "journal",
                f"replica {self.replica}: the buffer of the write at "
                f"{write.address} was changed while it was in flight",
            )
        if self.faults:
            if self.options.write_error and self._dice(self.options.write_error):
                self._fail(write, "write_error")
                return
            if (
                self.full
                and write.address >= self._data_size
                and (self._extent_of(write.address) not in self._extents)
            ):
                self._fail(write, "disk_full")
                return
        self._apply(write)
        self._done(token, None, write.address)

    def _fail(self, write: Write, what: str) -> None:
        """The driver is told that a write failed: what of it lies there, nobody knows."""
        self._faulted(self.atlas.area(write.address), write.address, what)
        if what == "write_error":
            self._tear(write, put=self._take)
        self._failed(what)

    def _apply(self, write: Write) -> None:
        options = self.options
        area = self.atlas.area(write.address)
        allowed = self.atlas.allows(self.replica, area) and not self._last_trace(write, area)
        if self.faults and allowed:
            if self._dice(options.write_loss):
                self._faulted(area, write.address, "write_loss")
                return
            if self._dice(options.write_misdirection) and self._misdirect(area, write):
                return
        self.poke(write.address, write.data)
        if not self._through:
            self._cache.flush()  # by a call of its own, after the write
        if self.faults and options.write_corruption:
            self._maybe_corrupt(
                write.address, len(write.data), options.write_corruption, "write_corruption"
            )

    def _last_trace(self, write: Write, area: Area) -> bool:
        """Whether this is the witness of a prepare that does not lie there whole: with both gone
        without a trace nobody could know that there had been anything, and no protocol survives
        that on a quorum's last member.
        """
        if area.zone != zones.WITNESS:
            return False
        header = envelope.decode_stored(write.data[:HEADER_SIZE])
        if header is None:
            return False
        sectors = _sectors(self._prepare_at(area.number), HEADER_SIZE + header.body_size)
        whole = self.peek(sectors.start, len(sectors) * SECTOR_SIZE)
        return not self._unreadable.isdisjoint(sectors) or parse_prepare(whole, header) is None

    def _only_trace(self, area: Area) -> bool:
        """Whether this is a prepare whose witness was lost: broken, it would look as if its append
        had never ended.
        """
        if area.zone != zones.PREPARE:
            return False
        witness = self.peek(
            self.geometry.wal_headers_offset + area.number * SECTOR_SIZE, HEADER_SIZE
        )
        return envelope.decode_stored(witness) is not None and witness != self.peek(
            self._prepare_at(area.number), HEADER_SIZE
        )

    def _prepare_at(self, slot: int) -> int:
        return self.geometry.wal_prepares_offset + slot * self.geometry.message_size_max

    def _breakable(self, area: Area) -> bool:
        """Whether what lies in this area may be damaged now."""
        return self.atlas.allows(self.replica, area) and not self._only_trace(area)

    # --- faults

    def crash(self, *, halfway: bool = False, power: bool = False) -> None:
        """The process ends: reads are gone, of each write in flight some sectors were made.

        With `halfway` neither all of them nor none, where a write has several. With `power` the
        disk goes as well, and its cache.
        """
        self.life += 1
        self.reads.clear()
        if power:
            self.lose_power()
        for write in self.writes.values():
            self._tear(write, halfway=halfway, put=self.poke if power else self._take)
        self.writes.clear()
        self._failures = Failures()
        self._stopped.clear()

    def lose(self) -> None:
        """The disk is gone, and a new one is in its place: zeros."""
        self._count("reformat")
        self.life += 1
        self._data = bytearray(self._data_size)
        self._extents = {}
        self._unreadable.clear()
        self._cache.flush()

    def image(self) -> tuple[bytes, dict[int, bytes]]:
        """A copy of all that lies there, while no process runs."""
        assert not self.writes
        return bytes(self._data), {i: bytes(extent) for i, extent in self._extents.items()}

    def restore(self, image: tuple[bytes, dict[int, bytes]]) -> None:
        """Put such a copy in the place of what lies there."""
        self._count("old_copy")
        self.life += 1
        self._data = bytearray(image[0])
        self._extents = {i: bytearray(extent) for i, extent in image[1].items()}
        self._unreadable.clear()
        self._cache.flush()

    def _tear(
        self,
        write: Write,
        *,
        put: Callable[[int, bytes], None],
        halfway: bool = False,
    ) -> None:
        self._count("torn_write")
        sectors = len(write.data) // SECTOR_SIZE
        if halfway and sectors > 1:
            written = self.prng.between(1, sectors - 1)
            kept = [i < written for i in range(sectors)]
        elif not self.prng.chance(self.options.torn_percent, 100):
            kept = [self.prng.chance(1, 2)] * sectors  # all of it, or nothing
        elif self.prng.chance(1, 2):
            written = self.prng.between(0, sectors - 1)  # the tail is lost
            kept = [i < written for i in range(sectors)]
        else:
            kept = [self.prng.chance(1, 2) for _ in range(sectors)]
        for i in range(sectors):
            if kept[i]:
                start = i * SECTOR_SIZE
                put(write.address + start, write.data[start : start + SECTOR_SIZE])

    def _maybe_corrupt(self, address: int, length: int, per_million: int, what: str) -> None:
        if not self._dice(per_million):
            return
        touched = _sectors(address, length)
        sector = self.prng.choice(touched)
        area = self.atlas.area(sector)
        if not self._breakable(area):
            return
        self._faulted(area, sector, what)
        shape = self.prng.below(3)
        if shape == 0:  # one byte
            damaged = max(address, sector) + self.prng.below(
                min(address + length, sector + SECTOR_SIZE) - max(address, sector)
            )
            self.poke(damaged, bytes([self.peek(damaged, 1)[0] ^ self.prng.between(1, 255)]))
        elif shape == 1:  # one sector
            self.poke(sector, self.prng.bytes(8) * (SECTOR_SIZE // 8))
        else:  # all that was touched of this area
            for other in touched:
                if self.atlas.area(other) == area:
                    self.poke(other, bytes(SECTOR_SIZE))

    def _misdirect(self, area: Area, write: Write) -> bool:
        """Put `write` at another place of its zone, if there is one that may be lost as well."""
        stride = _strides(self.geometry)[area.zone]
        if stride == 0:
            return False
        count = {zones.SUPERBLOCK: SUPERBLOCK_COPIES, zones.REPLY: self.geometry.clients_max}.get(
            area.zone, self.geometry.slot_count
        )
        target = self.prng.below(count)
        if target == area.number or not self._breakable(Area(area.zone, target)):
            return False
        address = write.address + (target - area.number) * stride
        end = address + len(write.data)
        for other in self.writes.values():
            if address < other.address + len(other.data) and other.address < end:
                return False
        self._faulted(area, write.address, "write_misdirection")
        self.poke(address, write.data)
        return True

    def _faulted(self, area: Area, address: int, what: str) -> None:
        self._count(what)
        self._faulty()
        self.trace.add(
            self.schedule.now_us, kinds.CORRUPT, self.replica, address, area.number, what
        )

    def _count(self, what: str) -> None:
        self.faulted[what] = self.faulted.get(what, 0) + 1

    def _dice(self, per_million: int) -> bool:
        return per_million > 0 and self.prng.chance(per_million, MILLION)

    def _latency(self, minimum: int, mean: int) -> int:
        delay = minimum + exponential(self.prng, mean)
        return delay * SLOW_FACTOR if self.replica == self.options.slow_replica else delay


def _sectors(address: int, length: int) -> range:
    """Addresses of the sectors that these bytes lie in."""
    return range(address - address % SECTOR_SIZE, address + length, SECTOR_SIZE)


def _strides(geometry: Geometry) -> dict[int, int]:
    """Distance between neighbours of a zone, 0 where a misdirected write has no plausible place."""
    return {
        zones.SUPERBLOCK: SUPERBLOCK_COPY_STRIDE,
        zones.WITNESS: SECTOR_SIZE,
        zones.PREPARE: geometry.message_size_max,
        zones.REPLY: geometry.reply_size_max,
        zones.CHECKPOINT: 0,
        zones.SEGMENT: 0,
    }
