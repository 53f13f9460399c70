"""Rooms that this edge knows: name, newest op, and who follows live.

A room is *named* once its name is known: rights can be judged and messages sent. It is *loaded*
once its newest op and its place in the segments are known too: it can be read. A room that was
created through this edge is named before the replica of this node has heard of it.
"""

from typing import Any
from uuid import UUID

from appliance.base.limits import EDGE_ROOMS_MAX
from appliance.formats.client.fields import id_of


class Room:
    """One room. Invariant: live subscriptions have been given exactly the records up to `head`."""

    __slots__ = (
        "room_id",
        "uuid",
        "shard",
        "name",
        "head",
        "loaded",
        "live",
        "followers",
        "policy",
        "policy_seq",
        "policy_trail",
        "is_shared",
    )

    def __init__(self, room_id: bytes, shard: int, name: str) -> None:
        # `name`: under which it was made; what it is called now, `new_names` knows
        self.room_id, self.shard, self.name = room_id, shard, name
        self.uuid: UUID = id_of(room_id)
        self.policy = self.policy_seq = 0  # event.POLICY_* of its last policy; where in the log
        # where its newest policies lie, as they came one after the other
        self.policy_trail: tuple[int, ...] = ()
        self.is_shared = False  # with other sites, by that policy
        self.head = 0  # op of the newest record that can be read here
        self.loaded = False
        self.live: list[Any] = []  # subscriptions at the head
        self.followers = 0  # subscriptions, live or lagging


class Catalogue:
    """The rooms, bounded: one without followers makes place for a new one."""

    def __init__(self, rooms_max: int = EDGE_ROOMS_MAX) -> None:
        self.rooms: dict[bytes, Room] = {}
        self._rooms_max = rooms_max

    def named(self, room_id: bytes, shard: int, name: str) -> tuple[Room, bytes | None]:
        """The room, new or known; and the id of one that was dropped for it."""
        room = self.rooms.get(room_id)
        if room is not None:
            return room, None
        dropped = self._drop() if len(self.rooms) >= self._rooms_max else None
        room = self.rooms[room_id] = Room(room_id, shard, name)
        return room, dropped

    def _drop(self) -> bytes | None:
        for room_id, room in self.rooms.items():
            if room.followers == 0:
                del self.rooms[room_id]
                return room_id
        return None

    def of_shard(self, shard: int) -> list[Room]:
        """All rooms of one shard, oldest first."""
        return [room for room in self.rooms.values() if room.shard == shard]
