"""The tables as DataFrames, of exactly the files that count."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, IntegerType, StringType, StructField, StructType

from appliance.base.errors import ConfigurationError
from appliance.formats.author import author_name
from appliance.reports.columns import TABLE_NAMES, kind_name, spark_schema
from appliance.reports.file_store import FileStore
from appliance.reports.ledger import RECORDS, STAGING, TRAFFIC, Ledger, State, TableFile

ROOM_NAME_KIND = "room_create"
SAID = ("message", "blob", "federated", "imported")  # kinds of what people wrote
_PARTITIONS = [StructField("date", DateType()), StructField("shard", IntegerType())]


def records(spark: SparkSession, store: FileStore, state: State) -> DataFrame:
    """Every record that counts, with `date` and `shard`."""
    schema = StructType([*spark_schema(TABLE_NAMES).fields, *_PARTITIONS])
    return _read(spark, store, RECORDS, state.records, schema)


def traffic(spark: SparkSession, store: FileStore, state: State) -> DataFrame:
    """Records and bytes by hour, shard, room, author and kind, as of the last refresh.

    `date` is the day of the hour; `stored` the day on which the log took the records, another one
    for what was imported.
    """
    if not state.traffic:
        found = aggregated(records(spark, store, state))
    else:
        found = _read(spark, store, TRAFFIC, state.traffic, None)
    return found.withColumnRenamed("date", "stored").withColumn("date", f.to_date("hour"))


def as_said(rows: DataFrame) -> DataFrame:
    """`rows` with the time and the author of then where they were imported."""
    return rows.withColumns(
        {
            "timestamp": f.coalesce("said_at", "timestamp"),
            "author": f.coalesce("said_by", "author"),
        }
    )


def _read(
    spark: SparkSession,
    store: FileStore,
    table: str,
    files: list[TableFile],
    schema: StructType | None,
) -> DataFrame:
    if store.url.startswith(("webhdfs://", "swebhdfs://")):
        raise ConfigurationError(
            f"{store.url}: Spark's own Parquet reader does not speak WebHDFS "
            "here; name the tables by hdfs://, and --hdfs-http beside it"
        )
    if not files:
        assert schema is not None
        return spark.createDataFrame([], schema)
    reader = spark.read.option("basePath", f"{store.url}/{table}")
    if schema is not None:
        reader = reader.schema(schema)
    return reader.parquet(*(f"{store.url}/{file.path}" for file in files))


def aggregated(rows: DataFrame) -> DataFrame:
    """What `traffic` holds, from records; `date` is the day on which the log took them."""
    hour = f.date_trunc("hour", "timestamp").alias("hour")
    return (
        as_said(rows)
        .groupBy("date", hour, "shard", "room_id", "author", "kind")
        .agg(
            f.count(f.lit(1)).alias("records"),
            f.sum("body_len").alias("bytes"),
            f.min("timestamp").alias("first"),
            f.max("timestamp").alias("last"),
        )
    )


def refresh_traffic(spark: SparkSession, ledger: Ledger, state: State) -> list[str]:
    """Make `traffic` fresh for the days that got records; their dates."""
    dates = state.stale_dates
    if not dates:
        return []
    rows = records(spark, ledger.store, state).where(f.col("date").isin(dates))
    found = aggregated(rows).orderBy("hour", "shard", "room_id", "author").toArrow()
    staging = f"{STAGING}/{os.urandom(8).hex()}"
    gone = [file for file in state.traffic if file.date in dates]
    moves, made = [], []
    for date in dates:
        mask = [str(value) == date for value in found.column("date").to_pylist()]
        part = found.filter(mask).drop_columns(["date"])
        name = f"traffic-{os.urandom(8).hex()}.parquet"
        path = f"{TRAFFIC}/date={date}/{name}"
        with tempfile.TemporaryDirectory(prefix="tigerchat-") as folder:
            local = Path(folder, name)
            pq.write_table(part, local, compression="zstd")
            made.append(TableFile(path, date, -1, part.num_rows, local.stat().st_size, 0, 0))
            ledger.store.put(f"{staging}/{name}", local)
        moves.append((f"{staging}/{name}", path))
    state.traffic = [file for file in state.traffic if file not in gone] + made
    state.moves, state.deletes = moves, [file.path for file in gone]
    state.stale_dates = []
    ledger.commit(state, {})
    return dates


def rooms(rows: DataFrame) -> DataFrame:
    """room_id, name, the one it was made under, when and by whom: what room_create records say, and
    audit records of rooms that got other names."""
    created = rows.where(f.col("kind") == ROOM_NAME_KIND)
    made = created.select(
        "room_id",
        f.col("body").cast("string").alias("made_as"),
        "shard",
        f.col("timestamp").alias("created"),
        f.col("author").alias("created_by"),
    )
    named = made.join(f.broadcast(_new_names(rows)), "made_as", "left")
    room = f.coalesce("new_name", "made_as").alias("room")
    return named.select("room_id", room, "made_as", "shard", "created", "created_by")


def _new_names(rows: DataFrame) -> DataFrame:
    """made_as, new_name: the newest that each room was given and that no other had got before, as
    edges tell it (`cores/edge/new_names`)."""
    text = f.col("body").cast("string")
    acts = rows.where((f.col("kind") == "audit") & (f.col("shard") == 0)).select(
        f.get_json_object(text, "$.act.do").alias("act"),
        f.get_json_object(text, "$.act.room").alias("made_as"),
        f.get_json_object(text, "$.act.name").alias("new_name"),
        f.get_json_object(text, "$.act.number").cast("long").alias("number"),
        f.coalesce(
            f.get_json_object(text, "$.said_us").cast("long"), f.unix_micros("timestamp")
        ).alias("said_us"),
    )
    given = acts.where(f.col("act") == "rename_room")
    owners = given.groupBy("new_name").agg(
        f.min_by("made_as", f.struct("said_us", "made_as")).alias("owner")
    )
    own = given.join(owners, "new_name").where(
        (f.col("owner") == f.col("made_as")) | (f.col("new_name") == f.col("made_as"))
    )
    newest = f.max_by("new_name", f.struct("number", "said_us", "new_name"))
    return own.groupBy("made_as").agg(newest.alias("new_name"))


def messages(rows: DataFrame) -> DataFrame:
    """What people wrote, with room names and text; later kinds of record join by their kind.

    An edit or a redaction names the message it changes as its parent; the newest edit counts.
    What was imported has the time and author of then; `stored_at` and `stored_by` tell the log's.
    """
    changed = (
        rows.where(f.col("kind").isin("edit", "redact"))
        .groupBy("room_id", f.col("parent_id").alias("msg_id"))
        .agg(
            f.max_by(f.when(f.col("kind") == "edit", f.col("body")), "seq").alias("edit"),
            f.max(f.col("kind") == "redact").alias("redacted"),
        )
    )
    said = rows.where(f.col("kind").isin(*SAID))
    said = as_said(
        said.withColumns({"stored_at": f.col("timestamp"), "stored_by": f.col("author")})
    ).withColumn("date", f.to_date("timestamp"))
    joined = said.join(rooms(rows).select("room_id", "room"), "room_id", "left").join(
        changed, ["room_id", "msg_id"], "left"
    )
    redacted = f.coalesce("redacted", f.lit(False))
    text = f.when(~redacted, f.coalesce("edit", "body").cast("string"))
    return joined.select(
        "date",
        "timestamp",
        "shard",
        "log_seq",
        "room_id",
        "room",
        "seq",
        "author",
        "kind",
        "msg_id",
        "parent_id",
        "body_len",
        text.alias("text"),
        f.col("edit").isNotNull().alias("edited"),
        redacted.alias("redacted"),
        "stored_at",
        "stored_by",
        "blob_hash",
        "hash",
    )


def register(spark: SparkSession, store: FileStore, state: State) -> None:
    """The tables as views for SQL: records, messages, rooms, traffic, files, quarantine."""
    rows = records(spark, store, state)
    rows.createOrReplaceTempView("records")
    rooms(rows).createOrReplaceTempView("rooms")
    messages(rows).createOrReplaceTempView("messages")
    traffic(spark, store, state).createOrReplaceTempView("traffic")
    quarantine(spark, state).createOrReplaceTempView("quarantine")
    spark.udf.register("author_name", lambda value: author_name(value % (1 << 64)), StringType())
    spark.udf.register("kind_name", kind_name, StringType())


def quarantine(spark: SparkSession, state: State) -> DataFrame:
    """What is left out, and why."""
    schema = (
        "shard int, number long, file string, record long, offset long, first_log_seq long, "
        "last_log_seq long, reason string, sentence string"
    )
    return spark.createDataFrame([tuple(row) for row in state.quarantine], schema)
