"""What an operator's act would cost: who serves now, and what is left without a node or a process.

Each rule gives one sentence that names what is missing and what to do, or nothing: then it allows
the act. Whoever an operator has told to stop counts as gone from that moment on, though it may
still serve: two acts in quick succession do not both take the same replica for a spare one.
"""

from appliance.cores.console.alarm import node_name
from appliance.cores.console.cells import count
from appliance.cores.console.figures import LAG_OPS_MAX, Process
from appliance.cores.console.model import Member, ShardLine, SiteSnapshot

EDGE, REPLICA = "edge-", "replica-"  # how the names of these processes begin
NONE = -1
LEVEL_FIRST = "wait until `tigerchat status` shows it level"


def replica_shard(process: str) -> int:
    """The shard of which a process of this name is a replica; NONE: it is no replica."""
    number = process.removeprefix(REPLICA)
    return int(number) if number != process and number.isdecimal() else NONE


def votes(member: Member) -> bool:
    return not member.standby and not member.removed


def stays(member: Member) -> bool:
    """Serves, and nobody has told it to stop."""
    return member.normal and (member.process is None or member.process.wanted)


def is_unsettled(snapshot: SiteSnapshot) -> bool:
    """Whether a replica that should serve does not, as far as it is kept here: it begins, or its
    group is about to choose who leads. What is refused now may be allowed in a moment."""
    return any(
        votes(m) and not m.normal and m.process is not None and m.process.wanted
        for shard in snapshot.shards
        for m in shard.members
    )


def left_without(shard: ShardLine, node: int) -> int:
    """How many replicas serve besides that of a node."""
    return sum(votes(m) and stays(m) and m.node != node for m in shard.members)


def short_of(shard: ShardLine, node: int) -> int | None:
    """How many replicas serve besides that of a node, if the shard would lack its quorum without
    that one; else None."""
    if not any(m.node == node and votes(m) for m in shard.members):
        return None
    left = left_without(shard, node)
    return left if left < shard.quorum else None


def loss(snapshot: SiteSnapshot, node: int, shard: int | None = None) -> str:
    """Why a node's replicas, or that of one shard, cannot be missed."""
    for line in snapshot.shards:
        left = short_of(line, node) if shard in (None, line.number) else None
        if left is not None:
            return _missed(snapshot, node, line, left)
    return ""


def loss_by_others(snapshot: SiteSnapshot, node: int, shard: int) -> str:
    """Why a replica that was just told to stop is missed: others were told so, too. How those serve
    that stay is no matter, as they may be about to choose who leads."""
    line = snapshot.shards[shard]
    left = sum(
        votes(m) and m.node != node and (m.process is None or m.process.wanted)
        for m in line.members
    )  # fmt: skip
    voted = any(m.node == node and votes(m) for m in line.members)
    return _missed(snapshot, node, line, left) if voted and left < line.quorum else ""


def _missed(snapshot: SiteSnapshot, node: int, shard: ShardLine, left: int) -> str:
    return (
        f"without {node_name(snapshot, node)} shard {shard.number} has {left} of {shard.quorum} "
        "needed replicas: nothing could be acknowledged; bring the others up first "
        "(`tigerchat status`)"
    )


def is_known(shard: ShardLine) -> bool:
    """Whether a replica of it answers here; else only the group itself can say how it is."""
    return any(member.own is not None for member in shard.members)


def lacks_quorum(shard: ShardLine) -> str:
    """Why nothing can be committed in it now, as far as is known here."""
    if not is_known(shard):
        return ""
    serving = sum(votes(member) and stays(member) for member in shard.members)
    if serving >= shard.quorum:
        return ""
    return (
        f"shard {shard.number} has {serving} of {shard.quorum} needed replicas: no change of its "
        "members can be committed; bring replicas back first (`tigerchat status`)"
    )


def behind(snapshot: SiteSnapshot, shard: ShardLine, member: Member) -> str:
    """Why a member cannot take over a duty in its shard, as far as is known here."""
    if not is_known(shard):
        return ""
    name = f"{node_name(snapshot, member.node)} in shard {shard.number}"
    if not stays(member):
        return f"{name} does not serve: bring it up first (`tigerchat status`)"
    lag = shard.lag(member)
    if lag is None or (member.own is not None and member.own.syncing):
        return f"{name} does not have the whole state yet: {LEVEL_FIRST}"
    if lag > LAG_OPS_MAX:
        return f"{name} lags by {count(lag)} operations: {LEVEL_FIRST}"
    return ""


# --- edges and the farm


def processes(snapshot: SiteSnapshot, node: int, begin: str = "") -> list[tuple[str, Process]]:
    """Those that a node's supervisor keeps, whose names begin so."""
    kept = ((at, name, process) for at, name, process in snapshot.processes if at == node)
    return [(name, process) for _, name, process in kept if name.startswith(begin)]


def clients(snapshot: SiteSnapshot, node: int, process: str = "") -> int | None:
    """Chat clients that are connected to a node, or to one edge of it; None: no edge serves."""
    own = [
        edge.own.connections
        for edge in snapshot.edges
        if edge.node == node and edge.own is not None and process in ("", f"{EDGE}{edge.number}")
    ]
    return sum(own) if own else None


def last_edge(snapshot: SiteSnapshot, node: int, process: str = "") -> str:
    """Why the edges of a node, or one of them, cannot be missed."""
    if clients(snapshot, node, process) is None:
        return ""  # it serves nobody as it is
    for edge in snapshot.edges:
        stopped = edge.process is not None and not edge.process.wanted
        same = edge.node == node and process in ("", f"{EDGE}{edge.number}")
        if edge.own is not None and not stopped and not edge.removed and not same:
            return ""
    elsewhere = {m.node for shard in snapshot.shards for m in shard.members if stays(m)}
    if elsewhere - snapshot.here:
        return ""
    what = f"{process} of {node_name(snapshot, node)}" if process else node_name(snapshot, node)
    return (
        f"without {what} no edge that serves is left: chat clients would have nowhere to go; "
        "bring another node up first (`tigerchat status`)"
    )


def farm_loss(snapshot: SiteSnapshot, node: int) -> str:
    """Why a node's member of the farm cannot be missed."""
    farm = snapshot.farm
    if farm is None:
        return ""  # it can do nothing as it is
    indexes = {one.farm_id: one.index for one in snapshot.site.nodes}
    members = [indexes.get(member.id) for member in farm.members]
    if node not in members:
        return ""
    silent = {
        at for at, name, kept in snapshot.processes
        if name == "farm" and not (kept.wanted and kept.answers)
    }  # fmt: skip
    left = sum(at != node and at not in silent for at in members)
    needed = len(members) // 2 + 1
    if left >= needed:
        return ""
    return (
        f"without {node_name(snapshot, node)} the farm has {left} of {needed} needed members: "
        "nobody would sign its directory; bring the others up first (`tigerchat farm status`)"
    )


def in_mid_file(snapshot: SiteSnapshot, node: int) -> str:
    """Why a node's shipper is to be left alone for now."""
    for shipper in snapshot.shippers:
        if shipper.node == node and shipper.doing:
            return (
                f"the shipper of {node_name(snapshot, node)} is at work in shard {shipper.shard} "
                f"({shipper.doing}): wait until it has done so (`tigerchat ship status`)"
            )
    return ""
