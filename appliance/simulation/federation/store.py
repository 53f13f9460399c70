"""Rows of a channel in memory, in the order of their keys."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence

from appliance.cores.federation.effects import Write
from appliance.cores.federation.opening import LogRecord


class MemoryStore:
    """What a node's disk has, and the log of its site. `apply` keeps all of a list or, if told to
    crash, nothing of it."""

    __slots__ = ("rows", "_keys", "_log")

    def __init__(self, log: Sequence[LogRecord] = ()) -> None:
        self.rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._log = log

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

    def text(self, log_seq: int, message_id: str) -> bytes | None:
        record = self._log[log_seq - 1] if self.keeps(log_seq) else None
        return record.content if record is not None and record.message_id == message_id else None

    def keeps(self, log_seq: int) -> bool:
        return 1 <= log_seq <= len(self._log)

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
