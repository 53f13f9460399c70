"""An operator's act: with whom a room of this site is shared."""

import os

from appliance.base.errors import StorageError
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record as rec
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.event import encode_policy
from appliance.formats.room_name import room_id_of
from appliance.formats.session import DUPLICATE, OK, RESULT, RESULT_NAMES, RESULT_STRUCT
from appliance.formats.sharing import Sharing
from appliance.formats.site import shard_of_room
from appliance.roles.operator.room_creating import SYSTEM, creation
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0


async def set_sharing(node: NodeFolder, room: str, sharing: Sharing | None) -> None:
    """Have the room there, shared so, or with nobody. StorageError when that cannot be."""
    room_id = room_id_of(room)
    shard = node.site.shards[shard_of_room(node.site, room_id)]
    records = [
        creation(room),
        rec.encode(
            room_id=room_id,
            msg_id=os.urandom(16),
            author_id=SYSTEM,
            body=encode_policy(0, sharing),
            client_id=os.urandom(16),
            client_seq=1,
            kind=rec.KIND_ROOM_POLICY,
        ),
    ]
    async with OperatorSession(node, shard, "federation") as session:
        answer = await session.ask(
            OPERATION_APPEND,
            b"".join(records),
            PATIENCE_S,
            f"the policy of {room}",
            records=len(records),
        )
    for at in range(0, len(answer), RESULT.itemsize):
        code = RESULT_STRUCT.unpack_from(answer, at)[3]
        if code not in (OK, DUPLICATE):
            raise StorageError(f"the room's policy was refused: {RESULT_NAMES[code]}")
