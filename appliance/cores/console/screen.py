"""A look as tables of cells. Page and terminal show these cells and add nothing of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.cores.console.alarms import Alarm, node_name
from appliance.cores.console.figures import NORMAL, Process
from appliance.cores.console.model import EdgeLine, Look, Member, ShardLine

NOTHING = "–"  # for what is not known from here
PLAIN, GOOD, WARN, BAD, FAINT = "plain", "good", "warn", "bad", "faint"


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: str = PLAIN


@dataclass(frozen=True, slots=True)
class Table:
    """`numbers` are the positions of columns that are aligned to the right."""

    title: str
    columns: tuple[str, ...]
    numbers: tuple[int, ...]
    rows: tuple[tuple[Cell, ...], ...]


# --- how figures are said


def count(number: int | float) -> str:
    """1234567 -> "1,234,567"; rates are rounded."""
    return f"{round(number):,}"


def latency(microseconds: int) -> str:
    """In milliseconds, with three significant digits."""
    if microseconds == 0:
        return NOTHING
    milliseconds = microseconds / 1000
    digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f} ms"


def size(number: int) -> str:
    return f"{number / (1 << 20):.0f} MiB"


def duration(milliseconds: int) -> str:
    """Two units at most: "9 s", "4 min 10 s", "3 h 5 min"."""
    seconds = max(0, milliseconds) // 1000
    for unit, name, low, low_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit:
            rest = seconds % unit // low
            return f"{seconds // unit} {name}" + (f" {rest} {low_name}" if rest else "")
    return f"{seconds} s"


# --- tables


def shard_table(look: Look) -> Table:
    columns = ("shard", "primary", "view", "serving", "committed op", "records", "records/s")
    return Table(
        "Shards", columns, (2, 3, 4, 5, 6), tuple(_shard_row(look, shard) for shard in look.shards)
    )


def _shard_row(look: Look, shard: ShardLine) -> tuple[Cell, ...]:
    primary = shard.primary
    name = Cell("none", BAD) if primary is None else Cell(node_name(look, primary.node))
    active = sum(not member.standby and not member.removed for member in shard.members)
    tone = BAD if shard.normal_count < shard.quorum else GOOD
    tone = WARN if tone == GOOD and shard.normal_count < active else tone
    return (
        Cell(str(shard.number)),
        name,
        Cell(count(shard.view)),
        Cell(f"{shard.normal_count} of {active}", tone),
        Cell(count(shard.commit_max)),
        Cell(count(shard.records)),
        Cell(count(shard.records_per_s)),
    )


REPLICA_COLUMNS = (
    "shard",
    "replica",
    "node",
    "role",
    "status",
    "view",
    "op",
    "commit",
    "lag",
    "write p50",
    "write p99",
    "connections",
    "memory",
    "process",
)


def replica_table(look: Look) -> Table:
    rows = tuple(
        _replica_row(look, shard, member)
        for shard in look.shards
        for member in shard.members
        if not member.removed
    )
    return Table("Replicas", REPLICA_COLUMNS, (5, 6, 7, 8, 9, 10, 11, 12, 13), rows)


def _replica_row(look: Look, shard: ShardLine, member: Member) -> tuple[Cell, ...]:
    head = (Cell(str(member.shard)), Cell(str(member.index)), Cell(node_name(look, member.node)))
    if member.own is None:
        return head + (_row_elsewhere(shard, member) if not member.asked else _row_down(member))
    own, lag = member.own, shard.lag(member)
    role = "standby" if member.standby else own.role if own.status == NORMAL else NOTHING
    tone = GOOD if own.status == NORMAL else WARN
    status = (
        Cell(f"halted: {own.halted}", BAD)
        if own.halted
        else Cell(
            "syncing" if own.syncing else own.status.replace("_", " "),
            WARN if own.syncing else tone,
        )
    )
    return (
        *head,
        Cell(role),
        status,
        Cell(count(own.view)),
        Cell(count(own.op)),
        Cell(count(own.commit_min)),
        Cell(count(lag or 0)),
        Cell(latency(own.write_p50_us)),
        Cell(latency(own.write_p99_us)),
        Cell(count(own.connections)),
        Cell(size(own.rss)),
        _process(member.process),
    )


def _process(process: Process | None) -> Cell:
    """Its number, for `kill` and `ps`."""
    known = process is not None and process.pid is not None
    return Cell(str(process.pid)) if process is not None and known else Cell(NOTHING, FAINT)


def _row_down(member: Member) -> tuple[Cell, ...]:
    halt = member.process.halt if member.process is not None else ""
    why = " ".join(halt.split(":")[0].split()[:2]) or "does not answer"
    return (
        Cell(NOTHING, FAINT),
        Cell(why, BAD),
        *(Cell(NOTHING, FAINT) for _ in REPLICA_COLUMNS[5:-1]),
        _process(member.process),
    )


def _row_elsewhere(shard: ShardLine, member: Member) -> tuple[Cell, ...]:
    """A member on another machine, as its peers see it."""
    unknown = Cell(NOTHING, FAINT)
    if member.seen is None or not member.normal:
        return (unknown, Cell("silent", WARN), *(unknown for _ in REPLICA_COLUMNS[5:]))
    primary = shard.primary is member
    role = "standby" if member.standby else "primary" if primary else "backup"
    return (
        Cell(role),
        Cell("heard by peers", FAINT),
        Cell(count(member.seen.view)),
        unknown,
        Cell(count(member.seen.commit_min)),
        Cell(count(shard.lag(member) or 0)),
        *(unknown for _ in REPLICA_COLUMNS[9:]),
    )


EDGE_COLUMNS = (
    "edge",
    "node",
    "connections",
    "subscriptions",
    "lagging",
    "acked/s",
    "ack p50",
    "ack p99",
    "refused",
    "memory",
    "process",
)


def edge_table(look: Look) -> Table:
    return Table(
        "Edges",
        EDGE_COLUMNS,
        tuple(range(2, len(EDGE_COLUMNS))),
        tuple(_edge_row(look, edge) for edge in look.edges if not edge.removed),
    )


def _edge_row(look: Look, edge: EdgeLine) -> tuple[Cell, ...]:
    head = (Cell(str(edge.number)), Cell(node_name(look, edge.node)))
    own = edge.own
    if own is None:
        unknown = (Cell(NOTHING, FAINT) for _ in EDGE_COLUMNS[3:-1])
        return (*head, Cell("down", BAD), *unknown, _process(edge.process))
    return (
        *head,
        Cell(count(own.connections)),
        Cell(count(own.subscriptions)),
        Cell(count(own.lagging)),
        Cell(count(edge.acked_per_s)),
        Cell(latency(own.ack_p50_us)),
        Cell(latency(own.ack_p99_us)),
        Cell(count(own.refused)),
        Cell(size(own.rss)),
        _process(edge.process),
    )


def alarm_table(look: Look, alarms: Sequence[Alarm]) -> Table:
    rows = tuple(
        (
            Cell(alarm.name, alarm.severity),
            Cell(alarm.subject),
            Cell(alarm.text),
            Cell(duration(look.now_ms - alarm.since_ms)),
        )
        for alarm in alarms
    )
    return Table("Alarms", ("alarm", "subject", "what", "for"), (3,), rows)


FARM_COLUMNS = ("member", "role", "term", "match", "status age", "directory", "why")


def farm_table(look: Look) -> Table:
    """Members of the farm whose nodes belong to the site; beside the publisher stands why it is
    the one.
    """
    farm = look.farm
    removed = {edge.node for edge in look.edges if edge.removed}
    rows = []
    for member in farm.members if farm is not None else ():
        assert farm is not None
        if member.id - 1 in removed:
            continue
        nodes = look.site.nodes
        known = 0 < member.id <= len(nodes)
        publishes = member.id == farm.publisher
        rows.append(
            (
                Cell(node_name(look, member.id - 1) if known else str(member.id)),
                Cell("leader", GOOD) if member.id == farm.leader else Cell("follower"),
                Cell(count(farm.term)),
                Cell(count(member.match)),
                Cell(duration(member.age_ms) if member.age_ms >= 0 else NOTHING),
                Cell(f"publishes {farm.directory}" if publishes else NOTHING),
                Cell(farm.why if publishes else NOTHING),
            )
        )
    return Table("Farm", FARM_COLUMNS, (2, 3, 4), tuple(rows))


OBJECTS_COLUMNS = ("objects of", "source", "links", "live", "sites", "lag", "refused", "seen")


def objects_table(look: Look) -> Table:
    """Objects of each node: who it is linked to, what it has seen and what it refused."""
    rows = []
    for line in look.objects:
        sites = ", ".join(map(str, line.sites))
        rows.append(
            (
                Cell(node_name(look, line.node), BAD if line.alarm else PLAIN),
                Cell(line.source),
                Cell(", ".join(line.links) or NOTHING),
                Cell(count(line.live_links)),
                Cell(sites or NOTHING),
                Cell(count(line.behind)),
                Cell(count(line.refused)),
                Cell(line.vector or NOTHING),
            )
        )
    return Table("Objects", OBJECTS_COLUMNS, (3, 5, 6), tuple(rows))


def tables(look: Look, alarms: Sequence[Alarm]) -> tuple[Table, ...]:
    """Everything of a look, in the order in which it is shown."""
    shown: tuple[Table, ...] = (
        alarm_table(look, alarms),
        shard_table(look),
        replica_table(look),
        edge_table(look),
    )
    if look.has_farm:
        shown = (*shown, farm_table(look))
    return (*shown, objects_table(look)) if look.objects else shown


# --- the two displays


def plain(table: Table) -> dict[str, Any]:
    """Plain values for JSON: a cell is [text, tone]."""
    return {
        "title": table.title,
        "columns": list(table.columns),
        "numbers": list(table.numbers),
        "rows": [[[cell.text, cell.tone] for cell in row] for row in table.rows],
    }


def lines(table: Table, paint: Callable[[str, str], str] = lambda text, _tone: text) -> list[str]:
    """Lines for a terminal. `paint(text, tone)` may colour a cell; it must not change its width."""
    if not table.rows:
        return [paint("No alarms.", GOOD)] if table.title == "Alarms" else []
    grid = [table.columns, *(tuple(cell.text for cell in row) for row in table.rows)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.columns))]

    def line(texts: Sequence[str], tones: Sequence[str]) -> str:
        cells = [
            text.rjust(width) if i in table.numbers else text.ljust(width)
            for i, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        painted = [paint(cell, tone) for cell, tone in zip(cells, tones, strict=True)]
        return "  ".join(painted).rstrip()

    head = line(table.columns, [FAINT] * len(table.columns))
    return [
        head,
        *(line([cell.text for cell in row], [cell.tone for cell in row]) for row in table.rows),
    ]
