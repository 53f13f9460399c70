"""An operator's act: tokens are taken back, on every node."""

import os

from appliance.base.errors import StorageError
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.revocation import SHARD, Revocation, encode_revocation
from appliance.formats.session import DUPLICATE, OK, RESULT_NAMES, RESULT_STRUCT
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0


async def revoke(node: NodeFolder, revocation: Revocation) -> None:
    """Committed when it returns: edges that follow the log know it within a beat. StorageError
    when that cannot be."""
    body = encode_revocation(revocation, node=node.node.name, at_us=clock.realtime_us())
    raw = record.encode(
        room_id=record.SHARD_ROOM_ID,
        msg_id=os.urandom(16),
        author_id=0,
        body=body,
        client_id=os.urandom(16),
        client_seq=1,
        kind=record.KIND_AUDIT,
    )
    async with OperatorSession(node, node.site.shards[SHARD], "token") as session:
        answer = await session.ask(OPERATION_APPEND, raw, PATIENCE_S, "a revocation", records=1)
    code = RESULT_STRUCT.unpack_from(answer)[3]
    if code not in (OK, DUPLICATE):
        raise StorageError(
            f"the revocation was refused: {RESULT_NAMES[code]}; see `tigerchat status`"
        )
