"""What a diff has brought so far: nothing of it is seen before its end.

A sync point is opened by a handshake and applied by the V of the same id. Cut before that, it
leaves no trace.
"""

from appliance.base.errors import PacketRefused
from appliance.cores.metadata.change import Write
from appliance.cores.metadata.packets import BlockDiff, DiffEnd, Handshake
from appliance.cores.metadata.state_table import StateTable
from appliance.cores.metadata.states import merge
from appliance.cores.metadata.store import state_key
from appliance.formats.rdx.stamps import SINGLE, split_bare
from appliance.formats.toytlv.version_vectors import Vector


class SyncPoint:
    """The fields of one diff, merged among themselves."""

    def __init__(self, handshake: Handshake, now_ms: int) -> None:
        self.handshake = handshake
        self.updated_ms = now_ms
        self.end: DiffEnd | None = None
        self.packets: list[bytes] = []  # as they came, to be passed on
        self.size = len(handshake.raw)  # bytes of all that came
        self._writes: dict[bytes, Write] = {}  # by the key of the state

    @property
    def fields(self) -> int:
        return len(self._writes)

    def add(self, diff: BlockDiff, packet: bytes, now_ms: int) -> None:
        """One D. PacketRefused: the point is of no use any more."""
        self.updated_ms = now_ms
        self.size += len(packet)
        self.packets.append(packet)
        for id, letter, state in diff.writes:
            key = state_key(id, letter)
            present = self._writes.get(key)
            merged = merge(letter, present[2] if present is not None else None, state)
            self._writes[key] = id, letter, merged

    def finish(self, end: DiffEnd, packet: bytes) -> None:
        """V: the diff is whole."""
        for block, vector in end.vectors:
            for source, progress in vector.items():
                if progress > self.handshake.vector.get(source, -1):
                    raise PacketRefused("block_vector_ahead", f"{source:x} in block {block}")
        self.packets.append(packet)
        self.end = end

    def apply(self, table: StateTable) -> bool:
        """Merge it all; whether there was anything new. PacketRefused: nothing happened."""
        assert self.end is not None
        claimed = self.handshake.vector
        before = dict(table.vector)
        news = {s: p for s, p in sorted(claimed.items()) if p > before.get(s, -1)}
        states = table.merged(list(self._writes.values()))
        table.keep(states)
        vectors = dict(self.end.vectors)
        for key in states:
            id, letter, state = self._writes[key]
            for source, progress in _touched_by(letter, state, vectors.get(id.block, news), before):
                table.touch((key,), source, progress)
        for block, vector in self.end.vectors:
            table.join_block(block, vector)
        table.join_vector(claimed)
        return bool(news) or bool(states)


def _touched_by(letter: str, state: bytes, vector: Vector, before: Vector) -> list[tuple[int, int]]:
    """(source, progress) under which a field that came in a diff is entered into the index.

    It is not told which packet touched it: the newest one that the block claims for each source of
    which we had less is never too old. A single value was written by one source alone.
    """
    found = [(s, p) for s, p in sorted(vector.items()) if p > before.get(s, -1)]
    if letter in SINGLE:
        author = split_bare(state).source
        alone = [row for row in found if row[0] == author]
        return alone or found
    return found
