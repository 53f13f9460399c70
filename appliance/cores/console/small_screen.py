"""What a screen of 80 columns shows of a site, as lines of cells: the machine's own screen, and the
same as plain text. The cells are those of the page and of `tigerchat status`; of wide tables it has
the columns that fit, those have the rest.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from appliance.base.authority import authority
from appliance.base.printable import counted, one_line
from appliance.cores.console.about import About
from appliance.cores.console.act import EDGES, PROCESSES, REPLICAS, SITE
from appliance.cores.console.acts import BY_NAME, offer_of, remedies
from appliance.cores.console.alarm import Alarm
from appliance.cores.console.cells import (
    BAD,
    FAINT,
    GOOD,
    PLAIN,
    WARN,
    Cell,
    Table,
    duration,
    padded,
)
from appliance.cores.console.console import Console
from appliance.cores.console.model import SiteSnapshot
from appliance.cores.console.remedies import REMEDIES
from appliance.formats.settings import Settings
from appliance.formats.site import Site
from appliance.formats.status.console import DONE, RUNNING, OperatorAct

WIDTH = 80
MARK = ">"  # before what is chosen
# Acts that stand in no line of their own among those of the screen, and why.
ELSEWHERE = {
    "alarm-seen": "it is done beside the alarm, in the view of alarms",
    "support": "it gives a file: the page has a browser for it, a terminal `tigerchat support`",
}
Line = tuple[Cell, ...]  # shown beside each other, two columns apart

_OVERVIEW = {
    REPLICAS: ("shard", "replica", "node", "role", "status", "lag", "write p99", "process"),
    EDGES: ("edge", "node", "connections", "acked/s", "ack p99", "refused", "process"),
}
_MEMBERS = {
    REPLICAS: ("shard", "node", "role", "status", "view", "op", "commit", "connections"),
    PROCESSES: ("process of", "name", "process", "answers", "resident"),
}
_BLANK: Line = (Cell(""),)


def overview_lines(console: Console, start: str) -> list[Line]:
    """What is wrong, in a line, what to do next, and how shards, replicas and edges are. `start`:
    the command by which whoever looks starts the node."""
    tables = {table.title: table for table in console.tables()}
    shown = [tables["Shards"], *(_chosen(tables[title], _OVERVIEW) for title in _OVERVIEW)]
    return [
        _summary(console.alarms()),
        *_next(console, start),
        *(line for table in shown for line in (_BLANK, *_table(table))),
    ]


def alarm_lines(console: Console, width: int = WIDTH, chosen: int | None = None) -> list[Line]:
    """Each alarm: what it is about, since when, who has seen it, what it means, what to do, and by
    which verb; that at `chosen` marked."""
    seen = console.seen()
    if not console.alarms():
        return [(Cell("No alarms.", GOOD),)]
    found: list[Line] = []
    for number, alarm in enumerate(console.alarms()):
        remedy = REMEDIES[alarm.name]
        since = duration(seen.now_ms - alarm.since_ms)
        mark = () if chosen is None else (Cell(MARK if number == chosen else " ", GOOD),)
        what = Cell(alarm.name, alarm.severity)
        found.append((*mark, what, Cell(alarm.subject), Cell(f"for {since}")))
        if who := console.life.holds[alarm.name, alarm.subject].seen_by:
            found += _wrapped(f"seen by {who}", width, GOOD)
        found += _wrapped(alarm.text, width, PLAIN)
        found += _wrapped(remedy.means, width, FAINT)
        found += _wrapped(f"What to do: {remedy.do}", width, PLAIN)
        verbs = [offer["verb"] for offer in remedies(seen, alarm) if not offer["refusal"]]
        found += [line for verb in verbs for line in _wrapped(f"or: {verb}", width, PLAIN)]
        found.append(_BLANK)
    return found[:-1]


def member_lines(console: Console) -> list[Line]:
    """How far each replica is, how each process on this machine is kept, and what else there is."""
    tables = [table for table in console.tables() if table.title not in ("Alarms", "Shards", EDGES)]
    shown = [_chosen(table, _MEMBERS) for table in tables if table.rows]
    return [line for table in shown for line in (*_table(table), _BLANK)][:-1]


def network_lines(
    site: Site, settings: Settings, addresses: Sequence[tuple[str, str]]
) -> list[Line]:
    """Where a node listens, and which (interface, address) its machine has."""
    node = site.nodes[settings.index]
    rows = [
        (
            "chat page and clients",
            authority(node.host, node.client_port),
            _client_transport(settings),
        ),
        ("console", authority(settings.console_host, node.console_port), "TCP, TLS"),
        *(
            (
                f"peers of shard {s.number}",
                authority(node.host, node.peer_port + s.number),
                "TCP, TLS",
            )
            for s in site.shards_of(node.index)
        ),
    ]
    if node.objects_port:
        rows.append(("objects", authority(node.host, node.objects_port), "TCP, TLS"))
    if node.farm_port:
        rows.append(("farm", authority(node.host, node.farm_port), "TCP"))
    others = [
        (
            other.name,
            authority(other.host, other.peer_port),
            authority(other.host, other.client_port),
        )
        for other in site.nodes
        if other.index != node.index
    ]
    tables = [
        _plain_table((f"of {node.name}", "host and port", "over"), rows),
        _plain_table(("this machine", "address"), addresses),
        _plain_table(("other nodes", "peers from", "chat"), others),
    ]
    return [line for table in tables if table.rows for line in (*_table(table), _BLANK)][:-1]


def _client_transport(settings: Settings) -> str:
    return "TCP and UDP, TLS" if settings.client_tls else "TCP, no TLS"


def log_lines(acts: Sequence[OperatorAct], log: Sequence[str], why: str) -> list[Line]:
    """What operators did, and the newest lines of the node's processes; `why` there are none."""
    tones = {DONE: GOOD, RUNNING: PLAIN}
    rows = tuple(
        (
            Cell(moment(act.at_ms)),
            Cell(act.what),
            Cell(f"{act.state}: {act.words}", tones.get(act.state, WARN)),
        )
        for act in acts
    )
    shown = _table(Table("", ("acts of operators", "what", "how it ended"), (), rows))
    shown = [*shown, _BLANK] if rows else []
    return [*shown, *((Cell(line),) for line in log)] if log else [*shown, (Cell(why, FAINT),)]


def moment(ms: int) -> str:
    """`ms` since the epoch, UTC."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%m-%d %H:%M:%S}"


def alarm_offers(console: Console) -> list[dict[str, Any]]:
    """Plain values: that an alarm was seen, for each of them, as `act_offers` has an act; `written`
    says what it asks for."""
    offer = offer_of(BY_NAME["alarm-seen"], console.seen(), About())
    return [
        offer
        | {"sentence": f"{alarm.name} of {alarm.subject}: {offer['sentence']}"}
        | {"written": {"alarm": alarm.name, "subject": alarm.subject}}
        for alarm in console.alarms()
    ]


def act_offers(console: Console) -> list[dict[str, Any]]:
    """Plain values: what may be done beside the rows of any table, then of the site; each once, as
    `Console.offers` has it."""
    tables = console.offers()
    found: dict[tuple[str, About], dict[str, Any]] = {}
    for title in sorted(tables, key=lambda title: title == SITE):
        for offer in (offer for row in tables[title] for offer in row["acts"]):
            if offer["act"] not in ELSEWHERE:
                found.setdefault((offer["act"], About(**offer["about"])), offer)
    return list(found.values())


def wrapped(text: str, width: int = WIDTH, tone: str = PLAIN) -> list[Line]:
    """All of it, whatever is longer than a line, as a token is. A library that did it would lose
    what follows on a line that is just full."""
    return [
        (Cell(part, tone),)
        for line in text.splitlines()
        for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    ]


def marked(lines: Sequence[Line]) -> int:
    """The index of the line that is marked."""
    return next((i for i, line in enumerate(lines) if line and line[0].text == MARK), 0)


def act_lines(offers: Sequence[dict[str, Any]], chosen: int, width: int = WIDTH) -> list[Line]:
    """A line for each, that at `chosen` marked, with the reason under what is refused there."""
    found: list[Line] = []
    for number, offer in enumerate(offers):
        mark = MARK if number == chosen else " "
        tone = FAINT if offer["refusal"] else PLAIN
        found.append((Cell(mark, GOOD), Cell(offer["label"], tone)))
        if number == chosen and offer["refusal"]:
            found += _wrapped(f"refused: {offer['refusal']}", width, WARN)
    return found or [(Cell("There is nothing that could be done from here.", FAINT),)]


def text_of(lines: Iterable[Line]) -> str:
    """As text without any colour, each line one line whatever strangers chose."""
    return "\n".join(one_line("  ".join(cell.text for cell in line)).rstrip() for line in lines)


def is_silent(seen: SiteSnapshot) -> bool:
    """Whether no process answers."""
    members = (member for shard in seen.shards for member in shard.members)
    return not (
        seen.processes
        or any(member.own is not None for member in members)
        or any(edge.own is not None for edge in seen.edges)
    )


# --- lines ----------------------------------------------------------------------------------------


def _summary(alarms: Sequence[Alarm]) -> Line:
    bad = sum(alarm.severity == BAD for alarm in alarms)
    warnings = len(alarms) - bad
    if not alarms:
        return (Cell("No alarms.", GOOD),)
    parts = [Cell(f"{counted(bad, 'bad alarm')}", BAD)] if bad else []
    return (*parts, *([Cell(counted(warnings, "warning"), WARN)] if warnings else []))


def _next(console: Console, start: str) -> Iterator[Line]:
    """What whoever looks does next."""
    if is_silent(console.seen()):
        words = (
            "Nothing of this node answers. What it has acknowledged lies on its disks. Start it: "
            f"{start}. If it ends again, the log says why."
        )
        yield from _wrapped(f"Next: {words}", WIDTH, BAD, indent="")
        return
    for alarm in console.alarms()[:1]:
        words = f"Next: {REMEDIES[alarm.name].do} ({alarm.name}, {alarm.subject})"
        yield from _wrapped(words, WIDTH, PLAIN, indent="")


def _wrapped(text: str, width: int, tone: str, indent: str = "  ") -> list[Line]:
    parts = textwrap.wrap(text, width - len(indent), break_on_hyphens=False)
    return [(Cell(indent + part, tone),) for part in parts]


def _chosen(table: Table, columns: dict[str, tuple[str, ...]]) -> Table:
    """With the columns that are named for it, all of them where none are."""
    if table.title not in columns:
        return table
    kept = [table.columns.index(name) for name in columns[table.title]]
    return Table(
        table.title,
        tuple(table.columns[i] for i in kept),
        tuple(n for n, i in enumerate(kept) if i in table.numbers),
        tuple(tuple(row[i] for i in kept) for row in table.rows),
    )


def _table(table: Table) -> list[Line]:
    return padded(table) if table.rows else []


def _plain_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table("", columns, (), tuple(tuple(map(Cell, row)) for row in rows))
