"""A report's figures are those of the records, counted here without any of its code."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from appliance.formats.geometry import RECORD_SIZE
from appliance.reports import build as building
from appliance.reports import plot
from appliance.reports import tables as readers
from appliance.reports.build import harmless
from appliance.reports.main import main
from tests.reports.maker import HOUR_US, Entry, Site, make
from tests.reports.rows import fingerprint
from tests.reports.site_tables import Tables

Report = tuple[Path, list[Entry], Tables]  # folder of the report, what is true, the tables


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """(folder of the report, truth) of two shards with some days."""
    folder = tmp_path_factory.mktemp("report")
    site = Site(seed=31, shards=2)
    shards = make(folder / "archive", site, 5, 240, period_us=12 * HOUR_US)
    made = Tables(spark, site, folder / "archive", folder / "tables")
    assert made.ingest().clean
    names = {key.hex(): name for name, key in site.trusted.keys}
    building.build(
        spark, made.ledger.store, made.state, folder / "out", key_names=names, say=lambda line: None
    )
    assert fingerprint(made.folder, made.state)[0] == 2 * 5 * 240
    truth = [entry for shard in shards for entry in shard.truth]
    return folder / "out", truth, made


def said(truth: list[Any]) -> list[Any]:
    """Without the records that create rooms, the first of each."""
    seen: set[str] = set()
    return [entry for entry in truth if entry[0] in seen or seen.add(entry[0])]


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(folder / "tables" / f"{name}.parquet").to_pylist()


def day(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d")


def test_messages_by_room_author_and_day_are_those_of_the_records(report: Report) -> None:
    folder, truth, _ = report
    wanted = Counter((room, author, day(time)) for room, time, author, _ in said(truth))
    found = {
        (row["room"], row["author"], str(row["date"])): row["messages"]
        for row in table(folder, "messages_by_room_author_day")
    }
    assert found == wanted


def test_hours_peaks_sizes_and_people_are_those_of_the_records(report: Report) -> None:
    folder, truth, _ = report
    rows = said(truth)
    hours = Counter(time // HOUR_US for _, time, _, _ in rows)
    assert {
        int(row["hour"].timestamp()) // 3600: row["messages"]
        for row in table(folder, "messages_by_hour")
    } == hours
    seconds = Counter(time // 1_000_000 for _, time, _, _ in rows)
    busiest = {}
    for second, count in seconds.items():
        date = day(second * 1_000_000)
        busiest[date] = max(busiest.get(date, 0), count)
    assert {str(row["date"]): row["in_a_second"] for row in table(folder, "peaks")} == busiest
    assert sum(row["count"] for row in table(folder, "message_sizes")) == len(rows)
    people = {date: {a for _, time, a, _ in rows if day(time) == date} for date in busiest}
    assert {str(row["date"]): row["daily"] for row in table(folder, "active_users")} == {
        date: len(authors) for date, authors in people.items()
    }


def test_replies_are_those_whose_parent_is_a_message(report: Report, spark: SparkSession) -> None:
    folder, _, made = report
    rows = (
        readers.records(spark, made.ledger.store, made.state)
        .where("kind = 'message'")
        .select("room_id", "msg_id", "parent_id")
        .collect()
    )
    ids = {(row.room_id, row.msg_id) for row in rows}
    wanted = sum((row.room_id, row.parent_id) in ids for row in rows)
    threads = table(folder, "threads")
    assert sum(row["replies"] for row in threads) == wanted > 0
    assert all(0 < row["first_reply_s"] <= row["last_reply_s"] for row in threads)


def test_every_table_is_there_as_csv_with_the_same_rows(report: Report) -> None:
    folder, _, _ = report
    for path in (folder / "tables").glob("*.parquet"):
        with path.with_suffix(".csv").open(newline="") as file:
            assert len(list(csv.reader(file))) - 1 == pq.read_metadata(path).num_rows


class Page(HTMLParser):
    """Tags that are open and every address in them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        if tag not in ("meta", "rect", "line", "circle", "polyline", "polygon", "path", "br"):
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[Any]) -> None:
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "circle"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(report: Report) -> None:
    folder, truth, _ = report
    text = (folder / "report.html").read_text()
    page = Page()
    page.feed(re.sub(r"<(rect|circle)([^>]*[^/])>(<title>[^<]*</title>)</\1>", r"\3", text))
    assert page.open == []
    assert page.addresses == []
    assert "<script" not in text and "url(" not in text and "http" not in text
    assert "every record verified" in text
    assert "node-0, node-1" in text


def test_sql_answers_from_messages_with_their_text(report: Report, spark: SparkSession) -> None:
    _, truth, made = report
    readers.register(spark, made.ledger.store, made.state)
    found = spark.sql(
        "select room, count(*) as n from messages where text like '%tiger%' group by room"
    ).collect()
    wanted = Counter(room for room, _, _, body in said(truth) if b"tiger" in body)
    assert {row.room: row.n for row in found} == wanted


STRANGE = r"""select '\u009b31mred\u202e' as body, '=cmd()' as room"""


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_sql_shows_nothing_that_commands_a_terminal_or_a_spreadsheet(
    report: Report, spark: SparkSession, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    _, _, made = report
    assert main(["sql", STRANGE, "--tables", made.ledger.store.url, "--format", form]) == 0
    told = capsys.readouterr().out
    assert "\x9b" not in told and "\u202e" not in told and "red" in told
    if form == "csv":
        assert told.splitlines()[1].endswith(",'=cmd()")


@pytest.mark.parametrize(
    ("query", "words"),
    [("selct room from messages", "PARSE_SYNTAX_ERROR"), ("select rom from messages", "rom")],
)
def test_a_mistake_in_a_query_is_one_sentence(
    report: Report, spark: SparkSession, capfd: pytest.CaptureFixture[str], query: str, words: str
) -> None:
    _, _, made = report
    assert main(["sql", query, "--tables", made.ledger.store.url]) == 1
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith("tigerchat report: ") and words in told.err
    assert told.err.count("\n") == 1, told.err
    assert len(told.err) < 400


def test_the_csv_of_a_report_holds_no_formula_and_no_control() -> None:
    table = pa.table({"room": ["=cmd()", "x\x9b", None], "count": [1, -2, 3]})
    out = io.BytesIO()
    pyarrow.csv.write_csv(harmless(table), out)
    rows = list(csv.reader(io.StringIO(out.getvalue().decode())))
    assert rows == [["room", "count"], ["'=cmd()", "1"], ["x\ufffd", "-2"], ["", "3"]]


def test_days_until_full_are_those_of_what_the_site_itself_has_room_for() -> None:
    days = [date(2026, 1, day) for day in range(1, 12)]
    volume = pa.table({"date": days, "bytes": [1 << 20] * 11})
    unsaid = building.outlook(volume, 0, 0)
    assert unsaid.days is None and unsaid.full == 0
    held = building.outlook(volume, 0, 10_000)
    assert held.full == 10_000 * RECORD_SIZE
    assert held.days == pytest.approx((held.full - 11 * (1 << 20)) / (1 << 20))
    assert building.outlook(volume, 0, 20_000).days > held.days
    assert building.outlook(volume, 1 << 30, 10_000).full == 1 << 30
    assert building.outlook(volume, 0, 1).days == 0.0  # it is full


def test_between_days_on_which_people_wrote_a_curve_is_at_nothing() -> None:
    """As when somebody brings a message of long ago: it was not said each day since."""
    day = timedelta(days=1)
    first, second = datetime(1997, 1, 6, tzinfo=UTC), datetime(2026, 11, 24, tzinfo=UTC)
    points = [plot.Point(first, 1), plot.Point(second, 2), plot.Point(second + day, 3)]
    assert plot.with_gaps(points, day, day) == [
        points[0],
        (first + day, 0),
        (second - day, 0),
        *points[1:],
    ]
    assert plot.with_gaps(points, 30 * day, day)[1] == (first + 30 * day, 0)
    short = [plot.Point(first, 1), plot.Point(first + 2 * day, 1)]
    assert plot.with_gaps(short, day, day) == [short[0], (first + day, 0), short[1]]
    assert plot.with_gaps(short, 7 * day, day) == short


def test_a_curve_of_one_point_shows_it() -> None:
    drawn = plot.area([plot.Point(datetime(2026, 1, 1, tzinfo=UTC), 7)])
    assert drawn.count("<circle") == 1
    more = [plot.Point(datetime(2026, 1, day, tzinfo=UTC), 7) for day in (1, 2)]
    assert "<circle" not in plot.area(more)


def test_marks_count_one_and_many() -> None:
    days = [plot.Point(datetime(2026, 1, day, tzinfo=UTC), day) for day in (1, 2)]
    assert re.findall(r": (.*?)</title>", plot.area(days)) == ["1 message", "2 messages"]
    bars = plot.columns([("a", 1), ("b", 1500)], noun="thread")
    assert re.findall(r": (.*?)</title>", bars) == ["1 thread", "1.5k threads"]
    assert re.findall(r"00: (.*?)</title>", plot.week({(1, 9): 1}))[9] == "1 message"
    assert re.findall(r": (.*?)</title>", plot.area(days[:1], noun="")) == ["1"]
