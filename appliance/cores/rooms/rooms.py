"""Rooms: the state machine of a shard, as the replication core sees it."""

from dataclasses import dataclass
from typing import Any

from appliance.base.layout import picked
from appliance.base.table import Table
from appliance.cores.rooms import admission, restore
from appliance.cores.rooms.carrying import Carrying
from appliance.cores.rooms.open_segment import OpenSegment, SegmentWrite
from appliance.cores.rooms.retention import Retention
from appliance.cores.rooms.room_table import RoomTable
from appliance.cores.rooms.shipping import Shipping
from appliance.cores.rooms.validator import ACCEPTED, CREATED, Validator, owner_of
from appliance.cores.rooms.windows import Windows, key_of
from appliance.formats import event
from appliance.formats.checkpoint import CarryingState, Manifest, ShippingState
from appliance.formats.envelope import (
    OPERATION_APPEND,
    OPERATION_APPEND_BINDING,
    OPERATION_APPEND_CLOCK,
    OPERATION_APPEND_SPARING,
    OPERATIONS_APPEND,
)
from appliance.formats.geometry import RECORD_SIZE, RESULT_SIZE, ROOM_ROW_SIZE, Geometry
from appliance.formats.record import (
    BODY,
    KIND_CLOCK,
    KIND_MESSAGE,
    KIND_RETAIN,
    KIND_ROOM_CREATE,
    KIND_ROOM_POLICY,
    KIND_SHIPPED,
    RECORD,
    any_made_later,
    body_len_in,
    made_us_of,
    timestamp_in,
)
from appliance.formats.session import OK, RESULT_STRUCT
from appliance.formats.sharing import site_words

_VALIDATED = picked(
    RECORD, "room_id", "msg_id", "author_id", "timestamp", "client_id", "client_seq", "flags"
)
_ZERO4, _ZERO32 = bytes(4), bytes(32)


@dataclass(frozen=True, slots=True)
class StateCheckpoint:
    """The state after the newest op, as its manifest names it; the caller freezes the tables."""

    log_seq: int
    shipper_cursor: int
    oldest_segment: int
    oldest_segment_before: int
    newest_segment_id: bytes
    leaf_ids: list[bytes]
    tables: dict[str, Table]
    shipping: ShippingState
    carrying: CarryingState
    ahead_us: int


class Rooms:
    """Applies committed batches. Every method runs to completion; none looks outside.

    `ring` holds `ring_size(geometry)` zero bytes that only this object writes.
    """

    def __init__(
        self, *, geometry: Geometry, cluster: bytes, shard: int, segments_max: int, ring: memoryview
    ) -> None:
        self._geometry = geometry
        self._identity = (cluster, shard, segments_max)
        self._rooms = RoomTable(geometry)
        self._windows = Windows(geometry)
        self._retention = Retention(geometry, segments_max)
        self._shipping = Shipping(self._retention)
        self._carrying = Carrying()
        self._crossing = 0
        self._segment = OpenSegment(geometry=geometry, cluster=cluster, shard=shard, ring=ring)
        self._validator = Validator(
            geometry,
            self._rooms,
            self._windows,
            self._retention,
            self._shipping,
            self._carrying,
            self._segment.ids,
        )

    @property
    def log_seq(self) -> int:
        """The newest committed record."""
        return self._segment.log_seq

    @property
    def ahead_us(self) -> int:
        """The time of prepares less that of records, since the clock was last corrected."""
        return self._shipping.ahead_us

    @property
    def crossing_log_seq(self) -> int:
        """Behind this record none is of a room that other sites share, and none creates a room,
        says who shares it or claims to carry such rooms: perhaps none before it does either."""
        return self._crossing

    # --- before a prepare, on the primary

    def input_valid(self, operation: int, body: bytes | memoryview) -> bool:
        """Whether `body`, what follows the session block, may be prepared as `operation`."""
        if operation == OPERATION_APPEND_CLOCK:
            return admission.correction_of(body) is not None
        return operation == OPERATION_APPEND and admission.records_valid(
            body, self._geometry.records_max
        )

    def prepare(self, operation: int, timestamp: int, body: bytearray | memoryview) -> None:
        """Stamp valid records in place: the last gets `timestamp`, less what the log is ahead, each
        before 1 µs less. What corrects the clock gets the time that it wants, if that is earlier;
        nothing may be prepared behind it until it is applied here."""
        assert operation in OPERATIONS_APPEND
        own_us = timestamp - self.ahead_us
        if operation == OPERATION_APPEND_CLOCK:
            own_us = admission.put_correction(body, own_us, self.ahead_us)
        admission.stamp(body, own_us)

    # --- applying

    def can_commit(self, record_count: int) -> bool:
        """False while the buffer that the batch may need holds a segment that is not durable."""
        return self._segment.can_append(record_count)

    def commit(self, op: int, operation: int, timestamp: int, body: bytes | memoryview) -> bytes:
        """Judge and place each record of a prepare; 64 bytes of result for each, in order."""
        assert len(body) % RECORD_SIZE == 0
        assert self.can_commit(len(body) // RECORD_SIZE)
        view = memoryview(body)
        timestamp = self._begin(operation, timestamp, view)
        validate, segment = self._validator.validate, self._segment
        append, advance_window = segment.append, self._windows.advance
        pack, made_later = RESULT_STRUCT.pack_into, any_made_later(body)
        binds, taken = self._validator.binds, segment.ids.log_seq_of
        full_log_seq = self._full_log_seq(operation)
        results = bytearray(len(body) // RECORD_SIZE * RESULT_SIZE)
        heads: dict[int, list[Any]] = {}  # row of a room -> [hash of its newest record, seq]
        # (room, device, author) -> [next client_seq, row of its window, head of its room, whose]
        senders: dict[tuple[bytes, bytes, int], list[Any]] = {}
        log_seq, start, at = segment.log_seq, 0, 0
        for fields in _VALIDATED.iter_unpack(body):
            room_id, msg_id, author_id, own_timestamp, client_id, client_seq, kind = fields
            record = view[start : start + RECORD_SIZE]
            start += RECORD_SIZE
            sender = senders.get((room_id, client_id, author_id))
            # A device's next message to a room that took one of it in this batch: nothing that the
            # validate looks at has changed but the place that is left, and no window had to go.
            if (
                sender is None
                or sender[0] != client_seq
                or kind != KIND_MESSAGE
                or log_seq >= full_log_seq
                or (taken.setdefault(msg_id, log_seq + 1) <= log_seq and binds)
            ):
                code, first, second = validate(log_seq, timestamp, fields, record, full_log_seq)
                if code != ACCEPTED:
                    pack(results, at, first, second, 0, code, _ZERO4, _ZERO32)
                    at += RESULT_SIZE
                    continue
                room_row = self._rooms.create(room_id) if first == CREATED else first
                owner, window_row = owner_of(author_id, kind), second
                if window_row == CREATED:
                    window_row = self._window(key_of(client_id, room_id, owner), timestamp, senders)
                if room_row not in heads:
                    heads[room_row] = list(self._rooms.head(room_row))
                sender = [client_seq, window_row, heads[room_row], owner]
                senders[room_id, client_id, author_id] = sender
                taken.setdefault(msg_id, log_seq + 1)
            _, window_row, head, owner = sender
            sender[0] = client_seq + 1
            head[1] = seq = head[1] + 1
            log_seq += 1
            head[0] = digest = append(record, head[0], seq)
            # what is no later than the record's time tells nothing; ids of other kinds tell none
            made_us = made_us_of(msg_id) if made_later and kind == KIND_MESSAGE else 0
            advance_window(window_row, owner, client_seq, log_seq, own_timestamp, made_us)
            pack(results, at, seq, log_seq, own_timestamp, OK, _ZERO4, digest)
            at += RESULT_SIZE
            if kind != KIND_MESSAGE:
                self._take_effect(kind, room_row, record)
                senders.clear()  # that may be on any of them
            if segment.full:
                self._seal()
        self._advance(heads, op)
        segment.publish()
        return bytes(results)

    def _window(self, key: bytes, timestamp: int, senders: dict[Any, list[Any]]) -> int:
        """The row of a new window; another may have to go, of any of the `senders`."""
        row, evicted = self._windows.take(key, timestamp)
        if evicted:
            senders.clear()
        return row

    def _full_log_seq(self, operation: int) -> int:
        """From where on there is no place for users' records; a sparing prepare has a place for the
        shard's own alone."""
        return 0 if operation == OPERATION_APPEND_SPARING else self._retention.full_log_seq

    def _advance(self, heads: dict[int, list[Any]], op: int) -> None:
        """Rooms go on behind what `op` gave them."""
        for room_row, (digest, seq) in heads.items():
            self._rooms.advance(room_row, digest, seq, op)
        if not self._rooms.shared.isdisjoint(heads):
            self._crossing = self._segment.log_seq

    def _begin(self, operation: int, timestamp: int, body: memoryview) -> int:
        """The time that records of this prepare bear, unless it corrects the clock: whether it
        does, and whether it binds ids, is told to the validator."""
        assert operation in OPERATIONS_APPEND
        own_us = timestamp - self.ahead_us
        self._validator.corrects = False
        self._validator.binds = operation == OPERATION_APPEND_BINDING
        if operation == OPERATION_APPEND_CLOCK and len(body) == RECORD_SIZE:
            asked = event.decode_correction(admission.body_of(body))
            borne_us = timestamp_in(body)
            noted = asked is not None and asked[1:] == (own_us, self.ahead_us)
            self._validator.corrects = noted and borne_us < own_us
        return own_us

    def _take_effect(self, kind: int, room_row: int, record: memoryview) -> None:
        """What an accepted record other than a message changes beside its room's chain."""
        log_seq = self._segment.log_seq
        body = bytes(record[BODY : BODY + body_len_in(record)])
        if kind == KIND_ROOM_CREATE:
            self._crossing = log_seq
            self._rooms.set_policy(room_row, log_seq, log_seq, 0)
        elif kind == KIND_ROOM_POLICY:
            policy = event.decode_policy(body)
            assert policy is not None
            self._crossing = log_seq
            created = self._rooms.created_log_seq(room_row)
            sites = site_words(policy.sharing.sites) if policy.sharing is not None else ()
            self._rooms.set_policy(room_row, log_seq, created, policy.bits, sites)
        elif kind == KIND_RETAIN:
            retain = event.decode_retain(body)
            assert retain is not None
            if retain.unshipped:
                self._retention.give_up(retain.oldest)
            self._retention.retain(retain.oldest)
        elif kind == KIND_SHIPPED:
            shipped = event.decode_shipped(body)
            assert shipped is not None
            if shipped.action == event.CARRY_CLAIM:
                self._crossing = log_seq
                self._carrying.claim(shipped)
            else:
                self._shipping.take(shipped)
        elif kind == KIND_CLOCK:
            asked = event.decode_correction(body)
            assert asked is not None
            borne_us = timestamp_in(record)
            self._shipping.ahead_us += asked.was_us - borne_us
            self._windows.correct(borne_us)

    def _seal(self) -> None:
        """Close the full segment; its rooms point to it from now on."""
        number = self._segment.number
        for room_id in self._segment.seal(self._rooms.sealed):
            self._rooms.set_sealed(room_id, number)

    # --- the disk

    def take_writes(self) -> list[SegmentWrite]:
        """Writes that may start now, in order; ask again after commit, flush and each report."""
        return self._segment.take_writes()

    def on_segment_written(self, write: SegmentWrite) -> None:
        """`write` is durable."""
        self._segment.on_written(write)

    def flush(self) -> None:
        """Queue what is not yet written of the open segment."""
        self._segment.flush()

    def durable_log_seq(self) -> int:
        """Records up to here are durable in segments."""
        return self._segment.durable_log_seq

    # --- checkpoints

    def checkpoint(self) -> StateCheckpoint:
        """The state now. To be called once for each trigger op, right after it was applied."""
        self._retention.on_checkpoint()
        return StateCheckpoint(
            log_seq=self._segment.log_seq,
            shipper_cursor=self._retention.shipper_cursor,
            oldest_segment=self._retention.oldest,
            oldest_segment_before=self._retention.before,
            newest_segment_id=self._segment.newest_id,
            leaf_ids=self._segment.leaf_ids_so_far(),
            tables={"rooms": self._rooms.table, "windows": self._windows.table},
            shipping=self._shipping.state,
            carrying=self._carrying.state,
            ahead_us=self.ahead_us,
        )

    def restore(
        self, manifest: Manifest, tables: dict[str, list[bytes]], leaves: list[bytes]
    ) -> None:
        """Become the state that `manifest` names, all of it durable here already.

        The ids of manifest and chunks were verified by the caller. Raises FormatError on bytes that
        are no such state, ChainError when a room's chain inside the open segment does not hold.
        """
        self.reset()
        cluster, shard, segments_max = self._identity
        assert (manifest.cluster, manifest.shard) == (cluster, shard)
        assert manifest.segments_max == segments_max
        self._rooms.load(tables["rooms"], manifest.tables["rooms"].row_high_water)
        self._windows.load(tables["windows"], manifest.tables["windows"].row_high_water)
        self._retention.set(
            oldest=manifest.oldest_segment,
            before=manifest.oldest_segment_before,
            shipper_cursor=manifest.shipper_cursor,
        )
        self._shipping.state = manifest.shipping
        self._carrying.state = manifest.carrying
        self._shipping.ahead_us = manifest.ahead_us
        self._segment.resume(log_seq=manifest.log_seq, newest_id=manifest.newest_segment_id)
        restore.open_segment(self._geometry, manifest, leaves, self._segment, self._rooms)
        self._crossing = manifest.log_seq

    def reset(self) -> None:
        """Back to the empty state."""
        self._rooms.clear()
        self._windows.clear()
        self._retention.set(oldest=0, before=0, shipper_cursor=0)
        self._shipping.state = ShippingState()
        self._carrying.state = CarryingState()
        self._shipping.ahead_us = 0
        self._segment.clear()
        self._crossing = 0

    # --- reading

    @property
    def shipping(self) -> ShippingState:
        """Who ships, and which period is next."""
        return self._shipping.state

    @property
    def carrying(self) -> CarryingState:
        """Who carries the shared rooms."""
        return self._carrying.state

    @property
    def shipper_cursor(self) -> int:
        """The newest record that is known to be shipped."""
        return self._retention.shipper_cursor

    @property
    def oldest_segment(self) -> int:
        """Segments below have been dropped, and their extents are used again in time."""
        return self._retention.oldest

    @property
    def oldest_segment_needed(self) -> int:
        """The extents of segments below may be written again."""
        return self._retention.before

    def leaf(self, number: int, index: int, count: int) -> bytes | None:
        """The first `count` records of a leaf, if the ring holds as many; else look on the disk."""
        return self._segment.leaf(number, index, count)

    def newest_sealed(self) -> tuple[int, bytes]:
        """(number, id) of the newest sealed segment; -1 while it is not durable, or none is."""
        return self._segment.newest_sealed()

    def in_ring(self, number: int) -> bool:
        """Whether segment `number` is one of the newest two."""
        return self._segment.in_ring(number)

    def durable_sectors(self, number: int, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on in the extent of segment `number`: whole sectors that
        are durable and do not change any more, as the ring holds them; empty when it does not."""
        return self._segment.durable_sectors(number, offset, size)

    def room_rows(self, first_row: int, count: int) -> bytes:
        """Up to `count` rows of the rooms table from `first_row` on; row 0 is the shard's room."""
        table = self._rooms.table
        end = min(first_row + count, table.row_high_water)
        return bytes(table.memory[min(first_row, end) * ROOM_ROW_SIZE : end * ROOM_ROW_SIZE])

    def room_row(self, room_id: bytes) -> bytes | None:
        """The row of one room."""
        row = self._rooms.row_of.get(bytes(room_id))
        return None if row is None else bytes(self._rooms.table.row(row))
