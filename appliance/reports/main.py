"""The command line of the reports, the same under `tigerchat report` and plain `spark-submit`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from appliance.base.errors import ApplianceError, ConfigurationError, FormatError
from appliance.base.printable import cell, counted, one_line, safe
from appliance.formats.manifest import TrustedKeys, parse_keys
from appliance.formats.webhdfs_call import Login
from appliance.reports import build as building
from appliance.reports import tables
from appliance.reports.archive import Archive
from appliance.reports.compaction import compact
from appliance.reports.file_store import FileStore, file_store_of
from appliance.reports.ingest import BATCH_RECORDS, Done, Ingest
from appliance.reports.ledger import Ledger, State
from appliance.reports.session import session
from appliance.reports.stream import follow

EXIT_QUARANTINE, EXIT_MISTAKE, EXIT_REFUSED = 3, 2, 1
SQL_ROWS_SHOWN = 1000
LINES_SHOWN = 50


def main(arguments: list[str]) -> int:
    """Run one verb; the exit code: 0 all is well, 3 done but something is in quarantine."""
    chosen = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = chosen.run
    try:
        return run(chosen)
    except (ConfigurationError, ApplianceError) as error:
        print(f"tigerchat report: {safe(str(error))}", file=sys.stderr)
        return EXIT_MISTAKE if isinstance(error, ConfigurationError) else EXIT_REFUSED
    except PySparkException as error:
        words = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        print(f"tigerchat report: {one_line(words)}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """Verbs and options."""
    top = argparse.ArgumentParser(
        prog="tigerchat report", description="Verify what was shipped, and report on it."
    )
    verbs = top.add_subparsers(required=True, metavar="VERB")
    ingest, stream = _ingest_verbs(verbs)
    build = verbs.add_parser("build", help="tables as CSV and Parquet, and a page with plots")
    build.add_argument(
        "--keys",
        type=Path,
        help="file of trusted keys: names the signers, and says what there is room for",
    )
    sql = verbs.add_parser(
        "sql", help="a question of your own over records, messages, rooms, traffic and quarantine"
    )
    sql.add_argument("query")
    sql.add_argument("--format", choices=("table", "csv", "json"), default="table")
    _build_options(build)
    update = verbs.add_parser("update", help="ingest, then build")
    _archive_options(update)
    _build_options(update)
    for verb, run in (
        (ingest, run_ingest),
        (update, run_update),
        (stream, run_stream),
        (build, run_build),
        (sql, run_sql),
    ):
        verb.set_defaults(run=run)
        verb.add_argument("--tables", required=True, help="a folder or hdfs://…")
        verb.add_argument(
            "--hdfs-http",
            default="",
            metavar="HOST:PORT",
            help="where the NameNode of hdfs://… answers HTTP (default: port 9870)",
        )
        verb.add_argument("--hdfs-user", default="", help="who asks HDFS")
        verb.add_argument("--hdfs-token", type=Path, help="file with a delegation token for HDFS")
    return top


def _archive_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("archive", help="a folder, hdfs://… or webhdfs://…")
    verb.add_argument(
        "--keys", required=True, type=Path, help="file of trusted keys, from `tigerchat ship keys`"
    )


def _build_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--out", type=Path, default=Path("report"), help="folder (default ./report)")
    verb.add_argument(
        "--capacity-gib",
        type=float,
        default=0,
        help="of the archive's storage, to tell when it is full",
    )


def _ingest_verbs(verbs: Any) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The two verbs that read an archive: once, and again and again."""
    ingest = verbs.add_parser("ingest", help="verify an archive's new periods into the tables")
    stream = verbs.add_parser("stream", help="the same, again and again as periods arrive")
    _archive_options(ingest)
    _archive_options(stream)
    ingest.add_argument(
        "--again",
        action="store_true",
        help="make the tables anew, for instance after the archive was mended",
    )
    ingest.add_argument(
        "--expect-until",
        metavar="TIME",
        type=_time,
        help="refuse to be content before this time, 2026-01-31T24:00 or the like",
    )
    ingest.add_argument(
        "--batch-records",
        type=int,
        default=BATCH_RECORDS,
        metavar="COUNT",
        help=f"records that count together (default {BATCH_RECORDS:,})",
    )
    stream.add_argument(
        "--every", type=float, default=60, metavar="SECONDS", help="how often to look (default 60)"
    )
    stream.add_argument("--once", action="store_true", help="what is there now, then end")
    stream.add_argument(
        "--checkpoint",
        default="",
        help="folder of Spark's own notes on the stream (default: beside the tables)",
    )
    return ingest, stream


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# --- verbs ----------------------------------------------------------------------------------------


def say_now(line: str) -> None:
    """Progress: seen at once, also through a pipe."""
    print(line, flush=True)


def run_ingest(chosen: argparse.Namespace) -> int:
    archive = _archive(chosen)
    ledger = Ledger(_store(chosen, chosen.tables), archive.trusted.cluster)
    spark = session("tigerchat report ingest")
    until = chosen.expect_until
    done = ingest(
        spark,
        archive,
        ledger,
        again=chosen.again,
        batch_records=chosen.batch_records,
        expect_until_us=int(until.timestamp() * 1e6) if until else 0,
    )
    return tell(done)


def ingest(
    spark: SparkSession,
    archive: Archive,
    ledger: Ledger,
    *,
    again: bool = False,
    expect_until_us: int = 0,
    batch_records: int = BATCH_RECORDS,
    say: Callable[[str], None] = say_now,
) -> Done:
    """All that is new into the tables, which are then compact and their traffic fresh."""
    with ledger.writing(again) as state:
        done = Ingest(spark.sparkContext, archive, ledger, say, batch_records=batch_records).run(
            state, expect_until_us=expect_until_us
        )
        compact(spark.sparkContext, ledger, state)
        tables.refresh_traffic(spark, ledger, state)
    return done


def tell(done: Done) -> int:
    """Print what a run did; its exit code."""
    rate = done.records / max(done.seconds, 1e-3)
    print(
        f"{counted(done.records, 'record')} of {counted(done.files, 'file')} verified and in the "
        "tables, "
        f"{rate:,.0f} a second"
    )
    for title, rows in (("in quarantine", done.quarantined), ("wrong for now", done.waiting)):
        for row in rows[:LINES_SHOWN]:
            print(f"{title}: {one_line(row.line())}", file=sys.stderr)
        if len(rows) > LINES_SHOWN:
            print(
                f"{title}: {len(rows) - LINES_SHOWN} more; all are in the quarantine table",
                file=sys.stderr,
            )
    return 0 if done.clean else EXIT_QUARANTINE


def run_stream(chosen: argparse.Namespace) -> int:
    archive = _archive(chosen)
    ledger = Ledger(_store(chosen, chosen.tables), archive.trusted.cluster)
    spark = session("tigerchat report stream")
    worst = 0

    def arrived() -> None:
        nonlocal worst
        worst = max(worst, tell(ingest(spark, archive, ledger)))

    checkpoint = chosen.checkpoint or f"{ledger.store.url}/_stream"
    follow(spark, archive, checkpoint, every_s=0 if chosen.once else chosen.every, arrived=arrived)
    return worst


def run_build(chosen: argparse.Namespace) -> int:
    store, state = _tables(chosen)
    names, records_max = {}, 0
    if chosen.keys:
        trusted = _keys(chosen.keys)
        names = {key.hex(): name for name, key in trusted.keys}
        records_max = trusted.records_max
    spark = session("tigerchat report build")
    building.build(
        spark,
        store,
        state,
        chosen.out,
        key_names=names,
        capacity=int(chosen.capacity_gib * (1 << 30)),
        records_max=records_max,
    )
    page = (chosen.out / building.PAGE).resolve()
    print(f"the report is {page}")
    return 0


def run_update(chosen: argparse.Namespace) -> int:
    """One start of Spark for both; what is in quarantine is told by the code and on the page."""
    archive = _archive(chosen)
    ledger = Ledger(_store(chosen, chosen.tables), archive.trusted.cluster)
    code = tell(ingest(session("tigerchat report update"), archive, ledger))
    return run_build(chosen) or code


def run_sql(chosen: argparse.Namespace) -> int:
    store, state = _tables(chosen)
    spark = session("tigerchat report sql")
    tables.register(spark, store, state)
    found = spark.sql(chosen.query)
    if chosen.format == "table":
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            found.show(SQL_ROWS_SHOWN, truncate=80)
        print(safe(shown.getvalue()), end="")
        return 0
    frame: Any = found.toPandas()
    if chosen.format == "csv":
        harmless = frame.map(lambda value: cell(value) if isinstance(value, str) else value)
        harmless.to_csv(sys.stdout, index=False)
    else:
        frame.to_json(sys.stdout, orient="records", lines=True, date_format="iso")
    return 0


# --- what is named --------------------------------------------------------------------------------


def _store(chosen: argparse.Namespace, url: str) -> FileStore:
    token = ""
    if chosen.hdfs_token:
        token = _read(chosen.hdfs_token).decode().strip()
    user = chosen.hdfs_user or os.environ.get("HADOOP_USER_NAME", "")
    return file_store_of(url, http_address=chosen.hdfs_http, login=Login(user, token))


def _archive(chosen: argparse.Namespace) -> Archive:
    return Archive(_store(chosen, chosen.archive), _keys(chosen.keys))


def _tables(chosen: argparse.Namespace) -> tuple[FileStore, State]:
    store = _store(chosen, chosen.tables)
    state = Ledger(store, None).load()
    if state.number == 0:
        raise ConfigurationError(
            f"{store.url}: no tables here; `tigerchat report ingest` makes them"
        )
    return store, state


def _keys(path: Path) -> TrustedKeys:
    try:
        return parse_keys(_read(path))
    except FormatError as error:
        raise ConfigurationError(f"{path}: {error}; `tigerchat ship keys` prints it") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
