"""The data source: rows equal to the records, and what filters and columns spare it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql import functions as f

from appliance.base.errors import ConfigurationError
from appliance.formats.record import RECORD
from appliance.formats.room_name import room_id_of
from appliance.reports.columns import FORMS, spark_schema
from appliance.reports.file_store import file_store_of
from appliance.reports.source import NAME, Wanted, counted
from tests.reports.maker import HOUR_US, START_US, Shard, Site, make

ROOM = str(UUID(bytes=room_id_of("room-0-0")[::-1]))
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
    return (
        reader,
        str(folder / "archive"),
        lambda: counted(file_store_of(str(tmp_path / "counters"))),
    )


@pytest.fixture(scope="module")
def few_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same records in six files, not eighteen, and the file of the keys: each query of each
    condition is a task for each file."""
    folder = tmp_path_factory.mktemp("few")
    site = Site(seed=21, shards=2)
    make(folder / "archive", site, 3, 400)
    return folder / "archive", site.write_keys(folder / "keys.json")


def moment(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat()


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
    second, third = (moment(START_US + hours * HOUR_US) for hours in (1, 2))
    frame = reader.option("shards", "1").option("since", second).option("before", third).load(path)
    assert frame.count() == 400
    sums = counters()
    assert (sums["files"], sums["files_skipped"]) == (18, 15)
    assert sums["bytes_read"] == 400 * RECORD.itemsize


def test_times_inside_a_file_skip_its_other_records(scan: Scan, shipped: Shipped) -> None:
    reader, path, counters = scan
    times = sorted(time for _, time, _, _ in shipped[2][0].truth)
    words = {"shards": "0", "since": moment(times[10]), "before": moment(times[20] + 1)}
    assert reader.options(**words).load(path).count() == 11
    sums = counters()
    assert sums["bytes_read"] == 11 * RECORD.itemsize
    assert sums["bytes_skipped"] == (2400 - 11) * RECORD.itemsize


def test_numbers_and_rooms_are_left_out_before_they_are_columns(scan: Scan) -> None:
    reader, path, counters = scan
    wanted = reader.load(path).where("log_seq between 101 and 300").toPandas()
    wanted = wanted[wanted.room_id == ROOM]
    before = counters()
    words = {"first_log_seq": "101", "last_log_seq": "300", "rooms": f"{ROOM}, {UUID(int=7)}"}
    assert reader.options(**words).load(path).count() == len(wanted) > 0
    assert counters()["rows"] - before["rows"] == len(wanted)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("shards", "one"),
        ("shards", "-1"),
        ("shards", "0;1"),
        ("first_log_seq", "1.5"),
        ("last_log_seq", "9" * 19),
        ("rooms", "general"),
        ("since", "yesterday"),
        ("since", "7"),
        ("before", "2026-13-01"),
        ("before", ""),
    ],
)
def test_an_option_that_says_nothing_is_refused_by_name(option: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {option} "):
        Wanted.of({option: text})


def test_options_are_as_people_write_them() -> None:
    noon = round(datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp() * 1e6)
    for text in ("2026-01-05T12:00:00", "2026-01-05 12:00Z", "2026-01-05T13:00+01:00"):
        assert Wanted.of({"since": text}).low["timestamp"] == noon
    assert Wanted.of({"before": "2026-01-06"}).high["timestamp"] == noon + 12 * HOUR_US - 1
    assert Wanted.of({"shards": "0, 2,"}).shards == {0, 2}
    assert Wanted.of({"rooms": ROOM.upper()}).rooms == {room_id_of("room-0-0")}
    assert Wanted.of({}) == Wanted()


CONDITIONS = [
    "shard in (1, null)",
    "shard in (0, 1, 7)",
    "shard <=> 1",
    "not (shard = 1)",
    "shard = 1 or log_seq < 5",
    "room_id in ('general', null)",
    f"room_id in ('{ROOM}', 'general', null)",
    "room_id = ''",
    f"room_id = '{ROOM.upper()}'",
    f"room_id = '{ROOM}' and shard = 0",
    f"room_id like '{ROOM[:6]}%'",
    "log_seq > 100.5 and log_seq < 120",
    "log_seq in (1, 5, null)",
    "log_seq < double('NaN')",
    "log_seq = null",
    "log_seq >= 1000 and log_seq <= 1001",
    "timestamp < timestamp '2026-01-05 01:00:00'",
    "timestamp >= timestamp_ntz '2026-01-05 01:00:00'",
    "timestamp < date '2026-01-06'",
    "parent_id is null",
]


def test_each_read_of_one_frame_has_its_own_rows_though_one_query_has_them_all(
    spark: SparkSession, few_files: tuple[Path, Path]
) -> None:
    """What a source takes of filters is shared by the reads of a frame: it takes none."""
    archive, keys = few_files
    frame = spark.read.format(NAME).option("keys", str(keys)).load(str(archive))
    frame = frame.select("shard", "log_seq", "room_id", "timestamp", "parent_id")
    every = frame.cache()
    assert every.count() == 2400

    passed = [f.count(f.when(f.expr(each), 1)).alias(each) for each in CONDITIONS]
    by_spark = every.agg(*passed).first().asDict()
    every.unpersist()
    read = [frame.where(each).select(f.lit(at).alias("at")) for at, each in enumerate(CONDITIONS)]
    rows = reduce(lambda one, other: one.union(other), read).collect()
    counts = Counter(CONDITIONS[row["at"]] for row in rows)
    by_source = {each: counts[each] for each in CONDITIONS}
    assert by_source == by_spark
    assert 0 < by_spark[f"room_id = '{ROOM}' and shard = 0"] < 2400
    assert by_spark["shard in (1, null)"] == 1200 and by_spark["log_seq < double('NaN')"] == 2400


def test_columns_may_be_declared_never_null_and_have_the_type_that_they_have(scan: Scan) -> None:
    reader, path, _ = scan
    frame = reader.schema("log_seq bigint not null, room_id string not null, said_by string")
    found = frame.load(path)
    assert not found.schema["log_seq"].nullable and found.count() == 2400
    for schema, words in (
        ("parent_id string not null", "column parent_id may be null: leave out NOT NULL"),
        ("log_seq int", "column log_seq is bigint, not int: ask for bigint and cast it"),
        ("number long", "columns number are unknown"),
    ):
        with pytest.raises(PySparkException, match=words):
            reader.schema(schema).load(path).count()


def test_a_session_that_is_not_ours_reads_without_a_setting(
    spark: SparkSession, shipped: Shipped
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        path = str(shipped[2][0].paths()[0])
        assert spark.read.format(NAME).load(path).where("log_seq <= 10").count() == 10
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


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
