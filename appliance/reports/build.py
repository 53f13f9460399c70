"""Makes a report: every question's table as Parquet and CSV, and the page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from appliance.base.printable import cell, counted
from appliance.formats.geometry import RECORD_SIZE
from appliance.reports import questions as ask
from appliance.reports import tables
from appliance.reports.file_store import FileStore
from appliance.reports.ledger import State
from appliance.reports.page import Outlook, Report, render

GROWTH_DAYS = 7  # whose mean is taken to go on
PAGE = "report.html"


def build(
    spark: SparkSession,
    store: FileStore,
    state: State,
    target: Path,
    *,
    key_names: dict[str, str],
    capacity: int = 0,
    records_max: int = 0,
    say: Callable[[str], None] = print,
) -> Report:
    """Write the report into the folder `target`; `capacity` of the archive is in
    bytes; without it `records_max` counts, which the site's shards hold; 0 = not known."""
    rows = (
        tables.as_said(tables.records(spark, store, state))
        .withColumn("date", f.to_date("timestamp"))
        .select(
            "date",
            "timestamp",
            "shard",
            "room_id",
            "msg_id",
            "parent_id",
            "author",
            "kind",
            "body_len",
            "said_at",
        )
    )
    traffic = tables.traffic(spark, store, state).cache()
    rooms = tables.rooms(tables.records(spark, store, state)).cache()
    answers = ask.replies(rows)
    threads = ask.threads(answers, rooms).cache()
    answered = {
        "messages_by_hour": ask.messages_by_hour(traffic),
        "messages_by_day": ask.messages_by_day(traffic),
        "messages_by_room": ask.messages_by_room(traffic, rooms),
        "messages_by_author": ask.messages_by_author(traffic),
        "messages_by_room_author_day": ask.messages_by_room_author_day(traffic, rooms),
        "active_users": ask.active_users(traffic),
        "rooms_new": ask.rooms_new(traffic, rooms),
        "rooms_dormant": ask.rooms_dormant(traffic, rooms),
        "week": ask.week(traffic),
        "threads": threads,
        "reply_times": ask.reply_times(threads),
        "first_reply_times": ask.first_reply_times(threads),
        "message_sizes": ask.sizes(rows),
        "peaks": ask.peaks(rows),
        "volume": ask.volume(traffic, record_size=RECORD_SIZE),
        "quarantine": tables.quarantine(spark, state),
    }
    found = _written(answered, target, say)
    report = Report(
        found, state, outlook(found["volume"], capacity, records_max), key_names, datetime.now(UTC)
    )
    (target / PAGE).write_text(render(report), encoding="utf-8")
    for frame in (traffic, rooms, threads):
        frame.unpersist()
    return report


def _written(
    answered: dict[str, DataFrame], target: Path, say: Callable[[str], None]
) -> dict[str, pa.Table]:
    folder = target / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for i, (name, frame) in enumerate(answered.items(), 1):
        table = frame.toArrow()
        pq.write_table(table, folder / f"{name}.parquet")
        pyarrow.csv.write_csv(harmless(table), folder / f"{name}.csv")
        found[name] = table
        say(f"{i} of {len(answered)}: {name}, {counted(table.num_rows, 'row')}")
    return found


def harmless(table: pa.Table) -> pa.Table:
    """`table` for a CSV file that somebody opens in a spreadsheet: no text in it is a formula."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            cells = [None if text is None else cell(text) for text in table[index].to_pylist()]
            table = table.set_column(index, field, pa.array(cells, field.type))
    return table


def outlook(volume: pa.Table, capacity: int, records_max: int) -> Outlook:
    """How fast it grew in the last whole days, and what there is room for."""
    by_day: dict[date, int] = {}
    for row in volume.select(["date", "bytes"]).to_pylist():
        by_day[row["date"]] = by_day.get(row["date"], 0) + row["bytes"]
    used = pc.sum(volume["bytes"]).as_py() or 0
    newest = max(by_day, default=None)
    whole = [day for day in by_day if day != newest] or list(by_day)
    since = max(whole, default=None)
    counted = [
        day for day in whole if since is not None and day > since - timedelta(days=GROWTH_DAYS)
    ]
    days = (max(counted) - min(counted)).days + 1 if counted else 1
    a_day = sum(by_day[day] for day in counted) / days
    if capacity:
        return Outlook("the archive", capacity, used, a_day)
    return Outlook("a volume or its disk", records_max * RECORD_SIZE, used, a_day)
