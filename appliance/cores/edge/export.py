"""All records of a room up to an op, for whoever asks without a conversation: a signed file.

    asked --place--> placed --part, part, ...--> read

Each step checks anew what the token allows, and waits with an empty answer: for a look-up, for a
segment that is being mended, for the rates. Whoever drives it asks again with the next tick.
"""

from appliance.base.limits import EXPORT_RECORDS_MAX, HISTORY_CHARGE_SIZE
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.log import Mending
from appliance.cores.edge.reader import reader_of
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.token import Tokens
from appliance.formats.client_errors import FieldInvalid, Unavailable


class RoomExport:
    """One reading of one room. The numbers are known once `place` was True; call `close` at last.

    Invariant: what `part` has given are the records from `first_op` on, without a gap.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        access: Access,
        tokens: Tokens,
        address: str,
        token: str,
        room_id: bytes,
        until_op: int | None,
    ) -> None:
        self.room_id = room_id
        self.first_op = self.last_op = 0
        self._clock, self._charges, self._access, self._tokens = clock, charges, access, tokens
        self._until_op = until_op
        self._next_op = 0
        self._session, self._claims = reader_of(
            clock=clock, charges=charges, tokens=tokens, address=address, token=token
        )

    @property
    def record_count(self) -> int:
        """How many records the file has."""
        return self.last_op - self.first_op + 1

    @property
    def author_id(self) -> int:
        """Whom it is for."""
        return self._claims.author_id

    def place(self) -> bool:
        """Whether the room is found; the numbers are fixed then. Raises what a client is told of a
        room that it may not read, and FieldInvalid for an op that the room does not have."""
        room = self._readable()
        if room is None:
            return False
        try:
            first_op = self._first_op(room)
        except Mending:
            return self._wait_for_mending()
        last_op = room.head if self._until_op is None else self._until_op
        if not first_op <= last_op <= room.head:
            raise FieldInvalid(f"until_op is {last_op}; allowed: {first_op} to {room.head}")
        self.first_op = self._next_op = first_op
        self.last_op = last_op
        return True

    def part(self) -> bytes:
        """The next records, whole; empty: not now. Raises as `place`, Unavailable when what comes
        next was dropped."""
        assert 0 < self._next_op <= self.last_op
        room = self._readable()
        if room is None or not self._charges.admit(self._session, 1)[0]:
            return b""
        count = min(EXPORT_RECORDS_MAX, self.last_op - self._next_op + 1)
        try:
            records = self._access.logs[room.shard].read(self.room_id, self._next_op, count)
        except Mending:
            self._wait_for_mending()
            return b""
        self._session.mended_by_ns = 0
        if not records:
            raise Unavailable("the room's oldest records were dropped meanwhile")
        self._next_op += len(records)
        raw = b"".join(records)
        self._charges.charge_work(self._session, len(raw) // HISTORY_CHARGE_SIZE)
        return raw

    def close(self) -> None:
        """Nobody reads on."""
        self._access.lookup.leave(self._session)
        self._session.on_event("close")

    def _readable(self) -> Room | None:
        self._tokens.verify_still(self._claims, self._clock.now_us)
        return self._access.readable(self._session, self.room_id)

    def _first_op(self, room: Room) -> int:
        log = self._access.logs[room.shard]
        return 1 if log.read(self.room_id, 1, 1) else log.first_op(self.room_id)

    def _wait_for_mending(self) -> bool:
        """False, as long as it is worth to wait."""
        if not self._access.awaits_mending(self._session):
            raise Unavailable("a stored segment is broken; it is being repaired")
        return False
