"""The store of the objects over an LMDB environment, which one process has open."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from appliance.base.errors import ConfigurationError, ObjectsFull, StoreFull
from appliance.cores.metadata.store import Batch
from appliance.drivers.store.batch import Batch as Changes
from appliance.drivers.store.store import Store

_DATABASE = "objects"
_LOCK = "owner.lock"


class ObjectStore:
    """Keeps one view of the newest state open between writes, so that reading costs little."""

    def __init__(self, folder: Path, map_size: int) -> None:
        """`map_size`: bytes it may grow to. ConfigurationError if another process has it."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigurationError(
                f"{folder}: another process has these objects open; ask it, or stop it"
            ) from error
        self._store = Store(folder, [_DATABASE], map_size)
        self._view = contextlib.ExitStack()
        self._reopen()

    def _reopen(self) -> None:
        self._reading = self._view.enter_context(self._store.reading())
        self._get = self._reading.getter(_DATABASE)

    def get(self, key: bytes) -> bytes | None:
        return self._get(key)

    def get_all(self, keys: list[bytes]) -> dict[bytes, bytes]:
        return self._reading.get_all(_DATABASE, keys)

    def keys(self, first: bytes, end: bytes, count: int) -> list[bytes]:
        return self._reading.keys(_DATABASE, first, end, count)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._reading.items(_DATABASE, first, end)

    def write(self, batch: Batch) -> None:
        keys = sorted(batch)  # neighbours lie on one page
        rows = [(key, value) for key in keys if (value := batch[key]) is not None]
        gone = [key for key in keys if batch[key] is None] if len(rows) < len(keys) else []
        changes = Changes().delete_all(_DATABASE, gone).put_all(_DATABASE, rows)
        self._view.close()
        try:
            self._store.write(changes)
        except StoreFull as error:
            raise ObjectsFull(str(error)) from error
        finally:
            self._reopen()

    def enlarge(self, map_size: int) -> None:
        """Let it grow to `map_size` bytes."""
        self._view.close()
        self._store.enlarge(map_size)
        self._reopen()

    @property
    def map_size(self) -> int:
        return self._store.map_size

    def close(self) -> None:
        self._view.close()
        self._store.close()
        os.close(self._lock)
