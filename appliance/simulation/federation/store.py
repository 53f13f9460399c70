"""Rows of a channel in memory, in the order of their keys."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from appliance.cores.federation.effects import Write


class MemoryStore:
    """What a node's disk has. `apply` keeps all of a list or, if told to crash, nothing of it."""

    __slots__ = ("rows", "_keys")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def items(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]:
            yield key, self.rows[key]

    def items_backwards(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in reversed(
            self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]
        ):
            yield key, self.rows[key]

    def apply(self, writes: Iterable[Write]) -> None:
        for write in writes:
            known = write.key in self.rows
            if write.value is None:
                if known:
                    del self.rows[write.key]
                    del self._keys[bisect_left(self._keys, write.key)]
                continue
            if not known:
                insort(self._keys, write.key)
            self.rows[write.key] = write.value

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""
