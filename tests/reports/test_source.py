"""The data source: rows equal to the records, and what filters and columns spare it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql import functions as f

from appliance.formats.record import RECORD
from appliance.formats.room_name import room_id_of
from appliance.reports.columns import FORMS, spark_schema, uuid_texts
from appliance.reports.place import place_of
from appliance.reports.source import NAME, counted
from tests.reports.maker import HOUR_US, START_US, Shard, Site, make

Shipped = tuple[Path, Path, list[Shard]]  # folder, file of the keys, what was shipped
Scan = tuple[DataFrameReader, str, Callable[[], dict[str, int]]]  # reader, archive, its counts


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    folder = tmp_path_factory.mktemp("source")
    site = Site(seed=21, shards=2)
    shards = make(folder / "archive", site, 3, 400, file_records=150)
    return folder, site.write_keys(folder / "keys.json"), shards


@pytest.fixture
def scan(spark: SparkSession, shipped: Shipped, tmp_path: Path) -> Scan:
    """A reader of the archive that counts into a folder of the test, and that folder's sums."""
    folder, keys, _ = shipped
    reader = (
        spark.read.format(NAME)
        .option("keys", str(keys))
        .option("counters", str(tmp_path / "counters"))
    )
    return reader, str(folder / "archive"), lambda: counted(place_of(str(tmp_path / "counters")))


def test_schema_has_a_column_for_every_field_of_a_record() -> None:
    fields = {name for name in RECORD.names if not name.startswith("padding")}
    assert fields <= set(spark_schema().fieldNames()) == set(FORMS)


def test_rows_are_the_records(scan: Scan, shipped: Shipped) -> None:
    reader, path, _ = scan
    rows = reader.load(path).collect()
    truth = sorted(entry[1:] for shard in shipped[2] for entry in shard.truth)
    found = sorted(
        (round(row.timestamp.timestamp() * 1e6), row.author, bytes(row.body)) for row in rows
    )
    assert found == truth
    assert {row.shard for row in rows} == {0, 1}


def test_only_the_columns_of_the_schema_are_made(scan: Scan) -> None:
    reader, path, _ = scan
    frame = reader.schema("log_seq long, author string").load(path)
    assert frame.columns == ["log_seq", "author"]
    assert frame.agg(f.sum("log_seq")).first()[0] == 2 * sum(range(1, 1201))


def test_a_shard_and_an_hour_skip_the_files_of_all_others(scan: Scan) -> None:
    reader, path, counters = scan
    second = datetime.fromtimestamp((START_US + HOUR_US) / 1e6, UTC)
    third = datetime.fromtimestamp((START_US + 2 * HOUR_US) / 1e6, UTC)
    frame = reader.load(path).where(
        (f.col("shard") == 1)
        & (f.col("timestamp") >= f.lit(second))
        & (f.col("timestamp") < f.lit(third))
    )
    assert frame.count() == 400
    sums = counters()
    assert (sums["files"], sums["files_skipped"]) == (18, 15)
    assert sums["bytes_read"] == 400 * RECORD.itemsize


def test_times_inside_a_file_skip_its_other_records(scan: Scan, shipped: Shipped) -> None:
    reader, path, counters = scan
    times = sorted(time for _, time, _, _ in shipped[2][0].truth)
    low, high = (datetime.fromtimestamp(times[at] / 1e6, UTC) for at in (10, 20))
    frame = reader.load(path).where(
        (f.col("shard") == 0) & f.col("timestamp").between(f.lit(low), f.lit(high))
    )
    assert frame.count() == 11
    sums = counters()
    assert sums["bytes_read"] == 11 * RECORD.itemsize
    assert sums["bytes_skipped"] == (2400 - 11) * RECORD.itemsize


def test_numbers_and_rooms_are_filtered_before_they_are_columns(scan: Scan) -> None:
    reader, path, counters = scan
    raw = room_id_of("room-0-0")
    room = bytes(uuid_texts(np.frombuffer(raw, np.uint8).reshape(1, 16))[0]).decode()
    every = reader.load(path)
    wanted = every.where("log_seq <= 300").toPandas()
    wanted = wanted[wanted.room_id == room]
    found = every.where((f.col("room_id") == room) & (f.col("log_seq") <= 300))
    before = counters()
    assert found.count() == len(wanted) > 0
    assert counters()["rows"] - before["rows"] == len(wanted)


def test_one_file_is_read_without_keys_and_a_broken_one_is_refused(
    spark: SparkSession, shipped: Shipped, tmp_path: Path
) -> None:
    path = shipped[2][0].paths()[0]
    assert spark.read.format(NAME).load(str(path)).count() == 150
    copy = tmp_path / path.name
    raw = bytearray(path.read_bytes())
    raw[48 + 7 * RECORD.itemsize + 90] ^= 1
    copy.write_bytes(raw)
    with pytest.raises(PySparkException, match="record 7 has a wrong CRC"):
        spark.read.format(NAME).load(str(copy)).collect()


def test_an_archive_without_keys_says_what_is_missing(
    spark: SparkSession, shipped: Shipped
) -> None:
    with pytest.raises(PySparkException, match="trusted keys file"):
        spark.read.format(NAME).load(str(shipped[0] / "archive")).count()
