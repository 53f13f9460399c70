"""The state of a shard made anew from its records: they are committed again, and each must get the
bytes that it had.

    committed   records as they lie in segments and shipped files: placed where they were, or not
                taken, and everything of their room that follows with them
    prepared    what a log holds beyond that, judged as it was to be

A record's hash covers its place in the log. So what cannot be taken leaves a hole that is filled,
once anything is to be taken behind it: with a record of a room of its own, which says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from appliance.base.errors import ChainError
from appliance.base.layout import picked
from appliance.base.limits import SECTOR_SIZE
from appliance.cores.rooms import admission
from appliance.cores.rooms.open_segment import SegmentWrite
from appliance.cores.rooms.rooms import Rooms, StateCheckpoint
from appliance.formats import event
from appliance.formats.checkpoint import ROOM_ROW, Manifest, ShippingState
from appliance.formats.envelope import OPERATION_APPEND, OPERATION_APPEND_CLOCK
from appliance.formats.geometry import RECORD_SIZE, Geometry
from appliance.formats.record import (
    FLAGS_KIND_MASK,
    KIND_AUDIT,
    KIND_CLOCK,
    KIND_FEDERATED,
    KIND_MESSAGE,
    KIND_ROOM_CREATE,
    RECORD,
    encode,
    room_id_in,
)
from appliance.formats.room_name import room_creator_id, room_id_of
from appliance.formats.room_names import decode_room_names
from appliance.formats.session import OK, RESULT, RESULT_NAMES
from appliance.formats.sharing import carrier_client_id

SEGMENTS_BOUND = 1 << 31  # more than any volume has: a record that was stored had a place
FILLER_DEVICE = b"tigerchat-filler"
_LINKED = picked(RECORD, "room_id", "prev_hash", "client_id", "flags", "seq", "log_seq")
_PERSON = b"tc-filler"
_ZERO32 = bytes(32)
_NEW = (_ZERO32, 0)  # head of a room without records

Span = tuple[int, int]  # first, and the one after the last


@dataclass(slots=True)
class Cut:
    """What of a room is not taken: seq of the first and of the last one that was seen."""

    first: int
    last: int


class Rebuild:
    """Inputs: spans of the log in order. Outputs: writes of segments, then `state`.

    Invariants: each record of `rooms` has the bytes that its source had, or is a filler; of a room
    in `cuts` nothing more is taken; `missing` places before `rooms.log_seq` + 1 + `missing` were
    seen and not taken, and nothing behind them yet.
    """

    def __init__(
        self, *, geometry: Geometry, cluster: bytes, shard: int, ring: memoryview, gap_room: str
    ) -> None:
        """`gap_room` is the name of a room of this shard, which nobody may have used: of fillers"""
        self.rooms = Rooms(
            geometry=geometry, cluster=cluster, shard=shard, segments_max=SEGMENTS_BOUND, ring=ring
        )
        self.op = geometry.checkpoint_ops  # everything is of the first checkpoint
        self.cuts: dict[bytes, Cut] = {}
        self.names: dict[bytes, bytes] = {}  # of rooms, as far as their first record was seen
        self.unreadable = 0  # places of which nothing is known
        self.fillers = 0  # records that stand for others
        self.missing = 0
        self._records_max = geometry.records_max
        self._segment_records = geometry.segment_records
        self._is_resumed = False
        self._tail: SegmentWrite | None = None
        self._gap_room = gap_room
        self._heads: dict[bytes, tuple[bytes, int]] = {}
        self._newest_us = 0

    @property
    def next_log_seq(self) -> int:
        """The place that is looked at next."""
        return self.rooms.log_seq + self.missing + 1

    # --- what was committed

    def resume(
        self, manifest: Manifest, tables: dict[str, list[bytes]], records: bytes
    ) -> Iterator[SegmentWrite]:
        """Begin with the state of a verified checkpoint instead, whose oldest records are not kept;
        `records` are those of its open segment."""
        assert self.rooms.log_seq == 0
        self._is_resumed = True
        size = self._records_max * RECORD_SIZE
        leaves = [records[at : at + size] for at in range(0, len(records), size)]
        self.rooms.restore(manifest, tables, leaves)
        self._newest_us = manifest.timestamp - manifest.ahead_us
        rows = np.frombuffer(self.rooms.room_rows(0, 1 << 32), ROOM_ROW)
        for row in rows:
            head = row["head_hash"].tobytes(), int(row["message_count"])
            self._heads[row["room_id"].tobytes()] = head
        number, end = manifest.log_seq // self._segment_records, len(records)
        whole = end // SECTOR_SIZE * SECTOR_SIZE
        if whole:
            yield SegmentWrite(number, 0, records[:whole], manifest.log_seq, tail=False)
        if end > whole:  # of its last sector; what follows brings it along
            padded = records[whole:].ljust(SECTOR_SIZE, b"\0")
            self._tail = SegmentWrite(number, whole, padded, manifest.log_seq, tail=True)

    def skip(self, count: int) -> None:
        """Nobody has anything of the next `count` places."""
        assert count > 0
        self.unreadable += count
        self.missing += count

    def take(
        self, records: memoryview, digests: list[bytes], doubtful: Sequence[Span] = ()
    ) -> Iterator[SegmentWrite]:
        """The records of the next places, with the hash of each; nobody vouches for those in the
        spans of `doubtful` (positions). Raises ChainError where the rules do not let pass what is
        whole."""
        count = len(digests)
        assert count * RECORD_SIZE == len(records)
        linked = list(_LINKED.iter_unpack(records))
        broken = _broken(digests, linked, doubtful) if doubtful else set()
        heads, start, log_seq = self._heads, 0, self.next_log_seq
        for index, (room_id, prev_hash, client_id, flags, seq, told) in enumerate(linked):
            head = heads.get(room_id, _NEW)
            follows = head == (prev_hash, seq - 1) and told == log_seq + index
            if flags & FLAGS_KIND_MASK == KIND_FEDERATED and client_id != self._carrier:
                yield from self._append(records, digests, start, index)
                start = index
                follows &= client_id == self._carrier  # else the claim to carry it is lost
            if follows and index not in broken:
                heads[room_id] = (digests[index], seq)
                continue
            yield from self._append(records, digests, start, index)
            start = index + 1
            self.missing += 1
            if index in broken:
                self.unreadable += 1
            else:
                self._cut(room_id, seq)
        yield from self._append(records, digests, start, count)

    @property
    def _carrier(self) -> bytes:
        """The device of what another site made, as far as records are placed."""
        return carrier_client_id(self.rooms.carrying.generation)

    def _cut(self, room_id: bytes, seq: int) -> None:
        cut = self.cuts.setdefault(room_id, Cut(self._heads.get(room_id, _NEW)[1] + 1, seq))
        cut.last = max(cut.last, seq)

    def _append(
        self, records: memoryview, digests: list[bytes], start: int, end: int
    ) -> Iterator[SegmentWrite]:
        """Commit records `start` to `end`, in prepares as they may have come: the times of a
        prepare's records differ by a microsecond, what corrects the clock came alone."""
        if start == end:
            return
        yield from self._fill()
        part = records[start * RECORD_SIZE : end * RECORD_SIZE]
        rows = np.frombuffer(part, RECORD)
        stamps = rows["timestamp"].astype(np.int64)
        self.note_names(part)
        clocks = rows["flags"] & FLAGS_KIND_MASK == KIND_CLOCK
        begins = (np.diff(stamps) != 1) | clocks[1:] | clocks[:-1]
        bounds = [0, *(np.flatnonzero(begins) + 1).tolist(), end - start]
        for first, last in zip(bounds, bounds[1:], strict=False):
            for low in range(first, last, self._records_max):
                high = min(last, low + self._records_max)
                body = part[low * RECORD_SIZE : high * RECORD_SIZE]
                results = self._commit(body, int(stamps[high - 1]), corrects=bool(clocks[low]))
                self._check(results, digests[start + low : start + high])
                yield from self.writes()
        self._newest_us = int(stamps[-1])

    def note_names(self, records: memoryview) -> None:
        """Of rooms that these create, or that they name because their first record is dropped."""
        kinds = np.frombuffer(records, RECORD)["flags"] & FLAGS_KIND_MASK
        for row in np.flatnonzero((kinds == KIND_ROOM_CREATE) | (kinds == KIND_AUDIT)).tolist():
            record = records[row * RECORD_SIZE : (row + 1) * RECORD_SIZE]
            body = admission.body_of(record)
            if kinds[row] == KIND_ROOM_CREATE:
                self.names[bytes(room_id_in(record))] = body
                continue
            for name in decode_room_names(body):
                self.names[room_id_of(name)] = name.encode()

    def _commit(self, body: memoryview, newest_us: int, *, corrects: bool = False) -> np.ndarray:
        operation, timestamp = OPERATION_APPEND, newest_us + self.rooms.ahead_us
        asked = event.decode_correction(admission.body_of(body)) if corrects else None
        if asked is not None:
            operation, timestamp = OPERATION_APPEND_CLOCK, asked.was_us + asked.ahead_us
        assert self.rooms.can_commit(len(body) // RECORD_SIZE)
        return np.frombuffer(self.rooms.commit(self.op, operation, timestamp, body), RESULT)

    def _check(self, results: np.ndarray, digests: list[bytes]) -> None:
        """Each record was accepted, and is what it was."""
        refused = np.flatnonzero(results["code"] != OK)
        if len(refused):
            code = RESULT_NAMES[int(results["code"][refused[0]])]
            log_seq = self.rooms.log_seq - len(results) + len(refused) + int(refused[0]) + 1
            raise ChainError(
                f"record {log_seq} is whole, and refused when it is stored again: {code}"
            )
        assert results["hash"].tobytes() == b"".join(digests)

    # --- holes

    def _fill(self) -> Iterator[SegmentWrite]:
        """Put a record into each place that is missing, now that something follows."""
        while self.missing:
            count = min(self.missing, self._records_max)
            if not self.fillers:
                count = 1  # the room's own record
            body = b"".join(self._filler(number) for number in range(count))
            results = self._commit(memoryview(body), self._newest_us + count)
            if (results["code"] != OK).any():
                raise ChainError(f"the room {self._gap_room} does not take what stands for records")
            self._newest_us += count
            self.fillers += count
            self.missing -= count
            yield from self.writes()

    def _filler(self, number: int) -> bytes:
        """For the place `number` behind the next one."""
        log_seq = self.rooms.log_seq + 1 + number
        room_id, creates = room_id_of(self._gap_room), not self.fillers
        told = room_id + log_seq.to_bytes(8, "little")
        text = self._gap_room if creates else f"record {log_seq} was not restored"
        return encode(
            room_id=room_id,
            msg_id=blake2b(told, digest_size=16, person=_PERSON).digest(),
            author_id=0,
            body=text.encode(),
            client_id=room_creator_id(room_id, 0) if creates else FILLER_DEVICE,
            client_seq=1 if creates else self.fillers + number,
            kind=KIND_ROOM_CREATE if creates else KIND_MESSAGE,
            timestamp=self._newest_us + 1 + number,
        )

    # --- what was prepared

    def apply(self, operation: int, timestamp: int, body: memoryview) -> Iterator[SegmentWrite]:
        """A prepare of records behind all that was committed. What is of a room that was cut is
        not taken."""
        rooms_of = [fields[0] for fields in _LINKED.iter_unpack(body)]
        self.note_names(body)
        if self.cuts.keys().isdisjoint(rooms_of):
            yield from self._fill()
            assert self.rooms.can_commit(len(rooms_of))
            self.rooms.commit(self.op, operation, timestamp, body)
            self._newest_us = timestamp - self.rooms.ahead_us
            yield from self.writes()
            return
        for index, room_id in enumerate(rooms_of):
            if room_id in self.cuts:
                self.missing += 1
                self._cut(room_id, self.cuts[room_id].last + 1)
                continue
            yield from self._fill()
            one = body[index * RECORD_SIZE : (index + 1) * RECORD_SIZE]
            self.rooms.commit(self.op, operation, timestamp, one)
            yield from self.writes()
        self._newest_us = timestamp - self.rooms.ahead_us

    # --- the outcome

    def writes(self) -> Iterator[SegmentWrite]:
        """What is to be written now; each counts as written when the next one is asked for."""
        while taken := self.rooms.take_writes():
            for write in taken:
                yield write
                self.rooms.on_segment_written(write)

    def finish(self) -> Iterator[SegmentWrite]:
        """What is left of the open segment."""
        self.rooms.flush()
        yield from self.writes()
        if self._tail is not None and self._tail.last_log_seq == self.rooms.log_seq:
            yield self._tail
        assert self.rooms.durable_log_seq() == self.rooms.log_seq

    def state(self) -> StateCheckpoint:
        """The state of a cluster that begins with it: all that is here is kept, nothing is shipped
        but what is here no more. Claims go on counting, as those of before stand in the log."""
        oldest = self.rooms.oldest_segment if self._is_resumed else 0
        state, claimed = self.rooms.checkpoint(), self.rooms.shipping
        return StateCheckpoint(
            log_seq=state.log_seq,
            shipper_cursor=oldest * self._segment_records,
            oldest_segment=oldest,
            oldest_segment_before=oldest,
            newest_segment_id=state.newest_segment_id,
            leaf_ids=state.leaf_ids,
            tables=state.tables,
            shipping=ShippingState(generation=claimed.generation, node=claimed.node),
            carrying=state.carrying,
            ahead_us=state.ahead_us,
        )

    @property
    def timestamp(self) -> int:
        """The log's time: of the newest prepare."""
        return self._newest_us + self.rooms.ahead_us


def _broken(
    digests: list[bytes],
    linked: list[tuple[bytes, bytes, bytes, int, int, int]],
    doubtful: Sequence[Span],
) -> set[int]:
    """Positions of what cannot be shown to be whole: of a doubtful record the next one of its room
    must name the hash. Whose room has no later record here is not shown to be anything."""
    named: dict[bytes, bytes] = {}  # room -> the hash that its next record says it follows
    unsure = {index for first, end in doubtful for index in range(first, end)}
    broken = set()
    for index in range(len(linked) - 1, -1, -1):
        room_id, prev_hash, *_ = linked[index]
        if index in unsure:
            if named.get(room_id) != digests[index]:
                broken.add(index)
        named[room_id] = prev_hash  # also of a broken one: no accident makes a hash fit
    return broken
