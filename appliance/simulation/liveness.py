"""Has the healed core converged, and if not, has it an excuse?

Converged: every replica of the core is normal in one view, has committed and holds clean all that
any of them holds, stands on the same checkpoint, lacks no chunk, and every session has its answer.

Excused only when the protocol cannot do better: too many replicas cannot name their head; or
something that must be read has no intact copy in the core. The atlas keeps a copy of every prepare;
of a chunk it cannot, since fewer than a quorum may hold a checkpoint to which the others have just
synced. Else a whole group has no excuse, except for its heads: in a world whose slots fail on
everybody, where those who know theirs may lack what the others lost, and in a group of two. There a
crash between the two rings of a slot that a later view writes anew is enough: which of the two
prepares is the newer one cannot be told, and the peer alone is no quorum.
"""

from appliance.cores.vsr import chunks
from appliance.cores.vsr.quorums import quorums
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.status import Status
from appliance.formats import checkpoint as ck
from appliance.formats.geometry import RECORD_SIZE
from appliance.simulation.cluster import Cluster
from appliance.simulation.machine import Machine


def shortcoming(cluster: Cluster, core: list[int]) -> str:
    """Why the core has not converged yet, in words; empty when it has."""
    return difference(members(cluster, core))


def difference(machines: list[Machine]) -> str:
    """What one of these lacks of the state and the log that all of them hold; empty: nothing."""
    for machine in machines:
        reason = _lacks(machine)
        if reason:
            return f"replica {machine.index} {reason}"
    replicas = [machine.replica for machine in machines if machine.replica is not None]
    for name in ("view", "commit_min", "op", "checkpoint_op"):
        values = [getattr(replica, name) for replica in replicas]
        if min(values) != max(values):
            return f"{name} differs: {values}"
    ids = [r.checkpoint.checkpoint_id for r in replicas if r.checkpoint is not None]
    return "checkpoints differ" if any(found != ids[0] for found in ids) else ""


def members(cluster: Cluster, core: list[int]) -> list[Machine]:
    """Machines of the core that belong to the group; one that was removed may lag for ever."""
    known = cluster.checkers.membership.members()
    return [cluster.machines[index] for index in core if cluster.members[index] in known]


def _lacks(machine: Machine) -> str:
    """What keeps one replica from being whole."""
    replica = machine.replica
    if replica is None:
        return "does not run"
    if replica.status != Status.NORMAL:
        return f"is in status {replica.status.name.lower()}"
    if replica.commit_min != replica.commit_max or replica.commit_min != replica.op:
        return f"has committed {replica.commit_min} of {replica.commit_max}, head {replica.op}"
    if not replica.state_ready or replica.backfill is not None or replica.fetch is not None:
        return "lacks chunks of its state"
    for op in range(replica.checkpoint_op + 1, replica.op + 1):
        header = replica.journal.at(op)
        if header is None or not replica.journal.clean(header):
            return f"has no clean prepare at op {op}"
    return ""


def excuse(cluster: Cluster, core: list[int]) -> str:
    """Why this core cannot be expected to converge; empty when it should."""
    voters = cluster.checkers.membership.voters()
    core = [index for index in core if cluster.members[index] in voters]  # no standbys
    machines = [cluster.machines[index] for index in core]
    replicas = [machine.replica for machine in machines if machine.replica is not None]
    quorum = quorums(cluster.options.replica_count).view_change
    count = cluster.options.replica_count
    whole = len(core) == count
    lost = _lost_chunk(machines)
    if lost:
        return lost
    if whole and count != 2 and not cluster.options.slot_faults_spread:
        return ""  # everybody is back, and the atlas kept every prepare
    voting = sum(replica.status != Status.RECOVERING_HEAD for replica in replicas)
    if voting < quorum:
        return f"{len(core) - voting} of {len(core)} replicas cannot name their head"
    if whole:  # those who can name their head may lack what the others lost
        able = [r for r in replicas if r.status != Status.RECOVERING_HEAD]
        if len(able) == len(replicas):
            return ""
        replicas = able
    # Below the newest checkpoint of the core a state sync will do.
    low = max((r.checkpoint_op for r in replicas if r.state_ready), default=0)
    needed = range(low + 1, max(r.op for r in replicas) + 1)
    for op in needed:
        headers = [h for r in replicas if (h := r.journal.at(op)) is not None]
        for header in headers:
            if not any(r.journal.readable(header) for r in replicas):
                return f"no replica of the core can read op {op}"
        if not headers:
            return f"no replica of the core knows a header of op {op}"
    if any(not r.state_ready or r.backfill is not None or r.fetch is not None for r in replicas):
        return "a chunk may have no intact copy in the core"
    return ""


def _lost_chunk(machines: list[Machine]) -> str:
    """A chunk that some replica needs for its state, and that no disk of these holds intact."""
    for machine in machines:
        replica = machine.replica
        if replica is None or replica.state_ready or replica.fetch is None:
            continue
        for chunk in replica.fetch.chunks.values():
            if chunk.data is None and not any(_holds(other, replica, chunk) for other in machines):
                return f"replica {machine.index} needs {chunk.location}, which nobody can read"
    return ""


def _holds(machine: Machine, asking: Replica, chunk: chunks.Chunk) -> bool:
    """Whether this disk has the chunk that `asking` asks for, intact."""
    assert asking.fetch is not None
    address, skip = chunks.local_address(asking, chunk.location)
    size = {
        ck.KIND_MANIFEST: asking.fetch.state.manifest_size,
        ck.KIND_TABLE: asking.geometry.table_chunk_size,
        ck.KIND_LEAF: chunk.location.count * RECORD_SIZE,
    }[chunk.location.kind]
    return chunks.matches(chunk, machine.disk.peek(address + skip, size))


# --- what only the scrubber finds -----------------------------------------------------------------


def tours(cluster: Cluster, core: list[int]) -> dict[int, int]:
    """How often each member has read everything on its disk."""
    replicas = [(m.index, m.replica) for m in members(cluster, core)]
    return {
        index: replica.tour.rounds if replica.tour is not None else 0  # it has not opened yet
        for index, replica in replicas
        if replica is not None
    }


def on_tour(cluster: Cluster, core: list[int], before: dict[int, int]) -> bool:
    """Whether all are normal, and somebody has not read everything since `before`: what is broken
    in a sealed segment is found no sooner, and whoever wants to read it waits for that.
    """
    machines = members(cluster, core)
    if any(m.replica is None or m.replica.status != Status.NORMAL for m in machines):
        return False
    now = tours(cluster, core)
    return any(now[index] < before.get(index, 0) + 2 for index in now)
