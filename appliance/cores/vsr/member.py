"""The state of one member of a group, and the primitives through which it speaks to the world.

Here, in one place: persist before you speak. A message that names a view the superblock does not
hold yet is dropped, not queued; timers send it again.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.base.limits import SECTOR_SIZE
from appliance.base.prng import Prng
from appliance.cores.vsr import effects as fx
from appliance.cores.vsr.chain import Chain
from appliance.cores.vsr.clock import Clock
from appliance.cores.vsr.journal import Journal
from appliance.cores.vsr.origin import Origin
from appliance.cores.vsr.quorums import quorums
from appliance.cores.vsr.sessions import Sessions
from appliance.cores.vsr.status import SILENT, STATUS, Event, Status
from appliance.cores.vsr.timeout import Timeout
from appliance.cores.vsr.wal_writes import WalWrites
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import superblock as sb
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import Geometry
from appliance.formats.group import Configuration
from appliance.formats.lives import Refusal, Told, keep


class StateMachine(Protocol):
    """A shard's state machine: synchronous, pure, the same result on every member."""

    @property
    def ahead_us(self) -> int: ...
    @property
    def log_seq(self) -> int: ...
    @property
    def oldest_segment(self) -> int: ...

    def input_valid(self, operation: int, body: memoryview) -> bool: ...
    def prepare(self, operation: int, timestamp: int, body: memoryview) -> None: ...
    def can_commit(self, record_count: int) -> bool: ...
    def commit(self, op: int, operation: int, timestamp: int, body: memoryview) -> bytes: ...
    def take_writes(self) -> list[Any]: ...
    def on_segment_written(self, write: Any) -> None: ...
    def flush(self) -> None: ...
    def durable_log_seq(self) -> int: ...
    def checkpoint(self) -> Any: ...
    def restore(
        self, manifest: Any, tables: dict[str, list[bytes]], leaves: list[bytes]
    ) -> None: ...
    def reset(self) -> None: ...
    def leaf(self, number: int, index: int, count: int) -> bytes | None: ...
    def newest_sealed(self) -> tuple[int, bytes]: ...
    def in_ring(self, number: int) -> bool: ...
    def durable_sectors(self, number: int, offset: int, size: int) -> bytes: ...


class Entry:
    """A prepare in the primary's pipeline."""

    __slots__ = ("header", "client", "acks")

    def __init__(self, header: Header, client: bytes) -> None:
        self.header = header
        # whose request it is: that one must not be prepared a second time
        self.client = client
        # bit r: replica r says that this very prepare is durable there
        self.acks = 0


@dataclass(slots=True)
class Peer:
    """What a member last said of itself."""

    view: int = 0
    checkpoint: int = 0
    checkpoint_id: bytes = bytes(16)
    commit_min: int = 0
    heard_tick: int = 0
    repair_ticks: int = 2  # smoothed time of an answer to request_prepare
    outstanding: int = 0  # questions for a prepare that it has not answered yet
    asked_tick: int = 0  # of the newest of them
    syncing: bool = False  # it lacks a state or sealed segments
    space_short: bool = False  # its disk is about to be full
    life_refused: int = 0  # the newest life of it that was refused: links have seen its number
    knows: tuple[int, int] = (0, 0)  # what its program knows, lives.ROUTE_*; when it said so


# Which durable values a message of our own needs before it may leave: (view, log_view).
SPEAK = {
    env.START_VIEW_CHANGE: (True, False),
    env.COMMIT: (True, False),
    env.REPLY: (True, False),
    env.HEADERS: (True, False),
    env.EVICTION: (True, False),
    env.PREPARE_OK: (True, True),
    env.DO_VIEW_CHANGE: (True, True),
    env.START_VIEW: (True, True),
}

# What rests on the promises of a life goes only to members that will remember that life.
BETWEEN_ACQUAINTANCES = frozenset((env.PREPARE_OK, env.DO_VIEW_CHANGE))

VIEWS_AHEAD_MAX = 1 << 20  # a view takes a vote of a quorum and a write: nobody is so far ahead

SCRUB_TICKS = 10  # between two items that the scrubber reads
PREPARES_CACHED_MAX = 32  # bodies kept in memory: pipeline, commit, repair of peers

# First periods, in ticks of 10 ms; some are drawn or backed off later.
TIMEOUT_TICKS = {
    "ping": 50,
    "prepare": 5,
    "abdicate": 50,
    "heartbeat": 2,
    "heartbeat_lost": 10,
    "svc_message": 5,
    "svc_window": 50,
    "view_change_status": 30,
    "dvc_message": 5,
    "request_start_view": 10,
    "repair": 5,
    "repair_sync": 100,
    "chunks": 5,
    "end_epoch": 100,
}


class Member:
    """State of one member. Invariants are asserted by `check`; fields marked (d) are derived from
    disk.
    """

    def __init__(
        self,
        *,
        geometry: Geometry,
        cluster: bytes,
        shard: int,
        replica_id: bytes,
        prng: Prng,
        state_machine: StateMachine,
        scrub_ticks: int = SCRUB_TICKS,
    ) -> None:
        self.geometry = geometry
        self.cluster = cluster
        self.shard = shard
        self.replica_id = replica_id
        self.prng = prng
        self.state_machine = state_machine
        self.effects: list[tuple[Any, ...]] = []
        self.status = Status.RECOVERING
        self.tick = 0
        self.monotonic_ns = 0
        self.realtime_us = 0
        self.clock = Clock(index=0, replica_count=1, quorum=1)  # until members are known
        # of this member; < replica_count: active, else standby
        self.index = -1
        self.replica_count = 0
        self.standby_count = 0
        self.members: list[bytes] = []
        self._indexes: dict[bytes, int] = {}  # the same by id
        self._addressed: dict[int, tuple[bytes, ...]] = {}  # ids by the mask of their places
        self.epoch = 0
        # what of the four above is made: the newest known; and the one as of commit_min
        self.configuration = self.agreed = Configuration(0, 0, 1, (replica_id,))
        # whether `agreed` can be trusted; not while a volume made anew has replayed nothing
        self.agreed_known = False
        # of the epoch before, until enough have come along
        self.members_old: Configuration | None = None
        self.epoch_end: Header | None = None  # its last prepare
        self.reconfiguring = 0  # op of a change in the log that is not applied yet
        self.pull_tick = 0  # do not ask somebody of a newer epoch before this tick
        self.quorum_replication = self.quorum_view_change = self.quorum_nack = 0
        self.counters: dict[str, int] = {}
        self.halted: tuple[str, str] | None = None
        self.timeouts = {name: Timeout(ticks) for name, ticks in TIMEOUT_TICKS.items()}
        self.timeouts["scrub"] = Timeout(scrub_ticks)
        self._begin_log(prng)
        self._begin_views()
        self._begin_storage()
        self._begin_state()
        self._begin_repair()

    def _begin_log(self, prng: Prng) -> None:
        """What the log is, as far as this member knows."""
        self.view = 0
        self.log_view = 0
        self.op = 0  # head: highest op whose header is in the journal
        self.commit_min = 0  # applied here
        self.commit_max = 0  # known committed by the group
        # (op, digest) that a heartbeat named as committed
        self.commit_anchor: tuple[int, bytes] = (0, b"")
        self.journal = Journal(self.geometry)
        # descending; what this member advertises for its view
        self.view_headers: list[Header] = []
        self.view_headers_kind = sb.KIND_SV
        self.chain = Chain()
        self.sessions = Sessions(self.geometry)
        self.peers: list[Peer] = []
        self.nonce = prng.bytes(16)  # of this start: an answer to an older question is none
        self.incarnation = 0
        self._begin_lives()

    def _begin_lives(self) -> None:
        """Which life this is, and what is known of those of others: see `lives`."""
        # (incarnation, start) of the newest that others are known to remember, and of those since
        self.lives: list[tuple[int, int]] = []
        self.origin = Origin()
        self.held = 0  # the newest op that the rings may have held then
        self.told: dict[bytes, Told] = {}  # what members told of themselves
        self.refused: dict[bytes, Refusal] = {}  # members that are not listened to
        # life that was heard of, to be answered once it is durable: (stamp, incarnation)
        self.introductions: dict[bytes, tuple[int, int]] = {}
        self.introduced: set[bytes] = set()  # members that hold this life durably
        self.introduced_mask = 0
        # members whose checkpoint differs from ours at the same op, and since when
        self.diverged: dict[bytes, tuple[int, int]] = {}  # id -> (op, tick)
        # by member: how often it said what it cannot have meant, by the reason for dropping it
        self.suspicions: dict[bytes, dict[str, int]] = {}
        self.vouchers: dict[bytes, bool] = {}  # whether each was vouched for itself

    def _begin_views(self) -> None:
        """What belongs to leading a view, and to leaving it."""
        self.pipeline: deque[Entry] = deque()  # ops commit_max+1 .. op
        self.request_queue: deque[Message] = deque()
        self.timestamp_last = 0  # no later prepare may carry less
        self.abdicating = False
        self.heartbeat_due = False
        self.view_changes_failed = 0  # since this member was normal, by its own patience
        self.heartbeat_ns = 0  # primary's clock in the newest heartbeat heard
        self.replies_wanted: set[int] = set()  # rows of sessions whose reply slot should be read
        # stuck: the next start_view may replace our checkpoint
        self.sync_asked = False
        self.svc_from = 0  # bit r: replica r wants to leave this view
        self.dvcs: list[Any] = []
        self.dvc_quorum = False  # the canonical log of this view is installed
        self.dvc_sent_view = -1
        self.sv_sent_view = -1

    def _begin_storage(self) -> None:
        """What is durable, and what is on its way there."""
        self.prepares: dict[int, Message] = {}  # op -> prepare, bounded by PREPARES_CACHED_MAX
        self.superblock: sb.Superblock | None = None  # (d) the last durable one
        self.superblock_writing: sb.Superblock | None = None
        self.superblock_wanted = False
        # copies to be written again before any update, in order
        self.superblock_repairs: list[int] = []
        self.completions: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self.token_last = 0
        self.wal = WalWrites()
        # became clean since the last settle: to be acknowledged
        self.clean_ops: list[int] = []
        self.checkpoint: sb.CheckpointState | None = None  # durable
        # written, its superblock on the way
        self.checkpoint_next: sb.CheckpointState | None = None
        self.checkpointing: Any = None
        # op of the newest checkpoint taken from the state, durable or not
        self.checkpoint_applied = 0
        # commit_min is a trigger and its checkpoint is not begun yet
        self.checkpoint_due = False
        # by op, of the checkpoints that the zones hold: at most one each
        self.manifests: dict[int, bytes] = {}
        self.acknowledge_tail = False  # send prepare_ok again for commit_max+1 .. op
        # place outside the rings -> write_order.Placed under way or waiting, in order
        self.placed_writes: dict[int, list[Any]] = {}

    def _begin_state(self) -> None:
        """The state machine's place, and states on their way to it."""
        self.commit_reading = -1  # op whose prepare is being read for the commit
        self.segments_writing = 0
        self.state_ready = False  # the state machine stands at commit_min
        self.sync_op_min = self.sync_op_max = self.sync_log_seq = 0
        self.fetch: Any = None  # state_sync.Fetch of a checkpoint's state
        self.backfill: Any = None  # backfill.Backfill of sealed segments
        # place -> chunks.Wanted found broken in a checkpoint zone
        self.mending: dict[Any, Any] = {}
        # checkpoints that shall write all chunks, changed or not
        self.freeze_everything = 0
        self.faulty_before = 0  # faulty slots when last looked at
        self.faulty_tick = 0  # when that number last changed
        self.tour: Any = None  # scrub.Tour
        self.reports: Any = None  # reported.Reports of broken segments
        self.commit_told = 0  # committed, by a vote that came too late to count
        self.published = 0

    def _begin_repair(self) -> None:
        """What is missing or broken here, and who was asked for it."""
        # op -> (peer, tick of expiry) of a request_prepare
        self.repairs: dict[int, tuple[int, int]] = {}
        self.repair_due = False
        self.commit_before = -1  # commit_min when `repair_sync` last fired
        # of the superblock that was looked at last, and it itself: see `steps`
        self.durable_seen: tuple[Any, ...] = (-1, -1, -1, -1, -1, None)
        self.rsv_tick = 0  # do not ask for a start_view before this tick
        self.headers_tick = 0  # nor for headers
        self.reads_for_others = 0
        self.reads_for_chunks = 0
        # slot -> digest: verifying bytes whose witness is missing
        self.rereading: dict[int, bytes] = {}
        self.replies_reading: set[int] = set()

    # --- who is who

    def configure(self, configuration: Configuration) -> None:
        """Take members and epoch. Who stays in its place within an epoch stays known."""
        before = dict(zip(self.members, self.peers, strict=True))
        if configuration.epoch != self.epoch:
            before = {}
        standing = (self.index, self.replica_count, self.epoch)
        self.configuration = configuration
        self.members = list(configuration.members)
        self._indexes = {replica_id: index for index, replica_id in enumerate(self.members)}
        self._addressed = {}
        self.told = keep(self.told, self.members)
        self.refused = {known: why for known, why in self.refused.items() if known in self._indexes}
        self.find_introduced()
        self.replica_count = configuration.replica_count
        self.standby_count = configuration.standby_count
        self.epoch = configuration.epoch
        self.index = self.index_of(self.replica_id)
        row = quorums(self.replica_count)
        self.quorum_replication, self.quorum_view_change, self.quorum_nack = row
        self.peers = [before.get(replica_id) or Peer() for replica_id in self.members]
        for peer in self.peers:
            peer.outstanding = 0
        self.repairs.clear()
        if standing != (self.index, self.replica_count, self.epoch):
            self.dvcs = [None] * self.replica_count
            self.clock = Clock(
                index=self.index, replica_count=self.replica_count, quorum=self.quorum_replication
            )
            self.timeouts["ping"].start(1)

    def index_of(self, replica_id: bytes) -> int:
        """The place of a member; -1: it is none."""
        return self._indexes.get(replica_id, -1)

    def find_introduced(self) -> None:
        """The bits of the members to which this life is introduced."""
        known = self.introduced
        self.introduced_mask = sum(
            1 << i for i, member in enumerate(self.members) if member in known
        )

    def sender_of(self, source: bytes) -> int:
        """The place, as of now, of the member that a message is from. Looked up for each message:
        the one before it may have changed the group.
        """
        return env.SENDER_CLIENT if not source else self.index_of(source)

    def addressed(self, mask: int) -> tuple[bytes, ...]:
        """The ids of the members of `mask`, in their order."""
        found = self._addressed.get(mask)
        if found is None:
            ids = (known for index, known in enumerate(self.members) if mask >> index & 1)
            found = self._addressed[mask] = tuple(ids)
        return found

    @property
    def viewstamp(self) -> int:
        return self.epoch << 32 | self.view

    @property
    def log_viewstamp(self) -> int:
        return self.epoch << 32 | self.log_view

    @property
    def serves(self) -> bool:
        """Whether repairs are answered: a replica always, one that was retired until the others
        have come along.
        """
        return not self.is_standby or self.members_old is not None

    def now_us(self) -> int | None:
        """The time that the group goes by; None while too few have told theirs."""
        return self.clock.now_us(self.monotonic_ns, self.realtime_us, self.timestamp_last)

    def primary_of(self, view: int) -> int:
        return view % self.replica_count

    @property
    def primary(self) -> int:
        return self.view % self.replica_count

    @property
    def is_primary(self) -> bool:
        return self.index == self.view % self.replica_count

    @property
    def is_standby(self) -> bool:
        return self.index >= self.replica_count

    @property
    def alone(self) -> bool:
        """The only replica: nobody else can be asked for anything. A standby beside it is not."""
        return self.replica_count == 1 and not self.is_standby

    @property
    def normal_primary(self) -> bool:
        return self.status == Status.NORMAL and self.is_primary

    @property
    def syncing(self) -> bool:
        """Between the installation of a peer's checkpoint and the state machine standing on it."""
        return not self.state_ready and self.sync_op_max > 0

    @property
    def installing(self) -> bool:
        """A peer's checkpoint is ours in memory, but its superblock is not durable yet: write and
        promise nothing.
        """
        assert self.checkpoint is not None
        assert self.superblock is not None
        return self.checkpoint.header.op != self.superblock.checkpoint.header.op

    @property
    def checkpoint_op(self) -> int:
        assert self.checkpoint is not None
        return self.checkpoint.header.op

    @property
    def durable_view(self) -> int:
        """Of this epoch; -1 as long as not even that is durable."""
        block = self.superblock
        return block.view if block is not None and block.epoch == self.epoch else -1

    @property
    def durable_log_view(self) -> int:
        block = self.superblock
        return block.log_view if block is not None and block.epoch == self.epoch else -1

    @property
    def incarnation_durable(self) -> int:
        """Under which frames are numbered; nothing is sent before it is this life's."""
        assert self.superblock is not None
        return self.superblock.incarnation

    @property
    def others(self) -> int:
        """Bits of all members but this one."""
        return ((1 << len(self.members)) - 1) & ~(1 << self.index)

    @property
    def other_replicas(self) -> int:
        """Bits of all active replicas but this one."""
        return ((1 << self.replica_count) - 1) & ~(1 << self.index)

    def any_other(self) -> int | None:
        """The place of an active replica, drawn from all but this one; None: there is none."""
        assert 0 < self.replica_count <= len(self.members)
        others = [i for i in range(self.replica_count) if i != self.index]
        return self.prng.choice(others) if others else None

    # --- words

    def make(self, command: int, **fields: Any) -> Header:
        """A header of this shard and epoch."""
        return env.make(command, cluster=self.cluster, shard=self.shard, epoch=self.epoch, **fields)

    def make_reply(self, prepare: Header, body: bytes) -> Header:
        """The reply to `prepare`: byte-identical on every member, whichever view or epoch it is
        sent in.
        """
        assert prepare.command == env.PREPARE
        return env.make(
            env.REPLY,
            cluster=self.cluster,
            shard=self.shard,
            epoch=prepare.epoch,
            view=prepare.view,
            operation=prepare.operation,
            aux=prepare.aux,
            op=prepare.op,
            commit_num=prepare.op,
            area=cmd.Reply.pack(prepare.timestamp),
            body=body,
        )

    def send(
        self, mask: int, header: Header, body: bytes | memoryview = b"", route: int = 0
    ) -> None:
        """Send to the members of `mask`, if what the message promises is durable."""
        if header.command in BETWEEN_ACQUAINTANCES:
            mask &= self.introduced_mask
        if mask == 0 or not self.may_speak(header):
            return
        assert not mask >> self.index & 1
        self.count("sent_" + env.COMMAND_NAMES[header.command])
        self.effects.append((fx.SEND, self.addressed(mask), header, body, route))

    def send_to(self, replica_id: bytes, header: Header, body: bytes | memoryview = b"") -> None:
        """Answer a member that asked some time ago, if it still is one."""
        member_index = self.index_of(replica_id)
        if member_index >= 0:
            self.send(1 << member_index, header, body)

    def send_client(self, client: bytes, header: Header, body: bytes = b"") -> None:
        """Answer the connection on which `client` was last heard."""
        if self.may_speak(header):
            self.count("sent_" + env.COMMAND_NAMES[header.command])
            self.effects.append((fx.SEND_CLIENT, client, header, body))

    def may_speak(self, header: Header) -> bool:
        """The one place of persist-before-speak.

        Nothing at all leaves before the incarnation is durable.
        """
        if self.status in SILENT or self.superblock is None:
            return False
        if self.status == Status.UNVOUCHED and header.command not in (env.PING, env.PONG):
            return False
        if self.superblock.incarnation != self.incarnation:
            return False
        if self.superblock.members_op != self.configuration.op:
            return False  # who belongs to the group is durable before anybody hears of it
        needs = SPEAK.get(header.command)
        if needs is None:
            own = header.command == env.PREPARE and header.viewstamp == self.viewstamp
            if own and self.is_primary:
                return self.durable_log_view == self.log_view and self.durable_view >= header.view
            return True
        need_view, need_log_view = needs
        if header.command == env.REPLY:
            # a reply carries the view of its prepare, and that is committed
            need_view = False
        if need_view and self.durable_view < header.view:
            return False
        return not need_log_view or self.durable_log_view == self.log_view

    def mark(self, name: str) -> None:
        """A rare path was taken."""
        self.effects.append((fx.MARK, name))

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    def drop(self, reason: str) -> None:
        """An event was ignored for a named reason."""
        self.count("dropped_" + reason)

    def suspect(self, member_index: int, reason: str) -> None:
        """A member said what no member says that follows the protocol: dropped, and told of."""
        self.drop(reason)
        known = self.suspicions.setdefault(self.members[member_index], {})
        known[reason] = known.get(reason, 0) + 1

    def enter(self, event: Event) -> None:
        """Let an event change the status: the one place that does. Nothing follows a halt."""
        if self.status != Status.HALTED:
            assert (self.status, event) in STATUS, (self.status.name, event.name)
            self.status = STATUS[self.status, event]

    def halt(self, code: str, reason: str) -> None:
        """Stop for good: going on could lie."""
        if self.status != Status.HALTED:
            self.enter(Event.HALTED)
            self.halted = (code, reason)
            self.effects.append((fx.HALT, code, reason))

    # --- storage

    def write(
        self, address: int, buffers: fx.Buffers, done: Callable[..., None], *args: Any
    ) -> None:
        """Write whole sectors; `done(member, *args)` once they are durable."""
        assert address % SECTOR_SIZE == 0
        self.token_last += 1
        self.completions[self.token_last] = (done, args)
        self.effects.append((fx.WRITE, self.token_last, address, buffers))

    def read(self, address: int, length: int, done: Callable[..., None], *args: Any) -> None:
        """Read `length` bytes; `done(member, data or None, *args)`."""
        assert address % SECTOR_SIZE == 0
        assert length % SECTOR_SIZE == 0
        self.token_last += 1
        self.completions[self.token_last] = (done, args)
        self.effects.append((fx.READ, self.token_last, address, length))

    def persist(self) -> None:
        """Bring the superblock up to the present state; updates that meet merge into one."""
        self.superblock_wanted = True

    # --- the log

    @property
    def head(self) -> Header:
        header = self.journal.at(self.op)
        assert header is not None
        return header

    @property
    def repair_min(self) -> int:
        return self.geometry.repair_min(self.checkpoint_op, self.commit_max, self.op)

    def chained_from(self, op: int) -> bool:
        """Whether the headers op..head are all known and each names its predecessor."""
        return self.chain.reaches(op, self.head, self.journal)

    def keep_prepare(self, message: Message) -> None:
        """Remember a prepare's body; the oldest are forgotten first."""
        prepares = self.prepares
        prepares.pop(message.header.op, None)
        prepares[message.header.op] = message
        while len(prepares) > PREPARES_CACHED_MAX:
            del prepares[next(iter(prepares))]

    def extend_head(self, header: Header) -> None:
        """`header` is the new head; what was known of the chain below stays known if it names the
        old one.
        """
        assert header.op > self.op
        if header.op == self.op + 1:
            self.chain.extend(header)
        self.op = header.op

    def move_head(self, op: int) -> None:
        """The log ends at `op` now, whatever was above."""
        assert op >= self.commit_min
        self.op = op

    def prepare_in_memory(self, header: Header) -> Message | None:
        """The cached prepare with exactly this identity."""
        message = self.prepares.get(header.op)
        return message if message is not None and message.header.digest == header.digest else None

    def learn_commit(self, commit_max: int) -> None:
        """The group has committed up to here."""
        if commit_max > self.commit_max:
            self.commit_max = commit_max

    def learn_timestamp(self, timestamp: int) -> None:
        """The log may hold a prepare of this time."""
        if timestamp > self.timestamp_last:
            self.timestamp_last = timestamp
