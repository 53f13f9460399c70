"""Changes that become durable together."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Put:
    database: str
    key: bytes
    value: bytes


@dataclass(slots=True, frozen=True)
class PutAll:
    """Of (key, value) each. Ascending keys are written fastest: neighbours lie on one page."""

    database: str
    rows: list[tuple[bytes, bytes]]


@dataclass(slots=True, frozen=True)
class Delete:
    """Of a key that may be absent."""

    database: str
    key: bytes


@dataclass(slots=True, frozen=True)
class DeleteAll:
    """Of keys that may be absent, ascending ones the fastest."""

    database: str
    keys: list[bytes]


@dataclass(slots=True, frozen=True)
class DeleteRange:
    """Of every key with `first` <= key < `end`; `end` None: to the last key."""

    database: str
    first: bytes
    end: bytes | None


Change = Put | PutAll | Delete | DeleteAll | DeleteRange


class Batch:
    """Changes in the order in which they are applied; a later one sees what an earlier one did."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def put(self, database: str, key: bytes, value: bytes) -> "Batch":
        """Set `key`, of 1 to STORE_KEY_SIZE_MAX bytes, to `value`; it may be there already."""
        self.changes.append(Put(database, key, value))
        return self

    def put_all(self, database: str, rows: list[tuple[bytes, bytes]]) -> "Batch":
        """As `put` of each row, at less cost. The caller does not change `rows` any more."""
        if rows:
            self.changes.append(PutAll(database, rows))
        return self

    def delete(self, database: str, key: bytes) -> "Batch":
        self.changes.append(Delete(database, key))
        return self

    def delete_all(self, database: str, keys: list[bytes]) -> "Batch":
        """As `delete` of each key, at less cost. The caller does not change `keys` any more."""
        if keys:
            self.changes.append(DeleteAll(database, keys))
        return self

    def delete_range(self, database: str, first: bytes, end: bytes | None) -> "Batch":
        """Remove every key from `first` to before `end`; `end` None: to the last key."""
        self.changes.append(DeleteRange(database, first, end))
        return self

    def __len__(self) -> int:
        return len(self.changes)
