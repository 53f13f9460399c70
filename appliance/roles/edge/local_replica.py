"""A replica of the node that an edge runs on: beside what any replica says, its ring, rooms and
status."""

from collections.abc import Callable, Iterable
from pathlib import Path

from appliance.cores.edge.edge import Edge
from appliance.drivers.host import clock
from appliance.drivers.network.local import LocalLink
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.formats.envelope import Header, Message
from appliance.formats.local import (
    LOCAL_BROKEN,
    LOCAL_COMMITTED,
    LOCAL_READ_ROOMS,
    LOCAL_ROOMS,
    LOCAL_STATUS,
)
from appliance.formats.status.replica import Attachment, LogStanding, ReplicaStatus
from appliance.roles.edge.replica_feed import ReplicaFeed
from appliance.roles.edge.standing import why_behind

_LIST = "list"  # what was asked, in place of the ids that are looked up
_Asked = list[bytes] | str
OnStatus = Callable[[ReplicaStatus], None]


class Local:
    """It is read from `read` to `leave`, or until it is gone."""

    link: LocalLink  # set by who makes it: a link is made with its owner

    def __init__(
        self,
        feed: ReplicaFeed,
        edge: Edge,
        on_status: OnStatus,
        choose: Callable[[], None] | None = None,
    ) -> None:
        """`choose` is called when it came, went, or said how it is: whether it is to be read may be
        another matter then. Without it, it is read whenever it is there."""
        self._feed, self._edge, self._on_status = feed, edge, on_status
        self._choose = choose or self.read
        self.behind = ""  # why it should not be read now
        self._is_read = False
        self._ring: memoryview | None = None  # while it is attached; and the newest record in it
        self._log_seq = 0
        self._segments: MappedSegments | None = None  # once attached
        self._stale_us = 0  # since when it hears no quorum, us since the epoch

    @property
    def is_attached(self) -> bool:
        """Whether it can be read."""
        return self._ring is not None

    def send(self, header: Header, body: bytes) -> None:
        if self.link.connected:
            self.link.send(self.link.signer.frame(header, body))

    # --- whether the core reads it

    def read(self) -> None:
        """The core reads this log, if it is there."""
        if self._ring is None or self._is_read:
            return
        assert self._segments is not None
        self._is_read = True
        self._tell()  # first: who waited for the log reads as soon as it is here
        self._edge.on_attached(self._feed.shard, self._ring, self._segments, self._log_seq)

    def leave(self) -> None:
        """The core reads it no more."""
        if self._is_read:
            self._is_read = False
            self._edge.on_detached(self._feed.shard)

    # --- what the core asks

    def lookup(self, room_ids: list[bytes]) -> None:
        """Ask for rooms by id; the core hears the answer."""
        self.link.ask(LOCAL_READ_ROOMS, room_ids, body=b"".join(room_ids))

    def list(self, first_row: int, count: int) -> None:
        """Ask for rooms in order; the core hears the answer."""
        self.link.ask(LOCAL_READ_ROOMS, _LIST, op=first_row, aux=count)

    def repair(self, segments: Iterable[int]) -> None:
        """Tell which sealed segments were found broken."""
        for number in segments if self.link.connected else ():
            self.link.ask(LOCAL_BROKEN, op=number)

    def ask_status(self) -> None:
        """Ask how it is; the core hears the answer."""
        if self.link.connected:
            self.link.ask(LOCAL_STATUS)

    # --- what its link tells

    def on_attached(
        self, link: LocalLink, told: Attachment | None, ring: memoryview | None
    ) -> None:
        assert told is not None and ring is not None
        geometry = self._edge.geometry
        assert GEOMETRIES[told.geometry] is geometry
        self._segments = MappedSegments(Path(told.segments_folder), geometry, told.segments_max)
        self._ring, self._log_seq = ring, told.log_seq
        self._learn(told)
        self._feed.opened(self.send)
        self._feed.wake()

    def on_message(self, link: LocalLink, message: Message) -> None:
        header = message.header
        if header.command == LOCAL_COMMITTED:
            self._log_seq = header.op
            if self._is_read:
                self._edge.on_committed(self._feed.shard, header.op)
        elif header.command == LOCAL_ROOMS:
            asked = link.asked(message)
            if asked is not None and self._is_read:
                self._on_rooms(asked, message)
        elif header.command == LOCAL_STATUS:
            if (status := link.status_in(message)) is not None:
                self._learn(status)
                self._on_status(status)
        else:
            self._feed.said(message)

    def _on_rooms(self, asked: _Asked, message: Message) -> None:
        shard, log_seq, rows = self._feed.shard, message.header.op, bytes(message.body)
        if isinstance(asked, str):
            self._edge.on_list(shard, log_seq, rows)
        else:
            self._edge.on_rooms(shard, log_seq, asked, rows)

    def _learn(self, status: ReplicaStatus | LogStanding) -> None:
        """How the replica is, in its own words."""
        if self._segments is not None:  # what is freed may be half overwritten: no fault
            self._segments.oldest = max(self._segments.oldest, status.oldest_segment)
        stale_us = status.stale_ms * 1000
        self._stale_us = clock.realtime_us() - stale_us if stale_us else 0
        self.behind = why_behind(status)
        if self._is_read:
            self._tell()
        self._choose()

    def _tell(self) -> None:
        self._edge.on_replica_status(self._feed.shard, self.behind, self._stale_us)

    def on_batch(self, link: LocalLink) -> None:
        self._feed.wake()

    def on_detached(self, link: LocalLink) -> None:
        self.leave()
        self._ring = None
        self._feed.gone()
        self._choose()
