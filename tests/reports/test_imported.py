"""What was imported counts for whom and when it was said, and nobody else is taken for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from appliance.formats import record
from appliance.formats.archive.entry import Entry
from appliance.formats.archive.plan import Plan, device_of
from appliance.formats.imported import decode_imported
from appliance.formats.record import RECORD
from appliance.formats.room_name import room_id_of
from appliance.reports import build as building
from appliance.reports import tables as readers
from appliance.reports.columns import batch_of
from appliance.reports.imported import said_at, said_by
from tests.reports.maker import HOUR_US, START_US, Shard, Site
from tests.reports.site_tables import MakeTables, Tables

THEN_US = 852_076_800_123_000  # in 1997
DEVICE = device_of("mbox", "/old.mbox", "", "operator")


def entry(author: str, text: str, *, key: str = "", parent: str = "", after_s: int = 0) -> Entry:
    return Entry("list", author, THEN_US + after_s * 1_000_000, key, parent, text)


def imported(*entries: Entry, kind: int = record.KIND_IMPORTED) -> np.ndarray:
    """Records as an import of these entries leaves them; of the kind `message`, as one of earlier
    versions did: with author and time as the first line of the text."""
    plan = Plan(DEVICE)
    plan.survey(entries, {})
    raws = [
        record.encode(
            room_id=room_id_of(message.room),
            msg_id=message.msg_id.bytes[::-1],
            author_id=7,
            body=message.body.encode() if kind else earlier(message.body.encode()),
            client_id=DEVICE.bytes[::-1],
            client_seq=message.position,
            parent_id=message.parent_id.bytes[::-1] if message.parent_id else bytes(16),
            kind=kind,
            timestamp=START_US + message.position,
        )
        for message in plan.messages(entries)
    ]
    return np.frombuffer(b"".join(raws), RECORD)


def earlier(body: bytes) -> bytes:
    """A body as earlier versions made it; a further piece of a long text had no line."""
    said = decode_imported(body)
    assert said is not None
    moment = np.datetime64(said.said_us // 1_000_000, "s")
    return f"{said.author} · {moment}Z\n".encode() + body[said.head_size :]


def test_the_body_in_tables_is_the_text_alone() -> None:
    rows = imported(entry("Ada", "word " * 1000, key="1"), entry("Bert", "no", after_s=60))
    batch = batch_of(rows, ["body", "kind"], shard=0)
    bodies = batch.column("body").to_pylist()
    assert b"".join(bodies[:-1]).decode() == "word " * 1000 and bodies[-1] == b"no"
    assert set(batch.column("kind").to_pylist()) == {"imported"}


def test_each_piece_has_the_time_and_the_author_of_its_message() -> None:
    rows = imported(entry("Ada", "word " * 1000, key="1"), entry("Bert Ü.", "no", after_s=60))
    assert len(rows) > 3, "a long one is stored in pieces"
    assert said_by(rows) == ["Ada (imported)"] * (len(rows) - 1) + ["Bert Ü. (imported)"]
    assert said_at(rows) == [THEN_US] * (len(rows) - 1) + [THEN_US + 60_000_000]


def test_what_was_stored_without_the_right_to_import_is_marked() -> None:
    """As whoever might send could have stored it, under any name, before edges refused that."""
    proved = imported(entry("Ada", "hello"))
    rows = imported(entry("Ada", "word " * 1000, key="1"), kind=record.KIND_MESSAGE)
    assert len(rows) > 2
    both = np.concatenate([rows, proved])
    assert said_by(both) == ["Ada (imported, unproved)"] * len(rows) + ["Ada (imported)"]
    assert said_at(both) == [THEN_US] * len(both)


def test_an_id_or_a_line_alone_says_nothing() -> None:
    rows = imported(entry("Ada", "hello"), kind=record.KIND_MESSAGE).copy()
    assert said_by(rows) == ["Ada (imported, unproved)"]
    sent = rows.copy()
    sent["msg_id"] = np.void(bytes(range(16)))
    assert said_by(sent) == said_at(sent) == [None]
    later = imported(entry("Ada", "hello", after_s=1), kind=record.KIND_MESSAGE).copy()
    later["msg_id"] = rows["msg_id"]  # of another second than its line tells
    assert said_by(later) == said_at(later) == [None]


@pytest.fixture
def archived(tables: MakeTables, tmp_path: Path) -> Tables:
    """Tables of a site into which two messages of 1997 were imported, beside others."""
    site = Site(seed=77)
    shard = Shard(site, tmp_path / "archive", 0, rooms=2)
    shard.ship(20)
    rows = imported(
        entry("Ada", "who?", key="1"), entry("Bert", "I", key="2", parent="1", after_s=90)
    ).copy()
    start = START_US + HOUR_US
    rows["timestamp"] = [start + 1000, start + 2000]
    shard.ship_rows(rows)
    made = tables(site, tmp_path / "archive")
    assert made.ingest().clean
    return made


def test_the_report_counts_them_in_their_own_time(
    archived: Tables, tmp_path: Path, spark: SparkSession
) -> None:
    report = building.build(
        spark,
        archived.ledger.store,
        archived.state,
        tmp_path / "report",
        key_names={},
        say=lambda line: None,
    )
    day = datetime.fromtimestamp(THEN_US / 1e6, UTC).date()
    by_day = {row["date"]: row["messages"] for row in report.rows("messages_by_day")}
    assert by_day[day] == 2
    authors = {row["author"] for row in report.rows("messages_by_author")}
    assert {"Ada (imported)", "Bert (imported)"} <= authors
    assert [
        row["first_reply_s"] for row in report.rows("threads") if row["asked"].year == 1997
    ] == [90.0]
    assert min(row["date"] for row in report.rows("volume")).year == 2026  # when it was stored
    rows = readers.messages(readers.records(spark, archived.ledger.store, archived.state)).where(
        "year(timestamp) = 1997"
    )
    assert [(row.author, row.stored_at.year) for row in rows.orderBy("seq").collect()] == [
        ("Ada (imported)", 2026),
        ("Bert (imported)", 2026),
    ]
