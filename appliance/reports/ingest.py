"""From an archive to tables: batch by batch, each verified, written and then made to count at once.

Running it again does only what is new; after a kill it goes on from the last batch that counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice

from pyspark import SparkContext

from appliance.base.errors import StorageError
from appliance.base.printable import counted
from appliance.formats.manifest import ShippedHead
from appliance.reports.archive import (
    Archive,
    Checked,
    Cursor,
    Quarantined,
    check,
    missing_newest,
    wrong,
)
from appliance.reports.ledger import RECORDS, STAGING, Ledger, State, TableFile
from appliance.reports.plan import Plan, ShardResult, plan_of, units_of, validate_shard
from appliance.reports.strays import STRAYS_MAX, strays
from appliance.reports.unit import Part, PieceFound, Unit, UnitFound, work

BATCH_RECORDS = 2_000_000  # that count together: some ten seconds of work on two cores
BATCH_MANIFESTS = 5_000
QUARANTINE_MAX = 100_000  # rows kept; what comes later is counted in the run's lines only

Say = Callable[[str], None]


@dataclass(slots=True)
class Done:
    """What a run of ingest did."""

    records: int = 0  # that came into the tables
    files: int = 0
    batches: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    peak_rss: int = 0  # of the worker that needed most
    dates: set[str] = field(default_factory=set)
    quarantined: list[Quarantined] = field(default_factory=list)  # new ones, to stay
    waiting: list[Quarantined] = field(default_factory=list)  # may be mended by what comes

    @property
    def clean(self) -> bool:
        return not self.quarantined and not self.waiting


class Ingest:
    """One run over an archive. Holds the tables as their only writer while `run` is at work."""

    def __init__(
        self,
        context: SparkContext,
        archive: Archive,
        ledger: Ledger,
        say: Say,
        *,
        batch_records: int = BATCH_RECORDS,
    ) -> None:
        self._context, self._archive, self._ledger = context, archive, ledger
        self._say, self._batch_records = say, batch_records
        self._staging = f"{STAGING}/{os.urandom(8).hex()}"
        self._started = time.monotonic()
        self._expected = 0
        self.done = Done()

    def run(self, state: State, *, expect_until_us: int = 0) -> Done:
        """Bring everything new into the tables; `state` is the one to write."""
        shards = self._shards(state)
        heads = {shard: self._archive.head(shard) for shard in shards}
        self._expected = sum(
            max(0, head.last_log_seq - state.shard(shard).cursor.last_log_seq)
            for shard, (head, _) in heads.items()
            if head is not None
        )
        cursors = {shard: state.shard(shard).cursor for shard in shards}
        dates = {shard: _date_after(cursor) for shard, cursor in cursors.items()}
        for batch in self._batches(shards, cursors):
            self._batch(state, batch)
        for shard in shards:
            cursor = state.shard(shard).cursor
            self._ends(shard, cursor, heads[shard], expect_until_us)
            found = strays(self._archive, shard, dates[shard], cursor.last_log_seq)
            self.done.waiting += islice(found, STRAYS_MAX)
        self.done.seconds = time.monotonic() - self._started
        return self.done

    def _shards(self, state: State) -> list[int]:
        """Those of the archive; one of the keys file that is not there is told of."""
        shards = self._archive.shards()
        wanted = set(range(self._archive.trusted.shards)) | set(state.shards)
        for shard in sorted(wanted - set(shards)):
            folder = self._archive.folder(shard)
            self.done.waiting.append(wrong(shard, folder, "missing_shard", "is not there"))
        for shard in sorted(set(shards) - set(range(self._archive.trusted.shards))):
            folder = self._archive.folder(shard)
            self.done.waiting.append(
                wrong(shard, folder, "foreign", "is a shard of which the keys file does not know")
            )
        return [shard for shard in shards if shard in wanted]

    # --- batches ----------------------------------------------------------------------------------

    def _batches(
        self, shards: list[int], cursors: dict[int, Cursor]
    ) -> Iterator[dict[int, list[Checked]]]:
        """Manifests that make a batch, by shard. A bad one counts only once a good one follows it:
        at the end of what there is it may yet be mended.
        """
        batch: dict[int, list[Checked]] = {}
        records = manifests = 0
        for shard in shards:
            cursor, held = cursors[shard], []
            for checked in self._manifests(shard, cursor):
                held.append(checked)
                if checked.manifest is None:
                    continue
                batch.setdefault(shard, []).extend(held)
                records += checked.manifest.record_count
                manifests += len(held)
                held = []
                if records >= self._batch_records or manifests >= BATCH_MANIFESTS:
                    yield batch
                    batch, records, manifests = {}, 0, 0
            self.done.waiting += [row for checked in held for row in checked.quarantined]
        if batch:
            yield batch

    def _manifests(self, shard: int, cursor: Cursor) -> Iterator[Checked]:
        date = _date_after(cursor)
        found = self._archive.manifests_after(shard, date, cursor.newest_start_us + 1)
        for start_us, path in found:
            checked = check(self._archive, shard, cursor, start_us, path)
            cursor = checked.cursor
            yield checked

    def _batch(self, state: State, batch: dict[int, list[Checked]]) -> None:
        plan = plan_of(batch)
        units = self._units(plan)
        found = self._work(units)
        pieces = _by_file(found)
        results = {}
        for own in plan.shards:
            rooms = self._ledger.rooms(state, own.shard)
            results[own.shard] = validate_shard(own, state.shard(own.shard), rooms, pieces)
        bad = {index for result in results.values() for index in result.bad}
        parts = self._parts(units, found, bad)
        self._commit(state, plan, results, parts)
        self.done.bytes_read += sum(piece.bytes_read for one in found for piece in one.pieces)
        self.done.files += len(plan.files) - len(bad)
        self._progress()

    def _units(self, plan: Plan) -> list[Unit]:
        trusted = tuple(sorted(self._archive.trusted.public_keys))
        return [
            Unit(
                number,
                shard,
                pieces,
                self._archive.store,
                self._ledger.store,
                self._staging,
                trusted,
                writes=pieces[0].record_count > 0,
            )
            for number, (shard, pieces) in enumerate(
                units_of(plan, self._context.defaultParallelism)
            )
        ]

    def _work(self, units: list[Unit]) -> list[UnitFound]:
        if not units:
            return []
        found = self._context.parallelize(units, len(units)).map(work).collect()
        self.done.peak_rss = max(self.done.peak_rss, *(one.peak_rss for one in found))
        return found

    def _parts(self, units: list[Unit], found: list[UnitFound], bad: set[int]) -> list[Part]:
        """The Parquet of all good files; units with a bad one are done again without it."""
        parts, again = [], []
        for unit, one in zip(units, found, strict=True):
            good = tuple(piece for piece in unit.pieces if piece.file not in bad)
            if len(good) == len(unit.pieces):
                parts += one.parts
            elif good and unit.writes:
                again.append(replace(unit, pieces=good))
        for unit, one in zip(again, self._work(again), strict=True):
            problem = next((piece for piece in one.pieces if piece.problem is not None), None)
            if problem is not None:
                raise StorageError(f"{unit.pieces[0].path}: changed while it was read; run again")
            parts += one.parts
        return parts

    def _commit(
        self, state: State, plan: Plan, results: dict[int, ShardResult], parts: list[Part]
    ) -> None:
        rooms = {}
        for shard, result in results.items():
            state.shards[shard] = result.state
            rooms[shard] = result.rooms
            self.done.quarantined += result.quarantined
            space = QUARANTINE_MAX - len(state.quarantine)
            state.quarantine += result.quarantined[:space]
        moved = [(part, table_file(part)) for part in parts]
        state.moves = [(part.staged, file.path) for part, file in moved]
        state.deletes = []
        state.records += [file for _, file in moved]
        dates = {file.date for _, file in moved}
        state.stale_dates = sorted(dates | set(state.stale_dates))
        self._ledger.commit(state, rooms)
        self.done.dates |= dates
        self.done.records += sum(part.rows for part in parts)
        self.done.batches += 1

    def _progress(self) -> None:
        seconds = max(time.monotonic() - self._started, 1e-3)
        rate = self.done.records / seconds
        left = max(0, self._expected - self.done.records)
        text = f"{left / rate:.0f} s left" if rate and left else "nothing left"
        self._say(
            f"{self.done.records:,} of {counted(max(self._expected, self.done.records), 'record')} "
            f"verified, {rate:,.0f} a second, {text}"
        )

    # --- the end of what there is -----------------------------------------------------------------

    def _ends(
        self,
        shard: int,
        cursor: Cursor,
        head: tuple[ShippedHead | None, Quarantined | None],
        expect_until_us: int,
    ) -> None:
        """Judge whether the newest periods are there. The head was read before the manifests were
        listed: a shipper at work may have put more since, which a second look tells."""
        found, problem = head
        folder = self._archive.folder(shard)
        if problem is None:
            problem = missing_newest(shard, cursor, found, folder)
        if problem is not None and problem.reason == "replayed":
            found, problem = self._archive.head(shard)
            problem = problem or missing_newest(shard, cursor, found, folder)
        if problem is not None:
            self.done.waiting.append(problem)
        if expect_until_us > cursor.period_end_us:
            self.done.waiting.append(
                wrong(
                    shard,
                    folder,
                    "missing_manifest",
                    f"periods are there until "
                    f"{time_text(cursor.period_end_us)}, "
                    f"expected until {time_text(expect_until_us)}",
                    number=cursor.number + 1,
                )
            )


def table_file(part: Part) -> TableFile:
    """Where a staged part comes to lie."""
    name = part.staged.rpartition("/")[2].partition(f"{part.date}-{part.shard:05d}-")[2]
    path = f"{RECORDS}/date={part.date}/shard={part.shard:05d}/{name}"
    return TableFile(path, *part[1:])


def _by_file(found: list[UnitFound]) -> dict[int, list[PieceFound]]:
    pieces: dict[int, list[PieceFound]] = {}
    for one in found:
        for piece in one.pieces:
            pieces.setdefault(piece.file, []).append(piece)
    return pieces


def _date_after(cursor: Cursor) -> str:
    """Of the first day that may hold something new."""
    return _date_of(cursor.newest_start_us) if cursor.newest_start_us >= 0 else ""


def _date_of(time_us: int) -> str:
    return time_text(time_us)[:10]


def time_text(time_us: int) -> str:
    """UTC, for people."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
