"""What rooms are called now: shard 0's own room tells who gave which room which name.

A room's id follows from the name that it was made under; rights of tokens and what people share go
by that name for ever. Beside it a room has every name that it was given: the newest is shown, all
of them lead to it. A name belongs to the room that was given it first; whoever gives it to another
room later, as two may do in the same moment, has given nothing.

Whatever the order in which the acts are heard, what is known in the end is the same: they are
compared by number and time, never by when they came.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from appliance.base.limits import ROOM_NAMES_MAX
from appliance.formats.renaming import decode_renaming
from appliance.formats.room_name import room_id_of


class _Given(NamedTuple):
    """That a room got a name, the last time."""

    number: int
    said_us: int


class NewNames:
    """Rooms are called here by the name that each was made under."""

    def __init__(self) -> None:
        self.on_news: Callable[[list[bytes]], None] = lambda room_ids: None
        self._given: dict[str, dict[str, _Given]] = {}  # room -> names that it was given
        self._first: dict[str, tuple[int, str]] = {}  # name -> when, and to which room, first
        self._rooms: dict[bytes, str] = {}  # id that a room of such a name would have -> its room
        self._shown: dict[str, str] = {}  # room -> the newest of its names

    def __len__(self) -> int:
        return len(self._first)

    @property
    def is_full(self) -> bool:
        """Whether no further name is to be given."""
        return len(self._first) >= ROOM_NAMES_MAX

    def shown(self, room: str) -> str:
        """What the room is called now."""
        return self._shown.get(room, room)

    def room_of(self, name: str) -> str | None:
        """The room that was given this name, whatever it is called now."""
        found = self._first.get(name)
        return None if found is None else found[1]

    def leads_to(self, room_id: bytes) -> bytes:
        """The id of the room that was given the name of which this is the id; else the same."""
        room = self._rooms.get(room_id)
        return room_id if room is None else room_id_of(room)

    def next_number(self, room: str) -> int:
        """Of the room's next renaming."""
        given = self._given.get(room, {})
        return 1 + max((each.number for each in given.values()), default=0)

    def learn(self, acts: Sequence[tuple[int, bytes]]) -> None:
        """As `shard_room.Listener`."""
        changed: dict[str, None] = {}
        for said_us, body in acts:
            renaming = decode_renaming(body)
            if renaming is None:
                continue
            room, name, number, _, stated_us = renaming
            given = _Given(number, stated_us or said_us)
            known = self._given.setdefault(room, {})
            known[name] = max(given, known.get(name, given))
            mine = given.said_us, room
            before = self._first.get(name, mine)
            self._first[name] = owner = min(mine, before)
            self._rooms[room_id_of(name)] = owner[1]
            for each in (room, before[1]):
                if self._choose(each):
                    changed[each] = None
        if changed:
            self.on_news([room_id_of(room) for room in changed])

    def since_us(self, now_us: int) -> int:
        """All that was ever said."""
        return 0

    def _choose(self, room: str) -> bool:
        """Find what the room is called; whether that is news."""
        own = {name: given for name, given in self._given[room].items() if self._is_of(name, room)}
        before = self.shown(room)
        now = max(own, key=lambda name: (own[name], name)) if own else room
        if now == room:
            self._shown.pop(room, None)
        else:
            self._shown[room] = now
        return now != before

    def _is_of(self, name: str, room: str) -> bool:
        return name == room or self._first[name][1] == room
