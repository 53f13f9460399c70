"""What a replica and an edge say of themselves: the parts of their statuses that are used here."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import UNSET

from appliance.cores.console.disks import Disk, disk_of
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.replica import GroupClock, GroupSpace, ReplicaStatus, VolumeStatus
from appliance.formats.status.shipper import ShipperStatus
from appliance.formats.status.supervisor import ChildStatus, SupervisorStatus

LAG_OPS_MAX = 500  # behind the shard; a healthy backup is a few ops behind


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
    extents: int = 0  # in use, for segments of the log
    extents_max: int = 0
    short: bool = False  # hardly more is left than is kept for consensus
    sparing: bool = False  # and so it is with so many that the shard takes no more messages
    days_left: float | None = None  # at the pace of the last day


@dataclass(frozen=True, slots=True)
class Writes:
    """A replica's newest durable writes to its journal, and how long they took."""

    p50_us: int
    p99_us: int
    count: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """The wall clocks of a group, as one replica sees them."""

    errors: tuple[tuple[int, int], ...] = ()  # replica, ms that it is ahead
    agree: bool = True  # whether a quorum agrees on a time
    log_ahead_ms: int = 0  # of the log's newest time, before the clock that this replica goes by


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's answer."""

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
    writes: Writes
    disk: Disk
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
    wanted: bool = True  # False: an operator has stopped it
    ended: bool = False  # there is no process of it, and none is being made
    answers: bool | None = None  # None: it is not asked how it is
    rss: int = 0  # bytes; 0: it does not tell


def is_stopped(process: Process | None) -> bool:
    """Whether an operator has told it to end, and it has."""
    return process is not None and process.ended and not process.wanted


def unheard(process: Process | None) -> str:
    """Why it does not answer, as far as its supervisor tells."""
    return "stopped by an operator" if is_stopped(process) else "does not answer"


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
    untold: tuple[int, ...]  # shards whose log no node tells it


def replica_of(status: ReplicaStatus) -> Replica:
    journal = status.volume.journal
    return Replica(
        status=status.status,
        role=status.role,
        view=status.view,
        op=status.op,
        commit_min=status.commit_min,
        commit_max=status.commit_max,
        checkpoint=status.checkpoint,
        log_seq=status.log_seq,
        dirty=status.dirty,
        faulty=status.faulty,
        syncing=_is_syncing(status),
        halted=": ".join(status.halted or ()),
        peers=tuple(
            Peer(
                replica=index,
                view=peer.view,
                commit_min=peer.commit_min,
                checkpoint=peer.checkpoint,
                silent_ms=peer.silent_ticks * status.tick_ms,
            )
            for index, peer in sorted(status.peers.items())
        ),
        writes=Writes(
            journal.p50_us,
            journal.p99_us,
            journal.count if journal.recent is UNSET else journal.recent,
        ),
        disk=disk_of(status.volume, status.scrub),
        connections=status.connections + status.edges,
        cpu_percent=status.process.cpu_percent,
        rss=status.process.rss,
        stale_ms=status.stale_ms,
        clocks=_clocks(status.clock),
        refused="; ".join(
            [
                *status.refused.values(),
                *(f"{name} {why}" for name, why in status.other_versions.items()),
            ]
        ),
        suspicious="; ".join(
            f"{name}: " + ", ".join(f"{why} {count}" for why, count in sorted(of.items()))
            for name, of in sorted(status.suspicious.items())
        ),
        space=_space(status.volume, status.space),
        ship_late_s=status.shipping.late_s,
        ship_late_s_max=status.shipping.late_s_max,
    )


def _space(volume: VolumeStatus, group: GroupSpace) -> Space:
    return Space(
        disk_free=volume.disk_free,
        disk_size=volume.disk_size,
        extent_size=volume.extent_size,
        extents=volume.extents,
        extents_max=volume.extents_max,
        short=group.short,
        sparing=group.sparing,
        days_left=volume.days_left,
    )


def _clocks(clock: GroupClock) -> Clocks:
    errors = sorted(clock.errors_us.items())
    return Clocks(
        tuple((index, error_us // 1000) for index, error_us in errors),
        clock.agreed,
        clock.log_ahead_us // 1000,
    )


def _is_syncing(status: ReplicaStatus) -> bool:
    """Whether the replica lacks a part of the state that it adopts. The range of ops that it
    skipped is remembered until the next checkpoint, long after all is there."""
    here, total = status.synced
    return not status.state_ready or here < total


def processes_in(status: SupervisorStatus) -> dict[str, Process]:
    """The processes of a node by name."""
    return {
        child.name: Process(
            child.pid,
            child.ready,
            child.halt,
            child.halt_since_ms,
            child.silent_ms,
            _placed(child),
            wanted=child.wanted,
            ended=child.has_ended,
        )
        for child in status.children
    }


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node found when it compared its machine with a profile: the names of what differs."""

    node: int
    profile: str
    differences: tuple[str, ...]


def machine_of(node: int, status: SupervisorStatus) -> Machine | None:
    """None from a supervisor that compared nothing, as that of a local site."""
    machine = status.machine
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
    doing: str = ""  # the step that it is at, in words; empty between steps
    ships: bool = False
    by: int = 0  # the node that ships
    claimed: bool = False  # anybody does
    closing: bool = False  # the present period ends before its time
    error: str = ""


def shippers_in(status: ShipperStatus) -> list[Shipper]:
    """One for each shard that it reads."""
    return [
        Shipper(
            node=status.node,
            shard=shard.shard,
            cursor=shard.cursor,
            log_seq=shard.log_seq,
            late_s=shard.late_s,
            late_s_max=status.late_s_max,
            hole=shard.hole,
            doing=shard.doing,
            ships=shard.ships,
            by=shard.node,
            claimed=shard.generation > 0,
            closing=shard.closing,
            error=shard.error,
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


def edge_of(status: EdgeStatus) -> Edge:
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
        untold=tuple(shard for shard, teller in sorted(status.remote.items()) if not teller),
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
