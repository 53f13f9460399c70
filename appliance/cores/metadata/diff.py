"""What a peer has not seen, as packets: D for fields of one block, V at the end.

With the index of changes only fields are sent that a packet touched which the peer has not seen,
each with its whole state. Without it the blocks are walked by the rule of the Go implementation,
which sends more. Either way a diff is complete for the vector that our handshake claimed, since V
has the peer join that vector to its own.

Packets are made as room for them is found; what is edited meanwhile is sent as it is then, or
comes after the diff as a packet of its own.
"""

from collections.abc import Iterator

from appliance.base.limits import DIFF_PACKET_SIZE, DIFF_ROWS
from appliance.cores.metadata import packets
from appliance.cores.metadata.state_table import StateTable
from appliance.cores.metadata.states import in_diff
from appliance.cores.metadata.store import (
    DATA,
    GLOBAL_VECTOR,
    block_of_key,
    change_key,
    end_of,
    field_name,
    id_of_name,
    letter_of_name,
)
from appliance.formats.toytlv.ids import BLOCK_MASK, Id
from appliance.formats.toytlv.version_vectors import Vector, decode_vector

Row = tuple[Id, str, bytes]


class Diff:
    """The diff for one peer: `take` until it gives nothing. Only while nothing is pending.

    `last` and `claimed` are what our handshake said; `seen` is the peer's vector.
    """

    def __init__(self, table: StateTable, last: Id, claimed: Vector, seen: Vector) -> None:
        self._table, self._last = table, last
        self._claimed, self._seen = claimed, seen
        self._blocks: dict[Id, Vector] = {}  # vectors of the blocks sent, as of their first D
        self._ended = False
        self.fields_sent = 0
        changed = [s for s in sorted(claimed) if claimed[s] > seen.get(s, -1)]
        self._sources = changed if table.indexed else []
        self._cursor = b""
        self._walk = None if table.indexed else self._walked()

    def take(self) -> list[bytes]:
        """The next packets, some DIFF_PACKET_SIZE of them; the last is V; then always nothing."""
        if self._ended:
            return []
        rows = self._indexed() if self._walk is None else self._from_walk()
        if rows:
            return self._packets(rows)
        self._ended = True
        vectors = [(block, self._blocks[block]) for block in sorted(self._blocks)]
        return [packets.diff_end(self._last, vectors)]

    def _packets(self, rows: list[Row]) -> list[bytes]:
        """A D for each block of the rows, which lie in order of ids."""
        made: list[bytes] = []
        first = 0
        for index, row in enumerate(rows):
            block = row[0].block
            if index + 1 == len(rows) or rows[index + 1][0].block != block:
                if block not in self._blocks:
                    self._blocks[block] = self._vector_of(block)
                made.append(packets.block_diff(self._last, block, rows[first : index + 1]))
                first = index + 1
        self.fields_sent += len(rows)
        return made

    def _vector_of(self, block: Id) -> Vector:
        """The block's vector, no further than what our handshake claims."""
        return {
            source: min(progress, self._claimed[source])
            for source, progress in self._table.block_vector(block).items()
            if source in self._claimed
        }

    # --- by the index

    def _indexed(self) -> list[Row]:
        names: dict[bytes, bytes] = {}
        size = 0
        while self._sources and size < DIFF_PACKET_SIZE and len(names) < DIFF_ROWS:
            source = self._sources[0]
            if not self._cursor:
                self._cursor = change_key(source, self._seen.get(source, -1) + 1)
            more = False
            for progress, name in self._table.changes(source, self._cursor):
                self._cursor = change_key(source, progress, name)
                state = self._table.get(DATA + name)
                assert state is not None  # the index names what is there
                names[name] = state
                size += len(state) + len(name)
                if size >= DIFF_PACKET_SIZE or len(names) >= DIFF_ROWS:
                    more = True
                    break
            if not more:
                self._sources.pop(0)
                self._cursor = b""
        return [(id_of_name(n), letter_of_name(n), names[n]) for n in sorted(names)]

    # --- by the blocks

    def _from_walk(self) -> list[Row]:
        assert self._walk is not None
        rows: list[Row] = []
        size = 0
        for row in self._walk:
            rows.append(row)
            size += len(row[2])
            if size >= DIFF_PACKET_SIZE or len(rows) >= DIFF_ROWS:
                break
        return rows

    def _walked(self) -> Iterator[Row]:
        """Every field of a changed block that the rule of Go sends."""
        table, seen = self._table, self._seen
        vectors = list(table.scan(GLOBAL_VECTOR + b"\0", end_of(GLOBAL_VECTOR[:1])))
        for key, value in vectors:
            block = block_of_key(key)
            changed = {
                source: seen.get(source, 0)
                for source, progress in decode_vector(value).items()
                if source not in seen or progress > seen[source]
            }
            if not changed:
                continue
            first = DATA + field_name(block, "\0")
            end = DATA + field_name(Id(block.source, block.progress | BLOCK_MASK), "\x7f")
            for row in self._rows(first, end):
                id, letter, state = row
                limit = changed.get(id.source)
                whole = limit is not None and (id.progress > limit or limit == 0)
                if whole or in_diff(letter, state, changed):
                    yield row

    def _rows(self, first: bytes, end: bytes) -> Iterator[Row]:
        """What lies between two keys, read in parts, since it is written between them."""
        while True:
            part: list[Row] = []
            for key, state in self._table.states(first, end):
                part.append((id_of_name(key[1:]), letter_of_name(key[1:]), state))
                first = key + b"\0"
                if len(part) >= DIFF_ROWS:
                    break
            yield from part
            if len(part) < DIFF_ROWS:
                return
