"""What a device has sent to one room and what was not answered yet. Pure: no clock, no socket.

    acked | in flight: sent on this connection | waiting: to be sent
    ------+------------------------------------+--------------------> client_seq
         first                               sent

A node answers each message it got with an acknowledgement or an error, in order. After an error
that may pass (busy, or a gap behind a busy one) nothing is sent until all in flight is answered;
then everything not acknowledged is sent again from the first.

A site remembers a device's numbers in a room for long, not for ever. When it has forgotten them the
messages are numbered anew, from 1; their ids, which tell when they were made, keep one that was
stored before from being stored twice.
"""

from collections import deque
from typing import Generic, TypeVar

from appliance.base.limits import WINDOW_LENGTH

Item = TypeVar("Item")


class Outbox(Generic[Item]):
    """Unanswered messages of one room; invariants: first <= sent <= next, halted only in flight."""

    def __init__(self, first: int = 1) -> None:
        assert first >= 1
        self.first = first  # client_seq of the oldest unanswered message
        self.sent = first  # the first one not sent on this connection
        self.halted = False  # an error came: drain, then send all again
        self._restart: int | None = None  # and number them from here: the older ones are forgotten
        self._items: deque[Item] = deque()
        self._answers_due = 0  # sent on this connection and not answered

    @property
    def next(self) -> int:
        """The client_seq of the next message."""
        return self.first + len(self._items)

    @property
    def full(self) -> bool:
        """Whether a further message could fall out of the site's memory before its answer."""
        return len(self._items) >= WINDOW_LENGTH

    def add(self, item: Item) -> int:
        """Take a message; its client_seq."""
        assert not self.full
        self._items.append(item)
        return self.next - 1

    def take(self, count_max: int) -> list[tuple[int, Item]]:
        """(client_seq, message) of what is to be sent now, in order."""
        if self.halted:
            return []
        offset = self.sent - self.first
        end = min(len(self._items), offset + count_max)
        taken = [(self.first + i, self._items[i]) for i in range(offset, end)]
        self.sent += len(taken)
        self._answers_due += len(taken)
        self.check()
        return taken

    def on_answer(self, client_seq: int) -> Item | None:
        """The message `client_seq` is stored; None when it is not the oldest that is unanswered."""
        self._answered()
        if client_seq != self.first or not self._items:
            return None
        self.first += 1
        self.sent = max(self.sent, self.first)
        item = self._items.popleft()
        self.check()
        return item

    def on_passing_error(self) -> None:
        """A message was not taken, and may be later."""
        self._answered()
        if self._answers_due:
            self.halted = True
        else:
            self._rewind()

    def on_forgotten(self, expected: int) -> None:
        """The site has forgotten this device's numbers in the room, and goes on at `expected`: once
        all in flight is answered, what is unanswered is numbered anew."""
        assert 1 <= expected < self.first
        self._restart = expected
        self.on_passing_error()

    def on_lost(self) -> None:
        """The connection ended: no further answer comes on it."""
        self._answers_due = 0
        self._rewind()

    def drop_all(self) -> list[Item]:
        """All unanswered messages, which are given up."""
        dropped = list(self._items)
        self._items.clear()
        self._answers_due, self.sent, self.halted, self._restart = 0, self.first, False, None
        return dropped

    def _answered(self) -> None:
        self._answers_due = max(0, self._answers_due - 1)
        if self.halted and not self._answers_due:
            self._rewind()

    def _rewind(self) -> None:
        if self._restart is not None:
            self.first, self._restart = self._restart, None
        self.sent, self.halted = self.first, False

    def __len__(self) -> int:
        return len(self._items)

    def check(self) -> None:
        """The invariants."""
        assert self.first <= self.sent <= self.next
        assert len(self._items) <= WINDOW_LENGTH
