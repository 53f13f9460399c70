"""An LMDB environment with named databases; the package tells the idea."""

import contextlib
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb

from appliance.base.errors import StorageError, StoreFull
from appliance.base.limits import STORE_KEY_SIZE_MAX, STORE_READERS_MAX
from appliance.drivers.store.batch import Batch, Change, Delete, DeleteAll, Put, PutAll

_RESIZED_MAX = 8  # times that a map may be enlarged while a reader follows it
META_PAGES = 2  # at the start of the file: the roots of the two newest states


def _pages(stat: Any) -> int:
    return int(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])


@dataclass(slots=True, frozen=True)
class StoreFigures:
    """Sizes in bytes. `used` counts whole pages up to the highest one in use, `free` those among
    them that later batches will take again."""

    map_size: int
    used_size: int
    free_size: int
    entries: dict[str, int]  # keys of each database


class Reading:
    """The store as it was at one moment; valid inside the `with` that made it."""

    __slots__ = ("_transaction", "_databases")

    def __init__(self, transaction: lmdb.Transaction, databases: dict[str, Any]) -> None:
        self._transaction, self._databases = transaction, databases

    def get(self, database: str, key: bytes) -> bytes | None:
        """The value of `key`, or None."""
        found = self._transaction.get(key, db=self._databases[database])
        return None if found is None else bytes(found)

    def getter(self, database: str) -> Callable[[bytes], bytes | None]:
        """As `get` of one database, for whoever looks up key after key: one that lies on the page
        of the last one is found there."""
        cursor: Any = self._transaction.cursor(db=self._databases[database])
        get: Callable[[bytes], bytes | None] = cursor.get  # bytes, as the transaction gives them
        return get

    def get_all(self, database: str, keys: list[bytes]) -> dict[bytes, bytes]:
        """Key to value of those that are there. Ascending keys are found fastest."""
        with self._transaction.cursor(db=self._databases[database]) as cursor:
            found: Any = cursor.getmulti(keys)
        return dict(found)

    def keys(self, database: str, first: bytes, end: bytes, count: int) -> list[bytes]:
        """The keys from `first` to before `end` in rising order, at most `count` of them."""
        with self._transaction.cursor(db=self._databases[database]) as cursor:
            if not cursor.set_range(first):
                return []
            rows: Any = cursor.iternext(keys=True, values=False)
            found: list[bytes] = list(islice(rows, count))
        return found[: bisect_left(found, end)]

    def items(
        self, database: str, first: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of each key with `first` <= key < `end` in rising order of bytes."""
        with self._transaction.cursor(db=self._databases[database]) as cursor:
            found = cursor.set_range(first) if first else cursor.first()
            while found:
                key = bytes(cursor.key())
                if end is not None and key >= end:
                    return
                yield key, bytes(cursor.value())
                found = cursor.next()

    def items_backwards(
        self, database: str, end: bytes | None = None, first: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of each key with `first` <= key < `end` in falling order of bytes."""
        with self._transaction.cursor(db=self._databases[database]) as cursor:
            behind = end is not None and cursor.set_range(end)
            found = cursor.prev() if behind else cursor.last()
            while found:
                key = bytes(cursor.key())
                if key < first:
                    return
                yield key, bytes(cursor.value())
                found = cursor.prev()

    def count(self, database: str) -> int:
        """How many keys the database holds."""
        return int(self.stat(database)["entries"])

    def stat(self, database: str) -> Any:
        """LMDB's own figures of one database, by name."""
        return self._transaction.stat(self._databases[database])


class Store:
    """One folder, open. Safe to use from several threads; `write` calls wait for each other.

    StorageError when the folder cannot be opened or holds something else.
    """

    def __init__(
        self, folder: Path, databases: Sequence[str], map_size: int, *, read_only: bool = False
    ) -> None:
        """`map_size`: bytes the store may grow to; a map that is larger already keeps its size."""
        assert databases and map_size > 0
        self.folder, self.read_only = folder, read_only
        try:
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._environment = lmdb.open(
                str(folder),
                map_size=map_size,
                max_dbs=len(databases),
                max_readers=STORE_READERS_MAX,
                readonly=read_only,
                create=not read_only,
                mode=0o600,
                sync=True,
                metasync=True,
                writemap=False,
                meminit=True,
                max_spare_txns=STORE_READERS_MAX,
            )
            try:
                self._databases = self._open_databases(databases)
            except lmdb.MapResizedError:  # by its writer, just now
                self._environment.set_mapsize(0)
                self._databases = self._open_databases(databases)
        except (lmdb.Error, OSError) as error:
            raise StorageError(
                f"{folder}: the store cannot be opened: {error}; correct the path, free space "
                "there, or put back the folder from a copy"
            ) from error
        self._writing = threading.Lock()
        self._mapped = threading.Condition()  # no map is exchanged under a reader
        self._readers = 0

    def _open_databases(self, names: Sequence[str]) -> dict[str, Any]:
        create = not self.read_only
        return {name: self._environment.open_db(name.encode(), create=create) for name in names}

    @contextlib.contextmanager
    def reading(self) -> Iterator[Reading]:
        """The newest durable state, unchanged while the block runs. Keep it short."""
        with self._mapped:
            self._readers += 1
        try:
            with self._begin() as transaction:
                yield Reading(transaction, self._databases)
        finally:
            with self._mapped:
                self._readers -= 1
                self._mapped.notify_all()

    def _begin(self) -> lmdb.Transaction:
        """A transaction of a reader. Another process, whose store it is, may have enlarged the map
        since this one opened it: then ours follows, once nobody here reads."""
        for _ in range(_RESIZED_MAX):
            try:
                return self._environment.begin(buffers=False)
            except lmdb.MapResizedError:
                with self._mapped:
                    self._readers -= 1
                    self._mapped.notify_all()
                    self._mapped.wait_for(lambda: self._readers == 0)
                    self._environment.set_mapsize(0)
                    self._readers += 1
        raise StorageError(
            f"{self.folder}: the store is enlarged again and again while it is read: try again"
        )

    def get(self, database: str, key: bytes) -> bytes | None:
        """The value of `key` in the newest durable state, or None."""
        with self.reading() as reading:
            return reading.get(database, key)

    def write(self, batch: Batch) -> None:
        """Apply all changes in order, in one transaction; durable when this returns.

        StoreFull when the map is too small, StorageError when the volume fails: nothing is changed.
        """
        assert not self.read_only
        with self._writing:
            try:
                with self._environment.begin(write=True) as transaction:
                    for change in batch.changes:
                        self._apply(transaction, change)
            except lmdb.MapFullError as error:
                raise StoreFull(str(self.folder), self.map_size) from error
            except lmdb.Error as error:
                raise StorageError(
                    f"{self.folder}: the store cannot be written: {error}; free space there or "
                    "check the disk"
                ) from error

    def _apply(self, transaction: lmdb.Transaction, change: Change) -> None:
        database = self._databases[change.database]
        if isinstance(change, Put):
            assert 0 < len(change.key) <= STORE_KEY_SIZE_MAX
            transaction.put(change.key, change.value, db=database)
        elif isinstance(change, PutAll):
            sizes = [len(key) for key, _ in change.rows]
            assert 0 < min(sizes) and max(sizes) <= STORE_KEY_SIZE_MAX
            with transaction.cursor(db=database) as cursor:
                cursor.putmulti(change.rows)
        elif isinstance(change, Delete):
            transaction.delete(change.key, db=database)
        elif isinstance(change, DeleteAll):
            for key in change.keys:
                transaction.delete(key, db=database)
        else:
            with transaction.cursor(db=database) as cursor:
                found = cursor.set_range(change.first) if change.first else cursor.first()
                while found and (change.end is None or bytes(cursor.key()) < change.end):
                    found = cursor.delete()  # moves on to the next key

    def enlarge(self, map_size: int) -> None:
        """Let the store grow to `map_size` bytes. Waits for readers, and they for it."""
        assert map_size >= self.map_size
        with self._writing, self._mapped:
            self._mapped.wait_for(lambda: self._readers == 0)
            self._environment.set_mapsize(map_size)

    @property
    def map_size(self) -> int:
        """Bytes the store may grow to."""
        info: Any = self._environment.info()
        return int(info["map_size"])

    def figures(self) -> StoreFigures:
        """How large the store is now."""
        with self.reading() as reading:
            stats = {name: reading.stat(name) for name in self._databases}
            info: Any = self._environment.info()
            main: Any = self._environment.stat()
        pages = int(info["last_pgno"]) + 1
        live = META_PAGES + sum(_pages(stat) for stat in [main, *stats.values()])
        return StoreFigures(
            map_size=int(info["map_size"]),
            used_size=pages * int(main["psize"]),
            free_size=max(0, pages - live) * int(main["psize"]),
            entries={name: int(stat["entries"]) for name, stat in stats.items()},
        )

    def close(self) -> None:
        """Give the folder back; readers must have ended."""
        with self._writing, self._mapped:
            assert self._readers == 0
            self._environment.close()
