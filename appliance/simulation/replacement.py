"""A disk is lost, and somebody puts a new one in: what `docs/operations.md` says, as an operator
would do it.

A replica must not come back under its old name and remember nothing. So as many operations as a
pipeline holds are committed first, as a client would: whatever the old volume had acknowledged is
then known to others as committed. The new volume is formatted two views above what the group has
reached, where the old one cannot have voted.
"""

from collections.abc import Callable
from functools import partial

from appliance.cores.vsr.status import Status
from appliance.formats.envelope import OPERATION_NOOP, Header
from appliance.formats.geometry import Geometry
from appliance.simulation.cluster import Cluster
from appliance.simulation.operator import Operator
from appliance.simulation.sessions import Session

VIEWS_ABOVE = 2


class Replacement:
    """A task of the operator. At most one machine waits for its disk.

    A process that still runs holds its identity: nobody gets a volume beside it. Else what it
    acknowledges until it ends would be in no volume that is started next.
    """

    def __init__(self, *, geometry: Geometry, machines: Cluster, operator: Operator) -> None:
        self.geometry, self.machines, self.operator = geometry, machines, operator
        self.ever = False
        self._waiting = -1  # the machine without a disk
        self._committed = 0
        self._committed_op = 0  # the newest one that others held when it got it
        self._replaced = -1  # the machine that got a disk last
        self.beside: dict[int, Callable[[], None]] = {}  # what makes a volume that waits

    @property
    def idle(self) -> bool:
        """Nobody waits for a disk, and whoever got the last one holds all that it should."""
        if self._waiting >= 0 or self._replaced < 0:
            return self._waiting < 0
        replica = self.machines.machines[self._replaced].replica
        return (
            replica is not None
            and replica.status == Status.NORMAL
            and replica.state_ready
            and replica.backfill is None
            and replica.commit_min >= self._committed_op
            and not replica.journal.dirty_count
        )

    def begin(self, index: int) -> None:
        """The disk of a machine whose process is gone is lost now."""
        self.operator.take_disk(index)
        self._open(index)

    def refuses(self, index: int) -> bool:
        """Whether `recover` goes no further, since a process works under this identity."""
        return self.machines.machines[index].replica is not None

    def recover_moved(self, index: int) -> bool:
        """The volume of a machine was moved away; False: nothing was done about it, since its
        process works on.
        """
        if self.refuses(index):
            return False
        self._open(index)
        return True

    def _open(self, index: int) -> None:
        assert self._waiting < 0
        self._waiting, self._committed, self.ever = index, 0, True
        self.operator.open(self)

    def registered(self, session: Session) -> None:
        """Commit one operation more, which changes nothing."""
        self._committed += 1
        self.operator.ask(session, OPERATION_NOOP, b"")

    def answered(self, session: Session, results: bytes, header: Header) -> None:
        """One operation is committed: when there are enough, the new disk is formatted."""
        if self._committed < self.geometry.pipeline_max or session.core.configuration is None:
            self.registered(session)  # or nobody has told the group yet: its pongs were lost
            return
        index, self._waiting = self._waiting, -1
        machine, group = self.machines.machines[index], session.core.configuration
        self.operator.close(session)
        assert group is not None
        member_id = self.machines.members[index]
        if member_id not in group.members:
            return  # it was removed meanwhile: who adds it again makes its volume
        self._replaced, self._committed_op = index, header.op
        votes = group.members.index(member_id) < group.replica_count
        reached = max(session.core.view, header.view if header.epoch == group.epoch else 0)
        view = reached + VIEWS_ABOVE if votes else 0
        make = partial(self.machines.format, machine, log_view=0, view=view, configuration=group)
        if machine.replica is not None:
            self.beside[index] = make  # and its process works on, in the folder that was moved
            return
        make()
        self.operator.without_disk.remove(index)
        self.machines.start(index)
