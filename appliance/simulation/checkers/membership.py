"""Who belongs to the group: one history of configurations, the same for everybody."""

from appliance.cores.vsr.replica import Replica
from appliance.formats.group import Configuration
from appliance.simulation.failure import violated

NAME = "membership"


class Membership:
    """Configurations by the op that made them; `newest` is what anybody has applied last."""

    def __init__(self) -> None:
        self.newest: Configuration | None = None  # nobody has started yet
        self._by_op: dict[int, Configuration] = {}

    def on_step(self, index: int, replica: Replica) -> None:
        """A replica may have applied a change."""
        agreed = replica.agreed
        if self.newest is None:
            self.newest = agreed  # as format made it
        if agreed.op == 0 or agreed == self.newest:
            return  # of a checkpoint, whose op nobody has kept; or known
        known = self._by_op.setdefault(agreed.op, agreed)
        if known != agreed:
            violated(NAME, f"replica {index} has other members since op {agreed.op} than others")
        if agreed.op > self.newest.op:
            if agreed.epoch not in (self.newest.epoch, self.newest.epoch + 1):
                violated(
                    NAME, f"replica {index} goes from epoch {self.newest.epoch} to {agreed.epoch}"
                )
            self.newest = agreed

    def voters(self) -> tuple[bytes, ...]:
        """Ids of those who vote, by the newest configuration."""
        assert self.newest is not None
        return self.newest.members[: self.newest.replica_count]

    def members(self) -> tuple[bytes, ...]:
        """Ids of all who belong to the group, by the newest configuration."""
        assert self.newest is not None
        return self.newest.members
