"""The rows of one channel in an LMDB environment.

Writes of several inputs are kept together, in one flushed transaction; until then the newest rows
are read from memory. What depends on them, messages and answers, is the caller's to hold back.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from appliance.base.errors import StoreFull
from appliance.base.limits import CHANNEL_STORE_SIZE_MAX, MIB
from appliance.cores.federation.effects import Write
from appliance.drivers.store.batch import Batch
from appliance.drivers.store.store import Store

DATABASE = "channel"
_GROWTH = 2  # a full map becomes so many times larger
_SIZE_FIRST = 64 * MIB


class SiteTexts(Protocol):
    """What the log of the site has, as in `ChannelStore`."""

    def text(self, log_seq: int, message_id: str) -> bytes | None: ...

    def keeps(self, log_seq: int) -> bool: ...


class LmdbChannelStore:
    """A `ChannelStore` in `folder`; nothing is durable before `flush`. `texts`: of a room's store;
    what has no log of a site leaves nothing to it.
    """

    def __init__(self, folder: Path, texts: SiteTexts | None = None) -> None:
        self._texts = texts
        self._store = Store(folder, [DATABASE], _SIZE_FIRST)
        self._pending: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        if key in self._pending:
            return self._pending[key]
        return self._store.get(DATABASE, key)

    def items(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.flush()
        with self._store.reading() as reading:
            yield from reading.items(DATABASE, first, end)

    def items_backwards(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.flush()
        with self._store.reading() as reading:
            yield from reading.items_backwards(DATABASE, end, first)

    def text(self, log_seq: int, message_id: str) -> bytes | None:
        return None if self._texts is None else self._texts.text(log_seq, message_id)

    def keeps(self, log_seq: int) -> bool:
        return self._texts is None or self._texts.keeps(log_seq)

    @property
    def unflushed(self) -> int:
        """Rows that wait in memory."""
        return len(self._pending)

    def apply(self, writes: Iterable[Write]) -> None:
        """Take the writes of one input; they become durable together with others."""
        for write in writes:
            self._pending[write.key] = write.value

    def flush(self) -> None:
        """Make everything durable, all of it or nothing. StoreFull: the volume is used up."""
        if not self._pending:
            return
        batch = Batch()
        for key, value in self._pending.items():
            if value is None:
                batch.delete(DATABASE, key)
            else:
                batch.put(DATABASE, key, value)
        while True:
            try:
                self._store.write(batch)
                break
            except StoreFull:
                larger = self._store.map_size * _GROWTH
                if larger > CHANNEL_STORE_SIZE_MAX:
                    raise
                self._store.enlarge(larger)
        self._pending.clear()

    def close(self) -> None:
        self.flush()
        self._store.close()
