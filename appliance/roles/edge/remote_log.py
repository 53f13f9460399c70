"""The log of a shard of which this node holds no replica, as a member of another node tells it: for
the core what the replica of this node is, with a ring, segments, rooms and how it stands.

    source ──records──▶ ring ──▶ core: attached, committed
    source ◀──rooms, segments that the core wants──▶ core

The source is one of the members that are connected. One that is silent, that knows less than is
known here, hears no quorum, or tells what cannot be, gives way to the next; the ring goes on from
where it is, as all of them tell the same log. Without a source what is here is served on, and
everybody is told since when it may be old.
"""

import mmap
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from appliance.base.limits import REMOTE_AGAIN_MS, REMOTE_SILENT_MS_MAX, SEGMENTS_REPORTED_MAX
from appliance.cores.edge.copied_ring import CopiedRing
from appliance.cores.edge.edge import Edge
from appliance.drivers.host import clock
from appliance.drivers.nvme.copied_segments import CopiedSegments
from appliance.formats import local, remote
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import ROOM_ROW_SIZE
from appliance.formats.remote import (
    REMOTE_READ,
    REMOTE_READ_ROOMS,
    REMOTE_READ_SEGMENT,
    REMOTE_RECORDS,
    REMOTE_ROOMS,
    REMOTE_SEGMENT,
)
from appliance.formats.segment import number_of, ring_size
from appliance.formats.status.replica import LogStanding
from appliance.roles.edge.rooms_wanted import RoomsWanted
from appliance.roles.edge.standing import why_behind

_MS_NS, _MS_US = 1_000_000, 1_000
_RECORDS_BEHIND_MAX = 1_000  # a copy that lacks more is not read from
_ANSWERED_BY = {
    REMOTE_READ: REMOTE_RECORDS,
    REMOTE_READ_ROOMS: REMOTE_ROOMS,
    REMOTE_READ_SEGMENT: REMOTE_SEGMENT,
}
Send = Callable[[Header, bytes], object]


class _Source(NamedTuple):
    """A member that is connected."""

    name: str  # of its node
    send: Send


class RemoteLog:
    """Of `shard`. `start` when the core is to read this log, `stop` when it is not any more;
    `poll` each second. Members come and go by `on_open` and `on_gone` at any time."""

    def __init__(
        self,
        shard: int,
        *,
        cluster: bytes,
        edge: Edge,
        folder: Path,
        counters: Counter[str],
    ) -> None:
        """`folder`: where copies of segments may lie, without a name."""
        self.shard, self.is_running = shard, False
        self._cluster, self._edge, self._counters = cluster, edge, counters
        self._segments = CopiedSegments(folder, edge.geometry)
        self._members: dict[int, _Source] = {}  # connected, by their places in the site file
        self._source: int | None = None
        self._ring: CopiedRing | None = None  # while it runs
        self._is_begun = self.is_attached = False
        self._target = 0  # attached once the ring has come so far
        self._asked: local.Asked[int] = local.Asked()  # of the source: commands
        self._under_way: dict[int, int] = {}  # of these, and when
        # the source can be read from, by its own words; or it cannot tell where the log is
        self._is_well = self._is_lost = False
        self._distrusted_ns = -REMOTE_AGAIN_MS * _MS_NS  # when one told what cannot be
        self._told_ns = 0  # when the core heard how the log stands, monotonic
        self._current_us = 0  # when what is here was all there is, us since the epoch
        self._lacking = ""  # why what is here is no past to serve, once nobody tells more
        self._rooms: deque[RoomsWanted] = deque()  # the first one is asked next, or was
        self._rooms_asked: RoomsWanted | None = None
        self._wanted: dict[int, None] = {}  # segments; the first one is being fetched
        self._piece_asked = (-1, -1)  # segment, piece
        self._fetched_ns: dict[int, int] = {}  # segments that came, or were not to be had, and when

    @property
    def told(self) -> str:
        """The node that it is read from; empty when no member of another node tells it."""
        if self._source is None or not self.is_attached:
            return ""
        return self._members[self._source].name

    # --- life

    def start(self) -> None:
        """Let the core read this log as soon as somebody tells it."""
        if not self.is_running:
            self.is_running = True
            geometry = self._edge.geometry
            memory = memoryview(mmap.mmap(-1, ring_size(geometry)))
            self._ring = CopiedRing(geometry, memory)
            self._next_source()

    def stop(self) -> None:
        """The core reads another one."""
        if self.is_running:
            self.is_running = False
            self._leave_source()
            self._detach()
            self._ring = None

    def _detach(self) -> None:
        """What is here is not read any more."""
        was_attached, self.is_attached, self._is_begun = self.is_attached, False, False
        self._rooms.clear()
        self._wanted.clear()
        self._fetched_ns.clear()
        self._rooms_asked, self._piece_asked = None, (-1, -1)
        if was_attached:
            self._edge.on_detached(self.shard)
        self._segments.clear()

    def poll(self) -> None:
        """Each second: nobody waits for a source that says nothing, or nothing of use."""
        if not self.is_running:
            return
        latest_ns = clock.monotonic_ns() - REMOTE_SILENT_MS_MAX * _MS_NS
        if not self._is_well or any(at < latest_ns for at in self._under_way.values()):
            self._next_source()
        if self.is_attached and self._told_ns < latest_ns:
            self._edge.on_replica_status(self.shard, self._lacking, self._current_us)
            self._refuse_rooms()

    # --- sources

    def on_open(self, member: int, name: str, send: Send) -> None:
        """A member is connected."""
        self._members[member] = _Source(name, send)
        if self.is_running and self._source is None:
            self._next_source()

    def on_gone(self, member: int) -> None:
        """It is not any more, or never was."""
        if self._source == member:
            self._next_source(gone=True)
        self._members.pop(member, None)

    def _next_source(self, *, gone: bool = False, waits: bool = False) -> None:
        """Go on with the member behind the one that was asked until now; with that one again if it
        is alone, unless it is gone. `waits`: it is not asked for records before the next poll."""
        last = self._source
        self._leave_source()
        self._is_lost = waits
        others = [member for member in self._members if not (gone and member == last)]
        if others and self.is_running:
            behind = [member for member in others if last is not None and member > last]
            self._source = min(behind or others)
            self._counters["remote_sources"] += 1
            self._go_on()

    def _leave_source(self) -> None:
        """What was asked is asked of the next one."""
        self._source, self._is_well, self._is_lost = None, False, False
        self._asked.clear()
        self._under_way.clear()
        for rooms in islice(self._rooms, 1):
            rooms.begin()

    def _distrust(self, why: str, *, waits: bool = True) -> None:
        """The source tells what cannot be, or has not what it should have. If the one before did
        so, too, there may be none that does not: then the next one `waits`."""
        self._counters[f"remote_{why.replace(' ', '_')}"] += 1
        before_ns, self._distrusted_ns = self._distrusted_ns, clock.monotonic_ns()
        is_again = self._distrusted_ns < before_ns + REMOTE_AGAIN_MS * _MS_NS
        self._next_source(waits=waits and is_again)

    def _ask(self, command: int, *, op: int = 0, aux: int = 0, body: bytes = b"") -> None:
        assert self._source is not None
        number = self._asked.ask(command)
        self._under_way[command] = clock.monotonic_ns()
        header = local.question(
            command, number, cluster=self._cluster, shard=self.shard, op=op, aux=aux, body=body
        )
        self._members[self._source].send(header, body)

    def _go_on(self) -> None:
        """Ask for what is wanted, of each kind one thing at a time."""
        if self._source is None or self._ring is None:
            return
        if REMOTE_READ not in self._under_way and not self._is_lost:
            self._ask(REMOTE_READ, op=self._ring.log_seq + 1 if self._is_begun else 0)
        if self._rooms and self._rooms[0].log_seq < 0 and not self._is_lost:
            if REMOTE_READ_ROOMS not in self._under_way:
                self._ask_rooms(self._rooms[0])
        if self._wanted and REMOTE_READ_SEGMENT not in self._under_way:
            self._ask_segment(next(iter(self._wanted)))

    def on_message(self, member: int, message: Message) -> None:
        """A member answers; only what the source was asked is heard."""
        if member != self._source or self._ring is None:
            return
        header, body = message.header, message.body
        command = self._asked.answered(local.number_of(header))
        if command is None:
            return
        self._under_way.pop(command, None)
        if header.command != _ANSWERED_BY[command]:
            self._distrust("malformed")
        elif command == REMOTE_READ:
            self._on_records(self._ring, header, body)
        elif command == REMOTE_READ_ROOMS:
            self._on_rooms(self._ring, header, body)
        else:
            self._on_piece(header, body)
        self._go_on()

    # --- records

    def _on_records(self, ring: CopiedRing, header: Header, body: bytes | memoryview) -> None:
        geometry = self._edge.geometry
        told = remote.decode_records(body, geometry)
        if told is None:
            return self._distrust("malformed")
        standing, published, records = told
        why = why_behind(standing)
        self._is_well = not why and not standing.stale_ms and published >= ring.log_seq
        if header.op != ring.log_seq + 1 or not self._is_begun:
            if why or not header.op or (published < ring.log_seq and self._is_begun):
                self._is_well, self._is_lost = False, True  # until the next one is asked
                return None
            self._detach()  # the ring of that replica has moved on without us
            if header.op > published + 1 or (header.op - 1) % geometry.segment_records:
                return self._distrust("malformed")
            ring.begin(header.op - 1)
            self._is_begun, self._target = True, published
        wrong = ring.take(records)
        if wrong:
            self._detach()  # what is here may be wrong as well
            return self._distrust(wrong)
        if not why and standing.oldest_segment <= number_of(geometry, published + 1):
            self._segments.oldest = max(self._segments.oldest, standing.oldest_segment)
        if self.is_attached or ring.log_seq >= self._target:
            self._tell(ring, standing, published, why)
        return None

    def _tell(self, ring: CopiedRing, standing: LogStanding, published: int, why: str) -> None:
        """The core hears how it stands, then of what is here now."""
        missing, now_us = published - ring.log_seq, clock.realtime_us()
        self._lacking = f"{missing} records behind" if missing > _RECORDS_BEHIND_MAX else ""
        self._told_ns = clock.monotonic_ns()
        if self._is_well or not self.is_attached:
            self._current_us = now_us
        since_us = now_us - standing.stale_ms * _MS_US if standing.stale_ms else 0
        self._edge.on_replica_status(self.shard, why or self._lacking, since_us)
        if self.is_attached:
            self._edge.on_committed(self.shard, ring.log_seq)
        else:
            self.is_attached = True
            self._edge.on_attached(self.shard, ring.memory, self._segments, ring.log_seq)
        self._deliver_rooms(ring)

    # --- rooms

    def lookup(self, room_ids: list[bytes]) -> None:
        """Ask for rooms by id; the core hears the answer."""
        most = remote.rooms_max(self._edge.geometry)
        for start in range(0, len(room_ids) if self.is_running else 0, most):
            part = room_ids[start : start + most]
            if all(rooms.ids != part for rooms in self._rooms):  # the shard's own is asked often
                self._rooms.append(RoomsWanted(part))
        self._go_on()

    def list(self, first_row: int, count: int) -> None:
        """Ask for rooms in order; the core hears the answer."""
        if self.is_running:
            self._rooms.append(RoomsWanted([], first_row, count))
            self._go_on()

    def _ask_rooms(self, rooms: RoomsWanted) -> None:
        self._rooms_asked = rooms
        if rooms.ids:
            self._ask(REMOTE_READ_ROOMS, body=b"".join(rooms.ids))
        else:
            first = rooms.first_row + len(rooms.names)
            self._ask(REMOTE_READ_ROOMS, op=first, aux=rooms.following(self._edge.geometry))

    def _on_rooms(self, ring: CopiedRing, header: Header, body: bytes | memoryview) -> None:
        told, rooms = remote.decode_rooms(body), self._rooms_asked
        if rooms is None:
            return None  # the core lost this log meanwhile
        if told is None or not rooms.take(self._edge.geometry, header.op, *told):
            return self._distrust("malformed")
        self._deliver_rooms(ring)
        return None

    def _deliver_rooms(self, ring: CopiedRing) -> None:
        """What is known of rooms, once the records that it rests on are here."""
        if not self.is_attached or not self._rooms:
            return
        rooms = self._rooms[0]
        if not 0 <= rooms.log_seq <= ring.log_seq:
            return
        self._rooms.popleft()
        self._rooms_asked = None
        self._edge.lookup.on_names(self.shard, rooms.rows, rooms.names)
        if rooms.ids:
            self._edge.on_rooms(self.shard, rooms.log_seq, rooms.ids, rooms.rows)
        else:  # rows of a while ago are as good: it is the same log
            self._edge.on_list(self.shard, ring.log_seq, rooms.rows)

    def _refuse_rooms(self) -> None:
        """Nobody answers: who waits hears that now."""
        waiting, self._rooms, self._rooms_asked = self._rooms, deque(), None
        for rooms in waiting:
            if rooms.ids:
                missing = bytes(ROOM_ROW_SIZE * len(rooms.ids))
                self._edge.on_rooms(self.shard, 0, rooms.ids, missing)
            else:
                self._edge.on_list(self.shard, 0, b"")

    # --- segments

    def repair(self, segments: Iterable[int]) -> None:
        """Fetch sealed segments that a reader did not find here, or found broken."""
        now_ns = clock.monotonic_ns()
        for number in segments if self.is_running else ():
            is_fresh = now_ns < self._fetched_ns.get(number, 0) + REMOTE_AGAIN_MS * _MS_NS
            if is_fresh or number in self._wanted or len(self._wanted) >= SEGMENTS_REPORTED_MAX:
                continue
            if self._segments.view(number) is not None:
                self._segments.drop(number)
                self._distrust("broken segment", waits=False)
            self._wanted[number] = None
        self._go_on()

    def _ask_segment(self, number: int) -> None:
        try:
            piece = self._segments.missing(number)
        except OSError:
            self._counters["remote_copy_failed"] += 1
            self._done_with(number)
        else:
            self._piece_asked = number, piece
            self._ask(REMOTE_READ_SEGMENT, op=number, aux=piece)

    def _done_with(self, number: int) -> None:
        """It is here, or not to be had now: it is not asked for again at once."""
        self._wanted.pop(number, None)
        self._fetched_ns.pop(number, None)
        self._fetched_ns[number] = clock.monotonic_ns()
        if len(self._fetched_ns) > SEGMENTS_REPORTED_MAX:
            del self._fetched_ns[next(iter(self._fetched_ns))]

    def _on_piece(self, header: Header, body: bytes | memoryview) -> None:
        number = header.op
        if (number, header.aux) != self._piece_asked:
            return  # the core lost this log meanwhile
        try:
            wrong = self._segments.put(number, body) if body else "segment missing"
        except OSError:
            self._counters["remote_copy_failed"] += 1
            self._segments.drop(number)
            self._done_with(number)
            return
        if wrong is None:
            return
        self._done_with(number)
        if wrong:
            self._segments.drop(number)
            self._distrust(wrong, waits=False)
