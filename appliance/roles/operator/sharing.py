"""An operator's act: with whom a room of this site is shared."""

import asyncio
import os

import numpy as np

from appliance.base.errors import StorageError
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder
from appliance.drivers.network.ask import Questions
from appliance.formats import record as rec
from appliance.formats.checkpoint import POLICY, ROOM_ROW
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.event import encode_policy
from appliance.formats.local import LOCAL_READ_ROOMS, LOCAL_ROOMS
from appliance.formats.policy_bits import POLICY_CLOSED
from appliance.formats.room_name import room_id_of
from appliance.formats.session import DUPLICATE, OK, RESULT, RESULT_NAMES, RESULT_STRUCT
from appliance.formats.sharing import Sharing
from appliance.formats.site import shard_of_room
from appliance.roles.operator.room_creating import SYSTEM, creation
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0
PROBE_S = 5.0  # for the replica of this node to say how the room stands


def closed_bit(node: NodeFolder, room_id: bytes) -> int:
    """POLICY_CLOSED if the replica of this node says that the room is closed; 0 where it is open,
    or no replica of its shard answers here."""
    shard = node.site.shards[shard_of_room(node.site, room_id)]
    try:
        with Questions(
            node.path / SOCKETS_FOLDER,
            f"shard-{shard.number}",
            cluster=node.site.cluster,
            shard=shard.number,
            timeout_s=PROBE_S,
        ) as questions:
            row = questions.ask(LOCAL_READ_ROOMS, room_id, LOCAL_ROOMS)
    except OSError:
        return 0
    found = np.frombuffer(row, ROOM_ROW, 1)[0] if len(row) == ROOM_ROW.itemsize else None
    return int(found["policy"].view(POLICY)["bits"]) & POLICY_CLOSED if found is not None else 0


async def set_sharing(node: NodeFolder, room: str, sharing: Sharing | None) -> None:
    """Have the room there, shared so, or with nobody; if it is closed it stays so, as far as this
    node's replica knows. StorageError when that cannot be."""
    room_id = room_id_of(room)
    shard = node.site.shards[shard_of_room(node.site, room_id)]
    bits = await asyncio.to_thread(closed_bit, node, room_id)
    records = [
        creation(room),
        rec.encode(
            room_id=room_id,
            msg_id=os.urandom(16),
            author_id=SYSTEM,
            body=encode_policy(bits, sharing),
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
