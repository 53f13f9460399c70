"""The report as one HTML file: nothing is fetched, nothing runs, it can be mailed and kept.

Its only input is the tables of the report, as Arrow, and a few figures of the ledger.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from html import escape
from typing import Any

import pyarrow as pa

from appliance.base.printable import counted
from appliance.reports import plot
from appliance.reports.ledger import State
from appliance.reports.plot import Point, duration_text, short, size_text
from appliance.reports.questions import DORMANT_DAYS, REPLY_EDGES_S, SIZE_EDGES

ROWS_SHOWN = 12
YEARS_SHOWN_MAX = 100  # until something is full
HOURLY_DAYS = 21  # of a longer time, days are drawn
DAY = timedelta(days=1)
VERIFIED = (
    "Signatures of manifests and files, SHA-256 of files and chunks, CRC and padding of "
    "records, numbers without a gap, rising times, and the hash chain of every room over "
    "all borders"
)
QUARANTINE_SHOWN = 40
_CHECK = '<svg viewBox="0 0 24 24"><path d="M5 13l4.5 4.5L19 7.5"/></svg>'
_CROSS = '<svg viewBox="0 0 24 24"><path d="M12 6v8M12 18.2v.1"/></svg>'

Row = dict[str, Any]


@dataclass(slots=True)
class Outlook:
    """When what there is will be full."""

    what: str
    full: float  # bytes; 0: nobody has said
    used: float
    a_day: float  # bytes, in the mean of the last days

    @property
    def days(self) -> float | None:
        """None: it does not grow, or it is not known how much there is room for."""
        known = self.a_day > 0 and self.full > 0
        return max(0.0, self.full - self.used) / self.a_day if known else None


@dataclass(slots=True)
class Report:
    """All a page shows."""

    tables: dict[str, pa.Table]
    state: State
    outlook: Outlook
    key_names: dict[str, str]  # public key -> node
    made: datetime

    def rows(self, name: str, most: int = 1_000_000) -> list[Row]:
        rows: list[Row] = self.tables[name].slice(0, most).to_pylist()
        return rows


def render(report: Report) -> str:
    """The whole page."""
    sheet = pkgutil.get_data("appliance.reports", "page.css")
    assert sheet is not None
    body = "".join(
        (
            _header(report),
            _figures(report),
            '<div class="grid2">',
            _traffic(report),
            _people(report),
            _rooms(report),
            _threads(report),
            _shape(report),
            _growth(report),
            _integrity(report),
            "</div>",
            _footer(report),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>TigerChat report</title><style>{sheet.decode()}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


# --- top ------------------------------------------------------------------------------------------


def _header(report: Report) -> str:
    hours = report.rows("messages_by_hour")
    span = "no messages yet"
    if hours:
        first, last = _utc(hours[0]["hour"]), _utc(hours[-1]["hour"])
        span = f"{first:%-d %B %Y} to {last:%-d %B %Y}, UTC"
    bad = len(report.state.quarantine)
    seal = (
        f"{_CHECK} every record verified"
        if bad == 0
        else f"{_CROSS} {bad} {'part' if bad == 1 else 'parts'} in quarantine"
    )
    return (
        f"<header><div><h1><i>Tiger</i>Chat report</h1><p>{span} · cluster "
        f"<code>{report.state.cluster[:8]}</code></p></div>"
        f'<span class="seal{" bad" if bad else ""}">{seal}</span></header>'
    )


def _figures(report: Report) -> str:
    days, rooms = report.rows("messages_by_day"), report.rows("messages_by_room")
    total = sum(row["messages"] for row in days)
    peak = max((row["in_a_second"] for row in report.rows("peaks")), default=0)
    minute = max((row["in_a_minute"] for row in report.rows("peaks")), default=0)
    newest = report.rows("active_users")[-1:] or [{"daily": 0, "weekly": 0}]
    left = report.outlook.days
    cells = [
        (
            short(total),
            _named(total, "message", "messages"),
            f"{size_text(sum(row['bytes'] for row in days))} of text",
        ),
        (
            short(report.tables["messages_by_author"].num_rows),
            _named(report.tables["messages_by_author"].num_rows, "person wrote", "people wrote"),
            f"{newest[0]['daily']} on the last day, {newest[0]['weekly']} in its week",
        ),
        (
            short(len(rooms)),
            _named(len(rooms), "room with messages", "rooms with messages"),
            f"{report.tables['rooms_dormant'].num_rows} dormant",
        ),
        (f"{short(peak)}/s", "in the busiest second", f"{short(minute)} in the busiest minute"),
        (
            "–" if left is None else _days(left),
            f"until {report.outlook.what} is full"
            if report.outlook.full
            else "how much there is room for is not said",
            f"{size_text(report.outlook.a_day)} a day",
        ),
    ]
    return (
        '<div class="figures">'
        + "".join(
            f"<div><b>{escape(big)}</b><span>{escape(what)}</span>"
            f"<small>{escape(more)}</small></div>"
            for big, what, more in cells
        )
        + "</div>"
    )


def _days(days: float) -> str:
    if days > 365 * YEARS_SHOWN_MAX:
        return f"over {YEARS_SHOWN_MAX} years"
    return f"{days / 365:.1f} years" if days > 730 else counted(round(max(days, 0)), "day")


def _named(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


# --- sections -------------------------------------------------------------------------------------


def _section(title: str, what: str, body: str, form: str = "") -> str:
    return f'<section class="{form}"><h2>{escape(title)}</h2><p>{escape(what)}</p>{body}</section>'


def _traffic(report: Report) -> str:
    hours = report.rows("messages_by_hour")
    if hours and _utc(hours[-1]["hour"]) - _utc(hours[0]["hour"]) > timedelta(days=HOURLY_DAYS):
        days = [Point(_day(row["date"]), row["messages"]) for row in report.rows("messages_by_day")]
        points, title = plot.with_gaps(days, DAY, DAY), "Messages by day"
    else:
        points, title = _filled(hours), "Messages by hour"
    week = {(row["weekday"], row["hour"]): row["messages"] for row in report.rows("week")}
    return (
        _section(title, "what people wrote in all rooms", plot.area(points, height=230), "wide")
        + _section("The week", "messages by weekday and hour, UTC", plot.week(week), "most")
        + _section("Busiest", "of each day, the most in one second", _peaks(report), "less")
    )


def _filled(hours: list[Row]) -> list[Point]:
    """With the hours in which nobody wrote."""
    by_hour = {_utc(row["hour"]): row["messages"] for row in hours}
    if not by_hour:
        return []
    moment, end = min(by_hour), max(by_hour)
    points = []
    while moment <= end:
        points.append(Point(moment, by_hour.get(moment, 0)))
        moment += timedelta(hours=1)
    return points


def _peaks(report: Report) -> str:
    rows = sorted(report.rows("peaks"), key=lambda row: -row["in_a_second"])[:8]
    return plot.ranking(
        [
            (
                f"{row['date']:%-d %b} {_utc(row['second']):%H:%M}",
                row["in_a_second"],
                f"{row['in_a_second']}/s",
            )
            for row in rows
        ]
    )


def _people(report: Report) -> str:
    days = report.rows("active_users")
    series = {
        title: plot.with_gaps(
            [Point(_day(row["date"]), row[name]) for row in days], window * DAY, DAY
        )
        for name, title, window in (
            ("daily", "on the day", 1),
            ("weekly", "in 7 days", 7),
            ("monthly", "in 30 days", 30),
        )
    }
    authors = [
        (row["author"], row["messages"], short(row["messages"]))
        for row in report.rows("messages_by_author", 10)
    ]
    return _section(
        "Active people", "who wrote at least once", plot.lines(series, height=300)
    ) + _section("Most active", "messages by author", plot.ranking(authors))


def _rooms(report: Report) -> str:
    rooms = [
        (row["room"], row["messages"], short(row["messages"]))
        for row in report.rows("messages_by_room", ROWS_SHOWN)
    ]
    fresh = _table(
        report.rows("rooms_new", 8),
        {"room": "room", "created": "created", "created_by": "by", "messages": "messages"},
    )
    rows_dormant = report.rows("rooms_dormant", 6)
    dormant = _table(
        [row | {"days_silent": round(row["days_silent"])} for row in rows_dormant],
        {"room": "room", "last": "last message", "days_silent": "days silent"},
    )
    dormant = dormant or '<div class="nothing">somebody wrote in every room</div>'
    return _section("Largest rooms", "messages by room", plot.ranking(rooms)) + _section(
        "New and dormant rooms",
        f"the newest ones; and where nobody wrote for {DORMANT_DAYS} days",
        fresh + "<p></p>" + dormant,
    )


def _threads(report: Report) -> str:
    bins = {row["seconds_from"]: row["count"] for row in report.rows("first_reply_times")}
    columns = [
        (f"< {duration_text(high)}" if high else f"≥ {duration_text(low)}", bins.get(low, 0))
        for low, high in zip(REPLY_EDGES_S, (*REPLY_EDGES_S[1:], 0), strict=True)
    ]
    times = _table(
        report.rows("reply_times", 7),
        {
            "room": "room",
            "threads": "threads",
            "replies": "replies",
            "p50_s": "median",
            "p90_s": "90 %",
        },
        {"p50_s": duration_text, "p90_s": duration_text},
    )
    return _section(
        "First replies",
        "threads by the time until somebody answered",
        plot.columns(columns if bins else [], height=250, noun="thread"),
    ) + _section(
        "Threads", "rooms with the most, and how long a first reply takes", times or plot.empty(120)
    )


def _shape(report: Report) -> str:
    bins = {row["bytes_from"]: row["count"] for row in report.rows("message_sizes")}
    names = [f"{low}–{high - 1}" for low, high in zip(SIZE_EDGES, SIZE_EDGES[1:], strict=False)]
    columns = [
        (name, bins.get(low, 0))
        for name, low in zip([*names, str(SIZE_EDGES[-1])], SIZE_EDGES, strict=True)
    ]
    return _section(
        "Message sizes", "bytes of the body", plot.columns(columns if bins else [], height=250)
    )


def _growth(report: Report) -> str:
    by_day: dict[date, int] = {}
    for row in report.rows("volume"):
        by_day[row["date"]] = by_day.get(row["date"], 0) + row["bytes"]
    points, total = [], 0
    for day in sorted(by_day):
        total += by_day[day]
        points.append(Point(_day(day) + timedelta(days=1), total))
    ahead = []
    outlook = report.outlook
    if points and outlook.a_day > 0:
        reach = max(3, min(int(outlook.days or 0), len(points)))
        ahead = [Point(points[-1].time + timedelta(days=reach), total + reach * outlook.a_day)]
        points.insert(0, Point(points[0].time - timedelta(days=1), 0))
    near = outlook.full if ahead and outlook.full < 1.3 * ahead[-1].value else 0
    left = outlook.days
    text = f"{size_text(outlook.used)} of {size_text(outlook.full)} of {outlook.what} used"
    if not outlook.full:
        text = (
            f"{size_text(outlook.used)} used; when it is full is told with --keys of `tigerchat "
            "ship keys`, or with --capacity-gib"
        )
    if left is not None:
        text += f"; at {size_text(outlook.a_day)} a day full in {_days(left)}"
    drawn = plot.area(points, height=250, noun="", ahead=ahead, text=size_text, limit=near)
    return _section("Volume", text, drawn)


def _integrity(report: Report) -> str:
    shards = []
    for number, shard in sorted(report.state.shards.items()):
        keys = ", ".join(sorted(report.key_names.get(key, key[:16]) for key in shard.by_key))
        until = datetime.fromtimestamp(shard.cursor.period_end_us / 1e6, UTC)
        shards.append(
            {
                "shard": number,
                "manifests": shard.manifests,
                "files": shard.files,
                "records": shard.records,
                "lost": shard.lost.record_count,
                "until": until,
                "keys": keys,
            }
        )
    table = _table(
        shards,
        {
            "shard": "shard",
            "manifests": "manifests",
            "files": "files",
            "records": "records verified",
            "lost": "records left out",
            "until": "verified until",
            "keys": "signed by",
        },
    )
    rows = [row._asdict() for row in report.state.quarantine[:QUARANTINE_SHOWN]]
    for row in rows:
        row["where"] = f"record {row['record']}, byte {row['offset']}" if row["record"] >= 0 else ""
        row["file"] = row["file"].rpartition("/")[2]
    bad = _table(
        rows,
        {
            "reason": "reason",
            "shard": "shard",
            "file": "file",
            "where": "where",
            "sentence": "what is wrong",
        },
    )
    hidden = len(report.state.quarantine) - len(rows)
    more = f"<p>and {hidden} more, in quarantine.csv</p>" if hidden > 0 else ""
    good = f"<p>{VERIFIED}: nothing is in quarantine.</p>"
    return _section(
        "Integrity",
        "what was verified before it was counted",
        table + (f"<p></p>{bad}{more}" if rows else good),
        "wide",
    )


def _footer(report: Report) -> str:
    return (
        f"<footer>Made {report.made:%Y-%m-%d %H:%M} UTC from {report.state.number} commits of "
        "the tables. Every figure is also a table beside this page, as CSV and Parquet."
        "</footer>"
    )


# --- tables ---------------------------------------------------------------------------------------

_WORDED = {"reason"}
_MONO = {"keys", "file"}


def _table(
    rows: Sequence[Row],
    titles: dict[str, str],
    forms: dict[str, Callable[[Any], str]] | None = None,
) -> str:
    """Rows as HTML; empty without rows."""
    if not rows:
        return ""
    forms = forms or {}
    numeric = {
        name
        for name in titles
        if all(
            isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows
        )
    }

    def cell(name: str, value: Any) -> str:
        kind = (
            "number"
            if name in numeric
            else "bad"
            if name in _WORDED
            else "mono"
            if name in _MONO
            else ""
        )
        return f'<td class="{kind}">{escape(_text(value, forms.get(name)))}</td>'

    head = "".join(
        f'<th class="{"number" if name in numeric else ""}">{escape(title)}</th>'
        for name, title in titles.items()
    )
    body = "".join(f"<tr>{''.join(cell(name, row[name]) for name in titles)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _text(value: Any, form: Callable[[Any], str] | None) -> str:
    if value is None:
        return "–"
    if form is not None:
        return form(value)
    if isinstance(value, datetime):
        return f"{_utc(value):%Y-%m-%d %H:%M}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _day(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
