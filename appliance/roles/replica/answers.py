"""What is asked of a replica: by processes of its node how to read its log, and what its rooms are;
by edges of other nodes the log itself."""

from collections import Counter

from appliance.base.limits import LOCAL_ROOMS_MAX
from appliance.cores.rooms.rooms import Rooms
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.report import member_stale_ms, stale_ms
from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.network.link import Connection
from appliance.drivers.nvme.volume import Volume
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import ROOM_ROW_SIZE
from appliance.formats.segment import ring_size
from appliance.formats.site import Shard
from appliance.formats.status.replica import Attachment, LogStanding
from appliance.roles.replica.frames import Frames
from appliance.roles.replica.remote_readers import RemoteReaders

_ROOM_ID_SIZE = 16


class Answers:
    """Of the replica of `shard` on `node`, whose ring is `ring`."""

    def __init__(
        self,
        node: NodeFolder,
        shard: Shard,
        core: Replica,
        rooms: Rooms,
        volume: Volume,
        *,
        ring: memoryview,
        frames: Frames,
        drops: Counter[str],
    ) -> None:
        self._node, self._shard, self._volume = node, shard, volume
        self._core, self._rooms, self._frames = core, rooms, frames
        self.remote = RemoteReaders(
            rooms, volume, ring, send=self._send_remote, standing=self._standing, drops=drops
        )

    def _send_remote(self, connection: Connection, header: Header, body: bytes) -> None:
        """To an edge of another node, once frames are numbered in this life."""
        if self._core.incarnation_durable == self._core.incarnation:
            self._frames.answer(self._core.incarnation_durable, connection, header, body)

    def _standing(self) -> LogStanding:
        """Who does not belong to the group, or not yet, may never hear what comes."""
        core = self._core
        return LogStanding(
            status=core.status.name.lower() if core.index >= 0 else "outside",
            state_ready=core.state_ready,
            commit_min=core.commit_min,
            commit_max=core.commit_max,
            stale_ms=member_stale_ms(core, self._node.site.tick_ms),
            oldest_segment=self._rooms.oldest_segment,
        )

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
