"""A group of the simulator's replicas whose time, disks and links a test moves by hand.

Everything is deterministic and in memory. `settle` delivers messages and performs I/O until nothing
moves; time passes only by `run`. A test may hold writes back, cut links, crash, corrupt, restart.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.vsr import report
from appliance.cores.vsr.idle import idle_ticks
from appliance.cores.vsr.replica import Replica
from appliance.formats import envelope as env
from appliance.formats import record
from appliance.formats.envelope import Message
from appliance.formats.geometry import SMALL, Geometry
from appliance.formats.session import DUPLICATE, OK, RESULT_STRUCT
from appliance.simulation import liveness
from appliance.simulation.options import SWARM, Options
from appliance.simulation.schedule import TICK_US
from tests.cores.vsr.disk import Write
from tests.cores.vsr.eyes import Eyes
from tests.cores.vsr.links import Links, Rule
from tests.cores.vsr.machines import CLUSTER, SHARD, START_US, Machines, Node
from tests.cores.vsr.session import Session, device

__all__ = ["CLUSTER", "SHARD", "START_US", "TINY", "Group", "Node", "Rule", "Session", "dropped"]

TINY = replace(SMALL, slot_count=20, checkpoint_ops=8, segment_records=20)


def dropped(core: Replica, reason: str) -> int:
    """How often a member dropped something for the reason, whatever words follow it."""
    name = f"dropped_{reason}"
    counts = core.counters.items()
    return sum(count for counted, count in counts if counted.partition(":")[0] == name)


class Group(Links):
    """`replica_count` replicas and `standby_count` standbys of one shard, formatted and started."""

    eyes_of = Eyes

    def __init__(
        self,
        replica_count: int = 3,
        *,
        standby_count: int = 0,
        seed: int = 1,
        view: int = 0,
        geometry: Geometry = SMALL,
        segments_max: int = 8,
        start: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.replica_count, self.geometry, self.segments_max = replica_count, geometry, segments_max
        self.prng = Prng(seed)
        self.acquainted = start is not None  # the test speaks for those that do not run
        self.sessions: list[Session] = []
        self.eyes = self.eyes_of()
        self.committed, self.checkpoints = self.eyes.committed, self.eyes.checkpoints
        options = Options(
            seed=seed,
            mode=SWARM,
            replica_count=replica_count,
            standby_count=standby_count,
            segments_max=segments_max,
            view_first=view,
        )
        self.cluster = Machines(options, geometry, self, self.eyes, self._process)
        self.cluster.on_life = self.on_life
        self.nodes: list[Node] = self.cluster.machines  # those that come later are appended
        self.members = self.cluster.members
        self.members_first = tuple(self.members)  # in the order of the format
        for index in range(len(self.nodes)) if start is None else start:
            self.start(index)

    # --- processes

    def _process(self, **arguments: Any) -> Replica:
        """What is made of a machine's volume."""
        arguments |= {"prng": self.prng.fork(), "state_machine": arguments["state_machine"]._rooms}
        core = Replica(**arguments)
        if self.acquainted:
            core.introduced = set(self.members)
        return core

    def format(self, index: int, *, incarnation: int = 0, **fields: Any) -> None:
        """An empty volume on a new disk of a machine, as the group began or as `fields` say."""
        if self.nodes[index].replica is not None:
            self.crash(index)
        self.nodes[index].disk.lose()
        self.cluster.life_first = incarnation
        self.cluster.format(self.nodes[index], **{"view": 0} | fields)

    def add(self, replica_id: bytes, **fields: Any) -> int:
        """A machine more, with an empty volume; its number."""
        index = len(self.nodes)
        self.members.append(replica_id)
        self.nodes.append(self.cluster._machine(index))
        self.format(index, **fields)
        return index

    def start(self, index: int) -> Replica:
        """Start the process of a machine; `settle` lets it speak."""
        self.cluster.start(index)
        return self.core(index)

    def crash(self, index: int, keep: Callable[[Write], list[int]] = lambda write: []) -> None:
        """Kill -9; of its writes in flight the sectors that `keep` names make it to the disk."""
        node = self.nodes[index]
        node.disk.keep(keep)
        node.hold = lambda write: False
        self.wire = deque(item for item in self.wire if index not in item[:2])
        self.cluster.crash(index)

    def restart(self, index: int) -> Replica:
        if self.nodes[index].replica is not None:
            self.crash(index)
        return self.start(index)

    def on_life(self, index: int, up: bool) -> None:
        for session in self.sessions:
            session.connection(index, up)

    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.running]

    def core(self, index: int) -> Replica:
        return self.nodes[index].core

    @property
    def primary(self) -> int | None:
        """The normal primary of the newest view, if there is one."""
        found = [node for node in self.running() if node.core.normal_primary]
        return max(found, key=lambda node: node.core.view).index if found else None

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
            session.connection(node.index, True)
        return session

    def opened(self) -> Session:
        """A registered session; the group's room exists."""
        session = self.client()
        made = device(0, b"who makes rooms ", record.KIND_ROOM_CREATE).record(1)
        session.core.request(env.OPERATION_APPEND, made, 1)
        session.take()
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

    # --- time and order

    @property
    def tick(self) -> int:
        return self.cluster.schedule.now_us // TICK_US

    @tick.setter
    def tick(self, tick: int) -> None:
        self.cluster.schedule.now_us = tick * TICK_US

    @property
    def now_us(self) -> int:
        """What a wall clock shows that is right."""
        return START_US + self.cluster.schedule.now_us

    def times(self, index: int) -> tuple[int, int]:
        """What the clocks of a machine show: (monotonic ns, wall us)."""
        return self.cluster._times(self.nodes[index])

    def run(self, ticks: int) -> None:
        """Let time pass."""
        for _ in range(ticks):
            self.tell_time()
            self.settle()

    def tell_time(self) -> None:
        """One tick passes; what it leads to is not carried out yet."""
        self.tick += 1
        for node in self.running():
            idle, before = idle_ticks(node.core), len(node.core.effects)
            node.core.on_tick(*self.times(node.index))
            assert not idle or len(node.core.effects) == before, "it said that nothing was due"
            if node.core.effects:  # else nothing has happened
                self.after(node)
        for session in self.sessions:
            session.core.on_tick()
            session.take()

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
        nodes = self.running()
        busy = any(node.core.checkpointing or node.disk.writes for node in nodes)
        return not busy and not liveness.difference(nodes)

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
        if node.disk.reads:
            node.disk.perform_read()
            return True
        for write in node.disk.in_order():
            if not node.hold(write):
                node.disk.perform(write)
                return True
        return False

    def finish(self, node: Node, write: Write) -> None:
        """One write becomes durable."""
        node.disk.perform(write)

    def deliver(self, source: int, target: int, message: Message) -> None:
        """Who sent it is known by its connection."""
        if target >= 0:
            self.cluster.deliver(target, source, message)
        elif -target <= len(self.sessions):  # else a client that the test plays itself
            session = self.sessions[-target - 1]
            session.core.on_message(message)
            session.take()

    def tell(self, target: int, message: Message) -> None:
        """A message that the test made itself; what follows from it stays on the wire."""
        self.deliver(message.sender, target, message)

    def after(self, node: Node) -> None:
        """What follows an event of a node: checks, then its effects."""
        self.cluster._settle(node)

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
        """How all stand, and what happened last."""
        lines = [f"tick {self.tick}, {len(self.wire)} on the wire"]
        for node in self.nodes:
            state = repr(report.state(node.core)) if node.replica else "down"
            lines.append(f"{node.index}: {state}, {len(node.disk.writes)} writes")
        return "\n".join([*lines, *self.cluster.trace.last()])
