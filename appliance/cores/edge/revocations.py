"""Tokens that operators took back, as shard 0 tells: what is said there from now on, and what was
said before, as long ago as a token may live whose issuer's clock was ahead.

    attached ──▶ asks for the shard's own room ──▶ reads it backwards, a page a tick ──▶ is_read
             └─▶ hears each new record of it
"""

from collections.abc import Callable, Iterable

from appliance.base.limits import CLOCK_SKEW_US, REVOCATIONS_MAX, REVOCATIONS_PAGE
from appliance.cores.edge.log import ShardLog
from appliance.cores.edge.token import Claims
from appliance.formats.client_errors import Unavailable
from appliance.formats.record import (
    BODY,
    BODY_LEN,
    FLAGS,
    FLAGS_KIND_MASK,
    KIND_AUDIT,
    SHARD_ROOM_ID,
    TIMESTAMP,
)
from appliance.formats.revocation import decode_revocation

_SECOND_US = 1_000_000


class Revocations:
    """Bounded: the newest `REVOCATIONS_MAX`, and none that is older than every token."""

    def __init__(self, life_s_max: int) -> None:
        self.is_read = False  # all that was said before this edge began
        self.on_news: Callable[[], None] = lambda: None  # open sessions are to be judged anew
        self._life_us = life_s_max * _SECOND_US + CLOCK_SKEW_US  # of a token that was there
        self._said: dict[tuple[str, str], int] = {}  # (claim, value) -> when, us since the epoch
        self._newest_us = 0
        self._next_op = 0  # of the room, to be read next, going back; 0: it was not found yet

    def __len__(self) -> int:
        return len(self._said)

    def is_revoked(self, claims: Claims) -> bool:
        """Of a user only tokens that may have been there: with a newer one he may come again. The
        issuer's clock may have been ahead, and who issued at an unknown time may have done so
        before."""
        if claims.jti and ("jti", claims.jti) in self._said:
            return True
        said_us = self._said.get(("sub", claims.author))
        return said_us is not None and claims.issued_us <= said_us + CLOCK_SKEW_US

    # --- what is said from now on

    def learn(self, records: Iterable[bytes | memoryview]) -> None:
        """Committed records of the shard's own room."""
        known = len(self._said), self._newest_us
        for record in records:
            if record[FLAGS] & FLAGS_KIND_MASK != KIND_AUDIT:
                continue
            size = int.from_bytes(record[BODY_LEN : BODY_LEN + 4], "little")
            revocation = decode_revocation(bytes(record[BODY : BODY + size]))
            if revocation is not None:
                self._note((revocation.claim, revocation.value), _said_us(record))
        if (len(self._said), self._newest_us) != known:
            self.on_news()

    def _note(self, key: tuple[str, str], said_us: int) -> None:
        if self._said.get(key, 0) >= said_us:
            return
        self._said[key] = said_us
        self._newest_us = max(self._newest_us, said_us)
        if len(self._said) > REVOCATIONS_MAX:
            self._forget()

    def _forget(self) -> None:
        """What no token can have lived through; of the others the oldest."""
        left = sorted(self._said.items(), key=lambda row: -row[1])[: REVOCATIONS_MAX * 9 // 10]
        oldest_us = self._newest_us - self._life_us
        self._said = {key: us for key, us in left if us >= oldest_us}

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

    def on_lost(self) -> None:
        """The log is read anew from another place: what was committed meanwhile is not known."""
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
        if not records or self._next_op < 1 or _said_us(records[0]) < now_us - self._life_us:
            self.is_read = True

    def _page(self, log: ShardLog) -> list[bytes]:
        first = max(1, self._next_op - REVOCATIONS_PAGE + 1)
        records = log.read(SHARD_ROOM_ID, first, self._next_op - first + 1)
        if not records:  # the page begins with what was freed
            first = max(first, log.first_op(SHARD_ROOM_ID))
            records = log.read(SHARD_ROOM_ID, first, self._next_op - first + 1)
        self._next_op = first - 1
        return records


def _said_us(record: bytes | memoryview) -> int:
    return int.from_bytes(record[TIMESTAMP : TIMESTAMP + 8], "little")
