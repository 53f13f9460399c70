"""Keeps the tables fresh with Structured Streaming: each period that is shipped sets off an ingest.

The stream carries only the news that there are periods, one row each; what is in them is verified
and committed by ingest, once, however often the stream tells of it. So a stream that is killed, or
whose notes are lost, costs a look at the archive and never a row too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from appliance.reports.archive import Archive

NAME = "tigerchat_periods"
STARTS_MAX = 5  # of a stream on a machine too busy to start Spark's Python in Spark's ten seconds
_WORKER_LATE = "Python worker failed to connect back"


@dataclass
class News(InputPartition):
    """Manifests of a shard that are new."""

    shard: int
    first: int
    last: int


def source_of(archive: Archive) -> type[DataSource]:
    """A streaming source of the periods of this archive: shard and number of each manifest."""

    class Periods(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> StructType:
            return StructType(
                [StructField("shard", IntegerType()), StructField("number", LongType())]
            )

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return PeriodsReader(archive)

    return Periods


class PeriodsReader(DataSourceStreamReader):
    """An offset is the number of the newest manifest of each shard, by its signed head."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        found = dict(start)
        for shard in self._archive.shards():
            head, _ = self._archive.head(shard)
            if head is not None:
                found[str(shard)] = max(head.number, found.get(str(shard), -1))
        return found

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [
            News(int(shard), start.get(shard, -1) + 1, last)
            for shard, last in end.items()
            if last > start.get(shard, -1)
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        assert isinstance(partition, News)
        for number in range(partition.first, partition.last + 1):
            yield partition.shard, number


def follow(
    spark: SparkSession,
    archive: Archive,
    checkpoint: str,
    *,
    every_s: float,
    arrived: Callable[[], None],
) -> None:
    """Call `arrived` whenever periods have come; with `every_s` 0 end when all are in."""
    spark.dataSource.register(source_of(archive))

    def on_batch(news: DataFrame, number: int) -> None:
        arrived()

    writer = (
        spark.readStream.format(NAME)
        .load()
        .writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", checkpoint)
    )
    if every_s:
        writer = writer.trigger(processingTime=f"{every_s} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    for left in reversed(range(STARTS_MAX)):
        query = writer.start()
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if left == 0 or _WORKER_LATE not in str(error):
                raise
        finally:
            query.stop()
