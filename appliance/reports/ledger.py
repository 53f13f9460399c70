"""What counts: the state of the tables, replaced as a whole by one rename.

    tables/
        _ledger/state-<number>.json     the newest one counts; the last few are kept
        _ledger/rooms-….bin             newest record of each room of a shard, as spans
        _staging/                       Parquet that does not count yet
        records/date=…/shard=…/         Parquet of every record
        traffic/date=…/                 Parquet: records and bytes by hour, room, author, kind

A commit writes what it needs under new names, then the state. The state names the staged files to
move and the old ones to delete, and who writes next does what is left of that. So a kill at any
moment leaves either the state before, and rubbish that the next run removes, or the state after.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.json_text import parse_json
from appliance.reports.archive import Cursor, Quarantined
from appliance.reports.file_store import FileStore, LocalFileStore, read_all
from appliance.reports.span import NO_SPANS, SPAN, Array, Lost

FORMAT = 1
STATES_KEPT = 8
LEDGER, STAGING, RECORDS, TRAFFIC = "_ledger", "_staging", "records", "traffic"
_STATE_NAME = re.compile(r"state-([0-9]{12})\.json")


class TableFile(NamedTuple):
    """A Parquet file that counts."""

    path: str
    date: str
    shard: int  # -1 in tables that are not cut by shard
    rows: int
    size: int
    first_log_seq: int
    last_log_seq: int


@dataclass(slots=True)
class ShardState:
    """Up to where a shard is in the tables, and what its next record must follow."""

    cursor: Cursor = field(default_factory=Cursor)
    last_timestamp: int = 0
    lost: Lost = field(default_factory=Lost)
    rooms_file: str = ""  # of all shards that changed with the same commit
    rooms_offset: int = 0
    rooms_size: int = 0
    rooms_sha256: str = ""
    records: int = 0
    files: int = 0
    manifests: int = 0
    by_key: dict[str, int] = field(default_factory=dict)  # public key -> records in its files


@dataclass(slots=True)
class State:
    """All that counts."""

    cluster: str
    number: int = 0
    shards: dict[int, ShardState] = field(default_factory=dict)
    records: list[TableFile] = field(default_factory=list)
    traffic: list[TableFile] = field(default_factory=list)
    stale_dates: list[str] = field(default_factory=list)  # whose traffic is older
    quarantine: list[Quarantined] = field(default_factory=list)
    moves: list[tuple[str, str]] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)

    def shard(self, number: int) -> ShardState:
        return self.shards.setdefault(number, ShardState())


class Ledger:
    """The tables of one cluster in one place; one writer at a time."""

    def __init__(self, store: FileStore, cluster: bytes | None) -> None:
        """`cluster` None: of whichever cluster they are, to read them."""
        self.store = store
        self._cluster = cluster.hex() if cluster is not None else ""

    def load(self) -> State:
        """The newest state, as readers see it."""
        numbers = self._numbers()
        if not numbers:
            return State(self._cluster)
        path = f"{LEDGER}/state-{numbers[-1]:012d}.json"
        state = decode(read_all(self.store, path), f"{self.store.url}/{path}")
        if self._cluster not in (state.cluster, ""):
            raise ConfigurationError(
                f"{self.store.url}: tables of cluster {state.cluster}, not of "
                f"{self._cluster}: name another folder for the tables"
            )
        return state

    @contextmanager
    def writing(self, again: bool = False) -> Iterator[State]:
        """The newest state for the one who writes; what an earlier writer left is put in order.

        With `again` the tables are emptied first, of whatever version they are.
        """
        with self._locked():
            state = self._empty() if again else self.load()
            self._settle(state)
            self._sweep(state)
            yield state

    def _empty(self) -> State:
        state = State(self._cluster, number=(self._numbers() or [0])[-1])
        state.deletes = [RECORDS, TRAFFIC]
        self.commit(state, {})
        return state

    def commit(self, state: State, rooms: dict[int, Array]) -> None:
        """Make `state` count, with the newest records of the rooms of the shards that changed.

        Raises StorageError when somebody else committed meanwhile: nothing of this one counts then.
        """
        number = state.number + 1
        rooms_file = f"{LEDGER}/rooms-{number:012d}-{os.urandom(4).hex()}.bin"
        parts, offset = [], 0
        for shard, spans in rooms.items():
            data = spans.tobytes()
            entry = state.shard(shard)
            entry.rooms_file, entry.rooms_offset, entry.rooms_size = rooms_file, offset, len(data)
            entry.rooms_sha256 = sha256(data).hexdigest()
            parts.append(data)
            offset += len(data)
        if parts:
            self.store.write(rooms_file, b"".join(parts))
        state.number = number
        staged = f"{LEDGER}/writing-{os.urandom(8).hex()}"
        self.store.write(staged, encode(state))
        if not self.store.rename(staged, f"{LEDGER}/state-{number:012d}.json"):
            raise StorageError(
                f"{self.store.url}: another ingest committed state {number} "
                "meanwhile; run one at a time"
            )
        self.store.flush(LEDGER)
        self._settle(state)

    def rooms(self, state: State, shard: int) -> Array:
        """Newest record of each room of a shard, as spans from its first record on."""
        entry = state.shard(shard)
        if not entry.rooms_file:
            return NO_SPANS
        with self.store.open(entry.rooms_file, entry.rooms_offset, entry.rooms_size) as stream:
            raw = stream.read()
        if sha256(raw).hexdigest() != entry.rooms_sha256:
            raise StorageError(
                f"{self.store.url}/{entry.rooms_file}: is not what was written; "
                "make the tables again with --again"
            )
        return np.frombuffer(raw, SPAN)

    def _numbers(self) -> list[int]:
        names = [entry.name for entry in self.store.list(LEDGER)]
        return sorted(int(found[1]) for name in names if (found := _STATE_NAME.fullmatch(name)))

    def _settle(self, state: State) -> None:
        """Do what the newest state wants done; doing it again does no harm."""
        for source, target in state.moves:
            if not self.store.rename(source, target) and self.store.size(target) is None:
                raise StorageError(
                    f"{self.store.url}/{target}: is gone, and so is what it was "
                    "made of; make the tables again with --again"
                )
            self.store.delete(source)  # the other name of a file whose move was cut short
        for path in state.deletes:
            self.store.delete(path)

    def _sweep(self, state: State) -> None:
        """Remove what no kept state names."""
        self.store.delete(STAGING)
        numbers = self._numbers()[-STATES_KEPT:]
        keep = {f"state-{number:012d}.json" for number in numbers} | {"lock"}
        keep |= {entry.rooms_file.rpartition("/")[2] for entry in state.shards.values()}
        for entry in self.store.list(LEDGER):
            if entry.name not in keep:
                self.store.delete(f"{LEDGER}/{entry.name}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """On this machine a second writer is refused; on HDFS it fails when it commits."""
        if not isinstance(self.store, LocalFileStore):
            yield
            return
        path = Path(self.store.root, LEDGER, "lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StorageError(
                    f"{self.store.url}: another ingest is at work on these tables"
                ) from error
            yield


# --- the state as bytes ---------------------------------------------------------------------------


def encode(state: State) -> bytes:
    """JSON: people may look at it."""
    table = asdict(state)
    table["format"] = FORMAT
    return json.dumps(table, separators=(",", ":"), default=bytes.hex).encode()


def decode(raw: bytes, where: str) -> State:
    """What `encode` wrote; `where` is for the error."""
    try:
        table = parse_json(raw)
    except ValueError as error:
        raise StorageError(f"{where}: is no JSON; make the tables again with --again") from error
    if not isinstance(table, dict):
        raise StorageError(f"{where}: is no state of tables; make them again with --again")
    if table.pop("format", None) != FORMAT:
        raise ConfigurationError(
            f"{where}: tables of another version of this program; make them again with --again"
        )
    shards = {}
    for number, row in table["shards"].items():
        cursor = row["cursor"]
        row["cursor"] = Cursor(cursor[0], bytes.fromhex(cursor[1]), *cursor[2:])
        row["lost"] = Lost(tuple((first, last) for first, last in row["lost"][0]))
        shards[int(number)] = ShardState(**row)
    return State(
        cluster=table["cluster"],
        number=table["number"],
        shards=shards,
        records=[TableFile(*row) for row in table["records"]],
        traffic=[TableFile(*row) for row in table["traffic"]],
        stale_dates=table["stale_dates"],
        quarantine=[Quarantined(*row) for row in table["quarantine"]],
        moves=[(source, target) for source, target in table["moves"]],
        deletes=table["deletes"],
    )
