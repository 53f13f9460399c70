"""What a replica and an edge say of themselves: the parts of their answers that are used here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from appliance.base.errors import FormatError
from appliance.base.limits import TICK_MS
from appliance.cores.console.disks import Disk, parse_disk
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.shipper import ShipperStatus
from appliance.formats.status.status import parse
from appliance.formats.status.supervisor import ChildStatus, SupervisorStatus

NORMAL = "normal"  # the status of a replica that serves


@dataclass(frozen=True, slots=True)
class Peer:
    """A member of a shard as another member sees it."""

    replica: int
    view: int
    commit_min: int
    checkpoint: int
    silent_ms: int  # since anything was heard of it


@dataclass(frozen=True, slots=True)
class Space:
    """What is left on a replica's disk, in bytes of the volume's file system."""

    disk_free: int = 0  # that this user may take
    disk_size: int = 0  # without what is reserved for root, as df counts; 0: not told
    extent_size: int = 0  # 0: not told
    short: bool = False  # hardly more is left than is kept for consensus
    sparing: bool = False  # and so it is with so many that the shard takes no more messages
    days_left: float | None = None  # at the pace of the last day


@dataclass(frozen=True, slots=True)
class Clocks:
    """The wall clocks of a group, as one replica sees them."""

    errors: tuple[tuple[int, int], ...] = ()  # replica, ms that it is ahead
    agree: bool = True  # whether a quorum agrees on a time
    log_ahead_ms: int = 0  # of the log's newest time, before the clock that this replica goes by


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's answer. Latencies are of its newest durable journal writes."""

    status: str
    role: str
    view: int
    op: int
    commit_min: int
    commit_max: int
    checkpoint: int
    log_seq: int  # records committed in the shard
    dirty: int
    faulty: int
    syncing: bool
    halted: str  # why it will stop; empty while it goes on
    peers: tuple[Peer, ...]
    write_p50_us: int
    write_p99_us: int
    writes: int  # durable writes of which these are
    disk: Disk
    extents: int
    extents_max: int
    connections: int  # of peers and of edges, here and on other machines
    cpu_percent: float
    rss: int
    stale_ms: int = 0  # for so long it has heard no quorum; 0 while it does
    clocks: Clocks = Clocks()
    refused: str = ""  # members it does not listen to, and why
    suspicious: str = ""  # nodes whose messages look as if they lied, and how often
    space: Space = Space()
    ship_late_s: float = 0.0  # since the end of the next period that is to be shipped
    ship_late_s_max: float = 0.0  # more is an alarm; 0: nothing is shipped here


@dataclass(frozen=True, slots=True)
class Process:
    """A child of a node's supervisor. `halt`: why it stopped because going on could lose data;
    `halt_since_ms` is of the machine's clock that only goes forward. `silent_ms`: for so long its
    beat has stood; 0 of one that was heard lately."""

    pid: int | None
    ready: bool
    halt: str
    halt_since_ms: int
    silent_ms: int
    placed: "Placed | None" = None  # None: it has ended, or is not known


@dataclass(frozen=True, slots=True)
class Placed:
    """How the kernel has a process, and how it could not be tuned."""

    cores: tuple[int, ...]
    scheduling: str
    locked_bytes: int
    core_dump_bytes: int
    refused: tuple[tuple[str, str], ...]  # what, and why


@dataclass(frozen=True, slots=True)
class Transport:
    """What came to an edge by one way, since its start but for `connections`."""

    name: str
    connections: int  # now
    received: int  # bytes
    sent: int
    refused: tuple[tuple[str, int], ...]  # why, and how often
    ended: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge's answer. Latencies are those of its newest acknowledgements."""

    connections: int
    subscriptions: int
    acked: int  # messages acknowledged since start
    refused: int  # requests answered with an error since start
    ack_p50_us: int
    ack_p99_us: int
    lagging: int  # subscriptions served from segments
    cpu_percent: float
    rss: int
    transports: tuple[Transport, ...]  # those by which anything came


def parse_replica(raw: dict[str, Any]) -> Replica:
    """The figures in a replica's answer; FormatError names what is missing."""
    try:
        journal, process = raw["volume"]["journal"], raw["process"]
        return Replica(
            status=raw["status"],
            role=raw["role"],
            view=raw["view"],
            op=raw["op"],
            commit_min=raw["commit_min"],
            commit_max=raw["commit_max"],
            checkpoint=raw["checkpoint"],
            log_seq=raw["log_seq"],
            dirty=raw["dirty"],
            faulty=raw["faulty"],
            syncing=_is_syncing(raw),
            halted=": ".join(str(part) for part in raw["halted"] or ()),
            peers=tuple(
                _peer(index, peer, raw.get("tick_ms", TICK_MS))
                for index, peer in sorted(raw["peers"].items())
            ),
            write_p50_us=journal["p50_us"],
            write_p99_us=journal["p99_us"],
            writes=journal.get("recent", journal["count"]),
            disk=parse_disk(raw["volume"]),
            extents=raw["volume"]["extents"],
            extents_max=raw["volume"]["extents_max"],
            connections=raw["connections"] + raw["edges"],
            cpu_percent=process["cpu_percent"],
            rss=process["rss"],
            stale_ms=int(raw.get("stale_ms", 0)),
            clocks=_clocks(raw.get("clock", {})),
            refused="; ".join(str(why) for why in raw.get("refused", {}).values()),
            suspicious="; ".join(
                f"{name}: " + ", ".join(f"{why} {count}" for why, count in sorted(of.items()))
                for name, of in sorted(raw.get("suspicious", {}).items())
            ),
            space=_space(raw["volume"], raw.get("space", {})),
            ship_late_s=float(raw.get("shipping", {}).get("late_s", 0)),
            ship_late_s_max=float(raw.get("shipping", {}).get("late_s_max", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"status of a replica: {error!r}") from error


def _space(volume: dict[str, Any], group: dict[str, Any]) -> Space:
    return Space(
        disk_free=int(volume.get("disk_free", 0)),
        disk_size=int(volume.get("disk_size", 0)),
        extent_size=int(volume.get("extent_size", 0)),
        short=bool(group.get("short", False)),
        sparing=bool(group.get("sparing", False)),
        days_left=volume.get("days_left"),
    )


def _clocks(raw: dict[str, Any]) -> Clocks:
    errors = sorted(raw.get("errors_us", {}).items())
    return Clocks(
        tuple((int(index), error_us // 1000) for index, error_us in errors),
        bool(raw.get("agreed", True)),
        int(raw.get("log_ahead_us", 0)) // 1000,
    )


def _is_syncing(raw: dict[str, Any]) -> bool:
    """Whether the replica lacks a part of the state that it adopts. The range of ops that it
    skipped is remembered until the next checkpoint, long after all is there."""
    here, total = raw.get("synced", (0, 0))
    return not raw["state_ready"] or here < total


def _peer(index: str, raw: dict[str, Any], tick_ms: int) -> Peer:
    return Peer(
        replica=int(index),
        view=raw["view"],
        commit_min=raw["commit_min"],
        checkpoint=raw["checkpoint"],
        silent_ms=raw["silent_ticks"] * tick_ms,
    )


def parse_supervisor(raw: dict[str, Any]) -> dict[str, Process]:
    """The processes of a node by name; FormatError names what is missing."""
    return {
        child.name: Process(
            child.pid,
            child.ready,
            child.halt,
            child.halt_since_ms,
            child.silent_ms,
            _placed(child),
        )
        for child in parse(SupervisorStatus, raw).children
    }


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node found when it compared its machine with a profile: the names of what differs."""

    node: int
    profile: str
    differences: tuple[str, ...]


def parse_machine(node: int, raw: dict[str, Any]) -> Machine | None:
    """None from a supervisor that compared nothing, as that of a local site."""
    machine = parse(SupervisorStatus, raw).machine
    if machine is None:
        return None
    return Machine(node, machine.profile, tuple(machine.differences))


def _placed(child: ChildStatus) -> Placed | None:
    cores, scheduling = child.cores, child.scheduling
    locked_bytes, core_dump_bytes = child.locked_bytes, child.core_dump_bytes
    if cores is UNSET or scheduling is UNSET or locked_bytes is UNSET or core_dump_bytes is UNSET:
        return None
    return Placed(
        cores=tuple(cores),
        scheduling=scheduling,
        locked_bytes=locked_bytes,
        core_dump_bytes=core_dump_bytes,
        refused=tuple(sorted(child.refused.items())),
    )


@dataclass(frozen=True, slots=True)
class Shipper:
    """What the shipper of a node says of one shard: it reads the log itself, so it knows since when
    something is to be shipped, also while nobody has ever shipped."""

    node: int
    shard: int
    cursor: int  # newest record that is shipped
    log_seq: int  # newest record that it knows of
    late_s: float
    late_s_max: float
    hole: str = ""  # what of the past its target lacks, in words


def parse_shipper(raw: dict[str, Any]) -> list[Shipper]:
    """One for each shard that it reads; FormatError names what is missing."""
    return shippers_in(parse(ShipperStatus, raw))


def shippers_in(status: ShipperStatus) -> list[Shipper]:
    return [
        Shipper(
            node=status.node,
            shard=shard.shard,
            cursor=shard.cursor,
            log_seq=shard.log_seq,
            late_s=shard.late_s,
            late_s_max=status.late_s_max,
            hole=shard.hole,
        )
        for shard in status.shards
        if shard.attached
    ]


def furthest(shippers: Iterable[Shipper]) -> dict[int, Shipper]:
    """Of each shard the shipper that knows whether it is late: of those that are furthest the one
    that is least so. One that is behind knows of less, and so does one of a member that was
    removed; one that has read nothing yet knows nothing."""
    found: dict[int, Shipper] = {}
    for shipper in sorted(shippers, key=lambda each: (-each.cursor, each.late_s)):
        if shipper.log_seq:
            found.setdefault(shipper.shard, shipper)
    return found


def parse_edge(raw: dict[str, Any]) -> Edge:
    """The figures in an edge's answer; FormatError names what is missing."""
    status = parse(EdgeStatus, raw)
    return Edge(
        connections=status.connections,
        subscriptions=status.subscriptions,
        acked=status.acked,
        refused=status.refused,
        ack_p50_us=status.ack.p50_us,
        ack_p99_us=status.ack.p99_us,
        lagging=status.lagging,
        cpu_percent=status.process.cpu_percent,
        rss=status.process.rss,
        transports=_transports(status),
    )


def _transports(status: EdgeStatus) -> tuple[Transport, ...]:
    """None of an edge of an earlier version, which does not tell."""
    now, refused, ended = (
        status.connections_by_transport,
        status.refused_by_transport,
        status.ended_by_transport,
    )
    received, sent = status.bytes_received, status.bytes_sent
    found = (
        Transport(
            name=name,
            connections=now.get(name, 0),
            received=received.get(name, 0),
            sent=sent.get(name, 0),
            refused=tuple(refused.get(name, {}).items()),
            ended=tuple(ended.get(name, {}).items()),
        )
        for name in dict.fromkeys([*now, *received, *sent, *refused, *ended])
    )
    return tuple(one for one in found if one != Transport(one.name, 0, 0, 0, (), ()))
