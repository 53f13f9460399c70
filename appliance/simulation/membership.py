"""Members come, go and change places while clients write: what an operator does with
`tigerchat member`.

A change is drawn when its moment has come, from what the group has agreed on by then: a new order
of those who vote, a standby in the place of a replica, a standby less, or one that was removed come
back with an empty disk. It is asked for until the group has answered; a group that is not ready for
it yet is asked again.
"""

from collections.abc import Callable

from appliance.base.prng import Prng
from appliance.formats.envelope import OPERATION_MEMBER_CHANGE, OPERATION_RECONFIGURE, Header
from appliance.formats.group import Configuration
from appliance.formats.membership import (
    KIND_ADD,
    KIND_REMOVE,
    MemberChange,
    Reconfigure,
    Verdict,
    decode_change_result,
    encode_change,
    encode_reconfigure,
)
from appliance.simulation.cluster import Cluster
from appliance.simulation.delay import ticks_around
from appliance.simulation.failure import violated
from appliance.simulation.operator import Operator
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Session

PAUSE_TICKS_MEANS = (50, 500, 2_000)  # between two changes, and before the first
AGAIN_TICKS = 100  # between two questions to a group that is not ready
TRIES_MAX = 20
NOT_YET = (Verdict.STANDBY_NOT_READY, Verdict.IN_PROGRESS)
DONE = (Verdict.OK, Verdict.ALREADY_APPLIED)

Change = Reconfigure | MemberChange


class MemberChanges:
    """A task of the operator: one change after the other."""

    def __init__(
        self,
        *,
        options: Options,
        schedule: Schedule,
        machines: Cluster,
        operator: Operator,
        prng: Prng,
    ) -> None:
        self.schedule, self.machines, self.operator, self.prng = (
            schedule,
            machines,
            operator,
            prng,
        )
        self.active = True  # whether a further change may begin
        self.done: dict[str, int] = {}  # changes that the group took, by kind
        self._coming = -1  # the machine that gets a disk when it is added again
        self._wanted: tuple[str, Change] | None = None
        self._tries = 0
        self._left = options.member_changes

    def begin(self) -> None:
        """Draw the moment of the first change."""
        if self._left:
            self._next()

    def waiting(self) -> str:
        """What the operator still waits for, in words."""
        return "" if self._wanted is None else f"the operator waits for {self._wanted[0]}"

    def _next(self) -> None:
        pause = ticks_around(self.prng, self.prng.choice(PAUSE_TICKS_MEANS))
        self.schedule.after(pause * TICK_US, self._begin)

    def _begin(self) -> None:
        if not self.active:
            return
        agreed = self.machines.checkers.membership.newest
        assert agreed is not None
        self._wanted, self._tries = self._draw(agreed), 0
        if self._wanted is None:
            return
        self._left -= 1
        self.operator.open(self)

    # --- what is asked for

    def _draw(self, agreed: Configuration) -> tuple[str, Change] | None:
        """A change that makes sense now; None: there is none."""
        gone = [i for i, member in enumerate(self.machines.members) if member not in agreed.members]
        kinds: list[Callable[[Configuration], tuple[str, Change]]] = []
        if agreed.replica_count > 1:
            kinds.append(self._order)
        if agreed.standby_count:
            kinds += [self._promote, self._promote, self._remove, self._remove]
        if gone:
            kinds += [lambda now: self._add(now, gone[0])] * 3
        return self.prng.choice(kinds)(agreed) if kinds else None

    def _order(self, agreed: Configuration) -> tuple[str, Change]:
        """The same replicas, numbered anew."""
        voters = list(agreed.members[: agreed.replica_count])
        while tuple(voters) == agreed.members[: agreed.replica_count]:
            self.prng.shuffle(voters)
        members = (*voters, *agreed.members[agreed.replica_count :])
        return "members_reordered", Reconfigure(agreed.epoch + 1, agreed.replica_count, members)

    def _promote(self, agreed: Configuration) -> tuple[str, Change]:
        """A standby and a replica change places."""
        members = list(agreed.members)
        old = self.prng.below(agreed.replica_count)
        new = agreed.replica_count + self.prng.below(agreed.standby_count)
        members[old], members[new] = members[new], members[old]
        return "standby_promoted", Reconfigure(
            agreed.epoch + 1, agreed.replica_count, tuple(members)
        )

    def _remove(self, agreed: Configuration) -> tuple[str, Change]:
        standby = self.prng.choice(agreed.members[agreed.replica_count :])
        return "member_removed", MemberChange(agreed.epoch, KIND_REMOVE, standby)

    def _add(self, agreed: Configuration, index: int) -> tuple[str, Change]:
        """A machine that was removed is stopped, and gets an empty disk."""
        if self.machines.machines[index].replica is not None:
            self.machines.crash(index)
        self.operator.take_disk(index)
        self._coming = index
        return "member_added", MemberChange(agreed.epoch, KIND_ADD, self.machines.members[index])

    # --- asking

    def registered(self, session: Session) -> None:
        """The session is there: what was asked before it may have come through all the same."""
        assert self._wanted is not None
        _, change = self._wanted
        if isinstance(change, Reconfigure):
            self.operator.ask(session, OPERATION_RECONFIGURE, encode_reconfigure(change))
        else:
            self.operator.ask(session, OPERATION_MEMBER_CHANGE, encode_change(change))

    def answered(self, session: Session, results: bytes, header: Header) -> None:
        """The change is made, or refused, or cannot be made yet."""
        assert self._wanted is not None
        what, _ = self._wanted
        verdict = decode_change_result(results)
        if verdict in NOT_YET and self._tries < TRIES_MAX:
            self._tries += 1
            self.schedule.after(AGAIN_TICKS * TICK_US, self._ask_again, session)
            return
        if verdict not in (*DONE, *NOT_YET):
            violated("membership", f"{what} is answered {verdict.name} at op {header.op}")
        self._wanted = None
        self.operator.close(session)
        if verdict in DONE:
            self.done[what] = self.done.get(what, 0) + 1
        if self._coming >= 0 and verdict in DONE:
            self._join()
        if self.active and self._left:
            self._next()

    def _ask_again(self, session: Session) -> None:
        if session in self.operator.sessions.all and session.core.ready:
            self.registered(session)

    def _join(self) -> None:
        """The group has taken the machine in: make its volume as the group is now."""
        index, self._coming = self._coming, -1
        agreed = self.machines.checkers.membership.newest
        assert agreed is not None and self.machines.members[index] in agreed.members
        self.machines.format(self.machines.machines[index], view=0, configuration=agreed)
        self.operator.without_disk.remove(index)
        self.machines.start(index)
