"""One Spark for all tests of the reports, in this process, on loopback; ended with them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from appliance.reports.session import session
from appliance.reports.source import register
from tests.patience import HUNG_S
from tests.reports.command_line import LIGHT
from tests.reports.site_tables import MakeTables, Tables

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYTHONPATH"] = str(TOP)  # of Spark's workers
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    os.environ.update(LIGHT)
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--conf spark.sql.warehouse.dir={folder}/warehouse "
        f"--driver-java-options -Djava.io.tmpdir={folder} pyspark-shell"
    )
    found = session("tests of the reports", "local[2]")
    register(found)
    yield found
    gateway = SparkContext._gateway
    found.stop()
    gateway.shutdown()
    # Both stay in pyspark's class, and whoever asks next would talk to a Java that has ended.
    SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[Any] = gateway.proc
    process.stdin.close()
    process.wait(timeout=HUNG_S)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> MakeTables:
    """`tables(site, archive)`: tables of their own."""
    made = iter(range(100))
    return lambda site, archive: Tables(spark, site, archive, tmp_path / f"tables-{next(made)}")
