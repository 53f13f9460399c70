"""One look at a site: every process that answered, every member that others speak of, and what the
last look lets us say about rates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from msgspec.structs import replace as replaced

from appliance.cores.console.farm import Farm, farm_in
from appliance.cores.console.federation import FederationLine, federation_of
from appliance.cores.console.figures import (
    LAG_OPS_MAX,
    Edge,
    Machine,
    Peer,
    Process,
    Replica,
    Shipper,
    edge_of,
    machine_of,
    processes_in,
    replica_of,
    shippers_in,
)
from appliance.cores.console.objects import ObjectsLine, objects_in
from appliance.formats.site import Site
from appliance.formats.site_view import UNDESCRIBED, Group, SiteView, Standing, configuration_in
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.farm import FarmStatus
from appliance.formats.status.federation import FederationStatus
from appliance.formats.status.metadata import MetadataStatus
from appliance.formats.status.replica import NORMAL, ReplicaStatus
from appliance.formats.status.shipper import ShipperStatus
from appliance.formats.status.status import Status
from appliance.formats.status.supervisor import SupervisorStatus

SILENT_MS_MAX = 1500  # a member not heard of for longer is called silent
CLOCK_JUMP_MS_MIN = 500  # a clock that is set by more than this, at once, has jumped
CLOCK_JUMP_KEPT_MS = 600_000  # and that is told for so long


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A process that is asked for its status; `kind` as in that."""

    kind: str
    node: int
    number: int  # of the shard, or of the edge on its node; 0 of the others


Answers = Mapping[Source, Status | None]
Told = TypeVar("Told", bound=Status)


def told(answers: Answers, kind: type[Told]) -> Iterator[tuple[Source, Told]]:
    """What processes of that kind said, in the order of node and number."""
    for source in sorted(answers):
        if isinstance(status := answers[source], kind):
            yield source, status


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a shard: its own answer, or, if it is not asked here, what peers know of it."""

    shard: int
    index: int  # in the site file
    node: int
    standby: bool
    asked: bool  # its node is on this machine
    own: Replica | None
    seen: Peer | None  # by the peer that heard of it last
    removed: bool = False  # described in the site file, and no member of the group
    process: Process | None = None  # as its supervisor keeps it

    @property
    def normal(self) -> bool:
        """Serves, as far as can be told from here."""
        if self.asked:
            return self.own is not None and self.own.status == NORMAL
        return self.seen is not None and self.seen.silent_ms <= SILENT_MS_MAX

    @property
    def commit(self) -> int | None:
        if self.own is not None:
            return self.own.commit_min
        return self.seen.commit_min if self.seen is not None and not self.asked else None


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """An edge that is asked here; `own` is None when it did not answer."""

    node: int
    number: int
    own: Edge | None
    acked_per_s: float
    removed: bool = False  # its node belongs to no shard any more
    process: Process | None = None


@dataclass(frozen=True, slots=True)
class ShardLine:
    """A shard as its members show it."""

    number: int
    members: tuple[Member, ...]
    view: int
    primary: Member | None  # normal, in the newest view
    commit_max: int  # newest op known to be committed anywhere
    records: int  # committed in the shard
    records_per_s: float
    normal_count: int  # active replicas that serve
    quorum: int  # how many of them are needed
    heir: Member | None = None  # who leads in the view after this one

    def lag(self, member: Member) -> int | None:
        """Ops committed in the shard that `member` has not executed."""
        return None if member.commit is None else max(0, self.commit_max - member.commit)


@dataclass(frozen=True, slots=True)
class SiteSnapshot:
    """Everything of one moment."""

    now_ms: int  # of a clock that only goes forward
    wall_ms: int  # since the epoch; may jump
    site: Site
    shards: tuple[ShardLine, ...]
    edges: tuple[EdgeLine, ...]
    shippers: tuple[Shipper, ...]  # each of one shard on one node
    clock: str  # what the machine's clock did lately; empty for nothing unusual
    farm: Farm | None = None  # None: none here, or no member of it answers
    has_farm: bool = False  # whether members of it are asked
    objects: tuple[ObjectsLine, ...] = ()  # of the nodes that have some and answer
    federation: tuple[FederationLine, ...] = ()  # of the nodes that have one and answer
    processes: tuple[tuple[int, str, Process], ...] = ()  # by node and name, on this machine
    machines: tuple[Machine, ...] = ()  # of the nodes that compared theirs with a profile
    here: frozenset[int] = frozenset()  # nodes on this machine, whose processes are asked
    # microseconds of a durable write, by shard and node: the median of a day, where it is known
    usual_us: Mapping[tuple[int, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class Rates:
    """What the look before had counted; counters only grow, except when a process restarts."""

    at_ms: int = 0
    before: dict[tuple[str, int, int], int] = field(default_factory=dict)
    counted: dict[tuple[str, int, int], int] = field(default_factory=dict)  # in this look

    def rate(self, key: tuple[str, int, int], count: int | None, now_ms: int) -> float:
        """Per second since the look before; 0 without one, or after a restart."""
        if count is None:
            return 0.0
        self.counted[key], before = count, self.before.get(key)
        if before is None or count < before or now_ms <= self.at_ms:
            return 0.0
        return (count - before) * 1000 / (now_ms - self.at_ms)

    def end_poll(self, now_ms: int) -> None:
        """What was not counted this time is forgotten: a gap makes no rate."""
        self.at_ms, self.before, self.counted = now_ms, self.counted, {}


@dataclass(slots=True)
class Clock:
    """Watches the machine's clock beside one that only goes forward."""

    ahead_ms: int | None = None  # wall minus forward, at the look before
    jumped_ms: int = 0  # by how much, the last time; negative is backwards
    jumped_at_ms: int = 0

    def on_snapshot(self, now_ms: int, wall_ms: int) -> str:
        """What to say of it at this moment."""
        ahead_ms = wall_ms - now_ms
        if self.ahead_ms is not None and abs(ahead_ms - self.ahead_ms) >= CLOCK_JUMP_MS_MIN:
            self.jumped_ms, self.jumped_at_ms = ahead_ms - self.ahead_ms, now_ms
        self.ahead_ms = ahead_ms
        if not self.jumped_ms or now_ms - self.jumped_at_ms > CLOCK_JUMP_KEPT_MS:
            return ""
        way = "back" if self.jumped_ms < 0 else "forward"
        return f"the clock jumped {way} by {abs(self.jumped_ms) / 1000:.1f} s"


def learned(view: SiteView, answers: Answers) -> SiteView:
    """The view with what replicas report of their groups."""
    for source, status in told(answers, ReplicaStatus):
        view = view.learned(source.number, configuration_in(status))
    return view


def take_snapshot(
    view: SiteView, answers: Answers, rates: Rates, clock: Clock, now_ms: int, wall_ms: int
) -> SiteSnapshot:
    """Put together what the answers say; `rates` and `clock` are brought up to date."""
    processes = _processes(answers)
    shards = tuple(_shard(group, answers, processes, rates, now_ms) for group in view.groups)
    edges = tuple(
        _edge(
            source, answers[source], processes, rates, now_ms, removed=source.node in view.outside
        )
        for source in sorted(answers)
        if source.kind == EdgeStatus.kind
    )
    rates.end_poll(now_ms)
    return SiteSnapshot(
        now_ms=now_ms,
        wall_ms=wall_ms,
        site=view.site,
        shards=shards,
        edges=edges,
        shippers=tuple(
            shipper for _, status in told(answers, ShipperStatus) for shipper in shippers_in(status)
        ),
        clock=clock.on_snapshot(now_ms, wall_ms),
        farm=farm_in(status for _, status in told(answers, FarmStatus)),
        has_farm=any(source.kind == FarmStatus.kind for source in answers),
        processes=tuple((node, name, kept) for (node, name), kept in sorted(processes.items())),
        machines=tuple(
            machine
            for source, status in told(answers, SupervisorStatus)
            if (machine := machine_of(source.node, status)) is not None
        ),
        here=frozenset(source.node for source in answers),
        objects=objects_in(status for _, status in told(answers, MetadataStatus)),
        federation=tuple(federation_of(status) for _, status in told(answers, FederationStatus)),
    )


Processes = dict[tuple[int, str], Process]  # by node and name


def _processes(answers: Answers) -> Processes:
    """What the supervisors of this machine keep, and whether it answers."""
    found = {
        (source.node, name): process
        for source, status in told(answers, SupervisorStatus)
        for name, process in processes_in(status).items()
    }
    for source, own in answers.items():
        for name in (source.kind, f"{source.kind}-{source.number}"):
            if (kept := found.get((source.node, name))) is not None:
                found[source.node, name] = replace(
                    kept, answers=own is not None, rss=0 if own is None else own.process.rss
                )
    return found


def _edge(
    source: Source,
    status: Status | None,
    processes: Processes,
    rates: Rates,
    now_ms: int,
    *,
    removed: bool,
) -> EdgeLine:
    own = edge_of(status) if isinstance(status, EdgeStatus) else None
    acked = None if own is None else own.acked
    rate = rates.rate(("edge", source.node, source.number), acked, now_ms)
    return EdgeLine(
        node=source.node,
        number=source.number,
        own=own,
        acked_per_s=rate,
        removed=removed,
        process=processes.get((source.node, f"{source.kind}-{source.number}")),
    )


def _placed(group: Group, status: ReplicaStatus) -> ReplicaStatus:
    """One that names members as the site file does, not by their index in the group."""
    own = configuration_in(status)
    if own is None:
        return status
    members = Group(group.shard, own).members
    errors_us = _by_position(members, status.clock.errors_us)
    return replaced(
        status,
        peers=_by_position(members, status.peers),
        clock=replaced(status.clock, errors_us=errors_us),
    )


Figure = TypeVar("Figure")


def _by_position(members: tuple[int, ...], by_index: Mapping[int, Figure]) -> dict[int, Figure]:
    """Without what is said of members that the site file does not describe."""
    found = ((members[index], figure) for index, figure in by_index.items())
    return {position: figure for position, figure in found if position != UNDESCRIBED}


def _shard(
    group: Group, answers: Answers, processes: Processes, rates: Rates, now_ms: int
) -> ShardLine:
    shard = group.shard
    own: dict[int, Replica] = {}
    views = [0]
    for index, node in enumerate(shard.members):
        status = answers.get(Source(ReplicaStatus.kind, node, shard.number))
        if isinstance(status, ReplicaStatus):
            own[index] = replica_of(_placed(group, status))
            if status.epoch == group.epoch:
                views.append(status.view)
    members = tuple(
        _member(group, index, own, answers, processes) for index in range(len(shard.members))
    )
    view = max(views)
    leads, inherits = (group.voters[each % len(group.voters)] for each in (view, view + 1))
    voted = view > 0 or group.epoch == 0  # view 0 of another epoch has no primary
    leader = members[leads] if voted and leads != UNDESCRIBED else None
    known = [replica.commit_max for replica in own.values()]
    known += [member.commit for member in members if member.commit is not None]
    records = max((replica.log_seq for replica in own.values()), default=0)
    # What one commits that catches up was committed long before.
    level = [r.log_seq for r in own.values() if r.commit_max - r.commit_min <= LAG_OPS_MAX]
    rate = rates.rate(("shard", shard.number, 0), max(level, default=None), now_ms)
    return ShardLine(
        number=shard.number,
        members=members,
        view=view,
        primary=leader if leader is not None and leader.normal else None,
        commit_max=max(known, default=0),
        records=records,
        records_per_s=rate,
        normal_count=sum(
            member.normal and not member.standby and not member.removed for member in members
        ),
        quorum=group.quorum,
        heir=members[inherits] if inherits != UNDESCRIBED else None,
    )


def _member(
    group: Group,
    index: int,
    own: dict[int, Replica],
    answers: Answers,
    processes: Processes,
) -> Member:
    shard, standing = group.shard, group.standing(index)
    node = shard.members[index]
    views = [
        peer
        for other, replica in own.items()
        if other != index
        for peer in replica.peers
        if peer.replica == index
    ]
    return Member(
        shard=shard.number,
        index=index,
        node=node,
        standby=standing is Standing.STANDBY,
        asked=Source(ReplicaStatus.kind, node, shard.number) in answers,
        own=own.get(index),
        seen=min(views, key=lambda peer: peer.silent_ms, default=None),
        removed=standing is Standing.OUTSIDE,
        process=processes.get((node, f"{ReplicaStatus.kind}-{shard.number}")),
    )
