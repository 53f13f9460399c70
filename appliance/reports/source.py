"""`spark.read.format("tigerchat")`: snapshot files as rows, straight from an archive.

    option      meaning
    path        a snapshot file, several by a pattern (local), or the root of an archive
    keys        trusted keys file; needed for the root of an archive, whose manifests are verified
    shards, rooms               numbers of shards, ids of rooms, with commas between
    first_log_seq, last_log_seq numbers of records, both included
    since, before               times, as 2026-01-05 or 2026-01-05T12:00:00+01:00, else UTC
    check       "false" leaves out the CRC of each record
    counters    a folder that gets what was read and what was skipped; `counted` sums it up
    hdfs_http, hdfs_user    as for `tigerchat report`

Only the columns of the schema that is asked for are made: `.schema("room_id string, seq long")`;
those that are never null may be declared so (`not null`). What the options leave out is skipped:
whole files by what their manifest and name say, parts of a file by its order, rows of other rooms
before they become columns. Filters of a query are Spark's own business: the reads of one frame in
one query share what a source was told of their filters, and each would get the rows of the last.
Chains and digests are for `ingest` to verify, which is what makes tables of it.
"""

from __future__ import annotations

import glob
import json
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from appliance.base.errors import ConfigurationError, FormatError
from appliance.base.json_text import parse_json
from appliance.formats import manifest as shipped
from appliance.formats import snapshot
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import TIMESTAMP
from appliance.formats.webhdfs_call import Login
from appliance.reports import block
from appliance.reports.archive import Archive
from appliance.reports.columns import FORMS, MAY_BE_NULL, batch_of, spark_schema
from appliance.reports.file_store import FileStore, LocalFileStore, file_store_of, read_all

NAME = "tigerchat"
RANGE_RECORDS = 100_000  # of one partition
BATCH_RECORDS = 10_000
_NUMBER_MAX = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Wanted:
    """What is to be read; ranges are inclusive."""

    shards: frozenset[int] | None = None
    rooms: frozenset[bytes] | None = None
    low: dict[str, int] = field(default_factory=lambda: {"timestamp": 0, "log_seq": 0})
    high: dict[str, int] = field(
        default_factory=lambda: {"timestamp": _NUMBER_MAX, "log_seq": _NUMBER_MAX}
    )

    @classmethod
    def of(cls, options: dict[str, str]) -> Wanted:
        """What the options of a read ask for; ConfigurationError names one that says nothing."""
        wanted = cls()
        if "shards" in options:
            wanted.shards = frozenset(_whole("shards", word) for word in _words(options["shards"]))
        if "rooms" in options:
            wanted.rooms = frozenset(_room(word) for word in _words(options["rooms"]))
        if "first_log_seq" in options:
            wanted.low["log_seq"] = _whole("first_log_seq", options["first_log_seq"])
        if "last_log_seq" in options:
            wanted.high["log_seq"] = _whole("last_log_seq", options["last_log_seq"])
        if "since" in options:
            wanted.low["timestamp"] = _time_us("since", options["since"])
        if "before" in options:
            wanted.high["timestamp"] = _time_us("before", options["before"]) - 1
        return wanted

    def overlaps(self, name: str, low: int, high: int) -> bool:
        return low <= self.high[name] and high >= self.low[name]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _whole(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ConfigurationError(f"option {option} is {text[:40]!r}; allowed: a whole number")
    return int(text)


def _room(text: str) -> bytes:
    """The id of a room as records hold it."""
    try:
        return UUID(text).bytes[::-1]
    except ValueError:
        raise ConfigurationError(
            f"option rooms has {text[:40]!r}; allowed: ids of rooms, as the column room_id has them"
        ) from None


def _time_us(option: str, text: str) -> int:
    """Microseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0, (moment - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"option {option} is {text[:40]!r}; allowed: a time such as 2026-01-05T12:00:00+01:00"
        ) from None


@dataclass
class Range(InputPartition):
    """Some records of a file."""

    path: str
    shard: int
    first_log_seq: int  # of the file
    start: int
    count: int


class Source(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(dict(self.options), schema)


class Reader(DataSourceReader):
    """One scan."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        _check_schema(schema)
        self._options, self._names = options, schema.fieldNames()
        self._never_null = frozenset(each.name for each in schema.fields if not each.nullable)
        self._wanted = Wanted.of(options)
        self._check = options.get("check", "true").lower() != "false"

    def partitions(self) -> Sequence[InputPartition]:
        ranges: list[Range] = []
        files = skipped = 0
        bytes_skipped = 0
        for path, shard, first, count, times in self._files():
            files += 1
            low = max(first, self._wanted.low["log_seq"])
            high = min(first + count - 1, self._wanted.high["log_seq"])
            foreign = self._wanted.shards is not None and shard not in self._wanted.shards
            if foreign or low > high or not self._wanted.overlaps("timestamp", *times):
                skipped += 1
                bytes_skipped += count * RECORD_SIZE
                continue
            bytes_skipped += (count - (high - low + 1)) * RECORD_SIZE
            for start in range(low, high + 1, RANGE_RECORDS):
                length = min(RANGE_RECORDS, high + 1 - start)
                ranges.append(Range(path, shard, first, start - first, length))
        self._count("plan", files=files, files_skipped=skipped, bytes_skipped=bytes_skipped)
        return ranges or [Range("", 0, 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        start, end = partition.start, partition.start + partition.count
        store = self._store()
        if isinstance(store, LocalFileStore) and partition.count:
            start, end = self._narrowed(store, partition)
        read = rows = 0
        if end > start:
            offset = snapshot.HEAD_SIZE + start * RECORD_SIZE
            buffer = memoryview(bytearray(BATCH_RECORDS * RECORD_SIZE))
            with store.open(partition.path, offset, (end - start) * RECORD_SIZE) as stream:
                for at in range(start, end, BATCH_RECORDS):
                    batch = self._batch(stream, buffer, partition, at, min(BATCH_RECORDS, end - at))
                    read += min(BATCH_RECORDS, end - at) * RECORD_SIZE
                    rows += batch.num_rows
                    yield batch
        whole = partition.count * RECORD_SIZE
        self._count("read", bytes_read=read, bytes_skipped=whole - read, rows=rows)

    # --- files ------------------------------------------------------------------------------------

    def _store(self, url: str = "") -> FileStore:
        who = Login(self._options.get("hdfs_user", ""))
        if not url and "path" not in self._options:
            raise ConfigurationError('format("tigerchat") needs a path: .load("/archive")')
        found = file_store_of(
            url or self._options["path"], login=who, http_address=self._options.get("hdfs_http", "")
        )
        return LocalFileStore("/") if isinstance(found, LocalFileStore) and not url else found

    def _files(self) -> Iterator[tuple[str, int, int, int, tuple[int, int]]]:
        """(path, shard, first log_seq, records, (earliest, latest) possible time) of a file."""
        path = self._options.get("path", "")
        if "keys" in self._options:
            yield from self._listed(path)
            return
        store = self._store()
        names = sorted(glob.glob(path)) if isinstance(store, LocalFileStore) else [""]
        if not names or any(Path(name).is_dir() for name in names):
            raise ConfigurationError(
                f"{path}: no snapshot file; the root of an archive needs the "
                'trusted keys file beside it: .option("keys", …)'
            )
        for name in names:
            name = str(Path(name).absolute()) if name else name
            shown = shipped.parse_snapshot_name((name or path).rpartition("/")[2])
            if shown is None:
                raise ConfigurationError(f"{name or path}: no name of a snapshot file")
            yield name, -1, shown[0], shown[1] - shown[0] + 1, (0, _NUMBER_MAX)

    def _listed(self, path: str) -> Iterator[tuple[str, int, int, int, tuple[int, int]]]:
        """By the manifests, each of which must be signed by a trusted key."""
        keys = shipped.parse_keys(Path(self._options["keys"]).read_bytes())
        archive = Archive(self._store(path), keys)
        prefix = ""
        if isinstance(archive.store, LocalFileStore):
            prefix = archive.store.root + "/"
        for shard in archive.shards():
            for _, name in archive.manifests_after(shard, "", 0):
                found = shipped.parse_manifest(read_all(archive.store, name), keys.public_keys)
                for file in found.value.files:
                    yield (
                        f"{prefix}{name.rpartition('/')[0]}/{file.name}",
                        shard,
                        file.first_log_seq,
                        file.record_count,
                        (found.value.earliest_us, found.value.period_end_us - 1),
                    )

    # --- one range --------------------------------------------------------------------------------

    def _narrowed(self, store: LocalFileStore, partition: Range) -> tuple[int, int]:
        """(first record, one past the last) that the wanted times leave, found by halving."""
        start, end = partition.start, partition.start + partition.count
        low, high = self._wanted.low["timestamp"], self._wanted.high["timestamp"]
        handle = os.open(Path(store.root, partition.path), os.O_RDONLY)
        try:
            if low > 0:
                start = _first(handle, start, end, low, operator.ge)
            if high < _NUMBER_MAX:
                end = _first(handle, start, end, high, operator.gt)
        finally:
            os.close(handle)
        return start, end

    def _batch(
        self, stream: Any, buffer: memoryview, partition: Range, at: int, count: int
    ) -> pa.RecordBatch:
        room = buffer[: count * RECORD_SIZE]
        got = 0
        while got < len(room):
            read = stream.readinto(room[got:])
            if not read:
                raise FormatError(
                    f"{partition.path}: ends at record {at + got // RECORD_SIZE}; it is truncated"
                )
            got += read
        found = block.columns_of(room, count)
        if self._check:
            wrong = block.crc_wrong(room, found)
            if wrong.any():
                raise FormatError(
                    f"{partition.path}: record {at + int(np.argmax(wrong))} has a "
                    "wrong CRC; `tigerchat report ingest` leaves such files out"
                )
        if int(found["log_seq"][0]) != partition.first_log_seq + at:
            raise FormatError(
                f"{partition.path}: record {at} is not number {partition.first_log_seq + at}"
            )
        hashes = block.hashes_of(room, count) if "hash" in self._names else None
        kept = self._kept(found)
        if kept is not None:
            found = found[kept]
            hashes = hashes[kept] if hashes is not None else None
        return batch_of(
            found,
            self._names,
            shard=partition.shard,
            hashes=hashes,
            never_null=self._never_null,
        )

    def _kept(self, found: np.ndarray) -> np.ndarray | None:
        """Which rows are wanted; None: all."""
        kept = None
        if self._wanted.rooms is not None:
            ids = np.ascontiguousarray(found["room_id"])
            kept = np.isin(ids, np.array(sorted(self._wanted.rooms), "V16"))
        low, high = self._wanted.low["timestamp"], self._wanted.high["timestamp"]
        if low > 0 or high < _NUMBER_MAX:
            times = found["timestamp"]
            within = (times >= np.uint64(max(low, 0))) & (times <= np.uint64(max(high, 0)))
            kept = within if kept is None else kept & within
        return kept

    def _count(self, what: str, **numbers: int) -> None:
        folder = self._options.get("counters")
        if folder:
            name = f"{what}-{os.urandom(8).hex()}.json"
            self._store(folder).write(name, json.dumps(numbers).encode())


def _check_schema(schema: StructType) -> None:
    """ConfigurationError unless each column of a schema that was asked for can be made so."""
    known = {each.name: each.dataType for each in spark_schema().fields}
    unknown = [name for name in schema.fieldNames() if name not in known]
    if unknown:
        raise ConfigurationError(
            f"columns {', '.join(unknown)} are unknown; there are {', '.join(FORMS)}"
        )
    for each in schema.fields:
        kind = known[each.name].simpleString()
        if each.dataType.simpleString() != kind:
            raise ConfigurationError(
                f"column {each.name} is {kind}, not {each.dataType.simpleString()}: ask for {kind} "
                "and cast it"
            )
        if not each.nullable and each.name in MAY_BE_NULL:
            raise ConfigurationError(f"column {each.name} may be null: leave out NOT NULL")


def _first(
    handle: int, start: int, end: int, value: int, is_past: Callable[[int, int], bool]
) -> int:
    """The first record from `start` on whose time is past `value`; `end` if none is."""
    while start < end:
        middle = (start + end) // 2
        raw = os.pread(handle, 8, snapshot.HEAD_SIZE + middle * RECORD_SIZE + TIMESTAMP)
        if is_past(int.from_bytes(raw, "little"), value):
            end = middle
        else:
            start = middle + 1
    return start


def counted(store: FileStore) -> dict[str, int]:
    """Sums of what scans with the option `counters` wrote into this folder."""
    sums: dict[str, int] = {}
    for entry in store.list(""):
        for name, number in parse_json(read_all(store, entry.name)).items():
            sums[name] = sums.get(name, 0) + number
    return sums


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(Source)
