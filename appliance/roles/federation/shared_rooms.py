"""Which rooms of a shard are shared, as of a place in the log, and what rooms are called: rows of
an LMDB environment."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from appliance.base.limits import FEDERATED_KEPT_RECORDS
from appliance.cores.federation.effects import Write
from appliance.formats import record as rec
from appliance.formats.sharing import Sharing, decode_sharing, encode_sharing
from appliance.roles.federation.rooms import SharedRoom
from appliance.roles.federation.store import LmdbChannelStore

_NAME, _POSITION, _ROOM, _END = b"N", b"P", b"R", b"S"


class SharedRooms:
    """`position`: the newest record of the log whose policy, if it is one, is in `rooms`."""

    def __init__(self, folder: Path) -> None:
        self._store = LmdbChannelStore(folder)
        raw = self._store.get(_POSITION)
        self.position = self._flushed = 0 if raw is None else int.from_bytes(raw, "big")
        self.rooms: dict[bytes, Sharing] = {}
        for key, value in self._store.items(_ROOM, _END):
            sharing = decode_sharing(value)
            assert sharing is not None
            self.rooms[key[1:]] = sharing

    def take_names(self, records: np.ndarray) -> None:
        """What the rooms that are created among these are called."""
        kinds = records["flags"] & rec.FLAGS_KIND_MASK
        for row in records[kinds == rec.KIND_ROOM_CREATE]:
            name = bytes(row["body"])[: int(row["body_len"])]
            self._store.apply([Write(_NAME + bytes(row["room_id"]), name)])

    def name_of(self, room_id: bytes) -> str:
        """What a room is called; empty if its first record was not read here."""
        return (self._store.get(_NAME + room_id) or b"").decode(errors="replace")

    def put(self, room_id: bytes, sharing: Sharing | None) -> None:
        """Kept with the next position."""
        value = None if sharing is None else encode_sharing(sharing)
        if sharing is None:
            self.rooms.pop(room_id, None)
        else:
            self.rooms[room_id] = sharing
        self._store.apply([Write(_ROOM + room_id, value)])

    async def keep_position(self, position: int, rooms: Iterable[SharedRoom]) -> None:
        """How far all is read, of these rooms too. A record of a room has that flushed with it for
        this room; behind many of others it is flushed for all: a kill would have these read again.
        Other tasks run between rooms.
        """
        self.position = position
        self._store.apply([Write(_POSITION, position.to_bytes(8, "big"))])
        if position - self._flushed < FEDERATED_KEPT_RECORDS:
            return
        for room in rooms:
            room.keep_position()
            await asyncio.sleep(0)
        self._store.flush()
        self._flushed = position

    def close(self) -> None:
        self._store.close()
