"""Spark, started the way the reports need it."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys

from pyspark.sql import SparkSession

from appliance.base.errors import ConfigurationError
from appliance.formats.spark_packages import NEEDED

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {  # of a Spark inside one process: nobody else needs to reach it
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}


def session(name: str, master: str = "") -> SparkSession:
    """The session of this process; what `spark-submit` was told comes first."""
    missing = [
        package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise ConfigurationError(
            f"{sys.executable}, Spark's Python here, has no {', '.join(missing)}: install it there "
            f"and on the workers (`{sys.executable} -m pip install {' '.join(missing)}`), or name "
            "another Python with PYSPARK_PYTHON"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    settings = dict(_SETTINGS)
    chosen = master or os.environ.get("TIGERCHAT_SPARK_MASTER", "")
    if chosen.startswith("local") or not chosen:
        settings |= _LOCAL_SETTINGS
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # of a mistake in a query it prints kilobytes of Java; `main` says the sentence
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return spark
