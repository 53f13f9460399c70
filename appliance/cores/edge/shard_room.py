"""Shard 0's own room, in which operators' acts stand: each record from now on, and what was said
before, as far back as somebody wants to know.

    attached ──▶ asks for the room's row ──▶ reads it backwards, a page a tick ──▶ is_read
             └─▶ hears each new record of it
"""

from collections.abc import Sequence
from typing import Protocol

from appliance.base.limits import REVOCATIONS_PAGE
from appliance.cores.edge.log import ShardLog
from appliance.formats.client_errors import Unavailable
from appliance.formats.record import (
    BODY,
    FLAGS,
    FLAGS_KIND_MASK,
    KIND_AUDIT,
    SHARD_ROOM_ID,
    body_len_in,
    timestamp_in,
)


class Listener(Protocol):
    """Who reads the room."""

    def learn(self, acts: Sequence[tuple[int, bytes]]) -> None:
        """Audit records: when each was committed, in us since the epoch, and its body. Those of one
        call stand in the order of the log; calls may go back in it."""

    def since_us(self, now_us: int) -> int:
        """What was said before this does not matter to it."""


class ShardRoom:
    """Reads for its listeners, and holds nothing of what it read."""

    def __init__(self, *listeners: Listener) -> None:
        self.is_read = False  # all that was said before this edge began, as far as it matters
        self._listeners = listeners
        self._next_op = 0  # to be read next, going back; 0: the room was not found yet

    @classmethod
    def read_by(cls, *listeners: Listener | None) -> "ShardRoom | None":
        """For those that are there; None: nobody reads it."""
        there = [listener for listener in listeners if listener is not None]
        return cls(*there) if there else None

    def also(self, listener: Listener) -> None:
        """One more, who has missed nothing: nothing was read yet."""
        assert not self._next_op and not self.is_read
        self._listeners = (*self._listeners, listener)

    def learn(self, records: Sequence[bytes | memoryview]) -> None:
        """Committed records of the room."""
        acts = [(said_us(record), _body(record)) for record in records if _is_act(record)]
        if acts:
            for listener in self._listeners:
                listener.learn(acts)

    # --- what was said before

    @property
    def wants_row(self) -> bool:
        """Whether the place of the room in the log is to be asked for."""
        return not self.is_read and not self._next_op

    def on_row(self, log: ShardLog, *, sealed_segment: int, count: int, log_seq: int) -> None:
        """The room's row, as of `log_seq`; it is asked for again if it is too new for the log."""
        head = log.track(
            SHARD_ROOM_ID, sealed_segment=sealed_segment, message_count=count, log_seq=log_seq
        )
        if head is not None and self.wants_row:
            self._next_op = head
            self.is_read = head == 0

    def read_again(self) -> None:
        """The log is read anew from another place, so what was committed meanwhile is not known; or
        somebody wants to know what was said earlier."""
        self._next_op = 0
        self.is_read = False

    def read_on(self, log: ShardLog, now_us: int) -> None:
        """One page further back, if there is more to read."""
        if self.is_read or not self._next_op:
            return
        try:
            records = self._page(log)
        except Unavailable:
            return  # with the next tick
        self.learn(records)
        since_us = min(listener.since_us(now_us) for listener in self._listeners)
        if not records or self._next_op < 1 or said_us(records[0]) < since_us:
            self.is_read = True

    def _page(self, log: ShardLog) -> list[bytes]:
        first = max(1, self._next_op - REVOCATIONS_PAGE + 1)
        records = log.read(SHARD_ROOM_ID, first, self._next_op - first + 1)
        if not records:  # the page begins with what was freed
            first = max(first, log.first_op(SHARD_ROOM_ID))
            records = log.read(SHARD_ROOM_ID, first, self._next_op - first + 1)
        self._next_op = first - 1
        return records


def said_us(record: bytes | memoryview) -> int:
    """When it was committed, in us since the epoch."""
    return timestamp_in(record)


def _is_act(record: bytes | memoryview) -> bool:
    return record[FLAGS] & FLAGS_KIND_MASK == KIND_AUDIT


def _body(record: bytes | memoryview) -> bytes:
    size = body_len_in(record)
    return bytes(record[BODY : BODY + size])
