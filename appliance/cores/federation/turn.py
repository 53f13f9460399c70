"""Whose turn it is to carry the shared rooms of a shard, as one of its nodes sees it.

The primary's: what it appends reaches the log by the shortest way. Where a farm runs, that of the
node which the farm has chosen for the shard, as long as the primary hears the replica there. Each
node goes by what its own replica tells, so for a while two may think it is theirs, or nobody: the
claim in the log decides, and whom a newer claim has ended waits before it claims again.
"""

from collections.abc import Mapping

from appliance.formats.site import Shard
from appliance.formats.status.replica import ReplicaStatus

NOBODY = -1
SILENT_MS_MAX = 3_000  # since the primary last heard the chosen node's replica
PATIENCE_MS = 10_000  # for a chosen node that does not claim, and before one claims again


class Turn:
    """`chosen`: the node that the farm names, or NOBODY; whoever reads its directory tells.

    `nodes` are the shard's, as the newest site file describes them, by the id of their replica in
    hexadecimal digits. Times are of a clock that only goes forward, in milliseconds.
    """

    def __init__(self, own: int, nodes: Mapping[str, int]) -> None:
        self.chosen = NOBODY
        self._own, self.nodes = own, nodes
        self._lost_ms: int | None = None  # when a newer claim ended ours
        self._waits_ms: int | None = None  # since when the chosen node is to claim, and has not

    def is_ours(self, status: ReplicaStatus, generation: int, now_ms: int) -> bool:
        """Whether this node is to carry, or to go on; `generation` of its claim, 0 for none."""
        carrying = status.carrying
        if carrying.generation > generation > 0:
            self._lost_ms = now_ms
            return False
        if not status.serves:
            return False
        is_primary = status.is_serving_primary
        slot = self._slot(status)
        heeds = carrying.generation > 0 and carrying.node == self.chosen
        if slot is None or heeds or not is_primary or self._waits_ms is None:
            self._waits_ms = now_ms
        if slot is None:
            return is_primary
        if generation > 0:
            return True  # until the claim of the other one, so that somebody always carries
        if self.chosen == self._own:
            return is_primary or self._lost_ms is None or now_ms - self._lost_ms >= PATIENCE_MS
        if not is_primary:
            return False
        silent_ms = status.peers[slot].silent_ticks * status.tick_ms
        return silent_ms > SILENT_MS_MAX or now_ms - self._waits_ms >= PATIENCE_MS

    def _slot(self, status: ReplicaStatus) -> int | None:
        """Where the chosen node's replica stands among those that vote; None: it does not."""
        voters = status.members[: status.replica_count]
        found = [slot for slot, name in enumerate(voters) if self.nodes.get(name) == self.chosen]
        return found[0] if found else None


def nodes_of(shard: Shard) -> dict[str, int]:
    """By the ids of their replicas, as a status has them."""
    ids = (replica_id.hex() for replica_id in shard.replica_ids)
    return dict(zip(ids, shard.members, strict=True))
