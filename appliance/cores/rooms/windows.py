"""Idempotency windows: of each device in each room, the newest 64 records it had accepted."""

import struct

import numpy as np

from appliance.base.errors import FormatError
from appliance.base.layout import offset_of
from appliance.base.limits import WINDOW_EVICT_AGE_US, WINDOW_LENGTH
from appliance.base.table import Table
from appliance.formats.checkpoint import WINDOW_ROW
from appliance.formats.geometry import WINDOW_ROW_SIZE, Geometry

CANDIDATES_MAX = 1024  # windows looked at together when one must go

_KEY_SIZE = 32  # client_id, room_id
_NEWEST = struct.Struct("<QQQQ")  # author_id, client_seq, log_seq, timestamp
_OWNER = struct.Struct("<QQ")  # author_id, client_seq
_LOW = struct.Struct("<I")
_LOW_MASK = 0xFFFFFFFF
_AUTHOR = offset_of(WINDOW_ROW, "author_id")
_LOG_SEQS = offset_of(WINDOW_ROW, "log_seqs")
assert offset_of(WINDOW_ROW, "client_id") == 0
assert offset_of(WINDOW_ROW, "room_id") == 16
assert _AUTHOR == _KEY_SIZE
assert _AUTHOR + _NEWEST.size == _LOG_SEQS


class Windows:
    """The table of windows and its index by client_id and room_id, 32 bytes together.

    Invariants: a row in use is indexed under its first 32 bytes; its client_seq and log_seq are at
    least 1; log_seqs are unique over all rows, so one window is the oldest.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.table = Table(WINDOW_ROW, geometry.windows_max, geometry.table_chunk_size)
        self.row_of: dict[bytes, int] = {}
        self._memory = self.table.memory
        self._candidates: list[tuple[int, int]] = []  # (log_seq, row), oldest last

    def clear(self) -> None:
        """Back to no windows."""
        self.table.clear()
        self.row_of.clear()
        self._candidates.clear()

    def load(self, chunks: list[bytes], row_high_water: int) -> None:
        """Replace everything by verified chunks."""
        self.clear()
        self.table.load(chunks, row_high_water)
        for row in range(row_high_water):
            key = bytes(self.table.row(row)[:_KEY_SIZE])
            if any(key) and self.row_of.setdefault(key, row) != row:
                raise FormatError(f"windows: row {row} is a second window of {key.hex()}")

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
        return max(0, newest_log_seq - (newest_log_seq - low & _LOW_MASK))

    def advance(
        self, row: int, author_id: int, client_seq: int, log_seq: int, timestamp: int
    ) -> None:
        """Note an accepted record as the newest."""
        start = row * WINDOW_ROW_SIZE
        _NEWEST.pack_into(self._memory, start + _AUTHOR, author_id, client_seq, log_seq, timestamp)
        _LOW.pack_into(
            self._memory, start + _LOG_SEQS + 4 * (client_seq % WINDOW_LENGTH), log_seq & _LOW_MASK
        )
        self.table.touch(row)

    def can_take(self, timestamp: int) -> bool:
        """Whether a record of a prepare of `timestamp` may have a new window."""
        if not self.table.full:
            return True
        log_seq, row = self._oldest()
        _, _, newest_log_seq, newest = _NEWEST.unpack_from(
            self._memory, row * WINDOW_ROW_SIZE + _AUTHOR
        )
        assert newest_log_seq == log_seq
        return timestamp - newest > WINDOW_EVICT_AGE_US

    def take(self, key: bytes) -> int:
        """A zeroed row for the window `key`: a free one, else that of the oldest window."""
        assert len(key) == _KEY_SIZE
        assert key not in self.row_of
        if self.table.full:
            row = self._oldest()[1]
            del self.row_of[bytes(self.table.row(row)[:_KEY_SIZE])]
            self._memory[row * WINDOW_ROW_SIZE : (row + 1) * WINDOW_ROW_SIZE] = bytes(
                WINDOW_ROW_SIZE
            )
            self.table.touch(row)
        else:
            row = self.table.take()
        self._memory[row * WINDOW_ROW_SIZE : row * WINDOW_ROW_SIZE + _KEY_SIZE] = key
        self.row_of[key] = row
        return row

    def _oldest(self) -> tuple[int, int]:
        """(log_seq, row) of the window with the lowest log_seq, in a full table.

        The lowest of a scan are kept in order. A log_seq only ever grows, so the first of them that
        is unchanged since is still the lowest of all, and no order is kept up record by record.
        """
        while True:
            while self._candidates:
                log_seq, row = self._candidates[-1]
                start = row * WINDOW_ROW_SIZE + _AUTHOR
                if _NEWEST.unpack_from(self._memory, start)[2] == log_seq:
                    return log_seq, row
                self._candidates.pop()
            log_seqs = self.table.rows["log_seq"]
            count = min(CANDIDATES_MAX, len(log_seqs))
            rows = np.argpartition(log_seqs, count - 1)[:count]
            rows = rows[np.argsort(log_seqs[rows])[::-1]]
            self._candidates = list(zip(log_seqs[rows].tolist(), rows.tolist(), strict=True))
