"""A look as tables of cells. Page and terminal show these cells and add nothing of their own."""

from collections.abc import Sequence

from appliance.cores.console.about import About
from appliance.cores.console.act import EDGES, PROCESSES, REPLICAS, SHARDS
from appliance.cores.console.alarm import Alarm, node_name
from appliance.cores.console.cells import (
    BAD,
    FAINT,
    GOOD,
    NOTHING,
    WARN,
    Cell,
    Table,
    count,
    duration,
    latency,
    size,
)
from appliance.cores.console.figures import Process, is_stopped
from appliance.cores.console.model import EdgeLine, Member, ShardLine, SiteSnapshot
from appliance.cores.console.stakes import EDGE, REPLICA
from appliance.cores.console.wider_tables import (
    disk_table,
    farm_table,
    federation_table,
    machine_table,
    moves_table,
    objects_table,
    transport_table,
)
from appliance.formats.status.replica import BACKUP, NORMAL, PRIMARY, STANDBY

STOPPED = "stopped"  # by an operator


def shard_table(snapshot: SiteSnapshot) -> Table:
    columns = ("shard", "primary", "view", "serving", "committed op", "records", "records/s")
    return Table(
        SHARDS,
        columns,
        (2, 3, 4, 5, 6),
        tuple(_shard_row(snapshot, shard) for shard in snapshot.shards),
        tuple(About(shard=shard.number) for shard in snapshot.shards),
    )


def _shard_row(snapshot: SiteSnapshot, shard: ShardLine) -> tuple[Cell, ...]:
    primary = shard.primary
    name = Cell("none", BAD) if primary is None else Cell(node_name(snapshot, primary.node))
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


def replica_table(snapshot: SiteSnapshot) -> Table:
    shown = [
        (shard, member)
        for shard in snapshot.shards
        for member in shard.members
        if not member.removed
    ]  # fmt: skip
    return Table(
        REPLICAS,
        REPLICA_COLUMNS,
        (5, 6, 7, 8, 9, 10, 11, 12, 13),
        tuple(_replica_row(snapshot, shard, member) for shard, member in shown),
        tuple(About(member.node, f"{REPLICA}{shard.number}") for shard, member in shown),
    )


def _replica_row(snapshot: SiteSnapshot, shard: ShardLine, member: Member) -> tuple[Cell, ...]:
    head = (
        Cell(str(member.shard)),
        Cell(str(member.index)),
        Cell(node_name(snapshot, member.node)),
    )
    if member.own is None:
        return head + (_row_elsewhere(shard, member) if not member.asked else _row_down(member))
    own, lag = member.own, shard.lag(member)
    role = STANDBY if member.standby else own.role if own.status == NORMAL else NOTHING
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
        Cell(latency(own.writes.p50_us)),
        Cell(latency(own.writes.p99_us)),
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
        Cell(STOPPED, WARN) if is_stopped(member.process) else Cell(why, BAD),
        *(Cell(NOTHING, FAINT) for _ in REPLICA_COLUMNS[5:-1]),
        _process(member.process),
    )


def _row_elsewhere(shard: ShardLine, member: Member) -> tuple[Cell, ...]:
    """A member on another machine, as its peers see it."""
    unknown = Cell(NOTHING, FAINT)
    if member.seen is None or not member.normal:
        return (unknown, Cell("silent", WARN), *(unknown for _ in REPLICA_COLUMNS[5:]))
    primary = shard.primary is member
    role = STANDBY if member.standby else PRIMARY if primary else BACKUP
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


def edge_table(snapshot: SiteSnapshot) -> Table:
    shown = [edge for edge in snapshot.edges if not edge.removed]
    return Table(
        EDGES,
        EDGE_COLUMNS,
        tuple(range(2, len(EDGE_COLUMNS))),
        tuple(_edge_row(snapshot, edge) for edge in shown),
        tuple(About(edge.node, f"{EDGE}{edge.number}") for edge in shown),
    )


def _edge_row(snapshot: SiteSnapshot, edge: EdgeLine) -> tuple[Cell, ...]:
    head = (Cell(str(edge.number)), Cell(node_name(snapshot, edge.node)))
    own = edge.own
    if own is None:
        unknown = (Cell(NOTHING, FAINT) for _ in EDGE_COLUMNS[3:-1])
        state = Cell(STOPPED, WARN) if is_stopped(edge.process) else Cell("down", BAD)
        return (*head, state, *unknown, _process(edge.process))
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


PROCESS_COLUMNS = (
    "process of",
    "name",
    "process",
    "answers",
    "resident",
    "cores",
    "scheduling",
    "memory",
    "core dumps",
)


def process_table(snapshot: SiteSnapshot) -> Table:
    """Whether each process of this machine's nodes answers, and how the kernel has it; what that
    refused is said."""
    rows = []
    for node, name, kept in snapshot.processes:
        head = (
            Cell(node_name(snapshot, node)),
            Cell(name),
            _process(kept),
            _answers(kept),
            Cell(size(kept.rss)) if kept.rss else Cell(NOTHING, FAINT),
        )
        placed = kept.placed
        if placed is None:
            rows.append((*head, *(Cell(NOTHING, FAINT) for _ in PROCESS_COLUMNS[5:])))
            continue
        refused = dict(placed.refused)
        locked = "locked" if placed.locked_bytes else "not locked"
        dumps = "off" if placed.core_dump_bytes == 0 else "on"
        rows.append(
            (
                *head,
                _tuned(_ranges(placed.cores), refused.get("cores")),
                _tuned(placed.scheduling, refused.get("realtime_priority")),
                _tuned(locked, refused.get("memory_lock")),
                _tuned(dumps, refused.get("core_dumps")),
            )
        )
    subjects = tuple(About(node, name) for node, name, _ in snapshot.processes)
    return Table(PROCESSES, PROCESS_COLUMNS, (2, 4), tuple(rows), subjects)


def _answers(process: Process) -> Cell:
    if is_stopped(process):
        return Cell(STOPPED, WARN)
    if process.answers is None:
        return Cell(NOTHING, FAINT)  # it is not asked
    return Cell("yes", GOOD) if process.answers else Cell("no", BAD)


def _tuned(is_now: str, refused: str | None) -> Cell:
    return Cell(is_now) if refused is None else Cell(f"{is_now}: {refused}", WARN)


def _ranges(numbers: Sequence[int]) -> str:
    """As `taskset -c` shows them: 0,2-5."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def alarm_table(snapshot: SiteSnapshot, alarms: Sequence[Alarm]) -> Table:
    rows = tuple(
        (
            Cell(alarm.name, alarm.severity),
            Cell(alarm.subject),
            Cell(alarm.text),
            Cell(duration(snapshot.now_ms - alarm.since_ms)),
        )
        for alarm in alarms
    )
    return Table("Alarms", ("alarm", "subject", "what", "for"), (3,), rows)


def tables(snapshot: SiteSnapshot, alarms: Sequence[Alarm]) -> tuple[Table, ...]:
    """Everything of a look, in the order in which it is shown."""
    shown: tuple[Table, ...] = (
        alarm_table(snapshot, alarms),
        shard_table(snapshot),
        replica_table(snapshot),
        edge_table(snapshot),
    )
    transports = transport_table(snapshot)
    if transports.rows:
        shown = (*shown, transports)
    if any(kept.placed is not None for _, _, kept in snapshot.processes):
        shown = (*shown, process_table(snapshot))
    if snapshot.machines:
        shown = (*shown, machine_table(snapshot))
    disks = disk_table(snapshot)
    if disks.rows:
        shown = (*shown, disks)
    if snapshot.has_farm:
        shown = (*shown, farm_table(snapshot))
    if (moves := moves_table(snapshot)).rows:
        shown = (*shown, moves)
    if snapshot.objects:
        shown = (*shown, objects_table(snapshot))
    return (*shown, federation_table(snapshot)) if snapshot.federation else shown
