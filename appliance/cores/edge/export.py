"""All records of a room up to an op, for whoever asks without a conversation: a signed file.

    asked --place--> placed --part, part, ...--> read

Each step checks anew what the token allows, and waits with an empty answer: for a look-up, for a
segment that is being mended, for the rates. Whoever drives it asks again with the next tick.
"""

from appliance.base.limits import EXPORT_RECORDS_MAX, HISTORY_CHARGE_SIZE
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.log import Mending
from appliance.cores.edge.reader import Reader
from appliance.formats.client_errors import FieldInvalid, Unavailable


class RoomExport:
    """One reading of one room. The numbers are known once `locate` was True; call `close` at last.

    Invariant: what `part` has given are the records from `first_op` on, without a gap.
    """

    def __init__(self, reader: Reader, room_id: bytes, until_op: int | None) -> None:
        self.room_id = room_id
        self.first_op = self.last_op = 0
        self._reader, self._until_op = reader, until_op
        self._next_op = 0

    @property
    def record_count(self) -> int:
        """How many records the file has."""
        return self.last_op - self.first_op + 1

    def locate(self) -> bool:
        """Whether the room is found; the numbers are fixed then. Raises what a client is told of a
        room that it may not read, and FieldInvalid for an op that the room does not have."""
        room = self._readable()
        if room is None:
            return False
        try:
            first_op = self._first_op(room)
        except Mending:
            self._reader.wait_for_mending()
            return False
        last_op = room.head if self._until_op is None else self._until_op
        if not first_op <= last_op <= room.head:
            raise FieldInvalid(f"until_op is {last_op}; allowed: {first_op} to {room.head}")
        self.first_op = self._next_op = first_op
        self.last_op = last_op
        return True

    def part(self) -> bytes:
        """The next records, whole; empty: not now. Raises as `locate`, Unavailable when what comes
        next was dropped."""
        assert 0 < self._next_op <= self.last_op
        room = self._readable()
        if room is None or not self._reader.admit():
            return b""
        count = min(EXPORT_RECORDS_MAX, self.last_op - self._next_op + 1)
        try:
            records = self._reader.access.logs[room.shard].read(self.room_id, self._next_op, count)
        except Mending:
            self._reader.wait_for_mending()
            return b""
        self._reader.on_read()
        if not records:
            raise Unavailable("the room's oldest records were dropped meanwhile")
        self._next_op += len(records)
        raw = b"".join(records)
        self._reader.charge(len(raw) // HISTORY_CHARGE_SIZE)
        return raw

    def close(self) -> None:
        """Nobody reads on."""
        self._reader.close()

    def _readable(self) -> Room | None:
        self._reader.verify()
        return self._reader.room(self.room_id)

    def _first_op(self, room: Room) -> int:
        log = self._reader.access.logs[room.shard]
        return 1 if log.read(self.room_id, 1, 1) else log.first_op(self.room_id)
