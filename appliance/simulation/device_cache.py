"""The volatile cache of a simulated disk: what is written and can be read, and what power takes.

It belongs to the device: it outlives a process that is killed, and dies with the power. A flush
empties it to the medium; a write that flushes itself (FUA) takes along no other sector.
"""

from appliance.base.limits import SECTOR_SIZE
from appliance.base.prng import Prng


class DeviceCache:
    """Remembers, of sectors whose newest bytes are not durable, those that are.

    Addresses are those of the disk, of whole sectors; the disk itself holds what can be read.
    """

    def __init__(self, prng: Prng) -> None:
        self._prng = prng
        self._durable: dict[int, bytes] = {}  # sector -> its bytes on the medium

    def __len__(self) -> int:
        return len(self._durable)

    def take(self, sector: int, before: bytes) -> None:
        """A sector is written to the cache; `before` was to be read there."""
        assert sector % SECTOR_SIZE == 0 and len(before) == SECTOR_SIZE
        self._durable.setdefault(sector, before)

    def settle(self, sectors: range) -> None:
        """These sectors were written through to the medium."""
        if self._durable:
            for sector in sectors:
                self._durable.pop(sector, None)

    def flush(self) -> None:
        """All that can be read is durable."""
        self._durable.clear()

    def on_medium(self, sector: int) -> bytes | None:
        """What the medium holds of a sector; None where that is what can be read."""
        return self._durable.get(sector)

    def drop(self) -> list[tuple[int, bytes]]:
        """The power is gone, or a flush has failed: each sector was written back in time, or was
        not. Gives (sector, its bytes on the medium) of those that were not."""
        lost = [item for item in self._durable.items() if self._prng.chance(2, 3)]
        self._durable.clear()
        return lost
