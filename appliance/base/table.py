"""A table of fixed-size rows, cut into chunks by row number, whose bytes depend on history alone.

    row 0 | row 1 | ... | row_high_water - 1 | never used: zero        a freed row is zero too
    `---- chunk 0 ----' `---- chunk 1 ----'     rows_per_chunk whole rows, zero padded to chunk_size

Rows are taken in order, a freed one again before new ones, lowest first: an insertion moves
nothing.
A checkpoint hashes what changed since the last one and writes what changed since the last but one,
because its place on disk was written two checkpoints ago.
"""

from heapq import heapify, heappop, heappush

import numpy as np

from appliance.base.checksum import sha256
from appliance.base.errors import FormatError
from appliance.base.padding import is_zero


class Table:
    """Rows of `dtype`, at most `rows_max`; no row in use may be all zero.

    Invariants: len(free) <= row_high_water <= rows_max; rows from the high water on and free rows
    are zero; whoever writes into `memory` calls `touch` with the row's number.
    """

    def __init__(self, dtype: np.dtype, rows_max: int, chunk_size: int) -> None:
        assert dtype.itemsize % 8 == 0
        assert 0 < dtype.itemsize <= chunk_size
        assert rows_max > 0
        self.row_size = dtype.itemsize
        self.rows_max = rows_max
        self.chunk_size = chunk_size
        self.rows_per_chunk = chunk_size // dtype.itemsize
        self.rows = np.zeros(rows_max, dtype)  # pages of unused rows cost no memory
        self.memory = memoryview(self.rows.view(np.uint8))  # type: ignore[arg-type]
        self.row_high_water = 0
        self._free: list[int] = []  # heap of freed rows below the high water
        chunks_max = -(-rows_max // self.rows_per_chunk)
        self._changed = bytearray(chunks_max)  # 1: since the last freeze
        self._changed_before = bytearray(chunks_max)  # 1: between the last two freezes
        self._chunk_ids: list[bytes] = []  # as of the last freeze
        self._write_all = True  # what the next freeze overwrites is not known

    @property
    def row_count(self) -> int:
        """Rows in use."""
        return self.row_high_water - len(self._free)

    @property
    def full(self) -> bool:
        """Whether `take` has nothing to give."""
        return not self._free and self.row_high_water == self.rows_max

    def take(self) -> int:
        """The lowest free row. It is zero; the caller fills it. Not to be called when `full`."""
        assert not self.full
        if self._free:
            row = heappop(self._free)
        else:
            row = self.row_high_water
            self.row_high_water += 1
        self.touch(row)
        return row

    def release(self, row: int) -> None:
        """Zero a row in use and give it back."""
        assert row < self.row_high_water
        assert any(self.row(row))
        self.memory[row * self.row_size : (row + 1) * self.row_size] = bytes(self.row_size)
        self.touch(row)
        heappush(self._free, row)

    def touch(self, row: int) -> None:
        """Note that `row` is about to change, or just did."""
        self._changed[row // self.rows_per_chunk] = 1

    def row(self, row: int) -> memoryview:
        """The bytes of one row below the high water."""
        assert row < self.row_high_water
        return self.memory[row * self.row_size : (row + 1) * self.row_size]

    def clear(self) -> None:
        """Back to no rows."""
        self.rows[: self.row_high_water] = np.zeros((), self.rows.dtype)
        self.row_high_water = 0
        self._free.clear()
        self._chunk_ids.clear()
        self._changed[:] = bytes(len(self._changed))
        self._changed_before[:] = bytes(len(self._changed))
        self._write_all = True

    def freeze(self, everything: bool) -> tuple[int, list[bytes], list[tuple[int, bytes]]]:
        """(row high water, ids of all chunks, copies of the chunks to write as (index, bytes)).

        The chunks are copies: the table may change at once. All of them are listed when asked for,
        and at the first freeze after a start or a load: what they overwrite is not known then.
        """
        chunk_count = -(-self.row_high_water // self.rows_per_chunk)
        everything = everything or self._write_all
        writes = []
        for index in range(chunk_count):
            changed = self._changed[index]
            if not (changed or everything or self._changed_before[index]):
                continue
            chunk = self._chunk(index)
            writes.append((index, chunk))
            if index == len(self._chunk_ids):
                self._chunk_ids.append(sha256(chunk))
            elif changed:
                self._chunk_ids[index] = sha256(chunk)
        assert len(self._chunk_ids) == chunk_count
        self._changed_before[:] = self._changed
        self._changed[:] = bytes(len(self._changed))
        self._write_all = False
        return self.row_high_water, list(self._chunk_ids), writes

    def load(self, chunks: list[bytes], row_high_water: int) -> None:
        """Replace everything by `chunks`, whose ids the caller has verified.

        Raises FormatError when number, sizes or paddings are not those of `row_high_water` rows.
        """
        if row_high_water > self.rows_max:
            raise FormatError(f"table: {row_high_water} rows, at most {self.rows_max} allowed")
        if len(chunks) != -(-row_high_water // self.rows_per_chunk):
            raise FormatError(f"table: {len(chunks)} chunks for {row_high_water} rows")
        self.clear()
        for index, chunk in enumerate(chunks):
            if len(chunk) != self.chunk_size:
                raise FormatError(f"table: chunk {index} of {len(chunk)} bytes")
            start = index * self.rows_per_chunk
            count = min(self.rows_per_chunk, row_high_water - start)
            size = count * self.row_size
            if not is_zero(memoryview(chunk)[size:]):
                raise FormatError(f"table: chunk {index} is not zero behind its {count} rows")
            self.memory[start * self.row_size : start * self.row_size + size] = chunk[:size]
            self._chunk_ids.append(sha256(chunk))
        self.row_high_water = row_high_water
        words = self.rows.view("<u8").reshape(self.rows_max, -1)[:row_high_water]
        self._free = [int(row) for row in np.flatnonzero(~words.any(axis=1))]
        heapify(self._free)

    def _chunk(self, index: int) -> bytes:
        """A copy of chunk `index`, padded to `chunk_size`."""
        start = index * self.rows_per_chunk * self.row_size
        end = min(start + self.rows_per_chunk * self.row_size, len(self.memory))
        return bytes(self.memory[start:end]).ljust(self.chunk_size, b"\0")
