"""Keeps the Parquet files of a day few: hourly ingests leave small ones, which are merged.

Merging is a commit of its own and changes no row. Files are merged when a day and shard has come to
hold MERGE_COUNT small ones, in the order of the log; so every row is written again only now and
then, however often hours arrive.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark import SparkContext

from appliance.base.errors import StorageError
from appliance.reports.columns import conformed
from appliance.reports.file_store import FileStore, LocalFileStore
from appliance.reports.ingest import table_file
from appliance.reports.ledger import STAGING, Ledger, State, TableFile
from appliance.reports.unit import Part, parquet_writer, part_name

MERGE_COUNT = 8
SMALL_ROWS = 50_000  # a file of fewer is small
MERGED_ROWS_MAX = 1_000_000
_BATCH_ROWS = 10_000
_COPY_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one day and shard that become one."""

    files: tuple[TableFile, ...]
    store: FileStore
    staging: str


def compact(context: SparkContext, ledger: Ledger, state: State) -> int:
    """Merge what has become small; how many files are gone."""
    staging = f"{STAGING}/{os.urandom(8).hex()}"
    merges = [Merge(files, ledger.store, staging) for files in crowded(state.records)]
    if not merges:
        return 0
    parts = context.parallelize(merges, len(merges)).map(merge).collect()
    gone = [file.path for one in merges for file in one.files]
    made = [(part, table_file(part)) for part in parts]
    state.records = [file for file in state.records if file.path not in set(gone)]
    state.records += [file for _, file in made]
    state.moves = [(part.staged, file.path) for part, file in made]
    state.deletes = gone
    ledger.commit(state, {})
    return len(gone) - len(made)


def crowded(files: list[TableFile]) -> list[tuple[TableFile, ...]]:
    """Groups of small files worth merging, each in the order of the log."""
    by_day: dict[tuple[str, int], list[TableFile]] = {}
    for file in files:
        if file.rows < SMALL_ROWS:
            by_day.setdefault((file.date, file.shard), []).append(file)
    groups = []
    for small in by_day.values():
        if len(small) < MERGE_COUNT:
            continue
        group: list[TableFile] = []
        for file in sorted(small, key=lambda file: file.first_log_seq):
            if group and sum(f.rows for f in group) + file.rows > MERGED_ROWS_MAX:
                groups.append(tuple(group))
                group = []
            group.append(file)
        groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def merge(job: Merge) -> Part:
    """Write one staged file of all rows of a group."""
    first, last = job.files[0], job.files[-1]
    with tempfile.TemporaryDirectory(prefix="tigerchat-") as folder:
        made = Path(folder, "merged.parquet")
        writer = parquet_writer(made)
        rows = 0
        for file in job.files:
            with local_copy(job.store, file.path, folder) as path:
                for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS):
                    writer.write_batch(conformed(batch))
                    rows += batch.num_rows
        writer.close()
        if rows != sum(file.rows for file in job.files):
            raise StorageError(
                f"{first.path}: holds other rows than were written; make the tables "
                "again with --again"
            )
        size = made.stat().st_size
        name = part_name(first.first_log_seq, last.last_log_seq)
        staged = f"{job.staging}/{first.date}-{first.shard:05d}-{name}"
        job.store.put(staged, made)
    return Part(staged, first.date, first.shard, rows, size, first.first_log_seq, last.last_log_seq)


@contextmanager
def local_copy(store: FileStore, path: str, folder: str) -> Iterator[Path]:
    """A file of a place as one of this machine."""
    if isinstance(store, LocalFileStore):
        yield Path(store.root, path)
        return
    size = store.size(path)
    if size is None:
        raise StorageError(f"{store.url}/{path}: is gone; make the tables again with --again")
    copy = Path(folder, "copy.parquet")
    with store.open(path, 0, size) as stream, copy.open("wb") as file:
        while part := stream.read(_COPY_SIZE):
            file.write(part)
    yield copy
    copy.unlink()
