"""What was imported counts for whom and when it was said, and nobody else is taken for it."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from appliance.formats import record
from appliance.formats.archive.entry import Entry
from appliance.formats.archive.plan import Plan, device_of
from appliance.formats.record import RECORD
from appliance.formats.room_name import room_id_of
from appliance.reports import build as building
from appliance.reports import tables as readers
from appliance.reports.imported import said_at, said_by
from tests.reports.maker import HOUR_US, START_US, Shard, Site

THEN_US = 852_076_800_123_000  # in 1997
DEVICE = device_of("mbox", "/old.mbox", "", "operator")


def entry(author: str, text: str, *, key: str = "", parent: str = "", after_s: int = 0) -> Entry:
    return Entry("list", author, THEN_US + after_s * 1_000_000, key, parent, text)


def imported(*entries: Entry) -> np.ndarray:
    """Records as an import of these entries leaves them."""
    plan = Plan(DEVICE)
    plan.survey(entries, {})
    raws = [
        record.encode(
            room_id=room_id_of(message.room),
            msg_id=message.msg_id.bytes[::-1],
            author_id=7,
            body=message.body.encode(),
            client_id=DEVICE.bytes[::-1],
            client_seq=message.position,
            parent_id=message.parent_id.bytes[::-1] if message.parent_id else bytes(16),
            kind=record.KIND_MESSAGE,
            timestamp=START_US + message.position,
        )
        for message in plan.messages(entries)
    ]
    return np.frombuffer(b"".join(raws), RECORD)


def test_each_piece_has_the_time_and_the_author_of_its_message():
    rows = imported(entry("Ada", "word " * 1000, key="1"), entry("Bert Ü.", "no", after_s=60))
    assert len(rows) > 3, "a long one is stored in pieces"
    assert said_by(rows) == ["Ada (imported)"] * (len(rows) - 1) + ["Bert Ü. (imported)"]
    assert said_at(rows) == [THEN_US] * (len(rows) - 1) + [THEN_US + 60_000_000]


def test_an_id_or_a_line_alone_says_nothing():
    rows = imported(entry("Ada", "hello")).copy()
    sent = rows.copy()
    sent["msg_id"] = np.void(bytes(range(16)))
    assert said_by(sent) == said_at(sent) == [None]
    later = imported(entry("Ada", "hello", after_s=1)).copy()
    later["msg_id"] = rows["msg_id"]  # of another second than its line tells
    assert said_by(later) == said_at(later) == [None]


@pytest.fixture
def archived(tables, tmp_path):
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


def test_the_report_counts_them_in_their_own_time(archived, tmp_path, spark):
    report = building.build(
        spark,
        archived.ledger.place,
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
    rows = readers.messages(readers.records(spark, archived.ledger.place, archived.state)).where(
        "year(timestamp) = 1997"
    )
    assert [(row.author, row.stored_at.year) for row in rows.orderBy("seq").collect()] == [
        ("Ada (imported)", 2026),
        ("Bert (imported)", 2026),
    ]
