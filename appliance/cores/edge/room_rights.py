"""Who may do what in a room: both the token and the room's own rights must allow it.

What rooms allow is said in shard 0's own room, by moderators, each act the whole of it. Acts may be
heard in any order: the one with the highest number counts, of two with one number the later one.
Rooms are known here by the name that each was made under, as tokens name them.
"""

from collections.abc import Callable, Sequence

from appliance.base.limits import ROOM_NAMES_MAX
from appliance.cores.edge.token import Claims
from appliance.formats.room_limits import UNLIMITED, Limiting, Limits, decode_limiting
from appliance.formats.room_name import room_id_of


class RoomRights:
    """Of all rooms of the site."""

    def __init__(self) -> None:
        self.on_news: Callable[[list[bytes]], None] = lambda room_ids: None
        self._said: dict[str, Limiting] = {}  # the newest act on a room

    @property
    def is_full(self) -> bool:
        """Whether no further room is to get rights of its own."""
        return len(self._said) >= ROOM_NAMES_MAX

    def bits(self, claims: Claims, room: str) -> int:
        """What the user of a token may do in a room."""
        bits = claims.rights_in(room)
        said = self._said.get(room)
        return bits if said is None else said.limits.bits(bits, claims.author)

    def of(self, room: str) -> Limits:
        """What the room itself allows."""
        said = self._said.get(room)
        return UNLIMITED if said is None else said.limits

    def next_number(self, room: str) -> int:
        """Of the next act on the room."""
        said = self._said.get(room)
        return 1 if said is None else said.number + 1

    def learn(self, acts: Sequence[tuple[int, bytes]]) -> None:
        """As `shard_room.Listener`."""
        changed: dict[bytes, None] = {}
        for said_us, body in acts:
            found = decode_limiting(body)
            if found is None:
                continue
            found = found._replace(said_us=found.said_us or said_us)
            known = self._said.get(found.room)
            if known is not None and _order_of(known) >= _order_of(found):
                continue
            self._said[found.room] = found
            if (UNLIMITED if known is None else known.limits) != found.limits:
                changed[room_id_of(found.room)] = None
        if changed:
            self.on_news(list(changed))

    def since_us(self, now_us: int) -> int:
        """All that was ever said."""
        return 0


def _order_of(said: Limiting) -> tuple[int, int, bytes]:
    """By which the newest is known; the last part decides between what cannot be told apart."""
    return said.number, said.said_us, repr(said.limits).encode()
