"""What is asked for without a conversation, by whoever bears a token."""

from collections.abc import Callable

from appliance.cores.edge.export import RoomExport
from appliance.cores.edge.message_search import MessageSearch
from appliance.cores.edge.reader import Reader


class Readers:
    """Makes what answers them, each driven by who asked for it. `admit` makes a reader of
    an `address` and a `token`; `stale` is written by the edge."""

    def __init__(
        self, admit: Callable[..., Reader], *, stale: dict[int, int], shard_count: int
    ) -> None:
        self._admit, self._stale, self._shard_count = admit, stale, shard_count

    def export(self, address: str, token: str, room_id: bytes, until_op: int | None) -> RoomExport:
        """The records of a room up to an op; None: to the newest. Raises as `Reader`."""
        return RoomExport(self._admit(address=address, token=token), room_id, until_op)

    def search(self, address: str, token: str, msg_id: bytes) -> MessageSearch:
        """Where a message lies. Raises as `Reader`."""
        return MessageSearch(
            self._admit(address=address, token=token),
            msg_id,
            stale=self._stale,
            shard_count=self._shard_count,
        )
