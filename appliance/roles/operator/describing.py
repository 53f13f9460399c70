"""An operator's act: a node that joins is described to all nodes of a running site."""

import os

from appliance.base.errors import StorageError
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.joining_node import device_of, encode_joining
from appliance.formats.revocation import SHARD
from appliance.formats.session import (
    DUPLICATE,
    DUPLICATE_EXPIRED,
    OK,
    RESULT_NAMES,
    RESULT_STRUCT,
)
from appliance.formats.site import Node
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0


async def describe(node: NodeFolder, joining: Node) -> None:
    """The log has a description for that position when this returns, this one or another's: whose,
    the site file of each node that follows the log says soon. StorageError when that cannot be."""
    raw = record.encode(
        room_id=record.SHARD_ROOM_ID,
        msg_id=os.urandom(16),
        author_id=0,
        body=encode_joining(joining, node=node.node.name, at_us=clock.realtime_us()),
        client_id=device_of(node.site.cluster, joining.index),
        client_seq=1,
        kind=record.KIND_AUDIT,
    )
    what = f"the description of {joining.name}"
    async with OperatorSession(node, node.site.shards[SHARD], "member") as session:
        answer = await session.ask(OPERATION_APPEND, raw, PATIENCE_S, what, records=1)
    code = RESULT_STRUCT.unpack_from(answer)[3]
    if code not in (OK, DUPLICATE, DUPLICATE_EXPIRED):
        raise StorageError(f"{what} was refused: {RESULT_NAMES[code]}; see `tigerchat status`")
