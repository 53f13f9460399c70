"""The record that bears a msg_id, of whatever room, for whoever may read it there.

    asked --segment after segment--> found, or in none        each step looks into one segment

The footer of a sealed segment has its ids in order, so one is looked up without its records; in the
newest two, which lie in the ring, all ids are compared. No index of all ids is kept: it would cost
each message, and few are asked for.

    a UUIDv7     first the segments of the time in which such an id is taken, then all others:
                 clocks were off, and messages of other sites may have waited for long
    any other    all: a UUIDv8 tells when an archive says that it was said, not when it was stored

Of both the oldest come first, for of several records with one id the oldest is meant: the first
that is found is the answer. A record in a room that the token may not read is passed over, as if it
were not there; so the answer to who may not read it is that to an id which nobody has.

What was acknowledged through another node may reach this one a moment later: before an id is called
unknown, half a second has passed in which nothing came that bears it.
"""

from bisect import bisect_right
from collections.abc import Iterator

from appliance.base.limits import (
    MESSAGE_ID_AGE_US_MAX,
    MESSAGE_ID_AHEAD_US_MAX,
    MESSAGE_SEARCH_MS_MAX,
    ROOM_WAIT_MS_MAX,
)
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.log import Mending, ShardLog
from appliance.cores.edge.reader import Reader
from appliance.formats.client.fields import id_of
from appliance.formats.client.found_message import FoundMessage
from appliance.formats.client.records import message_of
from appliance.formats.client_errors import (
    Forbidden,
    MessageUnknown,
    RoomUnknown,
    Unavailable,
)
from appliance.formats.record import made_us_of, room_id_in
from appliance.formats.segment import number_of

_MS_NS = 1_000_000


def segments_of(log: ShardLog, msg_id: bytes, *, likely: bool) -> Iterator[int]:
    """The segments of a log as it is now that are likely to hold an id, or all others; oldest
    first. Raises Unavailable."""
    numbers, near = log.numbers(), range(0)
    made_us = made_us_of(msg_id)
    if made_us:
        begin = bisect_right(numbers, made_us - MESSAGE_ID_AHEAD_US_MAX, key=log.first_timestamp)
        end = bisect_right(numbers, made_us + MESSAGE_ID_AGE_US_MAX, key=log.first_timestamp)
        near = numbers[max(begin - 1, 0) : end]  # the one before may reach into that time
    return (number for number in numbers if (number in near) == likely)


class MessageSearch:
    """One search. Whoever drives it calls `step` until it gives an answer or raises an error, and
    `close` at last. Each step checks anew what the token allows."""

    def __init__(
        self, reader: Reader, msg_id: bytes, *, stale: dict[int, int], shard_count: int
    ) -> None:
        """`stale` is written by the edge."""
        self._reader, self._clock, self._access = reader, reader.clock, reader.access
        self._stale, self._msg_id = stale, msg_id
        self._until_ns = self._clock.now_ns + MESSAGE_SEARCH_MS_MAX * _MS_NS
        self._heard_ns = self._clock.now_ns + ROOM_WAIT_MS_MAX * _MS_NS
        self._news_ns = 0  # when it was last asked whether something has been committed
        # what was not looked through yet: of each shard the likely segments, then those of all
        self._rounds: list[tuple[bool | None, int]] = [
            (likely, shard) for likely in (True, False) for shard in range(shard_count)
        ]
        self._log: ShardLog | None = None  # of the first of these, as it was when that was begun
        self._left: Iterator[int] = iter(())  # segments of that
        self._log_seqs: dict[int, int] = {}  # of a shard: up to there all is, or will be, looked at
        self._number: int | None = None  # of these, in which to look next
        self._record: bytes | None = None  # found, its room is looked up
        self._is_fast = self._is_early = False  # for the rates; to say that there is none

    @property
    def waits(self) -> bool:
        """Whether the next step is to be taken with the next tick, not at once."""
        return self._is_fast or self._is_early or self._reader.is_held_up

    def step(self) -> FoundMessage | None:
        """The message's place, once it is known. Raises MessageUnknown when no record that the
        token may read has the id, Unavailable when that cannot be told now, and as
        `Tokens.verify_still`."""
        self._reader.verify()
        if self._clock.now_ns >= self._until_ns:
            raise Unavailable(f"the search took longer than {MESSAGE_SEARCH_MS_MAX // 1000} s")
        try:
            found = self._step()
        except Mending:
            self._reader.wait_for_mending()
            return None
        self._reader.on_read()
        return found

    def close(self) -> None:
        """Nobody waits for the answer."""
        self._reader.close()

    def _step(self) -> FoundMessage | None:
        if self._record is not None:
            return self._shown(self._record)
        if not self._rounds and not self._hear_news():
            return None
        likely, shard = self._rounds[0]
        log = self._readable(shard)
        if log is not self._log:
            self._left = self._begun(log, shard, likely)
            self._log, self._number = log, None
        if self._number is None:
            self._is_fast = not self._reader.admit()
            if self._is_fast:
                return None
            self._number = next(self._left, None)
        if self._number is None:
            self._rounds.pop(0)
            self._log = None
            return None
        self._record = log.with_message_id(self._number, self._msg_id)
        self._number = None
        return None

    def _begun(self, log: ShardLog, shard: int, likely: bool | None) -> Iterator[int]:
        if likely is None:
            seen, self._log_seqs[shard] = self._log_seqs[shard], log.log_seq
            return (n for n in log.numbers() if n >= number_of(log.geometry, seen + 1))
        self._log_seqs.setdefault(shard, log.log_seq)
        return segments_of(log, self._msg_id, likely=likely)

    def _hear_news(self) -> bool:
        """Nothing was found: whether something has been committed meanwhile, asked once a tick.
        Raises when it was waited for long enough, and asked once more after that."""
        if self._news_ns < self._heard_ns:
            now_ns = self._clock.now_ns
            if now_ns > self._news_ns:
                self._rounds = [
                    (None, shard)
                    for shard, log_seq in self._log_seqs.items()
                    if self._readable(shard).log_seq > log_seq
                ]
                self._news_ns = now_ns
            if self._rounds or now_ns < self._heard_ns:
                self._is_early = not self._rounds
                return not self._is_early
        if self._stale:
            raise Unavailable("this node hears no quorum: it may lack the message")
        raise MessageUnknown("no message that this token may read has this msg_id")

    def _readable(self, shard: int) -> ShardLog:
        log, behind = self._access.logs.get(shard), self._access.behind.get(shard)
        if log is None or behind is not None:
            raise Unavailable(f"the replica of this node is {behind or 'not there'}")
        return log

    def _shown(self, record: bytes) -> FoundMessage | None:
        """Where the record lies; None: its room is not known yet, or it is nothing to who asks."""
        try:
            room = self._reader.room(room_id_in(record))
        except (Forbidden, RoomUnknown):
            self._record = None
            return None
        return None if room is None else _found(room, self._access.lookup.shown(room), record)


def _found(room: Room, name: str, record: bytes) -> FoundMessage:
    message = message_of(record)
    return FoundMessage(
        room_id=id_of(room.room_id),
        room=name,
        op=message.op,
        msg_id=message.msg_id,
        author_id=message.author_id,
        author=message.author,
        timestamp=message.timestamp,
        kind=message.kind,
        said_at=message.said_at,
        said_by=message.said_by,
    )
