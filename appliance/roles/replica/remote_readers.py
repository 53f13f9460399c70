"""Edges of other nodes that read this replica's log over their links (`formats/remote.py`): records
out of the ring as they are committed, rows and names of rooms, sealed segments from the disk.

Nothing is kept for a reader but the question about records that are not there yet, and that one of
another kind is being answered; both end with its connection. The disk is read in a thread.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from appliance.base.limits import REMOTE_KEEP_MS
from appliance.cores.rooms.rooms import Rooms
from appliance.drivers.network.link import Connection
from appliance.drivers.nvme.device import locate_extent
from appliance.drivers.nvme.volume import Volume
from appliance.formats import local, remote
from appliance.formats.checkpoint import POLICY, ROOM_ROW
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RECORD_SIZE, ROOM_ROW_SIZE
from appliance.formats.record import BODY, body_len_in, log_seq_in
from appliance.formats.remote import (
    REMOTE_READ,
    REMOTE_READ_ROOMS,
    REMOTE_READ_SEGMENT,
    REMOTE_RECORDS,
    REMOTE_ROOMS,
    REMOTE_SEGMENT,
)
from appliance.formats.room_name import room_id_of
from appliance.formats.segment import RingView, first_log_seq_of, number_of, slot_of
from appliance.formats.status.replica import LogStanding

_ROOM_ID_SIZE = 16
Send = Callable[[Connection, Header, bytes], object]


@dataclass(slots=True, eq=False)
class _Reader:
    """What is kept of a connection: a question about records, and since when; kinds of others."""

    waits: Header | None = None
    since_s: float = 0.0
    under_way: set[int] = field(default_factory=set)


class RemoteReaders:
    """`send` signs and sends, now or never; `standing` tells how the replica is."""

    def __init__(
        self,
        rooms: Rooms,
        volume: Volume,
        ring: memoryview,
        *,
        send: Send,
        standing: Callable[[], LogStanding],
        drops: Counter[str],
    ) -> None:
        self._rooms, self._volume, self._geometry = rooms, volume, volume.geometry
        self._ring = RingView(ring, volume.geometry)
        self._send, self._standing, self._drops = send, standing, drops
        self._readers: dict[Connection, _Reader] = {}
        self._published = 0  # newest record that may be read

    # --- what the role tells

    def on_published(self, log_seq: int) -> None:
        """Records up to here are committed: who waits for them is answered."""
        self._published = log_seq
        if self._readers:
            for connection, reader in list(self._readers.items()):
                if reader.waits is not None and reader.waits.op <= log_seq:
                    self._answer_read(connection, reader, reader.waits)

    def on_time(self) -> None:
        """Several times a second: nobody waits for long, so that all know how the replica is."""
        if self._readers:
            kept_s = asyncio.get_running_loop().time() - REMOTE_KEEP_MS / 1000
            for connection, reader in list(self._readers.items()):
                if reader.waits is not None and reader.since_s <= kept_s:
                    self._answer_read(connection, reader, reader.waits)

    def on_closed(self, connection: Connection) -> None:
        """Nobody waits there."""
        self._readers.pop(connection, None)

    def on_question(self, connection: Connection, message: Message) -> None:
        """A reader asks; one that asks the same kind again before it was answered is not heard."""
        header = message.header
        reader = self._readers.setdefault(connection, _Reader())
        if header.command == REMOTE_READ:
            if header.op > self._published or not self._standing().state_ready:
                reader.waits = header
                reader.since_s = asyncio.get_running_loop().time()
            else:
                self._answer_read(connection, reader, header)
        elif header.command in reader.under_way:
            self._drops["question_under_way"] += 1
        elif header.command == REMOTE_READ_ROOMS:
            self._answer_rooms(connection, reader, message)
        else:
            assert header.command == REMOTE_READ_SEGMENT
            piece = partial(self._piece, header.op, header.aux)
            self._run(connection, reader, header, piece if self._is_there(header.op) else bytes)

    # --- records

    def _answer_read(self, connection: Connection, reader: _Reader, asked: Header) -> None:
        reader.waits = None
        first, records = self._records(asked.op)
        standing = self._standing()
        body = remote.encode_records(standing, self._published, self._geometry, records)
        self._send(connection, local.answer(asked, REMOTE_RECORDS, op=first, body=body), body)

    def _records(self, wanted: int) -> tuple[int, bytes]:
        """The first record that is brought, and records from there on, as many as one answer takes:
        from `wanted` on, or from where the ring begins if those are not in it."""
        geometry, published = self._geometry, self._published
        if wanted > published:
            return wanted, b""
        begin = self._ring_begin()
        for first in (wanted, begin):
            if 0 < first <= published:
                number, slot = number_of(geometry, first), slot_of(geometry, first)
                count = min(
                    geometry.records_max, geometry.segment_records - slot, published + 1 - first
                )
                records = self._ring.records(number, slot, count)
                if records is not None:
                    return first, records
        return begin, b""

    def _ring_begin(self) -> int:
        """The first record of the older segment that the ring holds whole, or else of the newest
        one; the one to come if that is full, as the ring of a replica that has just started does
        not hold it. 0: it is not to be had now."""
        geometry, published = self._geometry, self._published
        number = number_of(geometry, max(published, 1))
        following = first_log_seq_of(geometry, number + 1)
        if number and self._ring.record_count(number - 1) == geometry.segment_records:
            return first_log_seq_of(geometry, number - 1)
        if published == 0 or self._ring.record_count(number) is not None:
            return first_log_seq_of(geometry, number)
        return following if published == following - 1 else 0

    # --- rooms

    def _answer_rooms(self, connection: Connection, reader: _Reader, message: Message) -> None:
        asked, log_seq = message.header, self._rooms.log_seq
        rows = self._rows(message)
        table = np.frombuffer(rows, ROOM_ROW)
        created = table["policy"].view(POLICY)["created_log_seq"].tolist()
        ids = [row.tobytes() for row in table["room_id"]]
        self._run(connection, reader, asked, partial(self._named, rows, ids, created), log_seq)

    def _rows(self, message: Message) -> bytes:
        header, body, most = message.header, message.body, remote.rooms_max(self._geometry)
        if not body:
            return self._rooms.room_rows(header.op, min(header.aux, most))
        row, missing, size = self._rooms.room_row, bytes(ROOM_ROW_SIZE), _ROOM_ID_SIZE
        ids = [bytes(body[at : at + size]) for at in range(0, len(body), size)]
        return b"".join(row(room_id) or missing for room_id in ids[:most])

    def _named(self, rows: bytes, ids: list[bytes], created: list[int]) -> bytes:
        """In a thread: rows, and the names that rooms were made under."""
        return remote.encode_rooms(rows, [*map(self._name, ids, created)])

    def _name(self, room_id: bytes, created: int) -> bytes:
        record = self._record(created) if 1 <= created <= self._published else None
        if record is None:
            return b""
        name = record[BODY : BODY + body_len_in(record)]
        text = name.decode(errors="replace")
        return name if room_id_of(text) == room_id else b""

    def _record(self, log_seq: int) -> bytes | None:
        number, slot = number_of(self._geometry, log_seq), slot_of(self._geometry, log_seq)
        record = self._ring.records(number, slot, 1)
        if record is None:
            record = self._read_extent(number, slot * RECORD_SIZE, RECORD_SIZE)
        return record if record and log_seq_in(record) == log_seq else None

    # --- sealed segments

    def _is_there(self, number: int) -> bool:
        """Whether a segment is sealed, all of it durable, and not freed."""
        newest, _ = self._rooms.newest_sealed()  # none of a lower number is less durable
        open_number = number_of(self._geometry, self._rooms.log_seq + 1)
        is_durable = number < open_number - 1 or number == newest
        return is_durable and number >= self._rooms.oldest_segment

    def _piece(self, number: int, index: int) -> bytes:
        """In a thread: a piece of a sealed segment; empty behind its end."""
        geometry, size = self._geometry, remote.piece_size(self._geometry)
        offset = index * size
        if offset >= geometry.extent_size:
            return b""
        return self._read_extent(number, offset, min(size, geometry.extent_size - offset))

    def _read_extent(self, number: int, offset: int, size: int) -> bytes:
        """Bytes of an extent, zeros behind its end; empty: it cannot be read."""
        path, start = locate_extent(
            self._volume.folder, number % self._volume.segments_max, self._geometry
        )
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(file, size, start + offset).ljust(size, b"\0")
        except OSError:
            return b""
        finally:
            os.close(file)

    # --- in a thread

    def _run(
        self,
        connection: Connection,
        reader: _Reader,
        asked: Header,
        work: Callable[[], bytes],
        log_seq: int = 0,
    ) -> None:
        """Answer with what `work` gives, which reads the disk."""

        def done(found: "asyncio.Future[bytes]") -> None:
            reader.under_way.discard(asked.command)
            if found.cancelled() or self._readers.get(connection) is not reader:
                return
            command = REMOTE_ROOMS if asked.command == REMOTE_READ_ROOMS else REMOTE_SEGMENT
            op = log_seq if command == REMOTE_ROOMS else asked.op
            body = found.result()
            self._send(connection, local.answer(asked, command, op=op, body=body), body)

        reader.under_way.add(asked.command)
        asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(done)
