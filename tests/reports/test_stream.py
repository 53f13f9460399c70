"""Structured Streaming: hours that arrive come into the tables and the day's traffic."""

from __future__ import annotations

from appliance.reports import tables as readers
from appliance.reports.stream import follow
from tests.reports.maker import Shard, Site
from tests.reports.rows import log_seqs


def test_arriving_hours_keep_tables_and_traffic_fresh(tables, tmp_path, spark):
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
        rows = readers.traffic(spark, made.ledger.place, made.state).collect()
        assert sum(row.records for row in rows) == 2 * total
