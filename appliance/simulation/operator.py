"""The operator's node, the last of the network: where somebody sits who mends and changes a group.

What is to be done is a task; it opens a session when it needs one and is told what the group
answers, as any client is.
"""

from typing import Protocol

from appliance.base.prng import Prng
from appliance.formats.envelope import Header
from appliance.formats.geometry import Geometry
from appliance.simulation.cluster import Cluster
from appliance.simulation.network import Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Session, Sessions
from appliance.simulation.trace import Trace


class Task(Protocol):
    """Something that an operator does with a session."""

    def registered(self, session: Session) -> None:
        """The group knows the session, for the first time or anew."""

    def answered(self, session: Session, results: bytes, header: Header) -> None:
        """The group has answered what was asked last."""


class Operator:
    """Sessions of tasks; time passes here only while one is open."""

    def __init__(
        self,
        *,
        options: Options,
        geometry: Geometry,
        cluster: bytes,
        shard: int,
        schedule: Schedule,
        network: Network,
        machines: Cluster,
        prng: Prng,
        trace: Trace,
    ) -> None:
        self.schedule, self.machines = schedule, machines
        self.without_disk: set[int] = set()  # machines that must not be started
        self._edge = options.edge_count
        self._ticking = False
        self.sessions = Sessions(
            options=options,
            geometry=geometry,
            cluster=cluster,
            shard=shard,
            schedule=schedule,
            network=network,
            prng=prng,
            trace=trace,
            edges=range(self._edge, self._edge + 1),
            members=machines.members,
        )
        self.sessions.on_reply = lambda session, results, header: session.load.answered(
            session, results, header
        )
        self.sessions.on_registered = lambda session: session.load.registered(session)
        self.sessions.on_evicted = lambda session: None  # it registers anew by itself

    def open(self, task: Task) -> Session:
        """A session for a task, until `close`."""
        session = self.sessions.open(self._edge, task)
        if not self._ticking:
            self._ticking = True
            self.schedule.after(TICK_US, self._tick)
        return session

    def close(self, session: Session) -> None:
        """The task is done with it."""
        self.sessions.close(session)

    def ask(self, session: Session, operation: int, body: bytes) -> None:
        """Send a request; `answered` follows."""
        self.sessions.request(session, operation, body, 0)

    def take_disk(self, index: int) -> None:
        """A machine whose process is gone has lost its disk; it stays down until it has another."""
        machine = self.machines.machines[index]
        assert machine.replica is None
        machine.disk.lose()
        self.without_disk.add(index)

    def _tick(self) -> None:
        self._ticking = bool(self.sessions.all)
        if self._ticking:
            self.sessions.tick()
            self.schedule.after(TICK_US, self._tick)
