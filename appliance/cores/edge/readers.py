"""What is asked for without a conversation, by whoever bears a token."""

from appliance.cores.edge.export import RoomExport
from appliance.cores.edge.message_search import MessageSearch
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.token import Tokens


class Readers:
    """Makes what answers them, each driven by who asked for it. `stale` is written by the edge."""

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        access: Access,
        tokens: Tokens,
        stale: dict[int, int],
        shard_count: int,
    ) -> None:
        self._clock, self._charges, self._access, self._tokens = clock, charges, access, tokens
        self._stale, self._shard_count = stale, shard_count

    def export(self, address: str, token: str, room_id: bytes, until_op: int | None) -> RoomExport:
        """The records of a room up to an op; None: to the newest. Raises as `reader_of`."""
        return RoomExport(
            clock=self._clock,
            charges=self._charges,
            access=self._access,
            tokens=self._tokens,
            address=address,
            token=token,
            room_id=room_id,
            until_op=until_op,
        )

    def search(self, address: str, token: str, msg_id: bytes) -> MessageSearch:
        """Where a message lies. Raises as `reader_of`."""
        return MessageSearch(
            clock=self._clock,
            charges=self._charges,
            access=self._access,
            tokens=self._tokens,
            stale=self._stale,
            shard_count=self._shard_count,
            address=address,
            token=token,
            msg_id=msg_id,
        )
