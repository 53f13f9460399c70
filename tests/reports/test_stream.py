"""Structured Streaming: hours that arrive come into the tables and the day's traffic."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from appliance.reports import tables as readers
from appliance.reports.stream import follow
from tests.reports.maker import Shard, Site
from tests.reports.rows import log_seqs
from tests.reports.site_tables import MakeTables


def test_arriving_hours_keep_tables_and_traffic_fresh(
    tables: MakeTables, tmp_path: Path, spark: SparkSession
) -> None:
    site = Site(seed=51, shards=2)
    root = tmp_path / "archive"
    shards = [Shard(site, root, number) for number in range(2)]
    made = tables(site, root)
    looks = []

    def arrived() -> None:
        looks.append(made.ingest())

    for hours in (2, 1, 0):
        for shard in shards:
            for _ in range(hours):
                shard.ship(80)
        before = len(looks)
        follow(spark, made.archive, str(tmp_path / "checkpoint"), every_s=0, arrived=arrived)
        assert (len(looks) > before) == (hours > 0), "an ingest for news, none without"
        assert all(done.clean for done in looks)
        total = shards[0].log_seq
        assert log_seqs(made.folder, made.state) == {
            shard: list(range(1, total + 1)) for shard in range(2)
        }
        rows = readers.traffic(spark, made.ledger.store, made.state).collect()
        assert sum(row.records for row in rows) == 2 * total


def test_a_stream_that_spark_could_not_start_in_time_is_started_again(
    tables: MakeTables, tmp_path: Path, spark: SparkSession
) -> None:
    """Spark gives its Python ten seconds, however busy the machine is."""
    site = Site(seed=52, shards=1)
    root = tmp_path / "archive"
    shard = Shard(site, root, 0)
    made = tables(site, root)
    shard.ship(80)
    calls = []

    def arrived(late: str) -> None:
        calls.append(late)
        if len(calls) == 1:
            raise RuntimeError(late)
        made.ingest()

    def run(late: str) -> None:
        place = str(tmp_path / late.replace(" ", "-"))
        follow(spark, made.archive, place, every_s=0, arrived=lambda: arrived(late))

    with pytest.raises(StreamingQueryException, match="the archive is away"):
        run("the archive is away")
    assert len(calls) == 1
    calls.clear()
    run("Python worker failed to connect back")
    assert len(calls) == 2
    assert log_seqs(made.folder, made.state) == {0: list(range(1, shard.log_seq + 1))}
