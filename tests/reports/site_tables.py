"""Tables of a made site, ingested with the Spark of the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from appliance.reports.archive import Archive
from appliance.reports.file_store import file_store_of
from appliance.reports.ingest import Done
from appliance.reports.ledger import Ledger, State
from appliance.reports.main import ingest
from tests.reports.maker import Site


class Tables:
    """Tables of a site in a folder, as an analyst makes them."""

    def __init__(self, spark: SparkSession, site: Site, archive: Path, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.archive = Archive(file_store_of(str(archive)), site.trusted)
        self.ledger = Ledger(file_store_of(str(folder)), site.cluster)

    def ingest(self, **options: object) -> Done:
        lines: list[str] = []
        return ingest(self.spark, self.archive, self.ledger, say=lines.append, **options)

    @property
    def state(self) -> State:
        return self.ledger.load()


MakeTables = Callable[..., Tables]  # `tables(site, archive)`
