"""Which records are accepted, and what the others are told. The order is in the package's text."""

from appliance.base.limits import WINDOW_LENGTH
from appliance.cores.rooms.carrying import Carrying
from appliance.cores.rooms.open_ids import OpenIds
from appliance.cores.rooms.retention import Retention
from appliance.cores.rooms.room_table import SHARD_ROOM_ROW, RoomTable
from appliance.cores.rooms.shipping import Shipping
from appliance.cores.rooms.windows import Windows, key_of
from appliance.formats import event
from appliance.formats.geometry import Geometry
from appliance.formats.imported import decode_imported
from appliance.formats.policy_bits import POLICY_CLOSED
from appliance.formats.record import (
    BODY,
    KIND_CLOCK,
    KIND_FEDERATED,
    KIND_IMPORTED,
    KIND_MESSAGE,
    KIND_RETAIN,
    KIND_ROOM_CREATE,
    KIND_ROOM_POLICY,
    KIND_SHIPPED,
    KINDS_SHARD,
    body_len_in,
    made_us_of,
    msg_id_in,
)
from appliance.formats.session import (
    DUPLICATE,
    DUPLICATE_EXPIRED,
    FORBIDDEN,
    LIMIT,
    MSG_ID_TAKEN,
    OK,
    ROOM_UNKNOWN,
    SEQUENCE_GAP,
    STORAGE_FULL,
)

ACCEPTED = OK
KINDS_BOUND = frozenset((KIND_MESSAGE, KIND_IMPORTED))  # what users name themselves
CREATED = -1  # in place of a row: to be taken when the record gets its place

# (code, seq, log_seq) of a refused record; (ACCEPTED, row of the room, row of the window) else.
Verdict = tuple[int, int, int]


def owner_of(author_id: int, kind: int) -> int:
    """Whose window a record's is: what another site sends is the link's, whoever said it."""
    return 0 if kind == KIND_FEDERATED else author_id


class Validator:
    """Looks at one record after the other; changes nothing."""

    def __init__(
        self,
        geometry: Geometry,
        rooms: RoomTable,
        windows: Windows,
        retention: Retention,
        shipping: Shipping,
        carrying: Carrying,
        ids: OpenIds,
    ) -> None:
        self.corrects = False  # the prepare is one that corrects the clock
        self.binds = False  # the prepare is one that binds ids
        self._segment_records = geometry.segment_records
        self._rooms = rooms
        self._windows = windows
        self._retention = retention
        self._shipping = shipping
        self._carrying = carrying
        self._ids = ids
        self._room_row_of = rooms.row_of
        self._window_row_of = windows.row_of

    def validate(
        self,
        log_seq: int,
        timestamp: int,
        fields: tuple[bytes, bytes, int, int, bytes, int, int],
        record: memoryview,
        full_log_seq: int,
    ) -> Verdict:
        """The verdict on a record of the prepare of `timestamp`, `log_seq` being the newest; from
        `full_log_seq` on there is no place for users' records.
        """
        room_id, msg_id, author_id, own_timestamp, client_id, client_seq, kind = fields
        room_row = self._room_row_of.get(room_id, CREATED)
        if room_row == CREATED and kind != KIND_ROOM_CREATE:
            return ROOM_UNKNOWN, 0, 0
        owner = owner_of(author_id, kind)
        window_row = self._window_row_of.get(key_of(client_id, room_id, owner), CREATED)
        if window_row != CREATED:
            _, newest = self._windows.newest(window_row)
            if client_seq <= newest:
                return self._duplicate(window_row, client_seq, newest)
        else:
            newest = 0
        creates = kind == KIND_ROOM_CREATE
        if client_seq != newest + 1 and not (creates and room_row != CREATED):
            return SEQUENCE_GAP, newest + 1, 0
        if kind == KIND_MESSAGE:
            if window_row == CREATED and self._may_be_stored(author_id, record):
                return DUPLICATE_EXPIRED, 0, 0
            if room_row == SHARD_ROOM_ROW or self._is_closed(room_row):
                return FORBIDDEN, 0, 0
        elif kind == KIND_FEDERATED:
            if not self._takes_federated(room_row, client_id, record):
                return FORBIDDEN, 0, 0
        elif not self._takes(room_row, author_id, own_timestamp, kind, record, log_seq):
            return FORBIDDEN, 0, 0
        elif creates and room_row != CREATED:
            return self._known(self._rooms.created_log_seq(room_row))
        if self.binds and kind in KINDS_BOUND and self._is_taken(msg_id, room_id, author_id):
            return MSG_ID_TAKEN, 0, 0
        if log_seq < full_log_seq and room_row != CREATED and window_row != CREATED:
            return ACCEPTED, room_row, window_row
        return self._fits(
            log_seq,
            timestamp,
            kind,
            full_log_seq,
            room_row=room_row,
            window_row=window_row,
            owner=owner,
        )

    def _may_be_stored(self, author_id: int, record: memoryview) -> bool:
        """Whether the first message of a new window may have been stored under one that is gone:
        its id says that it was made before those that are left."""
        horizon_us = self._windows.horizon_us(author_id)
        if not horizon_us:
            return False
        made = made_us_of(msg_id_in(record))
        return made > 0 and made <= horizon_us

    def _is_taken(self, msg_id: bytes, room_id: bytes, author_id: int) -> bool:
        """Whether the id of this record is another user's, or of another room. His own device may
        say again what it said under a number, or as a device, that is forgotten."""
        holder = self._ids.holder(msg_id)
        return holder is not None and holder != (room_id, author_id)

    def _duplicate(self, window_row: int, client_seq: int, newest: int) -> Verdict:
        """The number was accepted before, or is older than anything that is remembered."""
        if client_seq < 1 or client_seq <= newest - WINDOW_LENGTH:
            return DUPLICATE_EXPIRED, 0, 0
        return self._known(self._windows.log_seq_of(window_row, client_seq))

    def _known(self, log_seq: int) -> Verdict:
        """Point to a record, unless retention has freed it."""
        if log_seq <= self._retention.freed_log_seq:
            return DUPLICATE_EXPIRED, 0, 0
        return DUPLICATE, 0, log_seq

    def _takes(
        self,
        room_row: int,
        author_id: int,
        timestamp: int,
        kind: int,
        record: memoryview,
        log_seq: int,
    ) -> bool:
        """Whether the room takes this kind of record, from this author, with this body."""
        if (room_row == SHARD_ROOM_ROW) != (kind in KINDS_SHARD):
            return False
        if kind in KINDS_SHARD and author_id:
            return False
        body = _body_of(record)
        if kind == KIND_ROOM_CREATE:
            return event.decode_name(body) is not None
        if kind == KIND_ROOM_POLICY:
            return event.decode_policy(body) is not None
        if kind == KIND_IMPORTED:
            return not self._is_closed(room_row) and decode_imported(body) is not None
        if kind == KIND_RETAIN:
            retain = event.decode_retain(body)
            return retain is not None and self._may_retain(retain, log_seq)
        if kind == KIND_SHIPPED:
            shipped = event.decode_shipped(body)
            if shipped is not None and shipped.action == event.CARRY_CLAIM:
                return self._carrying.may_claim(shipped)
            return shipped is not None and self._shipping.may_take(shipped, timestamp, log_seq)
        if kind == KIND_CLOCK:
            return self.corrects
        return kind in KINDS_SHARD or not self._is_closed(room_row)

    def _takes_federated(self, room_row: int, client_id: bytes, record: memoryview) -> bool:
        if room_row == SHARD_ROOM_ROW or self._is_closed(room_row):
            return False
        sites = self._rooms.sites(room_row)
        return self._carrying.may_append(client_id, _body_of(record), sites)

    def _is_closed(self, room_row: int) -> bool:
        return bool(self._rooms.bits(room_row) & POLICY_CLOSED)

    def _may_retain(self, retain: event.Retain, log_seq: int) -> bool:
        """Whole segments only; what is not shipped only if nobody is about to ship it."""
        if not retain.unshipped:
            return self._retention.may_retain(retain.oldest)
        announced = self._shipping.state.announced_end > 0
        return not announced and self._retention.may_give_up(retain.oldest, log_seq)

    def _fits(
        self,
        log_seq: int,
        timestamp: int,
        kind: int,
        full_log_seq: int,
        *,
        room_row: int,
        window_row: int,
        owner: int,
    ) -> Verdict:
        """Whether there is place for one more record, and for the rows it needs."""
        if log_seq >= full_log_seq and (
            kind not in KINDS_SHARD or log_seq >= self._retention.last_log_seq
        ):
            return STORAGE_FULL, 0, 0
        if room_row == CREATED and (self._rooms.table.full or not self._windows.may_create(owner)):
            return LIMIT, 0, 0
        if window_row == CREATED and not self._windows.can_take(owner, timestamp):
            return LIMIT, 0, 0
        return ACCEPTED, room_row, window_row


def _body_of(record: memoryview) -> bytes:
    size = body_len_in(record)
    return bytes(record[BODY : BODY + size])
