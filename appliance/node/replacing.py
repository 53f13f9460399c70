"""A node that has joined takes the place of one that was lost, in every shard: it votes instead,
and the lost one belongs to no group any more. Should that one come back, nobody hears it."""

from appliance.base.errors import ConfigurationError
from appliance.drivers.host.node_folder import NodeFolder
from appliance.roles.operator.membership import change_members, group_of, reconfigure, removal


async def replace_lost(node: NodeFolder, lost: str) -> None:
    """All may be done again. StorageError: a group does not take the change, and says why."""
    found = [other.index for other in node.site.nodes if other.name == lost]
    if not found:
        raise ConfigurationError(f"{lost} is no node of the site: there is no place to take")
    (down,) = found
    for shard in node.site.shards_of(down):
        group, replica_id = await group_of(node, shard), shard.replica_id_of(down)
        if replica_id not in group.members:
            continue
        if group.members.index(replica_id) < group.replica_count:
            await reconfigure(node, shard, node.index, down)
        await change_members(node, shard, removal(shard, down))
