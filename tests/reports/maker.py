"""Makes archives as a shipper leaves them: rooms, authors, threads, chains, manifests, keys."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

from appliance.base.signature import SigningKey
from appliance.formats import manifest as shipped
from appliance.formats import record, snapshot
from appliance.formats.author import author_id_of
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.manifest import (
    CHUNK_RECORDS,
    PeriodManifest,
    ShippedFile,
    ShippedHead,
    TrustedKeys,
)
from appliance.formats.record import RECORD, record_hash, seal
from appliance.formats.room_name import room_id_of

HOUR_US = 3_600_000_000
START_US = 1_767_225_600_000_000  # 2026-01-01 00:00 UTC
NAMES = ("ada", "bert", "chen", "dora", "emil", "fay", "gus", "hana", "ivan", "june")
WORDS = ("tiger", "river", "quorum", "hello", "log", "ship", "night", "stripe", "ack", "paper")
_TAIL = struct.Struct("<QQ")

Entry = tuple[str, int, str, bytes]  # room, time in µs, author, body


@dataclass
class Site:
    """A cluster with two nodes, either of which may ship."""

    seed: int = 1
    shards: int = 1
    keys: list[SigningKey] = field(default_factory=list)
    cluster: bytes = b""

    def __post_init__(self) -> None:
        self.cluster = sha256(b"cluster %d" % self.seed).digest()[:16]
        self.keys = [
            SigningKey(sha256(b"key %d %d" % (self.seed, node)).digest()) for node in range(2)
        ]

    @property
    def trusted(self) -> TrustedKeys:
        rows = tuple((f"node-{i}", key.public) for i, key in enumerate(self.keys))
        return TrustedKeys(self.cluster, self.shards, rows)

    def write_keys(self, path: Path) -> Path:
        path.write_bytes(shipped.encode_keys(self.trusted))
        return path


def file_of(records: bytes, first: int, key: SigningKey) -> tuple[ShippedFile, bytes]:
    """(as its manifest describes it, bytes) of a snapshot file."""
    count = len(records) // RECORD_SIZE
    last = first + count - 1
    raw = b"".join(
        snapshot.render([records], room_id=snapshot.SEGMENT, op=last, record_count=count, key=key)
    )
    hashes = [
        record_hash(records[at : at + RECORD_SIZE]) for at in range(0, len(records), RECORD_SIZE)
    ]
    chunks = tuple(
        sha256(b"".join(hashes[at : at + CHUNK_RECORDS])).digest()
        for at in range(0, count, CHUNK_RECORDS)
    )
    return ShippedFile(first, last, sha256(raw[:-64]).digest(), chunks), raw


@dataclass
class Shard:
    """A log that grows, and is shipped period by period."""

    site: Site
    root: Path
    number: int
    period_us: int = HOUR_US
    start_us: int = START_US
    rooms: int = 8
    authors: int = 6
    body_size: int = 64
    file_records: int = 10_000
    log_seq: int = 0
    heads: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    threads: dict[bytes, bytes] = field(default_factory=dict)
    manifests: list[tuple[Path, PeriodManifest]] = field(default_factory=list)
    truth: list[Entry] = field(default_factory=list)
    remember: bool = True
    ahead_us: int = 0  # by which the log is ahead of the times that records bear

    def __post_init__(self) -> None:
        self.prng = np.random.default_rng([self.site.seed, self.number])
        self.room_names = [f"room-{self.number}-{i}" for i in range(self.rooms)]

    @property
    def folder(self) -> Path:
        return self.root / shipped.shard_folder(self.site.cluster, self.number)

    def records(self, times: Iterator[int] | list[int]) -> bytes:
        """Committed records at these times."""
        times = list(times)
        count = len(times)
        out = bytearray(count * RECORD_SIZE)
        rooms = (self.prng.zipf(1.6, count) - 1) % self.rooms
        authors = (self.prng.zipf(1.4, count) - 1) % self.authors
        answers = self.prng.random(count) < 0.35
        ids = self.prng.bytes(16 * count)
        words = self.prng.integers(0, len(WORDS), (count, 12))
        for i, time_us in enumerate(times):
            self._record(
                out,
                i,
                time_us,
                self.room_names[rooms[i]],
                NAMES[authors[i]],
                bool(answers[i]),
                ids[16 * i : 16 * i + 16],
                words[i],
            )
        return bytes(out)

    def _record(
        self,
        out: bytearray,
        i: int,
        time_us: int,
        room_name: str,
        author: str,
        answers: bool,
        msg_id: bytes,
        words: np.ndarray,
    ) -> None:
        room = room_id_of(room_name)
        prev_hash, seq = self.heads.get(room, (bytes(32), 0))
        kind = record.KIND_ROOM_CREATE if seq == 0 else record.KIND_MESSAGE
        if seq == 0:
            body = room_name.encode()
        else:
            text = " ".join(WORDS[word] for word in words)
            body = (f"{text} #{self.log_seq + 1} " * (self.body_size // 40 + 1)).encode()
            body = body[: self.body_size + int(words[0]) * 3]
        parent = self.threads.get(room, bytes(16)) if answers and seq > 0 else bytes(16)
        row = record.encode(
            room_id=room,
            msg_id=msg_id,
            author_id=author_id_of(author),
            body=body,
            client_id=sha256(author.encode()).digest()[:16],
            client_seq=seq + 1,
            parent_id=parent,
            kind=kind,
            timestamp=time_us,
        )
        at = i * RECORD_SIZE
        out[at : at + RECORD_SIZE] = row
        self.log_seq += 1
        out[at + record.PREV_HASH : at + record.PREV_HASH + 32] = prev_hash
        _TAIL.pack_into(out, at + record.SEQ, seq + 1, self.log_seq)
        self.heads[room] = (sha256(memoryview(out)[at : at + RECORD_SIZE]).digest(), seq + 1)
        if not answers:
            self.threads[room] = msg_id
        if self.remember:
            self.truth.append((room_name, time_us, author, body))

    def ship(self, count: int, *, skew: Callable[[int], int] | None = None) -> PeriodManifest:
        """The next period, with so many records."""
        number = len(self.manifests)
        start = self.start_us + number * self.period_us
        times = np.sort(self.prng.choice(self.period_us - 1, count, replace=False)) + start
        first = self.log_seq + 1
        data = self.records((times - self.ahead_us).tolist())
        return self.write(start, first, data)

    def ship_corrected(self, ahead_us: int) -> PeriodManifest:
        """The next period, in whose middle the clock is brought back by so much: the record that
        does so begins its second file."""
        start, first = self.start_us + len(self.manifests) * self.period_us, self.log_seq + 1
        half = self.file_records
        data = bytearray(self.records([start + n for n in range(half)]))
        back = bytearray(self.records([start + half - ahead_us]))
        struct.pack_into("<I", back, record.FLAGS, record.KIND_CLOCK)
        seal(back, 0)
        room = bytes(back[record.ROOM_ID : record.ROOM_ID + 16])
        self.heads[room] = (record_hash(bytes(back)), self.heads[room][1])
        self.ahead_us = ahead_us
        data += back + self.records([start + half - ahead_us + n for n in range(1, half)])
        return self.write(start, first, bytes(data))

    def ship_rows(self, rows: np.ndarray) -> PeriodManifest:
        """The next period, with these records: they get their place in log and rooms here."""
        out, first = bytearray(rows.tobytes()), self.log_seq + 1
        for at in range(0, len(out), RECORD_SIZE):
            room = bytes(out[at + record.ROOM_ID : at + record.ROOM_ID + 16])
            prev_hash, seq = self.heads.get(room, (bytes(32), 0))
            self.log_seq += 1
            out[at + record.PREV_HASH : at + record.PREV_HASH + 32] = prev_hash
            _TAIL.pack_into(out, at + record.SEQ, seq + 1, self.log_seq)
            seal(out, at)
            digest = sha256(memoryview(out)[at : at + RECORD_SIZE]).digest()
            self.heads[room] = (digest, seq + 1)
        start = self.start_us + len(self.manifests) * self.period_us
        return self.write(start, first, bytes(out))

    def write(self, start: int, first: int, data: bytes) -> PeriodManifest:
        """Files, manifest and head of a period."""
        number = len(self.manifests)
        folder = self.folder / shipped.period_folder(start)
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        size = self.file_records * RECORD_SIZE
        for part, at in enumerate(range(0, len(data), size)):
            key = self.site.keys[(number + part) % 2]
            file, raw = file_of(data[at : at + size], first + part * self.file_records, key)
            (folder / file.name).write_bytes(raw)
            files.append(file)
        previous = shipped.NO_MANIFEST
        if number:
            previous = shipped.manifest_hash(self.manifests[-1][1])
        found = PeriodManifest(
            self.site.cluster,
            self.number,
            number,
            previous,
            start,
            self.period_us,
            first,
            first + len(data) // RECORD_SIZE - 1,
            tuple(files),
            self.ahead_us,
        )
        path = folder / shipped.manifest_name(start)
        path.write_bytes(shipped.sign_manifest(found, self.site.keys[number % 2]))
        self.manifests.append((path, found))
        self.write_head(found)
        return found

    def write_head(self, newest: PeriodManifest) -> None:
        head = ShippedHead(
            self.site.cluster,
            self.number,
            newest.number,
            shipped.manifest_hash(newest),
            newest.period_start_us,
            newest.period_us,
            newest.last_log_seq,
        )
        (self.folder / shipped.HEAD_FILE).write_bytes(
            shipped.sign_head(head, self.site.keys[newest.number % 2])
        )

    def paths(self) -> list[Path]:
        """Of all snapshot files, in order."""
        return [path.parent / file.name for path, found in self.manifests for file in found.files]


def resealed(raw: bytes) -> bytes:
    """A record with its CRC made right again."""
    out = bytearray(raw)
    seal(out, 0)
    return bytes(out)


def make(root: Path, site: Site, hours: int, per_hour: int, **options: object) -> list[Shard]:
    """All shards of a site, each with so many hours."""
    shards = [Shard(site, root, number, **options) for number in range(site.shards)]
    for shard in shards:
        for _ in range(hours):
            shard.ship(per_hour)
    return shards


__all__ = ["RECORD", "Shard", "Site", "file_of", "make", "resealed"]
