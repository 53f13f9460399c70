"""Whether an edge may read from the replica of its node: whether there is one, and what that says
of itself."""

from appliance.base.limits import REPLICA_BEHIND_OPS
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.site import Shard
from appliance.formats.site_view import Standing
from appliance.formats.status.replica import NORMAL, VIEW_CHANGE, LogStanding, ReplicaStatus


def why_behind(status: ReplicaStatus | LogStanding) -> str:
    """Why a replica's tables may lack what the shard has stored, unknown to those who read from
    them; empty when they do not, and when everybody is told that they may: one that waits for a
    quorum that is gone serves the past, whatever it was about when it lost it."""
    cut_off = status.status == VIEW_CHANGE and status.stale_ms
    if status.status != NORMAL and not cut_off:
        return status.status
    if not status.state_ready:
        return "fetching its state"
    missing = status.commit_max - status.commit_min
    return f"{missing} ops behind" if missing > REPLICA_BEHIND_OPS else ""


def is_outside(node: NodeFolder, shard: Shard) -> bool:
    """Whether this node holds no replica of a shard, as the group says, or the site file where no
    member has told yet."""
    position = shard.replica_index(node.settings.index)
    if position is None or node.has_left(shard.number):
        return True
    return node.view.groups[shard.number].standing(position) is Standing.OUTSIDE
