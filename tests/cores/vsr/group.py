"""A group of replicas in one process: their disks, the wire between them, clients, and a clock.

Everything is deterministic and in memory. `settle` delivers messages and performs I/O until nothing
moves; time passes only by `run`. A test may hold writes back, cut links, crash, corrupt, restart.

While a story runs the group watches, with eyes of its own, what no story may break:

    every message    what it promises lies on the disk of its sender: view, log_view, the prepare
    every commit     all replicas apply the same prepares, each the successor of the one before
    every reply      is for an op that is committed, and one request is prepared once
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.rooms.rooms import Rooms
from appliance.cores.vsr import effects as fx
from appliance.cores.vsr import report
from appliance.cores.vsr.client import Client
from appliance.cores.vsr.idle import idle_ticks
from appliance.cores.vsr.open import format_writes, load
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.route import Routing
from appliance.cores.vsr.status import Status
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import record
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RESULT_SIZE, SMALL, Geometry
from appliance.formats.segment import ring_size
from appliance.formats.session import DUPLICATE, OK, RESULT_STRUCT
from appliance.formats.volume_file import NOT_KNOWN
from tests.cores.vsr.disk import Disk, Write

CLUSTER = b"a group of tests"
SHARD = 5
START_US = 1_750_000_000_000_000
TICK_US = 10_000
TINY = replace(SMALL, slot_count=20, checkpoint_ops=8, segment_records=20)
UNKNOWN = -1_000_000  # in the trace: a client that the test plays itself
ROOM = b"the group's room"
NEEDS_VIEW = (
    env.START_VIEW_CHANGE,
    env.COMMIT,
    env.HEADERS,
    env.EVICTION,
    env.PREPARE_OK,
    env.DO_VIEW_CHANGE,
    env.START_VIEW,
)

Rule = Callable[[int, int, Header], bool]  # (source, target, header): whether it is lost


def dropped(core: Replica, reason: str) -> int:
    """How often a member dropped something for the reason, whatever words follow it."""
    name = f"dropped_{reason}"
    counts = core.counters.items()
    return sum(count for counted, count in counts if counted.partition(":")[0] == name)


class Node:
    """A machine: its disk lives on, `replica` is None while no process runs."""

    def __init__(self, index: int, replica_id: bytes, disk: Disk) -> None:
        self.index, self.replica_id, self.disk = index, replica_id, disk
        self.replica: Replica | None = None
        self.rooms: Rooms | None = None
        self.starts = 0
        self.commit_seen = 0
        self.hold: Callable[[Write], bool] = lambda write: False
        self.clock_error_us = 0  # of its wall clock, once it runs
        self.marks: list[str] = []
        self.halted: tuple[str, str] | None = None
        self.file, self.moved = NOT_KNOWN, False  # which one the disk is, what its operator says

    @property
    def core(self) -> Replica:
        assert self.replica is not None, f"replica {self.index} is not running"
        return self.replica


class Session:
    """A client of the group, with one device that writes to one room."""

    def __init__(self, group: "Group", number: int) -> None:
        self.group, self.number = group, number
        self.client_id = b"session %8d" % number
        self.core = Client(
            client_id=self.client_id,
            cluster=CLUSTER,
            shard=SHARD,
            replica_count=group.replica_count,
            geometry=group.geometry,
            prng=Prng(1000 + number),
            members=tuple(group.members_first),
        )
        self.asked = 0  # records of this device
        self.evictions: list[int] = []
        self.replies: list[tuple[Header, bytes]] = []

    def connected(self, machine: int) -> None:
        self.core.on_connected(self.group.members[machine])

    def disconnected(self, machine: int) -> None:
        self.core.on_disconnected(self.group.members[machine])

    def records(self, count: int) -> bytes:
        """The next `count` records of the device."""
        first = self.asked + 1
        self.asked += count
        return b"".join(
            record.encode(
                room_id=ROOM,
                msg_id=(self.number << 64 | n).to_bytes(16, "little"),
                author_id=1,
                body=b"record %d" % n,
                client_id=self.client_id,
                client_seq=n,
            )
            for n in range(first, first + count)
        )

    def ask(self, count: int = 1) -> None:
        """Send a request of `count` records; nothing is delivered yet."""
        self.core.request(env.OPERATION_APPEND, self.records(count), count)
        self.group.take_client(self)

    def again(self) -> None:
        """The newest record was refused: its number is the next one's."""
        self.asked -= 1

    def results(self) -> list[tuple[Any, ...]]:
        """Results of the newest reply."""
        body = self.replies[-1][1]
        return [
            RESULT_STRUCT.unpack(body[at : at + RESULT_SIZE])
            for at in range(0, len(body), RESULT_SIZE)
        ]


class Group:
    """`replica_count` replicas and `standby_count` standbys of one shard, formatted and started."""

    def __init__(
        self,
        replica_count: int = 3,
        *,
        standby_count: int = 0,
        seed: int = 1,
        view: int = 0,
        geometry: Geometry = SMALL,
        routing: Routing = Routing.AUTO,
        segments_max: int = 8,
        start: list[int] | None = None,
    ) -> None:
        self.replica_count, self.geometry, self.segments_max = replica_count, geometry, segments_max
        self.prng = Prng(seed)
        self.routing = routing
        self.acquainted = start is not None  # the test speaks for those that do not run
        self.tick = 0
        self.wire: deque[tuple[int, int, Message]] = deque()  # target below 0: a client
        self.rules: list[Rule] = []
        self.trace: list[tuple[int, int, Header]] = []  # (source, target, header)
        self.sessions: list[Session] = []
        self.committed: dict[int, bytes] = {}  # op -> digest, whoever applied it
        self.prepared_for: dict[bytes, int] = {}  # digest of a request -> newest op
        self.checkpoints: dict[int, bytes] = {}  # op -> id, whoever took it
        self.committed_for: dict[bytes, int] = {}  # and the one op that is committed
        self.members = [b"replica %8d" % i for i in range(replica_count + standby_count)]
        self.members_first = tuple(self.members)  # in the order of the format
        self.nodes: list[Node] = []
        for index, replica_id in enumerate(self.members):
            disk = Disk(geometry, segments_max)
            for address, data in format_writes(
                geometry,
                cluster=CLUSTER,
                shard=SHARD,
                replica_id=replica_id,
                members=self.members,
                replica_count=replica_count,
                standby_count=standby_count,
                segments_max=segments_max,
                view=view,
            ):
                disk.poke(address, data)
            self.nodes.append(Node(index, replica_id, disk))
        for index in range(len(self.nodes)) if start is None else start:
            self.start(index)

    # --- processes

    def start(self, index: int) -> Replica:
        """Start the process of a machine; `settle` lets it speak."""
        node = self.nodes[index]
        assert node.replica is None
        node.starts += 1
        node.commit_seen = 0
        node.rooms = Rooms(
            geometry=self.geometry,
            cluster=CLUSTER,
            shard=SHARD,
            segments_max=self.segments_max,
            ring=memoryview(bytearray(ring_size(self.geometry))),
        )
        core = Replica(
            geometry=self.geometry,
            cluster=CLUSTER,
            shard=SHARD,
            replica_id=node.replica_id,
            prng=self.prng.fork(),
            state_machine=node.rooms,
            routing=self.routing,
        )
        node.replica = core
        if self.acquainted:
            core.introduced = set(self.members)
        loaded = load(self.geometry, node.disk.flush_all, node.disk.read_many)
        loaded.file, loaded.moved = node.file, node.moved
        core.open(loaded, *self.times())
        node.commit_seen = core.commit_min
        self.after(node)
        for session in self.sessions:
            session.connected(index)
            self.take_client(session)
        return core

    def crash(self, index: int, keep: Callable[[Write], list[int]] = lambda write: []) -> None:
        """Kill -9; of its writes in flight the sectors that `keep` names make it to the disk."""
        node = self.nodes[index]
        assert node.replica is not None
        node.replica = node.rooms = None
        node.disk.crash(keep)
        node.hold = lambda write: False
        self.wire = deque(item for item in self.wire if index not in item[:2])
        for session in self.sessions:
            session.disconnected(index)
            self.take_client(session)

    def restart(self, index: int) -> Replica:
        if self.nodes[index].replica is not None:
            self.crash(index)
        return self.start(index)

    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.replica is not None and node.halted is None]

    def core(self, index: int) -> Replica:
        return self.nodes[index].core

    @property
    def primary(self) -> int | None:
        """The normal primary of the newest view, if there is one."""
        found = [node.core for node in self.running() if node.core.normal_primary]
        return max(found, key=lambda core: core.view).index if found else None

    # --- clients

    def client(self) -> Session:
        """A registered session."""
        session = self.join()
        self.until(lambda: session.core.ready)
        return session

    def join(self) -> Session:
        """A session that has just sent its register."""
        session = Session(self, len(self.sessions) + 1)
        self.sessions.append(session)
        for node in self.running():
            session.connected(node.index)
        self.take_client(session)
        return session

    def opened(self) -> Session:
        """A registered session; the group's room exists."""
        session = self.client()
        made = record.encode(
            room_id=ROOM,
            msg_id=b"creates the room",
            author_id=1,
            body=b"room",
            client_id=b"who makes rooms ",
            client_seq=1,
            kind=record.KIND_ROOM_CREATE,
        )
        session.core.request(env.OPERATION_APPEND, made, 1)
        self.take_client(session)
        self.until(lambda: session.core.ready)
        return session

    def put(self, session: Session, requests: int = 1, records: int = 1) -> None:
        """Requests of the session, one after the other, each answered."""
        for _ in range(requests):
            session.ask(records)
            self.settle()
            if not session.core.ready:
                self.until(lambda: session.core.ready)
            assert all(result[3] in (OK, DUPLICATE) for result in session.results())

    def fill(self, session: Session, op: int, records: int = 1) -> None:
        """Requests until the primary has committed `op`."""
        while max(self.committed, default=0) < op:
            self.put(session, 1, records)

    # --- the wire

    @contextmanager
    def losing(self, rule: Rule) -> Iterator[None]:
        """Within, messages for which `rule` holds are lost."""
        self.rules.append(rule)
        try:
            yield
        finally:
            self.rules.remove(rule)

    def cut(self, source: int, target: int) -> Rule:
        """Cut one direction of one link; `heal` gets what this returns."""
        return self.drop(lambda s, t, header: (s, t) == (source, target))

    def isolate(self, index: int) -> Rule:
        """Cut a replica off from the others and from all clients."""
        return self.drop(lambda s, t, header: index in (s, t))

    def drop(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def heal(self, *rules: Rule) -> None:
        """Undo some rules; all of them if none is named."""
        for rule in rules or list(self.rules):
            self.rules.remove(rule)

    def put_on_wire(self, source: int, target: int, message: Message) -> None:
        self.trace.append((source, target, message.header))
        if not any(rule(source, target, message.header) for rule in self.rules):
            self.wire.append((source, target, message))

    def sent(self, command: int, *, source: int | None = None, since: int = 0) -> list[Header]:
        """Headers of this command that were sent, lost ones too."""
        return [
            header
            for s, _, header in self.trace[since:]
            if header.command == command and source in (None, s)
        ]

    # --- time and order

    def times(self) -> tuple[int, int]:
        return (self.tick + 1) * TICK_US * 1000, START_US + self.tick * TICK_US

    def run(self, ticks: int) -> None:
        """Let time pass."""
        for _ in range(ticks):
            self.tell_time()
            self.settle()

    def tell_time(self) -> None:
        """One tick passes; what it leads to is not carried out yet."""
        self.tick += 1
        for node in self.running():
            monotonic_ns, realtime_us = self.times()
            idle, before = idle_ticks(node.core), len(node.core.effects)
            node.core.on_tick(monotonic_ns, realtime_us + node.clock_error_us)
            assert not idle or len(node.core.effects) == before, "it said that nothing was due"
            self.after(node)
        for session in self.sessions:
            session.core.on_tick()
            self.take_client(session)

    def until(self, condition: Callable[[], bool], ticks: int = 600) -> None:
        """Let time pass until `condition` holds."""
        self.settle()
        for _ in range(ticks):
            if condition():
                return
            self.run(1)
        raise AssertionError("it did not happen:\n" + self.report())

    def converged(self) -> bool:
        """All that run are normal in one view, hold one log, and have applied all of it."""
        cores = [node.core for node in self.running()]
        return (
            all(core.status == Status.NORMAL and core.state_ready for core in cores)
            and len({(core.view, core.op, core.commit_min) for core in cores}) == 1
            and all(
                core.commit_min == core.op
                and not core.journal.dirty_count
                and core.backfill is None
                and core.checkpointing is None
                for core in cores
            )
            and not any(node.disk.writes for node in self.running())
        )

    def settle(self) -> None:
        """Deliver and perform until nothing moves but what is held."""
        for _ in range(200_000):
            if not self.go_on():
                return
        raise AssertionError("it never settles:\n" + self.report())

    def go_on(self) -> bool:
        """Deliver or perform one thing; False when nothing moves but what is held."""
        if self.wire:
            self.deliver(*self.wire.popleft())
            return True
        return any(self.io(node) for node in self.running())

    def io(self, node: Node) -> bool:
        """Perform the oldest read or write of a node that is not held."""
        disk = node.disk
        if disk.reads:
            token, address, length = disk.reads.pop(0)
            node.core.on_read_done(token, disk.read(address, length))
            self.after(node)
            return True
        for write in disk.writes:
            if not node.hold(write):
                self.finish(node, write)
                return True
        return False

    def finish(self, node: Node, write: Write) -> None:
        """One write becomes durable."""
        node.disk.perform(write)
        node.core.on_write_done(write.token)
        self.after(node)

    def deliver(self, source: int, target: int, message: Message) -> None:
        if target < 0:
            session = self.sessions[-target - 1]
            session.core.on_message(message)
            self.take_client(session)
            return
        node = self.nodes[target]
        if node.replica is not None and node.halted is None:
            # who sent it is known by its connection
            node.replica.on_message(message, self.members[source] if source >= 0 else b"")
            self.after(node)

    def tell(self, target: int, message: Message) -> None:
        """A message that the test made itself; what follows from it stays on the wire."""
        self.deliver(message.sender, target, message)

    # --- effects

    def take_client(self, session: Session) -> None:
        effects, session.core.effects = session.core.effects, []
        for kind, *rest in effects:
            if kind == "send":
                replica_id, header, body = rest
                assert env.body_valid(header, body)
                target = self.members.index(replica_id)
                self.put_on_wire(-session.number, target, Message(header, bytes(body)))
            elif kind == "reply":
                session.replies.append((rest[1], bytes(rest[0])))
            elif kind == "evicted":
                session.evictions.append(rest[0])

    def after(self, node: Node) -> None:
        """What follows an event of a node: checks, then its effects."""
        core = node.core
        core.check()
        core.journal.check()
        self.watch_commits(node)
        effects, core.effects = core.effects, []
        for effect in effects:
            self.perform(node, effect)

    def perform(self, node: Node, effect: tuple[Any, ...]) -> None:
        kind = effect[0]
        if kind == fx.SEND:
            _, members, header, body, route = effect
            assert members and env.body_valid(header, body)
            self.watch_speech(node, header, bytes(body))
            for replica_id in members:
                if replica_id in self.members:  # else its machine is not made yet
                    message = Message(header, bytes(body), node.index, route)
                    self.put_on_wire(node.index, self.members.index(replica_id), message)
        elif kind == fx.SEND_CLIENT:
            self.to_client(node, *effect[1:])
        elif kind == fx.WRITE:
            node.disk.start_write(*effect[1:])
        elif kind == fx.READ:
            node.disk.start_read(*effect[1:])
        elif kind == fx.MARK:
            node.marks.append(effect[1])
        elif kind == fx.HALT:
            node.halted = effect[1:]

    def to_client(self, node: Node, client: bytes, header: Header, body: bytes) -> None:
        assert env.body_valid(header, body)
        if header.command == env.REPLY:
            assert header.op in self.committed, "an op is answered before it is committed"
        if header.command == env.EVICTION:
            assert node.disk.superblock().view >= header.view
        number = {session.client_id: session.number for session in self.sessions}.get(bytes(client))
        if number is None:
            self.trace.append((node.index, UNKNOWN, header))
        else:
            self.put_on_wire(node.index, -number, Message(header, body, node.index))

    # --- what no story may break

    def watch_commits(self, node: Node) -> None:
        core = node.core
        assert core.commit_min >= node.commit_seen or core.syncing
        for op in range(node.commit_seen + 1, core.commit_min + 1):
            header = core.journal.at(op)
            if header is None:
                continue  # skipped by a state sync
            assert self.committed.setdefault(op, header.digest) == header.digest, f"op {op} forked"
            if op - 1 in self.committed and op > 1:
                assert header.parent == self.committed[op - 1]
            known = core.prepares.get(op)
            if known is not None and known.header.digest == header.digest:
                request = bytes(ses.request_digest_of(known.body))
                assert self.committed_for.setdefault(request, op) == op, "a request applied twice"
        node.commit_seen = core.commit_min
        state = core.checkpoint
        if state is not None:
            known = self.checkpoints.setdefault(state.header.op, state.checkpoint_id)
            assert known == state.checkpoint_id, f"checkpoint {state.header.op} differs"

    def watch_speech(self, node: Node, header: Header, body: bytes) -> None:
        """Before anything leaves: is what it promises on the disk?"""
        command, core = header.command, node.core
        durable = node.disk.superblock()
        assert durable.incarnation == core.incarnation, "it speaks under a nonce it may use again"
        # where a test sets the status alone, the log is of the view that is to begin
        forced = command == env.DO_VIEW_CHANGE and header.aux == header.view
        assert forced or cmd.invalid(header) is None, f"{header} {cmd.invalid(header)}"
        if command in NEEDS_VIEW:
            assert durable.view >= header.view, f"{header} names a view that is not durable"
        if command in (env.PREPARE_OK, env.START_VIEW):
            assert durable.log_view >= header.view, f"{header} rests on a log_view in memory"
            committed = command == env.START_VIEW and header.op == header.commit_num
            assert committed or durable.log_view == header.view, f"{header} is of an older log"
        if command == env.DO_VIEW_CHANGE:
            assert header.aux == durable.log_view
            assert body == b"".join(h.raw for h in durable.view_headers)
        if command == env.PREPARE_OK:
            digest = cmd.PrepareOk.digest(header.area)
            assert node.disk.holds(header.op, digest), f"{header} is not durable"
        if command == env.PREPARE and header.view == core.view and core.is_primary:
            assert durable.log_view == header.view
        if command in (env.PING, env.PONG):
            assert header.view <= durable.view
        if command == env.PREPARE and body and header.view == core.view:
            self.prepared_for[ses.request_digest_of(body)] = header.op

    def check(self) -> None:
        """At the end of a story: every device got each record once, in order."""
        for node in self.running():
            core = node.core
            for op in range(max(1, core.checkpoint_op), core.commit_min + 1):
                header = core.journal.at(op)
                assert header is None or header.digest == self.committed[op]
        for session in self.sessions:
            seen = [
                result[0]
                for _, body in session.replies
                for result in RESULT_STRUCT.iter_unpack(body)
                if result[3] == OK and result[0]  # a record, no change of the group
            ]
            assert seen == sorted(set(seen))

    def report(self) -> str:
        lines = [f"tick {self.tick}, {len(self.wire)} on the wire"]
        for node in self.nodes:
            lines.append(
                f"{node.index}: " + (repr(report.state(node.core)) if node.replica else "down")
            )
            if node.replica is not None:
                drops = {k: v for k, v in node.core.counters.items() if k.startswith("dropped")}
                lines.append(f"   {drops} marks {node.marks[-12:]} writes {len(node.disk.writes)}")
        return "\n".join(lines)
