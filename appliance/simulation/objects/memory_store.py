"""A store in memory: what was written stays, whatever happens to the replica above it."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from appliance.base.errors import ObjectsFull
from appliance.cores.metadata.store import Batch


class MemoryStore:
    """Full once it would hold more than `size_max` bytes, keys included."""

    def __init__(self, size_max: int = 1 << 40) -> None:
        self.size_max = size_max
        self.size = self.writes = 0
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def get_all(self, keys: list[bytes]) -> dict[bytes, bytes]:
        return {key: self._values[key] for key in keys if key in self._values}

    def keys(self, first: bytes, end: bytes, count: int) -> list[bytes]:
        return [key for key, _ in islice(self.scan(first, end), count)]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys
        at = bisect_left(keys, first)
        while at < len(keys) and keys[at] < end:
            yield keys[at], self._values[keys[at]]
            at += 1

    def write(self, batch: Batch) -> None:
        growth = 0
        for key, value in batch.items():
            old = self._values.get(key)
            growth += len(key) + len(value) if value is not None else 0
            growth -= len(key) + len(old) if old is not None else 0
        if self.size + growth > self.size_max:
            raise ObjectsFull(f"the store holds {self.size} of at most {self.size_max} bytes")
        self.size += growth
        self.writes += 1
        self._put(batch)

    def _put(self, batch: Batch) -> None:
        added = []
        for key, value in batch.items():
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self._values:
                    added.append(key)
                self._values[key] = value
        if len(added) > 50:  # one sort of what is nearly sorted
            self._keys += added
            self._keys.sort()
        else:
            for key in added:
                insort(self._keys, key)
