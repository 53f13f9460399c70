"""A disk is lost, and somebody puts a new one in: what `docs/operations.md` says, as an operator
would do it.

A replica must not come back under its old name and remember nothing. So as many operations as a
pipeline holds are committed first, as a client would: whatever the old volume had acknowledged is
then known to others as committed. The new volume is formatted two views above what the group has
reached, where the old one cannot have voted.
"""

from appliance.base.prng import Prng
from appliance.formats.envelope import OPERATION_NOOP, Header
from appliance.formats.geometry import Geometry
from appliance.simulation.cluster import Cluster
from appliance.simulation.network import Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Session, Sessions
from appliance.simulation.trace import Trace

VIEWS_ABOVE = 2


class Replacement:
    """The operator's node: the last of the network. At most one machine waits for its disk."""

    def __init__(self, *, options: Options, geometry: Geometry, cluster: bytes, shard: int,
                 schedule: Schedule, network: Network, machines: Cluster, prng: Prng,
                 trace: Trace) -> None:
        self.geometry, self.schedule, self.machines = geometry, schedule, machines
        edge = options.edge_count
        self.sessions = Sessions(
            options=options, geometry=geometry, cluster=cluster, shard=shard, schedule=schedule,
            network=network, prng=prng, trace=trace, edges=range(edge, edge + 1),
            members=machines.members)
        self.sessions.on_reply = self._answered
        self.sessions.on_registered = self._again
        self.sessions.on_evicted = lambda session: None       # it registers anew by itself
        self.edge = edge
        self.waiting = -1                 # the machine without a disk
        self.committed = 0
        self.ever = False

    def begin(self, index: int) -> None:
        """The disk of a machine whose process is gone is lost now."""
        assert self.waiting < 0 and self.machines.machines[index].replica is None
        self.machines.machines[index].disk.lose()
        self.waiting, self.committed, self.ever = index, 0, True
        self.sessions.open(self.edge, None)
        self.schedule.after(TICK_US, self._tick)

    def _tick(self) -> None:
        if self.waiting >= 0:
            self.sessions.tick()
            self.schedule.after(TICK_US, self._tick)

    def _again(self, session: Session) -> None:
        """Commit one operation more, which changes nothing."""
        self.committed += 1
        session.core.request(OPERATION_NOOP, b"", 0)
        self.sessions.settle(session)

    def _answered(self, session: Session, results: bytes, header: Header) -> None:
        if self.committed < self.geometry.pipeline_max:
            self._again(session)
            return
        index, self.waiting = self.waiting, -1
        self.machines.format(self.machines.machines[index], log_view=0,
                             view=max(session.core.view, header.view) + VIEWS_ABOVE)
        self.sessions.close(session)
        self.machines.start(index)
