"""What processes of the same node ask of a replica: how to read its log, and what its rooms are."""

from appliance.base.limits import LOCAL_ROOMS_MAX
from appliance.cores.rooms.rooms import Rooms
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.report import stale_ms
from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.nvme.volume import Volume
from appliance.formats.envelope import Message
from appliance.formats.geometry import ROOM_ROW_SIZE
from appliance.formats.segment import ring_size
from appliance.formats.site import Shard
from appliance.formats.status.replica import Attachment

_ROOM_ID_SIZE = 16


class Answers:
    """Of the replica of `shard` on `node`."""

    def __init__(
        self, node: NodeFolder, shard: Shard, core: Replica, rooms: Rooms, volume: Volume
    ) -> None:
        self._node, self._shard, self._volume = node, shard, volume
        self._core, self._rooms = core, rooms

    def attachment(self, log_seq: int) -> Attachment:
        """What an edge must know to read ring and segments, and whether it may yet. `log_seq`: the
        newest record that is published."""
        state, index = self._core.status_report(), self._node.settings.index
        replica = self._shard.replica_index(index)
        assert replica is not None
        return Attachment(
            status=state.status,
            state_ready=state.state_ready,
            commit_min=state.commit_min,
            commit_max=state.commit_max,
            stale_ms=stale_ms(state, self._node.site.tick_ms),
            oldest_segment=self._rooms.oldest_segment,
            ring_size=ring_size(self._volume.geometry),
            log_seq=log_seq,
            shard=self._shard.number,
            epoch=self._core.epoch,
            replica=replica,
            geometry=self._volume.facts["geometry"],
            segments_max=self._shard.segments_max,
            segments_folder=str(self._node.volume(self._shard.number) / "segments"),
        )

    def rooms(self, message: Message) -> bytes:
        """Rows of the rooms whose ids it names, zero for one that is not there; of all from its
        `op` on where it names none."""
        if not message.body:
            header = message.header
            return self._rooms.room_rows(header.op, min(header.aux, LOCAL_ROOMS_MAX))
        row, missing = self._rooms.room_row, bytes(ROOM_ROW_SIZE)
        body, size = message.body, _ROOM_ID_SIZE
        ids = [body[at : at + size] for at in range(0, len(body), size)]
        return b"".join(row(bytes(room)) or missing for room in ids[:LOCAL_ROOMS_MAX])
