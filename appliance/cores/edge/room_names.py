"""Names of rooms whose first record was dropped, as shard 0's own room states them again.

a name is missed ──want──▶ is_wanted ──▶ the shard's room is read from its end back to its begin
                                         ──learn──▶ known ──name_of──▶ the room is named
"""

from collections.abc import Sequence

from appliance.base.limits import ROOM_NAMES_MAX
from appliance.formats.room_name import room_id_of
from appliance.formats.room_names import decode_room_names


class RoomNames:
    """Holds what was stated, at most `ROOM_NAMES_MAX` names, of which the oldest heard give way."""

    def __init__(self) -> None:
        self.is_wanted = False  # a name was missed: all that was ever stated matters
        self._known: dict[bytes, str] = {}

    def learn(self, acts: Sequence[tuple[int, bytes]]) -> None:
        """As `shard_room.Listener`."""
        for _, body in acts:
            for name in decode_room_names(body):
                self._known[room_id_of(name)] = name
        while len(self._known) > ROOM_NAMES_MAX:
            del self._known[next(iter(self._known))]

    def since_us(self, now_us: int) -> int:
        """All that was ever stated, once a name was missed."""
        return 0 if self.is_wanted else now_us

    def name_of(self, room_id: bytes) -> str | None:
        """None: it was not stated, as far as was read."""
        return self._known.get(room_id)
