"""Views move by votes: whoever is the first to leave one has heard a quorum of fresh votes, and
each vote or list counts for the member that sent it.

A vote is a word of the moment. Votes that add up over minutes would end a view that everybody is
content with.
"""

from appliance.cores.vsr.member import TIMEOUT_TICKS
from appliance.cores.vsr.replica import Replica
from appliance.formats.envelope import Header
from appliance.simulation.failure import violated

NAME = "votes"
FRESH_TICKS = TIMEOUT_TICKS["svc_window"] + 5
# Reasons for the primary of a view to leave it by itself, by the marks they leave.
LEAVES = ("view_change_forfeited", "new_primary_cannot_hold_head", "end_epoch_steps_down")


class Votes:
    """The newest vote that each replica heard of each other, and the highest view of all."""

    def __init__(self, member_count: int) -> None:
        self._views: list[tuple[int, int]] = [(0, 0)] * member_count  # (epoch, view)
        self._highest = (0, 0)
        # (viewstamp, tick) of the newest vote, by the id of whoever sent it
        self._heard: list[dict[bytes, tuple[int, int]]] = [{} for _ in range(member_count)]
        # viewstamp of the newest list, likewise
        self._listed: list[dict[bytes, int]] = [{} for _ in range(member_count)]

    def on_start(self, index: int, replica: Replica) -> None:
        """A process begins; a primary that was restarted has left its view by that."""
        self._heard[index], self._listed[index] = {}, {}
        self._views[index] = (replica.epoch, replica.view)
        self._highest = max(self._highest, self._views[index])

    def on_vote(self, index: int, sender: bytes, header: Header, tick: int) -> None:
        """`index`, in its tick `tick`, hears a vote to leave `header.view`."""
        known = self._heard[index].get(sender, (0, 0))
        self._heard[index][sender] = max(known, (header.viewstamp, tick))

    def on_list(self, index: int, sender: bytes, header: Header) -> None:
        """`index` hears what the log of `sender` is."""
        known = self._listed[index]
        known[sender] = max(known.get(sender, 0), header.viewstamp)

    def _counted(self, index: int, replica: Replica) -> None:
        """Whoever counts as having spoken did speak."""
        now, members = replica.viewstamp, replica.members
        for member_index in range(replica.replica_count):
            if member_index == replica.index:
                continue
            if replica.svc_from >> member_index & 1:
                if self._heard[index].get(members[member_index], (-1, 0))[0] < now:
                    violated(
                        NAME, f"replica {index} counts a vote that {member_index} did not cast"
                    )
            listed = replica.dvcs and replica.dvcs[member_index] is not None
            if listed and self._listed[index].get(members[member_index], -1) < now:
                violated(NAME, f"replica {index} counts a list that {member_index} did not send")

    def on_step(self, index: int, replica: Replica) -> None:
        """Its view has grown, if it has."""
        if replica.svc_from or any(replica.dvcs):
            self._counted(index, replica)
        epoch, view = now = (replica.epoch, replica.view)
        before = self._views[index]
        if now == before:
            return
        self._views[index] = now
        if now <= self._highest:
            return
        self._highest = now
        if epoch != before[0] or replica.replica_count == 1:
            return
        if any(effect[1] in LEAVES for effect in replica.effects):
            return
        votes = 1 + sum(
            of == epoch << 32 | before[1] and replica.tick - tick <= FRESH_TICKS
            for of, tick in self._heard[index].values()
        )
        if view != before[1] + 1 or votes < replica.quorum_view_change:
            violated(
                NAME, f"replica {index} goes from view {before[1]} to {view} with {votes} votes"
            )
