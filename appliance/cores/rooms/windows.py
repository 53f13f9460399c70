"""Idempotency windows: of each author's device in each room, the newest 64 records it had accepted.

Who gives up a window, so that there is place for a new one of author A:

    A holds a share of the table                 A's own oldest, however young
    the table is full, its oldest is of age      that one
    the table is full of young ones              the oldest of whoever holds most, above a few
    else                                         nobody: the record is refused

So one author cannot take what all need: whoever holds much loses first, and loses his own. A window
that is given up leaves a horizon (`horizon_us`): of what was said before it nobody can tell any
more whether it was stored. It follows from the windows that are left, which are all younger:

    a share is held, or the table is full and more than a few are held      A's oldest
    the table is full                                                       the oldest of all

A table that was ever full stays full. Below a few, an author lost only windows that were the oldest
of all, or older than some that went so.

"Oldest" goes by `told_us`, of equals by log_seq: the latest time that any record of the window was
given, or its device says that it was made. A device's clock may be ahead of the group's, and its
records older than their ids say; what went with a window said no later time than those that are
left of its author, and what comes in new is entered no lower than his horizon. An id counts for a
minute ahead at most, and for its own window only: nobody's clock moves the horizon of others.

Windows of records that created rooms are counted for themselves, and bound how many rooms an author
makes; they are known by the client_id that edges give such records.
"""

import struct
from heapq import heapify, heappop, heappush

import numpy as np

from appliance.base.errors import FormatError
from appliance.base.layout import bytes_of, int_of, offset_of
from appliance.base.limits import (
    WINDOW_AHEAD_US,
    WINDOW_EVICT_AGE_US,
    WINDOW_FEW,
    WINDOW_LENGTH,
    WINDOW_SHARE_MIN,
    WINDOW_SHARES,
)
from appliance.base.table import Table
from appliance.formats.checkpoint import WINDOW_ROW
from appliance.formats.geometry import WINDOW_ROW_SIZE, Geometry
from appliance.formats.room_name import room_creator_id

CANDIDATES_MAX = 1024  # windows looked at together when one must go
AUTHORS_MAX = 64  # whose oldest windows are remembered in order

_KEY_SIZE = 40  # client_id, room_id, author_id
_NEWEST = struct.Struct("<QQQQ")  # author_id, client_seq, log_seq, told_us
_OWNER = struct.Struct("<QQ")  # author_id, client_seq
_LOW = struct.Struct("<I")
_LOW_MASK = 0xFFFFFFFF
# of a window's key, with which its row begins
_client_of, _room_of = bytes_of(WINDOW_ROW, "client_id"), bytes_of(WINDOW_ROW, "room_id")
_author_of = int_of(WINDOW_ROW, "author_id")
_AUTHOR = offset_of(WINDOW_ROW, "author_id")
_LOG_SEQS = offset_of(WINDOW_ROW, "log_seqs")
assert offset_of(WINDOW_ROW, "client_id") == 0
assert offset_of(WINDOW_ROW, "room_id") == 16
assert _AUTHOR + 8 == _KEY_SIZE
assert _AUTHOR + _NEWEST.size == _LOG_SEQS


def key_of(client_id: bytes, room_id: bytes, author_id: int) -> bytes:
    """What a window is found by: its first 40 bytes."""
    return client_id + room_id + author_id.to_bytes(8, "little")


class Windows:
    """The table of windows and its index by client_id, room_id and author_id.

    Invariants: a row in use is indexed under its first 40 bytes and stands among its author's, or
    among the rooms that he created; its client_seq and log_seq are at least 1; log_seqs are unique
    over all rows, so one window is the oldest.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.table = Table(WINDOW_ROW, geometry.windows_max, geometry.table_chunk_size)
        self.row_of: dict[bytes, int] = {}
        self.share = max(geometry.windows_max // WINDOW_SHARES, WINDOW_SHARE_MIN)
        self.few = max(2, self.share // WINDOW_FEW)
        self._stamped_us = 0  # timestamp of the newest record; 0: not known after a restore
        self._memory = self.table.memory
        self._candidates: list[tuple[int, int]] = []  # (log_seq, row), oldest last
        self._rows_of: dict[int, dict[int, None]] = {}  # author -> his rows
        self._created: dict[int, int] = {}  # author -> windows of rooms he created
        self._sizes: list[tuple[int, int]] = []  # heap of (-rows, author); some are outdated
        self._own: dict[int, list[tuple[int, int]]] = {}  # author -> candidates of his

    def clear(self) -> None:
        """Back to no windows."""
        self.table.clear()
        for index in (self.row_of, self._rows_of, self._created, self._own):
            index.clear()
        self._candidates.clear()
        self._sizes.clear()
        self._stamped_us = 0

    def load(self, chunks: list[bytes], row_high_water: int) -> None:
        """Replace everything by verified chunks."""
        self.clear()
        self.table.load(chunks, row_high_water)
        for row in range(row_high_water):
            key = bytes(self.table.row(row)[:_KEY_SIZE])
            if not any(key):
                continue
            if self.row_of.setdefault(key, row) != row:
                raise FormatError(f"windows: row {row} is a second window of {key.hex()}")
            self._enter(key, row)

    # --- whose they are

    def _enter(self, key: bytes, row: int) -> None:
        author_id = _author_of(key)
        if _client_of(key) == room_creator_id(_room_of(key), author_id):
            self._created[author_id] = self._created.get(author_id, 0) + 1
            return
        rows = self._rows_of.setdefault(author_id, {})
        rows[row] = None
        self._note_size(author_id, len(rows))

    def _leave(self, key: bytes, row: int) -> None:
        author_id = _author_of(key)
        rows = self._rows_of.get(author_id)
        if rows is None or row not in rows:
            self._created[author_id] -= 1
            return
        del rows[row]
        if rows:
            self._note_size(author_id, len(rows))
        else:
            del self._rows_of[author_id]
            self._own.pop(author_id, None)

    def _note_size(self, author_id: int, size: int) -> None:
        heappush(self._sizes, (-size, author_id))
        if len(self._sizes) > 4 * len(self._rows_of) + CANDIDATES_MAX:
            self._sizes = [(-len(rows), author) for author, rows in self._rows_of.items()]
            heapify(self._sizes)

    def _largest(self) -> int | None:
        """Who holds most, the lowest author_id of several; None when that is no more than a few."""
        while self._sizes:
            size, author_id = -self._sizes[0][0], self._sizes[0][1]
            if len(self._rows_of.get(author_id, ())) == size:
                return author_id if size > self.few else None
            heappop(self._sizes)
        return None

    # --- rows

    def newest(self, row: int) -> tuple[int, int]:
        """(author_id, client_seq of the newest record) of the window in `row`."""
        return _OWNER.unpack_from(self._memory, row * WINDOW_ROW_SIZE + _AUTHOR)

    def log_seq_of(self, row: int, client_seq: int) -> int:
        """The log_seq of `client_seq`, one of the newest 64; 0 when it is older than can be told.

        The row has the low 32 bits; the number meant is the highest one not above the newest.
        """
        start = row * WINDOW_ROW_SIZE
        _, newest, newest_log_seq, _ = _NEWEST.unpack_from(self._memory, start + _AUTHOR)
        assert newest - WINDOW_LENGTH < client_seq <= newest
        assert client_seq >= 1
        low = _LOW.unpack_from(self._memory, start + _LOG_SEQS + 4 * (client_seq % WINDOW_LENGTH))[
            0
        ]
        log_seq: int = newest_log_seq - (newest_log_seq - low & _LOW_MASK)
        return max(0, log_seq)

    def advance(
        self,
        row: int,
        author_id: int,
        client_seq: int,
        log_seq: int,
        timestamp: int,
        made_us: int = 0,
    ) -> None:
        """Note an accepted record as the newest. `made_us` is when it says that it was made, if
        that is later than `timestamp`; 0: it does not say."""
        memory, start = self._memory, row * WINDOW_ROW_SIZE
        author_at = start + _AUTHOR
        told_us = _NEWEST.unpack_from(memory, author_at)[3]
        if made_us > timestamp:
            told_us = max(told_us, min(made_us, timestamp + WINDOW_AHEAD_US))
        elif told_us < timestamp:
            told_us = timestamp
        self._stamped_us = timestamp
        _NEWEST.pack_into(memory, author_at, author_id, client_seq, log_seq, told_us)
        low_at = start + _LOG_SEQS + 4 * (client_seq % WINDOW_LENGTH)
        _LOW.pack_into(memory, low_at, log_seq & _LOW_MASK)
        self.table.touch(row)

    def correct(self, time_us: int) -> None:
        """Records are given times from `time_us` on again: no window was told of a later one, but
        for what a device's clock may be ahead. So who waits for a window to be of age, or for his
        messages to be later than what is forgotten, waits a minute more at most."""
        latest_us = time_us + WINDOW_AHEAD_US
        told_us = self.table.rows["timestamp"][: self.table.row_high_water]
        for row in np.flatnonzero(told_us > latest_us).tolist():
            told_us[row] = latest_us
            self.table.touch(row)
        self._stamped_us = time_us
        self._candidates.clear()
        self._own.clear()

    def may_create(self, author_id: int) -> bool:
        """Whether the author may create one more room."""
        return self._created.get(author_id, 0) < self.share

    def can_take(self, author_id: int, timestamp: int) -> bool:
        """Whether a record of a prepare of `timestamp` may have a new window."""
        return self._victim(author_id, timestamp) is not None

    def horizon_us(self, author_id: int) -> int:
        """What this author made up to then may have been stored under a window that is gone; 0 when
        none can be."""
        horizon_us = 0
        own = len(self._rows_of.get(author_id, ()))
        if own >= self.share or self.table.full and own >= self.few:
            horizon_us = self._told_us(self._own_oldest(author_id))
        if self.table.full:
            horizon_us = max(horizon_us, self._told_us(self._oldest()))
        return horizon_us

    def take(self, key: bytes, timestamp: int) -> tuple[int, bool]:
        """A row for the window `key`, zero behind it; whether another window had to go."""
        assert len(key) == _KEY_SIZE
        assert key not in self.row_of
        author_id = _author_of(key)
        victim, horizon_us = self._victim(author_id, timestamp), self.horizon_us(author_id)
        assert victim is not None
        if victim >= 0:
            old = bytes(self.table.row(victim)[:_KEY_SIZE])
            del self.row_of[old]
            self._leave(old, victim)
            self.table.release(victim)
        row = self.table.take()
        self._memory[row * WINDOW_ROW_SIZE : row * WINDOW_ROW_SIZE + _KEY_SIZE] = key
        # not below what went before, or the horizon would go back
        _NEWEST.pack_into(
            self._memory, row * WINDOW_ROW_SIZE + _AUTHOR, author_id, 0, 0, horizon_us
        )
        self.row_of[key] = row
        self._enter(key, row)
        return row, victim >= 0

    def _victim(self, author_id: int, timestamp: int) -> int | None:
        """The row that goes for a new window of the author: -1 if none must, None if none may."""
        if len(self._rows_of.get(author_id, ())) >= self.share:
            return self._own_oldest(author_id)
        if not self.table.full:
            return -1
        row = self._oldest()
        if timestamp - self._told_us(row) > WINDOW_EVICT_AGE_US:
            return row
        largest = self._largest()
        return None if largest is None else self._own_oldest(largest)

    def _told_us(self, row: int) -> int:
        told_us: int = _NEWEST.unpack_from(self._memory, row * WINDOW_ROW_SIZE + _AUTHOR)[3]
        return told_us

    def _own_oldest(self, author_id: int) -> int:
        """The row of the author's oldest window. Found as `_oldest` finds it."""
        rows = self._rows_of[author_id]
        own = self._own.get(author_id)
        if own is None:
            if len(self._own) >= AUTHORS_MAX:
                self._own.clear()
            own = self._own[author_id] = []
        while own:
            log_seq, row = own[-1]
            start = row * WINDOW_ROW_SIZE + _AUTHOR
            if row in rows and _NEWEST.unpack_from(self._memory, start)[2] == log_seq:
                return row
            own.pop()
        row, lasting = self._scan(np.fromiter(rows, np.int64, len(rows)))
        own += lasting
        return row

    def _oldest(self) -> int:
        """The row of the oldest window of all, in a full table.

        The oldest of a scan are kept in order, as far as nothing that comes later can be older. So
        the first of them that is unchanged since is still the oldest of all, and no order is kept
        up record by record.
        """
        while self._candidates:
            log_seq, row = self._candidates[-1]
            start = row * WINDOW_ROW_SIZE + _AUTHOR
            if _NEWEST.unpack_from(self._memory, start)[2] == log_seq:
                return row
            self._candidates.pop()
        row, self._candidates = self._scan(np.arange(self.table.rows_max))
        return row

    def _scan(self, rows: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
        """The row of the oldest of these, and (log_seq, row) of those that are older than any
        record to come, oldest last. Later records are given later times than the newest one.
        """
        told_us, log_seqs = self.table.rows["timestamp"][rows], self.table.rows["log_seq"][rows]
        if len(rows) > CANDIDATES_MAX:  # with all that are equal to the last one
            low = told_us <= np.partition(told_us, CANDIDATES_MAX - 1)[CANDIDATES_MAX - 1]
            rows, told_us, log_seqs = rows[low], told_us[low], log_seqs[low]
        order = np.lexsort((log_seqs, told_us))
        lasting = order[told_us[order] <= self._stamped_us][::-1]
        pairs = zip(log_seqs[lasting].tolist(), rows[lasting].tolist(), strict=True)
        return int(rows[order[0]]), list(pairs)
