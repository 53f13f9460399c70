"""Whether a cluster that is to be replaced still answers: then nothing is made in its place."""

import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from appliance.base.errors import StorageError
from appliance.drivers.network.tls import shown_at
from appliance.formats.site import Shard, Site

ANSWER_S = 2.0  # for a replica to show its key


def answering(site: Site, shard: Shard, voters: Sequence[bytes] = ()) -> list[str]:
    """Names of the nodes whose replica of `shard` answers, among `voters` (replica ids; none: those
    of the site file). Who shows another key than its own is somebody else."""
    ids = voters or shard.replica_ids[: shard.replica_count]
    members = [
        index for index, id in zip(shard.members, shard.replica_ids, strict=True) if id in ids
    ]
    with ThreadPoolExecutor(max(1, len(members))) as threads:
        found = list(threads.map(lambda index: _answers(site, shard, index), members))
    return [site.nodes[index].name for index, there in zip(members, found, strict=True) if there]


def _answers(site: Site, shard: Shard, index: int) -> bool:
    node = site.nodes[index]
    try:
        return shown_at(node.host, node.peer_port + shard.number, ANSWER_S) == node.spki
    except (OSError, ssl.SSLError):
        return False


def refuse_quorum(site: Site, shard: Shard, voters: Sequence[bytes] = ()) -> list[str]:
    """Who answers of the shard, in names; StorageError while they are enough to go on."""
    names = answering(site, shard, voters)
    count = len(voters) or shard.replica_count
    if 2 * len(names) > count:
        who = f"{' and '.join(names)} answer{'s' if len(names) == 1 else ''}"
        raise StorageError(
            f"the cluster is not gone: of the {count} replicas of shard {shard.number} {who}, "
            "which is a quorum: let them go on, and bring back a lost node by `tigerchat recover` "
            "(docs/operations.md, Disaster)"
        )
    return names
