"""A unit of work: verify pieces of snapshot files and write what is good as Parquet.

    unit    consecutive pieces of one shard; becomes one Parquet file a day, in a staging folder
    piece   a whole file, or for large files some chunks of it; never more than fits the plan

A unit streams: its memory is one chunk of records, whatever the files' size. It judges all that can
be seen in its pieces; what they follow is judged by the driver, from their spans.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from appliance.base.layout import struct_of
from appliance.base.signature import CONTEXT_SNAPSHOT, SIGNATURE_SIZE
from appliance.base.signature import verify as signature_good
from appliance.formats import snapshot
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.manifest import CHUNK_RECORDS
from appliance.formats.record import KIND_CLOCK
from appliance.reports import block
from appliance.reports.block import Problem
from appliance.reports.columns import DICTIONARY_NAMES, TABLE_NAMES, TABLE_SCHEMA, batch_of
from appliance.reports.file_store import FileStore, LocalFileStore
from appliance.reports.span import NO_SPANS, Array, Lost, join

DAY_US = 86_400_000_000
CHUNK_SIZE = CHUNK_RECORDS * RECORD_SIZE
_READ_SIZE = 1 << 20
_HEAD = struct_of(snapshot.HEAD)


class Piece(NamedTuple):
    """Some chunks of a file, or only the digest of a whole one that is read in several pieces."""

    file: int  # its index in the plan
    path: str
    start: int  # first record, from 0
    record_count: int  # 0: the digest only
    first_log_seq: int  # of record `start`
    file_first_log_seq: int
    file_count: int
    chunks: tuple[bytes, ...]  # of these records
    sha256: bytes  # of the whole file
    earliest_us: int  # that a record of the period may bear
    period_end_us: int

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return snapshot.HEAD_SIZE + self.file_count * RECORD_SIZE + SIGNATURE_SIZE

    @property
    def digests(self) -> bool:
        """Whether the file's digest and signature are judged with this piece."""
        return self.record_count in (0, self.file_count)


@dataclass(frozen=True, slots=True)
class Unit:
    """What one task does."""

    number: int
    shard: int
    pieces: tuple[Piece, ...]
    source: FileStore
    target: FileStore
    staging: str  # folder of the target
    trusted: tuple[bytes, ...]
    writes: bool = True


class Part(NamedTuple):
    """A Parquet file that waits in the staging folder."""

    staged: str
    date: str
    shard: int
    rows: int
    size: int
    first_log_seq: int
    last_log_seq: int


@dataclass(slots=True)
class PieceFound:
    """What a task says about a piece."""

    file: int
    first_log_seq: int
    count: int
    problem: Problem | None = None  # its record counts from the start of the file
    first_timestamp: int = 0
    last_timestamp: int = 0
    corrects: bool = False  # the first record is one that corrects the clock
    spans: bytes = b""  # of SPAN
    signer: bytes = b""
    bytes_read: int = 0


@dataclass(slots=True)
class UnitFound:
    """What a task says about its unit; parts only if none of its pieces has a problem."""

    number: int
    pieces: list[PieceFound] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    seconds: float = 0.0
    peak_rss: int = 0  # bytes, of the worker so far


class _Bad(Exception):
    """Ends the work on a piece."""

    def __init__(self, index: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.problem = Problem(index, reason, sentence)


def work(unit: Unit) -> UnitFound:
    """Do all of a unit. Raises StorageError when a server is away; the task is then tried again."""
    started = time.perf_counter()
    found = UnitFound(unit.number)
    buffer = memoryview(bytearray(CHUNK_SIZE))
    with ExitStack() as stack:
        writer = stack.enter_context(PartsWriter(unit)) if unit.writes else None
        for piece in unit.pieces:
            said = PieceFound(piece.file, piece.first_log_seq, piece.record_count)
            try:
                _piece(unit, piece, said, buffer, writer)
            except _Bad as error:
                said.problem = error.problem
            except FileNotFoundError:
                said.problem = Problem(0, "missing_file", "is not there")
            if said.problem is not None and writer is not None:
                writer.give_up()
            found.pieces.append(said)
        if writer is not None:
            found.parts = writer.finish()
    found.seconds = time.perf_counter() - started
    found.peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return found


# --- one piece ------------------------------------------------------------------------------------


def _piece(
    unit: Unit, piece: Piece, said: PieceFound, buffer: memoryview, writer: PartsWriter | None
) -> None:
    size = unit.source.size(piece.path)
    if size is None:
        raise FileNotFoundError(piece.path)
    if size != piece.size:
        records = max(0, min(size - snapshot.HEAD_SIZE, piece.size) // RECORD_SIZE)
        word = "truncated" if size < piece.size else "too_long"
        raise _Bad(
            min(records, piece.file_count - 1),
            word,
            f"has {size} bytes, its manifest says {piece.size}",
        )
    if piece.record_count == 0:
        _digest_only(unit, piece, said)
        return
    digest = sha256()
    offset = snapshot.HEAD_SIZE + piece.start * RECORD_SIZE
    begin = 0 if piece.digests else offset
    length = size - begin if piece.digests else piece.record_count * RECORD_SIZE
    with unit.source.open(piece.path, begin, length) as stream:
        if piece.digests:
            head = _exactly(stream, snapshot.HEAD_SIZE)
            _check_head(head, piece)
            digest.update(head)
        problem = _records(
            stream, piece, said, buffer, writer, unit.shard, digest if piece.digests else None
        )
        if piece.digests:
            signature = _exactly(stream, SIGNATURE_SIZE)
            said.bytes_read += snapshot.HEAD_SIZE + SIGNATURE_SIZE
    if problem is not None:
        raise _Bad(*problem)
    if piece.digests:
        said.signer = _signer(unit, piece, digest.digest(), signature)


def _records(
    stream: BinaryIO,
    piece: Piece,
    said: PieceFound,
    buffer: memoryview,
    writer: PartsWriter | None,
    shard: int,
    digest: object,
) -> Problem | None:
    """Verify all chunks of a piece; the first problem, after which nothing more is read."""
    spans, time_before = [], piece.earliest_us - 1
    for number, wanted in enumerate(piece.chunks):
        done = number * CHUNK_RECORDS
        count = min(CHUNK_RECORDS, piece.record_count - done)
        room = buffer[: count * RECORD_SIZE]
        _fill(stream, room, piece.start + done)
        said.bytes_read += len(room)
        if digest is not None:
            digest.update(room)  # type: ignore[attr-defined]
        found = block.verify(room, count, piece.first_log_seq + done, time_before)
        problem = _validate(found, wanted, piece)
        if problem is not None:
            return problem._replace(record=problem.record + piece.start + done)
        times = found.records["timestamp"]
        if number == 0:
            said.corrects = int(found.records["flags"][0]) == KIND_CLOCK
        said.first_timestamp = said.first_timestamp or int(times[0])
        said.last_timestamp = time_before = int(times[-1])
        spans.append(found.spans)
        if writer is not None:
            writer.write(found.records, found.hashes, shard)
    joined, breaks = join(np.concatenate(spans) if spans else NO_SPANS, Lost(), from_start=False)
    said.spans = joined.tobytes()
    if breaks:
        log_seq = int(np.concatenate(spans)["first_log_seq"][breaks[0].row])
        return Problem(log_seq - piece.file_first_log_seq, "chain", breaks[0].reason)
    return None


def _validate(found: block.Verified, chunk: bytes, piece: Piece) -> Problem | None:
    """The first record that is wrong by itself, else the chunk that is not the manifest's."""
    as_signed = sha256(found.hashes.tobytes()).digest() == chunk
    if found.problem is not None:
        index, reason, sentence = found.problem
        if not as_signed:
            reason, sentence = "tampered", f"{sentence}; the chunk is not what was signed"
        return Problem(index, reason, sentence)
    if not as_signed:
        return Problem(0, "tampered", "begins a chunk whose records are not those that were signed")
    late = found.records["timestamp"] >= np.uint64(piece.period_end_us)
    if late.any():
        return Problem(int(np.argmax(late)), "clock", "is later than its period")
    return None


def _check_head(head: bytes, piece: Piece) -> None:
    magic, version, reserved, room_id, op, count = _HEAD.unpack(head)
    if magic != snapshot.MAGIC:
        raise _Bad(0, "tampered", f"begins with {magic:#x}, which no snapshot does")
    if version != snapshot.VERSION:
        raise _Bad(
            0,
            "schema_version",
            f"is of snapshot version {version}; this program reads "
            f"{snapshot.VERSION}: use the program of that version",
        )
    last = piece.file_first_log_seq + piece.file_count - 1
    if any(reserved) or room_id != snapshot.SEGMENT or (op, count) != (last, piece.file_count):
        raise _Bad(0, "tampered", "has another head than its manifest says")


def _signer(unit: Unit, piece: Piece, digest: bytes, signature: bytes) -> bytes:
    """The trusted key that signed the file."""
    if digest != piece.sha256:
        raise _Bad(0, "tampered", "has another SHA-256 than its manifest says")
    for key in unit.trusted:
        if signature_good(key, CONTEXT_SNAPSHOT, digest, signature):
            return key
    raise _Bad(0, "wrong_key", "is not signed by a trusted key")


def _digest_only(unit: Unit, piece: Piece, said: PieceFound) -> None:
    """Digest and signature of a file whose records others verify."""
    digest = sha256()
    room = memoryview(bytearray(_READ_SIZE))
    left = piece.size - SIGNATURE_SIZE
    with unit.source.open(piece.path, 0, piece.size) as stream:
        head = _exactly(stream, snapshot.HEAD_SIZE)
        _check_head(head, piece)
        digest.update(head)
        left -= len(head)
        while left:
            part = room[: min(left, len(room))]
            _fill(stream, part, 0)
            digest.update(part)
            left -= len(part)
        signature = _exactly(stream, SIGNATURE_SIZE)
    said.bytes_read = piece.size
    said.signer = _signer(unit, piece, digest.digest(), signature)


def _fill(stream: BinaryIO, room: memoryview, index: int) -> None:
    """Read until `room` is full; `index` is of the record it begins with."""
    got = 0
    while got < len(room):
        count = stream.readinto(room[got:])  # type: ignore[attr-defined]
        if not count:
            raise _Bad(index + got // RECORD_SIZE, "truncated", "ends before its manifest says")
        got += count


def _exactly(stream: BinaryIO, size: int) -> bytes:
    room = bytearray(size)
    _fill(stream, memoryview(room), 0)
    return bytes(room)


# --- Parquet --------------------------------------------------------------------------------------


class PartsWriter:
    """Writes the records of a unit into one Parquet file for each day, under the staging folder."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._open: dict[str, tuple[pq.ParquetWriter, Path, list[int]]] = {}
        self._given_up = False
        if isinstance(unit.target, LocalFileStore):  # on its own disk, so that a rename is enough
            parent = Path(unit.target.root, unit.staging)
            parent.mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(prefix="task-", dir=parent)
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="tigerchat-")

    def __enter__(self) -> PartsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()
        self._folder.cleanup()

    def write(self, records: Array, hashes: Array, shard: int) -> None:
        """Records in the order of the log."""
        if self._given_up:
            return
        for date, start, end in days_of(records["timestamp"]):
            rows = records[start:end]
            batch = batch_of(rows, TABLE_NAMES, shard=shard, hashes=hashes[start:end])
            writer, _, totals = self._of_day(date, int(rows["log_seq"][0]))
            writer.write_batch(batch)
            totals[0] += len(rows)
            totals[2] = int(rows["log_seq"][-1])

    def _of_day(self, date: str, log_seq: int) -> tuple[pq.ParquetWriter, Path, list[int]]:
        if date not in self._open:
            path = Path(self._folder.name, f"{date}.parquet")
            self._open[date] = (parquet_writer(path), path, [0, log_seq, log_seq])
        return self._open[date]

    def give_up(self) -> None:
        """Forget all that was written: the unit will be done again without its bad file."""
        self._given_up = True
        for writer, path, _ in self._open.values():
            writer.close()
            path.unlink(missing_ok=True)
        self._open.clear()

    def finish(self) -> list[Part]:
        """Put what was written into the staging folder."""
        parts = []
        for date, (writer, path, (rows, first, last)) in self._open.items():
            writer.close()
            size = path.stat().st_size
            name = part_name(first, last)
            staged = f"{self._unit.staging}/{date}-{self._unit.shard:05d}-{name}"
            self._unit.target.put(staged, path)
            parts.append(Part(staged, date, self._unit.shard, rows, size, first, last))
        self._open.clear()
        return parts


def part_name(first_log_seq: int, last_log_seq: int) -> str:
    """Of a Parquet file with records of this range."""
    return f"part-{first_log_seq:020d}-{last_log_seq:020d}-{os.urandom(4).hex()}.parquet"


def parquet_writer(path: Path) -> pq.ParquetWriter:
    """Of the records table."""
    return pq.ParquetWriter(
        path,
        TABLE_SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(DICTIONARY_NAMES),
        store_schema=False,
    )


def days_of(timestamps: Array) -> Iterator[tuple[str, int, int]]:
    """(date, start, end) of the runs of one UTC day in rising timestamps."""
    days = (timestamps // np.uint64(DAY_US)).astype(np.int64)
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, end in zip(starts, starts[1:], strict=False):
        if end > start:
            yield str(np.datetime64(int(days[start]), "D")), start, end
