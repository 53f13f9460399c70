"""A replica: where it stands in its group, its volume, and whom it is connected with."""

from typing import ClassVar

from appliance.formats.nvme_health import Health
from appliance.formats.status.part import Part
from appliance.formats.status.process import Latencies
from appliance.formats.status.status import Status

NORMAL, VIEW_CHANGE = "normal", "view_change"  # states of a replica; there are others
PRIMARY, BACKUP, STANDBY, REMOVED = "primary", "backup", "standby", "removed"  # and its roles


class PeerState(Part, frozen=True, kw_only=True):
    """A member of the group as another one sees it."""

    view: int
    commit_min: int
    checkpoint: int
    silent_ticks: int  # since anything was heard of it


class GroupSpace(Part, frozen=True, kw_only=True):
    """Whether disks have hardly more left than is kept for consensus."""

    short: bool = False  # this one
    short_replicas: list[int] = []
    sparing: bool = False  # so many that the shard takes no more messages


class GroupClock(Part, frozen=True, kw_only=True):
    """The clocks of a group, as one of its members sees them; microseconds."""

    agreed: bool = True  # a quorum agrees on a time
    round_trips_us: dict[int, int] = {}
    errors_us: dict[int, int] = {}  # by which each is ahead
    log_us: int = 0  # the log's time now
    corrected_us: int = 0  # by which the log's time is ahead, as was agreed
    log_ahead_us: int = 0  # by which it is ahead beyond that


class DisksHealth(Part, frozen=True, kw_only=True):
    """Of the disks under a volume, by the names of their controllers. `untold`: why it is not
    known; of "disk" where no controller is found."""

    disks: dict[str, Health] = {}
    untold: dict[str, str] = {}


class VolumeStatus(Part, frozen=True, kw_only=True):
    """How long durable writes take, what waits, what is left."""

    id: str = ""
    flush_method: str = ""
    format_p50_us: int = 0  # of a durable write when the volume was made
    format_p99_us: int = 0
    journal: Latencies  # of durable writes
    background: Latencies = Latencies(count=0, p50_us=0, p99_us=0)
    groups: int = 0  # of writes that were made durable together
    bytes_written: int = 0
    writes_waiting: int = 0
    extents: int
    extents_max: int
    extent_size: int = 0  # bytes; 0: not told
    disk_size: int = 0  # bytes, without what is reserved for root; 0: not told
    disk_free: int = 0  # bytes that this user may take
    device: str = ""  # a raw one
    alarm: str | None = None
    days_left: float | None = None  # at the pace of the last day; None: too little was written
    health: DisksHealth = DisksHealth()


class ShippingFigures(Part, frozen=True, kw_only=True):
    """Who ships the shard and how far, as the log says, and how late that is by the node's
    settings."""

    generation: int = 0  # of the claim; 0: nobody ever shipped
    node: int = 0
    manifest_count: int = 0
    manifest_hash: str = ""  # hexadecimal
    period_start_us: int = 0
    period_us: int = 0
    announced_end: int = 0
    late_s: float = 0.0  # since the end of the next period that is to be shipped
    late_s_max: int = 0  # more is an alarm; 0: nothing is shipped here
    cursor: int = 0  # newest record that is shipped
    log_seq: int = 0


class CarryingFigures(Part, frozen=True, kw_only=True):
    """Who carries the shared rooms of the shard, as the log says."""

    generation: int = 0
    node: int = 0


class MemberState(Status, frozen=True, kw_only=True):
    """Where a member stands in its group: what its core knows. Members are named by their indices
    in the group, or by their ids in hexadecimal; counts of ops, records and ticks."""

    kind: ClassVar = "replica"
    socket: ClassVar = "shard"

    status: str
    role: str
    replica: int = 0  # its index; below 0: it belongs to the group no more
    epoch: int = 0
    members: list[str] = []
    replica_count: int = 0  # of those that vote, which come first
    members_op: int = 0  # that made the group so
    members_old: list[str] = []
    view: int
    log_view: int = 0
    op: int
    commit_min: int  # newest op that is executed
    commit_max: int  # newest op that is known to be committed
    checkpoint: int
    dirty: int  # slots of the journal that are not durable yet
    faulty: int  # and such as are known to be broken
    log_seq: int  # records committed in the shard
    state_ready: bool
    synced: tuple[int, int] = (0, 0)  # records that are here, of those that a state sync brings
    sync: tuple[int, int, int] = (0, 0, 0)  # its ops from, to; records
    quorum_silent_ticks: int = 0  # since as many were heard as a quorum has
    scrub: tuple[int, int] = (0, 0)  # rounds of reading all that are over; until which it hurries
    clients: int = 0
    halted: tuple[str, str] | None = None  # code and reason
    refused: dict[str, str] = {}  # members it does not listen to, and why
    suspicions: dict[str, dict[str, int]] = {}  # messages against the protocol, by member, reason
    space: GroupSpace = GroupSpace()
    clock: GroupClock = GroupClock()
    told: dict[str, list[int]] = {}  # what members told of themselves
    peers: dict[int, PeerState]
    counters: dict[str, int] = {}  # what the protocol did, by name

    @property
    def serves(self) -> bool:
        return self.status == NORMAL

    @property
    def votes(self) -> bool:
        return self.role in (PRIMARY, BACKUP)

    @property
    def is_serving_primary(self) -> bool:
        return self.serves and self.role == PRIMARY


class LogStanding(Part, frozen=True, kw_only=True):
    """What those who read from the tables and segments of a replica must know to trust them."""

    status: str
    state_ready: bool
    commit_min: int
    commit_max: int
    stale_ms: int = 0  # for so long it has heard no quorum; 0 while it does
    oldest_segment: int  # the first that is not freed


class Attachment(LogStanding, frozen=True, kw_only=True):
    """What a process of the node is told that reads a replica's ring and segments."""

    ring_size: int  # bytes
    log_seq: int  # newest record in the ring
    shard: int = 0
    epoch: int = 0
    replica: int = 0
    geometry: str
    segments_max: int
    segments_folder: str


class ReplicaStatus(MemberState, frozen=True, kw_only=True):
    """All that an operator may want to know."""

    stale_ms: int = 0
    oldest_segment: int = 0
    shard: int = 0
    node: int = 0
    time: float = 0.0  # seconds since the epoch
    tick_ms: int = 10
    published: int = 0  # newest record in the ring
    incarnation: int = 0
    nonce: int = 0
    volume: VolumeStatus
    links: dict[int, bool] = {}  # to other members, by their places in the site file: connected
    connections: int  # of other nodes
    edges: int  # of this machine that are attached
    received: dict[str, int] = {}  # messages, by command
    sent: dict[str, int] = {}
    dropped: dict[str, int] = {}
    suspicious: dict[str, dict[str, int]] = {}  # by the name of the node
    other_versions: dict[str, str] = {}  # nodes that were turned away for theirs, and why
    connection_events: dict[str, int] = {}
    local_events: dict[str, int] = {}
    marks: dict[str, int] = {}
    shipping: ShippingFigures = ShippingFigures()
    carrying: CarryingFigures = CarryingFigures()
    ticks_late: int = 0
    knobs: dict[str, str] = {}
