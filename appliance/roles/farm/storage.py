"""The core's writes as one transaction, and what lies there when a member starts again.

log        index (8 bytes, big-endian) -> CRC32C, term, type, value
state      "hard" -> term, vote, commit, standing     "snapshot" -> what it covers
snapshot   offset (8 bytes) -> a block of it
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from appliance.base.checksum import crc32c
from appliance.base.errors import StorageError, StoreFull
from appliance.base.json_text import parse_json
from appliance.base.limits import KIB, MIB
from appliance.cores.directory.directory import Directory
from appliance.cores.raft.effects import (
    AppendLog,
    CutLog,
    HardState,
    Saved,
    SaveSnapshot,
    SaveState,
    Snapshot,
    Write,
)
from appliance.drivers.store.batch import Batch
from appliance.drivers.store.store import Store
from appliance.formats.raft_legacy.configuration import decode_configuration, encode_configuration
from appliance.formats.raft_legacy.frame import Entry

STORE_FOLDER = "store"  # in a member's folder
LOG, STATE, SNAPSHOT = "log", "state", "snapshot"
_HARD, _COVER = b"hard", b"snapshot"
_AGAIN = "take this member out of the farm, and let it join again with an empty folder"
_CRC = struct.Struct(">I")
_RECORD = struct.Struct(">IqB")  # CRC32C of the rest with the index, term, type
_MAP_SIZE, _MAP_SIZE_MAX = 256 * MIB, 16 * 1024 * MIB
_BLOCK_SIZE = 256 * KIB


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _record(index: int, entry: Entry) -> bytes:
    rest = _RECORD.pack(0, entry.term, entry.type)[_CRC.size :] + entry.value
    return _CRC.pack(crc32c(_key(index) + rest)) + rest


def _entry(index: int, record: bytes, folder: Path) -> Entry:
    if len(record) < _RECORD.size or _CRC.unpack_from(record)[0] != crc32c(
        _key(index) + record[_CRC.size :]
    ):
        raise StorageError(
            f"{folder}: entry {index} of the farm's log is damaged; take this member out of the "
            "farm, and let it join again with an empty folder"
        )
    _, term, kind = _RECORD.unpack_from(record)
    return Entry(term, kind, record[_RECORD.size :])


class FarmStorage:
    """The store of one member; `perform` is called from one thread at a time."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self.store = Store(folder, [LOG, STATE, SNAPSHOT], _MAP_SIZE, read_only=read_only)

    def perform(self, writes: list[Write]) -> None:
        """All of them or none; durable when this returns. StorageError: nothing was written."""
        batch = Batch()
        for write in writes:
            self._add(batch, write)
        while True:
            try:
                self.store.write(batch)
                return
            except StoreFull as error:
                if error.map_size * 2 > _MAP_SIZE_MAX:
                    raise
                self.store.enlarge(error.map_size * 2)

    def _add(self, batch: Batch, write: Write) -> None:
        if isinstance(write, SaveState):
            batch.put(STATE, _HARD, json.dumps(_state_row(write.state)).encode())
        elif isinstance(write, CutLog):
            batch.delete_range(LOG, _key(write.index), None)
        elif isinstance(write, AppendLog):
            for index, entry in enumerate(write.entries, write.first):
                batch.put(LOG, _key(index), _record(index, entry))
        else:
            self._add_snapshot(batch, write)

    def _add_snapshot(self, batch: Batch, write: SaveSnapshot) -> None:
        snapshot = write.snapshot
        row = {
            "index": snapshot.index,
            "term": snapshot.term,
            "configuration": encode_configuration(snapshot.configuration).hex(),
            "size": len(snapshot.data),
            "crc32c": crc32c(snapshot.data),
            "before": write.before,
            "before_term": write.before_term,
        }
        batch.put(STATE, _COVER, json.dumps(row).encode())
        batch.delete_range(SNAPSHOT, b"", None)
        for offset in range(0, len(snapshot.data), _BLOCK_SIZE):
            batch.put(SNAPSHOT, _key(offset), snapshot.data[offset : offset + _BLOCK_SIZE])
        batch.delete_range(LOG, b"", _key(write.before + 1))

    def load(self, first: HardState) -> Saved:
        """What was durable; `first`: the state of a member that never ran.

        StorageError: something is damaged, and the member must not run.
        """
        saved = Saved(first)
        with self.store.reading() as reading:
            raw = reading.get(STATE, _HARD)
            cover = reading.get(STATE, _COVER)
            try:
                if raw is not None:
                    saved.state = HardState(**parse_json(raw))
                if cover is not None:
                    data = b"".join(value for _, value in reading.items(SNAPSHOT))
                    self._load_snapshot(saved, parse_json(cover), data)
            except (ValueError, TypeError, KeyError) as error:
                raise StorageError(
                    f"{self.folder}: the farm's state is damaged; {_AGAIN}"
                ) from error
            expected = saved.before
            for key, record in reading.items(LOG):
                expected += 1
                index = int.from_bytes(key, "big")
                if index != expected:
                    raise StorageError(f"{self.folder}: entry {expected} of the farm's log is gone")
                saved.entries.append(_entry(index, record, self.folder))
        return saved

    def _load_snapshot(self, saved: Saved, row: dict[str, Any], data: bytes) -> None:
        if len(data) != row["size"] or crc32c(data) != row["crc32c"]:
            raise StorageError(f"{self.folder}: the farm's snapshot is damaged; {_AGAIN}")
        configuration = decode_configuration(bytes.fromhex(row["configuration"]))
        saved.snapshot = Snapshot(row["index"], row["term"], configuration, data)
        saved.before, saved.before_term = row["before"], row["before_term"]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The log for people and for comparison: index, term, type, value, committed."""
        saved = self.load(HardState())
        for index, entry in enumerate(saved.entries, saved.before + 1):
            try:
                value: dict[str, str] = {"value": entry.value.decode()}
            except UnicodeDecodeError:
                value = {"value_hex": entry.value.hex()}
            yield {
                "index": index,
                "term": entry.term,
                "type": entry.type,
                **value,
                "committed": index <= saved.state.commit,
            }

    def close(self) -> None:
        self.store.close()


def directory_of(farm: str, saved: Saved) -> Directory:
    """The application's state after the committed part of what was durable."""
    directory = Directory(farm)
    if saved.snapshot is not None:
        snapshot = saved.snapshot
        directory.restore(snapshot.index, snapshot.term, snapshot.data)
    for index, entry in enumerate(saved.entries, saved.before + 1):
        if directory.index < index <= saved.state.commit:
            directory.take(index, entry)
    return directory


def _state_row(state: HardState) -> dict[str, Any]:
    return {
        "term": state.term,
        "vote": state.vote,
        "commit": state.commit,
        "standing": state.standing,
    }
