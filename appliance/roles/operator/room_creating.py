"""An operator's act: a room is created by the site itself."""

import os

from appliance.base.errors import StorageError
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.room_name import room_creator_id, room_id_of
from appliance.formats.session import DUPLICATE, OK, RESULT_NAMES, RESULT_STRUCT
from appliance.formats.site import shard_of_room
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0
SYSTEM = 0  # the author


def creation(room: str) -> bytes:
    """The record; a second one of the same room is known as such."""
    room_id = room_id_of(room)
    return record.encode(
        room_id=room_id,
        msg_id=os.urandom(16),
        author_id=SYSTEM,
        body=room.encode(),
        client_id=room_creator_id(room_id, SYSTEM),
        client_seq=1,
        kind=record.KIND_ROOM_CREATE,
    )


async def create_room(node: NodeFolder, room: str) -> bool:
    """Whether it is new; it is there when this returns. StorageError when that cannot be."""
    shard = node.site.shards[shard_of_room(node.site, room_id_of(room))]
    async with OperatorSession(node, shard) as session:
        answer = await session.ask(
            OPERATION_APPEND, creation(room), PATIENCE_S, f"the room {room}", records=1
        )
    code = RESULT_STRUCT.unpack_from(answer)[3]
    if code not in (OK, DUPLICATE):
        raise StorageError(f"the room was refused: {RESULT_NAMES[code]}")
    return int(code) == OK
