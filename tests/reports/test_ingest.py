"""From archive to tables: the same rows, once, in every order of doing it; errors that say what."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from appliance.base.errors import ConfigurationError, FormatError, StorageError
from appliance.formats import manifest as shipped
from appliance.reports import tables as readers
from appliance.reports.compaction import MERGE_COUNT
from appliance.reports.plan import UNIT_RECORDS_MIN
from tests.reports.maker import HOUR_US, START_US, Shard, Site, make
from tests.reports.rows import fingerprint, log_seqs
from tests.reports.site_tables import MakeTables


def test_tables_hold_exactly_what_was_written(
    tables: MakeTables, tmp_path: Path, spark: SparkSession
) -> None:
    site = Site(seed=1, shards=2)
    shards = make(tmp_path / "archive", site, 4, 700, file_records=300)
    made = tables(site, tmp_path / "archive")
    done = made.ingest()
    assert done.clean
    assert done.records == 2 * 4 * 700
    rows = readers.records(spark, made.ledger.store, made.state)
    names = {row.room_id: row.room for row in readers.rooms(rows).collect()}
    found = sorted(
        (names[row.room_id], round(row.timestamp.timestamp() * 1e6), row.author, bytes(row.body))
        for row in rows.collect()
    )
    assert found == sorted(entry for shard in shards for entry in shard.truth)


def test_the_same_again_is_nothing_and_hour_by_hour_equals_all_at_once(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=2, shards=2)
    root = tmp_path / "archive"
    by_hour, at_once = tables(site, root), tables(site, root)
    shards = [Shard(site, root, number) for number in range(2)]
    for hour in range(MERGE_COUNT + 1):  # enough for small files to be merged
        for shard in shards:
            shard.ship(0 if hour == 3 else 90)
        assert by_hour.ingest().clean
        assert by_hour.ingest().records == 0
    assert at_once.ingest().clean
    wanted = fingerprint(at_once.folder, at_once.state)
    assert wanted[0] == 2 * MERGE_COUNT * 90
    assert fingerprint(by_hour.folder, by_hour.state) == wanted
    assert len(by_hour.state.records) < 2 * MERGE_COUNT
    assert sorted(
        path.relative_to(by_hour.folder).as_posix()
        for path in (by_hour.folder / "records").rglob("*.parquet")
    ) == sorted(file.path for file in by_hour.state.records)


def test_a_file_larger_than_a_unit_is_read_in_pieces(tables: MakeTables, tmp_path: Path) -> None:
    site = Site(seed=3)
    count = 2 * UNIT_RECORDS_MIN + 500
    make(tmp_path / "archive", site, 1, count, file_records=count, remember=False)
    made = tables(site, tmp_path / "archive")
    assert made.ingest().clean
    assert log_seqs(made.folder, made.state) == {0: list(range(1, count + 1))}


def test_days_are_told_apart_inside_one_file(tables: MakeTables, tmp_path: Path) -> None:
    site = Site(seed=4)
    shard = Shard(
        site, tmp_path / "archive", 0, period_us=6 * HOUR_US, start_us=START_US + 21 * HOUR_US
    )
    shard.ship(400)
    made = tables(site, tmp_path / "archive")
    assert made.ingest().clean
    assert {file.date for file in made.state.records} == {"2026-01-01", "2026-01-02"}


@pytest.mark.parametrize("at_once", [True, False])
def test_times_may_go_back_where_the_clock_was_corrected(
    tables: MakeTables, tmp_path: Path, at_once: bool
) -> None:
    """And only there; each record is under its own day."""
    site = Site(seed=8)
    shard = Shard(site, tmp_path / "archive", 0, file_records=50)
    made = tables(site, tmp_path / "archive")
    shard.ship(120)
    if not at_once:
        assert made.ingest().clean
    shard.ship_corrected(400 * 24 * HOUR_US)
    if not at_once:
        assert made.ingest().clean
    shard.ship(120)
    assert made.ingest().clean
    assert log_seqs(made.folder, made.state) == {0: list(range(1, 341))}
    assert {file.date for file in made.state.records} == {"2024-11-27", "2026-01-01"}


def test_rows_after_a_bad_file_are_there_and_those_of_it_are_not(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=5)
    (shard,) = make(tmp_path / "archive", site, 3, 500, file_records=200)
    bad = shard.paths()[3]  # the first of the second hour: records 501 to 700
    raw = bytearray(bad.read_bytes())
    raw[48 + 17 * 2240 + 100] ^= 4
    bad.write_bytes(raw)
    made = tables(site, tmp_path / "archive")
    done = made.ingest()
    (row,) = done.quarantined
    assert (row.file.rpartition("/")[2], row.record, row.offset) == (bad.name, 17, 48 + 17 * 2240)
    assert (row.first_log_seq, row.last_log_seq, row.reason) == (501, 700, "tampered")
    assert log_seqs(made.folder, made.state) == {0: [*range(1, 501), *range(701, 1501)]}
    shard.ship(50)
    assert made.ingest().clean, "what was told once is not told again"


def test_a_mended_archive_is_taken_whole_with_again(tables: MakeTables, tmp_path: Path) -> None:
    site = Site(seed=6)
    (shard,) = make(tmp_path / "archive", site, 2, 100)
    path = shard.paths()[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    made = tables(site, tmp_path / "archive")
    (row,) = made.ingest().quarantined
    assert row.reason == "truncated"
    path.write_bytes(whole)
    assert made.ingest(again=True).clean
    assert made.state.quarantine == []
    assert log_seqs(made.folder, made.state) == {0: list(range(1, 201))}


# --- errors that say what -------------------------------------------------------------------------


def test_a_missing_hour_is_named_and_the_rest_goes_on(tables: MakeTables, tmp_path: Path) -> None:
    site = Site(seed=7)
    (shard,) = make(tmp_path / "archive", site, 4, 100)
    path, _ = shard.manifests[1]
    path.unlink()
    made = tables(site, tmp_path / "archive")
    (row,) = made.ingest().quarantined
    assert row.reason == "missing_manifest"
    assert "number 1 is missing" in row.sentence
    assert (row.first_log_seq, row.last_log_seq) == (101, 200)
    assert log_seqs(made.folder, made.state) == {0: [*range(1, 101), *range(201, 401)]}


def test_a_missing_last_hour_is_told_by_the_head_until_it_comes(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=8)
    (shard,) = make(tmp_path / "archive", site, 3, 100)
    path, _ = shard.manifests[2]
    kept = path.read_bytes()
    path.unlink()
    made = tables(site, tmp_path / "archive")
    (row,) = made.ingest().waiting
    assert row.file.endswith("head.json")
    assert (row.first_log_seq, row.last_log_seq) == (201, 300)
    path.write_bytes(kept)
    assert made.ingest().clean
    assert log_seqs(made.folder, made.state) == {0: list(range(1, 301))}


def test_hours_that_vanished_with_their_head_are_told_by_what_was_expected(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=9)
    (shard,) = make(tmp_path / "archive", site, 3, 50)
    shard.manifests[2][0].unlink()
    shard.write_head(shard.manifests[1][1])
    made = tables(site, tmp_path / "archive")
    assert made.ingest(expect_until_us=START_US + 2 * HOUR_US).clean
    (row,) = made.ingest(expect_until_us=START_US + 3 * HOUR_US).waiting
    assert "expected until 2026-01-01 03:00:00" in row.sentence


def test_an_archive_that_went_back_is_told(tables: MakeTables, tmp_path: Path) -> None:
    site = Site(seed=10)
    root = tmp_path / "archive"
    (shard,) = make(root, site, 2, 50)
    old = tmp_path / "old"
    shutil.copytree(root, old)
    for _ in range(3):
        shard.ship(50)
    made = tables(site, root)
    assert made.ingest().clean
    shutil.rmtree(root)
    shutil.copytree(old, root)
    (row,) = made.ingest().waiting
    assert row.reason == "replayed"


def test_keys_of_another_cluster_find_no_archive(tables: MakeTables, tmp_path: Path) -> None:
    make(tmp_path / "archive", Site(seed=11), 1, 50)
    with pytest.raises(ConfigurationError, match="of which the keys file speaks"):
        tables(Site(seed=12), tmp_path / "archive").ingest()


def test_tables_of_another_cluster_are_left_alone(tables: MakeTables, tmp_path: Path) -> None:
    for seed in (11, 12):
        make(tmp_path / str(seed), Site(seed=seed), 1, 50)
    made = tables(Site(seed=11), tmp_path / "11")
    made.ingest()
    other = tables(Site(seed=12), tmp_path / "12")
    other.ledger.store = made.ledger.store
    with pytest.raises(ConfigurationError, match="name another folder"):
        other.ingest()


def test_a_file_of_an_older_version_says_which_program_reads_it(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=13)
    (shard,) = make(tmp_path / "archive", site, 1, 50)
    path = shard.paths()[0]
    raw = bytearray(path.read_bytes())
    raw[8] = 0
    path.write_bytes(raw)
    (row,) = tables(site, tmp_path / "archive").ingest().quarantined
    assert row.reason == "schema_version"
    assert "version 0" in row.sentence


def test_tables_of_an_older_version_are_made_anew_on_demand(
    tables: MakeTables, tmp_path: Path
) -> None:
    site = Site(seed=14)
    make(tmp_path / "archive", site, 2, 50)
    made = tables(site, tmp_path / "archive")
    made.ingest()
    newest = sorted((made.folder / "_ledger").glob("state-*.json"))[-1]
    table = json.loads(newest.read_bytes())
    newest.write_text(json.dumps({**table, "format": 0}))
    with pytest.raises(ConfigurationError, match="--again"):
        made.ingest()
    assert made.ingest(again=True).records == 100


def test_two_writers_at_once_are_refused(tables: MakeTables, tmp_path: Path) -> None:
    site = Site(seed=15)
    make(tmp_path / "archive", site, 1, 50)
    made = tables(site, tmp_path / "archive")
    with made.ledger.writing(), pytest.raises(StorageError, match="another ingest"):
        made.ingest()


def test_a_keys_file_without_keys_is_refused() -> None:
    with pytest.raises(FormatError, match="keys is empty"):
        shipped.parse_keys(b'{"format":1,"cluster":"' + b"0" * 32 + b'","shards":1,"keys":[]}')
