"""A batch of manifests dealt as units of work, and what the tasks found, validated.

manifests of a batch ──▶ files ──▶ pieces ──▶ units ──▶ tasks ──▶ pieces found
                                                                      │
state of each shard  ───────────────────────────▶ validate_shard ◀────┘──▶ bad files, new state
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from appliance.formats import snapshot
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.manifest import CHUNK_RECORDS, ShippedFile
from appliance.reports.archive import Checked, Quarantined
from appliance.reports.ledger import ShardState
from appliance.reports.span import SPAN, Array, Lost, join
from appliance.reports.unit import Piece, PieceFound

UNIT_RECORDS_MAX = 100_000  # of one task; a Parquet file of about 30 MB
UNIT_RECORDS_MIN = CHUNK_RECORDS


@dataclass(slots=True)
class PlannedFile:
    """A snapshot file of the batch."""

    index: int
    path: str
    checked: Checked
    file: ShippedFile

    def quarantined(self, record: int, reason: str, sentence: str) -> Quarantined:
        """This file as a row of the quarantine."""
        assert self.checked.manifest is not None
        offset = snapshot.HEAD_SIZE + record * RECORD_SIZE
        return Quarantined(
            self.checked.manifest.shard,
            self.checked.manifest.number,
            self.path,
            record,
            offset,
            self.file.first_log_seq,
            self.file.last_log_seq,
            reason,
            sentence,
        )


@dataclass(slots=True)
class ShardPlan:
    """The manifests of one shard in a batch and their files, in order."""

    shard: int
    checked: list[Checked] = field(default_factory=list)
    files: list[PlannedFile] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """A batch."""

    shards: list[ShardPlan]
    files: list[PlannedFile]

    @property
    def record_count(self) -> int:
        return sum(planned.file.record_count for planned in self.files)


def plan_of(batch: dict[int, list[Checked]]) -> Plan:
    """The files of all usable manifests, numbered through."""
    plan = Plan([], [])
    for shard, checked in batch.items():
        own = ShardPlan(shard, checked)
        for one in checked:
            folder = one.path.rpartition("/")[0]
            for file in one.manifest.files if one.manifest is not None else ():
                planned = PlannedFile(len(plan.files), f"{folder}/{file.name}", one, file)
                plan.files.append(planned)
                own.files.append(planned)
        plan.shards.append(own)
    return plan


def units_of(plan: Plan, cores: int) -> list[tuple[int, tuple[Piece, ...]]]:
    """(shard, pieces) of each unit: about four for each core, large enough for a Parquet file."""
    wanted = -(-plan.record_count // (4 * max(cores, 1)))
    size = min(max(wanted, UNIT_RECORDS_MIN), UNIT_RECORDS_MAX)
    size -= size % CHUNK_RECORDS
    units: list[tuple[int, tuple[Piece, ...]]] = []
    for own in plan.shards:
        pieces: list[Piece] = []
        held = 0
        for piece in _pieces(own.files, size):
            if piece.record_count == 0:
                units.append((own.shard, (piece,)))
                continue
            if pieces and held + piece.record_count > size:
                units.append((own.shard, tuple(pieces)))
                pieces, held = [], 0
            pieces.append(piece)
            held += piece.record_count
        if pieces:
            units.append((own.shard, tuple(pieces)))
    return units


def _pieces(files: Iterable[PlannedFile], size: int) -> Iterator[Piece]:
    for planned in files:
        file, manifest = planned.file, planned.checked.manifest
        assert manifest is not None
        whole = Piece(
            planned.index,
            planned.path,
            0,
            file.record_count,
            file.first_log_seq,
            file.first_log_seq,
            file.record_count,
            file.chunks,
            file.sha256,
            manifest.earliest_us,
            manifest.period_end_us,
        )
        if file.record_count <= size:
            yield whole
            continue
        yield whole._replace(record_count=0, chunks=())
        for start in range(0, file.record_count, size):
            count = min(size, file.record_count - start)
            first = start // CHUNK_RECORDS
            yield whole._replace(
                start=start,
                record_count=count,
                first_log_seq=file.first_log_seq + start,
                chunks=file.chunks[first : first - (-count // CHUNK_RECORDS)],
            )


# --- validation -----------------------------------------------------------------------------------


@dataclass(slots=True)
class ShardResult:
    """What of a shard's batch counts."""

    state: ShardState
    rooms: Array  # spans
    bad: dict[int, Quarantined]  # by file
    quarantined: list[Quarantined]


def validate_shard(
    own: ShardPlan, before: ShardState, rooms: Array, found: dict[int, list[PieceFound]]
) -> ShardResult:
    """Decide which files count: theirs is no problem, and all chains of rooms join.

    Each round the first file at which a chain breaks is taken out, with its records as lost.
    """
    bad = {
        planned.index: _worst(planned, found[planned.index])
        for planned in own.files
        if any(piece.problem for piece in found[planned.index])
    }
    while True:
        lost = _lost(own, before.lost, bad)
        good = [planned for planned in own.files if planned.index not in bad]
        runs = [
            np.frombuffer(piece.spans, SPAN)
            for planned in good
            for piece in _in_order(found[planned.index])
        ]
        owners = [planned for planned in good for _ in _in_order(found[planned.index])]
        joined, breaks = join(np.concatenate([rooms, *runs]), lost, from_start=True)
        late = _not_later(good, found, before.last_timestamp)
        if not breaks and late is None:
            break
        for one in breaks[:1]:
            planned = _owner(one.row - len(rooms), runs, owners)
            log_seq = int(np.concatenate(runs)["first_log_seq"][one.row - len(rooms)])
            record = log_seq - planned.file.first_log_seq
            bad[planned.index] = planned.quarantined(record, "chain", one.reason)
        if late is not None:
            bad.setdefault(
                late.index,
                late.quarantined(0, "clock", "is not later than the last record before this file"),
            )
    state = _state_after(own, before, good, found, lost)
    rows = [row for one in own.checked for row in one.quarantined] + list(bad.values())
    return ShardResult(state, joined, bad, rows)


def _owner(index: int, runs: list[Array], owners: list[PlannedFile]) -> PlannedFile:
    """Whose span that is; the spans of the rooms before the batch were sound when written."""
    assert index >= 0
    ends = np.cumsum([len(run) for run in runs])
    return owners[int(np.searchsorted(ends, index, side="right"))]


def _worst(planned: PlannedFile, pieces: list[PieceFound]) -> Quarantined:
    """The first problem of a file; that of its digest as a whole only if there is no other."""
    problems = sorted(
        (piece.count == 0, piece.problem.record, piece.problem)
        for piece in pieces
        if piece.problem is not None
    )
    problem = problems[0][2]
    return planned.quarantined(problem.record, problem.reason, problem.sentence)


def _in_order(pieces: list[PieceFound]) -> list[PieceFound]:
    return sorted((p for p in pieces if p.count), key=lambda piece: piece.first_log_seq)


def _lost(own: ShardPlan, lost: Lost, bad: dict[int, Quarantined]) -> Lost:
    """With what is missing before manifests and what is in bad files."""
    ranges = [checked.lost for checked in own.checked if checked.manifest is not None]
    ranges += [(f.file.first_log_seq, f.file.last_log_seq) for f in own.files if f.index in bad]
    for first, last in sorted(ranges):
        lost = lost.with_range(first, last)
    return lost


def _not_later(
    good: list[PlannedFile], found: dict[int, list[PieceFound]], last_timestamp: int
) -> PlannedFile | None:
    """The first file whose time does not go on, but where the clock was corrected."""
    for planned in good:
        for piece in _in_order(found[planned.index]):
            if piece.first_timestamp <= last_timestamp and not piece.corrects:
                return planned
            last_timestamp = piece.last_timestamp
    return None


def _state_after(
    own: ShardPlan,
    before: ShardState,
    good: list[PlannedFile],
    found: dict[int, list[PieceFound]],
    lost: Lost,
) -> ShardState:
    by_key = dict(before.by_key)
    last_timestamp = before.last_timestamp
    for planned in good:
        for piece in _in_order(found[planned.index]):
            last_timestamp = piece.last_timestamp
        for piece in found[planned.index]:
            if piece.signer:
                key = piece.signer.hex()
                by_key[key] = by_key.get(key, 0) + planned.file.record_count
    return replace(
        before,
        cursor=own.checked[-1].cursor,
        last_timestamp=last_timestamp,
        lost=lost,
        records=before.records + sum(planned.file.record_count for planned in good),
        files=before.files + len(good),
        by_key=by_key,
        manifests=before.manifests + sum(one.manifest is not None for one in own.checked),
    )
