"""Many archives in one, each shard spoiled in one way: ingest finds every one, where it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from appliance.base.signature import SigningKey
from appliance.formats import manifest as shipped
from appliance.formats import snapshot
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.manifest import snapshot_name
from appliance.formats.record import BODY, CHECKSUM, MSG_ID, PREV_HASH, ROOM_ID, SEQ, TIMESTAMP
from tests.reports.maker import Shard, Site, file_of, resealed
from tests.reports.rows import log_seqs
from tests.reports.site_tables import MakeTables

HOURS, PER_HOUR, FILE_RECORDS = 4, 36, 12
TAMPERINGS_MIN, TAMPERINGS_SOAK = 1, 200  # each way once, in any case
STRANGER = SigningKey(b"not a node's key, but as good as")


class Victim:
    """One snapshot file of a shard, about to be spoiled."""

    def __init__(self, shard: Shard, prng: random.Random) -> None:
        self.shard, self.prng = shard, prng
        self.hour = prng.randrange(1, HOURS)
        self.manifest_path, self.manifest = shard.manifests[self.hour]
        self.at = prng.randrange(len(self.manifest.files))
        self.file = self.manifest.files[self.at]
        self.path = self.manifest_path.parent / self.file.name
        self.raw = bytearray(self.path.read_bytes())

    def record(self, index: int) -> slice:
        start = snapshot.HEAD_SIZE + index * RECORD_SIZE
        return slice(start, start + RECORD_SIZE)

    def save(self) -> None:
        self.path.write_bytes(self.raw)

    def some(self) -> int:
        return self.prng.randrange(FILE_RECORDS)

    def resign(self, key: SigningKey) -> None:
        """The file's signature over what it holds now."""
        body = bytes(self.raw[:-64])
        records = body[snapshot.HEAD_SIZE :]
        self.file, raw = file_of(records, self.file.first_log_seq, key)
        self.raw = bytearray(raw)

    def remake(self, key: SigningKey) -> None:
        """Everything from this file on made right again, by someone who is not trusted: chunk
        hashes, manifests, their chain, and the head."""
        self.resign(key)
        self.save()
        previous = self.manifest.previous
        for hour in range(self.hour, HOURS):
            path, found = self.shard.manifests[hour]
            files = list(found.files)
            if hour == self.hour:
                files[self.at] = self.file
            new = shipped.PeriodManifest(
                found.cluster,
                found.shard,
                found.number,
                previous,
                found.period_start_us,
                found.period_us,
                found.first_log_seq,
                found.last_log_seq,
                tuple(files),
            )
            path.write_bytes(shipped.sign_manifest(new, key))
            previous = shipped.manifest_hash(new)


# Each takes a victim and returns the name that ingest must tell, and the record or -1.
Found = tuple[str, int]


def flipped_bit(one: Victim) -> Found:
    bit = one.prng.randrange(len(one.raw) * 8)
    one.raw[bit // 8] ^= 1 << bit % 8
    one.save()
    index, offset = divmod(bit // 8 - snapshot.HEAD_SIZE, RECORD_SIZE)
    under_crc = 0 <= index < FILE_RECORDS and MSG_ID <= offset < CHECKSUM + 4
    return one.path.name, index if under_crc else -1


def flipped_body_bit(one: Victim) -> Found:
    index = one.some()
    one.raw[one.record(index).start + BODY + one.prng.randrange(20)] ^= 1 << one.prng.randrange(8)
    one.save()
    return one.path.name, index


def body_with_right_crc(one: Victim) -> Found:
    index = one.some()
    one.raw[one.record(index).start + BODY + 3] ^= 1
    one.raw[one.record(index)] = resealed(one.raw[one.record(index)])
    one.save()
    return one.path.name, -1


def body_with_right_crc_and_signature(one: Victim) -> Found:
    index = one.some()
    one.raw[one.record(index).start + BODY + 3] ^= 1
    one.raw[one.record(index)] = resealed(one.raw[one.record(index)])
    one.resign(one.shard.site.keys[0])  # even a trusted key does not help without the manifest
    one.save()
    return one.path.name, -1


def everything_right_again_by_a_stranger(one: Victim) -> Found:
    index = one.some()
    one.raw[one.record(index).start + BODY + 3] ^= 1
    one.raw[one.record(index)] = resealed(one.raw[one.record(index)])
    rehash(one, index)
    one.remake(STRANGER)
    return one.manifest_path.name, -1


def rehash(one: Victim, changed: int) -> None:
    """Make the chain of the changed record's room right again inside its file."""
    room = bytes(one.raw[one.record(changed)][ROOM_ID : ROOM_ID + 16])
    before = bytes(one.raw[one.record(changed)])
    for index in range(changed + 1, FILE_RECORDS):
        record = bytearray(one.raw[one.record(index)])
        if record[ROOM_ID : ROOM_ID + 16] == room:
            record[PREV_HASH : PREV_HASH + 32] = sha256(before).digest()
            one.raw[one.record(index)] = record
            before = bytes(record)


def reordered(one: Victim) -> Found:
    a, b = sorted(one.prng.sample(range(FILE_RECORDS), 2))
    first, second = bytes(one.raw[one.record(a)]), bytes(one.raw[one.record(b)])
    one.raw[one.record(a)], one.raw[one.record(b)] = second, first
    one.save()
    return one.path.name, a


def later_timestamp(one: Victim) -> Found:
    index = one.some()
    at = one.record(index).start + TIMESTAMP
    one.raw[at : at + 8] = (int.from_bytes(one.raw[at : at + 8], "little") + 1).to_bytes(
        8, "little"
    )
    one.raw[one.record(index)] = resealed(one.raw[one.record(index)])
    one.save()
    return one.path.name, -1


def moved_to_another_room(one: Victim) -> Found:
    index = one.some()
    one.raw[one.record(index).start + ROOM_ID] ^= 0xFF
    one.save()
    return one.path.name, -1


def other_room_number(one: Victim) -> Found:
    index = one.some()
    one.raw[one.record(index).start + SEQ] ^= 1
    one.save()
    return one.path.name, -1


def truncated(one: Victim) -> Found:
    size = one.prng.randrange(len(one.raw))
    del one.raw[size:]
    one.save()
    return one.path.name, -1


def missing_record(one: Victim) -> Found:
    del one.raw[one.record(one.some())]
    one.save()
    return one.path.name, -1


def doubled_record(one: Victim) -> Found:
    index = one.some()
    one.raw[one.record(index).stop : one.record(index).stop] = one.raw[one.record(index)]
    one.save()
    return one.path.name, -1


def swapped_files(one: Victim) -> Found:
    others = [path for path in one.shard.paths() if path != one.path]
    other = one.prng.choice(others)
    mine, theirs = one.path.read_bytes(), other.read_bytes()
    one.path.write_bytes(theirs)
    other.write_bytes(mine)
    return min(one.path, other).name, 0


def replayed_file(one: Victim) -> Found:
    one.path.write_bytes(one.shard.paths()[0].read_bytes())
    return one.path.name, 0


def file_of_another_cluster(one: Victim) -> Found:
    other = Shard(Site(one.prng.randrange(10**6) + 10**6), Path("unused"), 0)
    other.log_seq = one.file.first_log_seq - 1
    start = one.manifest.period_start_us
    data = other.records([start + 1000 * i for i in range(FILE_RECORDS)])
    _, raw = file_of(data, one.file.first_log_seq, other.site.keys[0])
    one.path.write_bytes(raw)
    return one.path.name, -1


def file_signed_by_a_stranger(one: Victim) -> Found:
    one.resign(STRANGER)
    one.save()
    return one.path.name, -1


def missing_file(one: Victim) -> Found:
    one.path.unlink()
    return one.path.name, -1


def manifest_signed_by_a_stranger(one: Victim) -> Found:
    one.manifest_path.write_bytes(shipped.sign_manifest(one.manifest, STRANGER))
    return one.manifest_path.name, -1


def manifest_flipped(one: Victim) -> Found:
    raw = bytearray(one.manifest_path.read_bytes())
    raw[one.prng.randrange(len(raw))] ^= 1 << one.prng.randrange(7)
    one.manifest_path.write_bytes(raw)
    return one.manifest_path.name, -1


def manifest_replayed(one: Victim) -> Found:
    one.manifest_path.write_bytes(one.shard.manifests[0][0].read_bytes())
    return one.manifest_path.name, -1


def missing_manifest(one: Victim) -> Found:
    one.manifest_path.unlink()
    if one.hour + 1 < HOURS:
        return one.shard.manifests[one.hour + 1][0].name, -1
    return shipped.HEAD_FILE, -1


def missing_last_hour(one: Victim) -> Found:
    path, found = one.shard.manifests[-1]
    for file in found.files:
        (path.parent / file.name).unlink()
    path.unlink()
    return shipped.HEAD_FILE, -1


def head_replayed(one: Victim) -> Found:
    one.shard.write_head(one.shard.manifests[0][1])
    return shipped.HEAD_FILE, -1


def head_signed_by_a_stranger(one: Victim) -> Found:
    newest = one.shard.manifests[-1][1]
    head = shipped.ShippedHead(
        newest.cluster,
        newest.shard,
        newest.number,
        shipped.manifest_hash(newest),
        newest.period_start_us,
        newest.period_us,
        newest.last_log_seq,
    )
    (one.shard.folder / shipped.HEAD_FILE).write_bytes(shipped.sign_head(head, STRANGER))
    return shipped.HEAD_FILE, -1


WAYS: list[Callable[[Victim], Found]] = [
    flipped_bit,
    flipped_bit,
    flipped_bit,
    flipped_body_bit,
    body_with_right_crc,
    body_with_right_crc_and_signature,
    everything_right_again_by_a_stranger,
    reordered,
    later_timestamp,
    moved_to_another_room,
    other_room_number,
    truncated,
    missing_record,
    doubled_record,
    swapped_files,
    replayed_file,
    file_of_another_cluster,
    file_signed_by_a_stranger,
    missing_file,
    manifest_signed_by_a_stranger,
    manifest_flipped,
    manifest_replayed,
    missing_manifest,
    missing_last_hour,
    head_replayed,
    head_signed_by_a_stranger,
]


@pytest.mark.parametrize(
    "tamperings", [TAMPERINGS_MIN, pytest.param(TAMPERINGS_SOAK, marks=pytest.mark.soak)]
)
def test_every_tampering_is_found_where_it_is_and_clean_shards_stay_clean(
    tables: MakeTables, tmp_path: Path, seed: int, tamperings: int
) -> None:
    prng = random.Random(seed)
    count = -(-tamperings // len(WAYS)) * len(WAYS)
    clean = count // 8
    site = Site(seed=seed % 10**6, shards=count + clean)
    wanted: dict[int, tuple[str, Found]] = {}
    shards = []
    for number in range(site.shards):
        shard = Shard(site, tmp_path / "archive", number, rooms=3, file_records=FILE_RECORDS)
        for _ in range(HOURS):
            shard.ship(PER_HOUR)
        if number < count:
            way = WAYS[number % len(WAYS)]
            wanted[number] = (way.__name__, way(Victim(shard, prng)))
        shards.append(shard)
    made = tables(site, tmp_path / "archive")
    done = made.ingest()
    rows = [*done.quarantined, *done.waiting]
    for number, (way, (name, record)) in wanted.items():
        found = [row for row in rows if row.shard == number]
        names = [row.file.rpartition("/")[2] for row in found]
        assert name in names, f"{way} of shard {number} in {name}: told {found}"
        if record >= 0:
            told = found[names.index(name)].record
            assert told == record, f"{way} of shard {number} at record {record}: told {found}"
    assert len(wanted) >= TAMPERINGS_MIN
    assert not [row for row in rows if row.shard >= count], "a false alarm"
    held = log_seqs(made.folder, made.state)
    for number, shard in enumerate(shards):
        lost = {
            log_seq
            for first, last in made.state.shard(number).lost.ranges
            for log_seq in range(first, last + 1)
        }
        until = made.state.shard(number).cursor.last_log_seq
        assert held[number] == [at for at in range(1, until + 1) if at not in lost], shard.folder


def told_of(done, shard: int = 0) -> list[tuple[str, str]]:
    rows = [row for row in (*done.quarantined, *done.waiting) if row.shard == shard]
    return sorted((row.reason, row.file.rpartition("/")[2]) for row in rows)


def test_what_no_manifest_lists_is_named_and_what_another_cluster_signed_too(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=5)
    shard = Shard(site, tmp_path / "archive", 0, file_records=FILE_RECORDS)
    for _ in range(2):
        shard.ship(PER_HOUR)
    first = shard.paths()[0]
    newer = first.with_name(snapshot_name(10_000, 10_011))  # of the period that runs
    newer.write_bytes(first.read_bytes())
    made = tables(site, tmp_path / "archive")
    assert made.ingest().clean
    first.with_name("copy.tig").write_bytes(first.read_bytes())
    first.with_name(snapshot_name(2, 13)).write_bytes(first.read_bytes())
    (shard.folder / "notes.txt").write_text("who put this here?")
    other = Shard(Site(6), tmp_path / "other", 0)
    other.ship(PER_HOUR)
    first.with_name(snapshot_name(3, 14)).write_bytes(other.paths()[0].read_bytes())
    assert told_of(made.ingest()) == [
        ("foreign", "notes.txt"),
        ("foreign", snapshot_name(3, 14)),
        ("unlisted", "copy.tig"),
        ("unlisted", snapshot_name(2, 13)),
    ]


def test_a_manifest_and_a_head_of_another_cluster_are_foreign(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=8)
    shard = Shard(site, tmp_path / "archive", 0)
    other = Shard(Site(9), tmp_path / "other", 0)
    for _ in range(2):
        shard.ship(PER_HOUR)
        other.ship(PER_HOUR)
    path = shard.manifests[1][0]
    path.write_bytes(other.manifests[1][0].read_bytes())
    (shard.folder / shipped.HEAD_FILE).write_bytes((other.folder / shipped.HEAD_FILE).read_bytes())
    told = told_of(tables(site, tmp_path / "archive").ingest())
    assert told == [("foreign", shipped.HEAD_FILE), ("foreign", path.name)]
