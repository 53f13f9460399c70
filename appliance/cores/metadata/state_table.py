"""What a replica holds, over its store: states, vectors, and the index of changes.

What was applied waits in memory, as one batch, until `write` has made it durable; until then it is
read from there. `forget` drops it: everything is then as the store has it.

Invariants, once written: every state is what merging it with itself gives; each entry of a block's
vector is at most that of the global vector; each field stands in the index under the newest packet
of each source that touched it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.base.errors import PacketRefused
from appliance.base.limits import BLOCK_VECTORS_CACHED_MAX
from appliance.cores.metadata.packets import Write
from appliance.cores.metadata.states import merge
from appliance.cores.metadata.store import (
    DATA,
    GLOBAL_VECTOR,
    INDEXED_FACT,
    Store,
    block_key,
    change_key,
    end_of,
    field_name,
    newest_key,
)
from appliance.formats.toytlv.ids import Id
from appliance.formats.toytlv.version_vectors import Vector, decode_vector, encode_vector, join

_PROGRESS_SIZE = 8


class StateTable:
    """`vector` is the global one; nobody else changes it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pending: dict[bytes, bytes | None] = {}
        self.vector: Vector = {}
        self.on_kept: Callable[[list[bytes]], None] | None = None  # an index of someone else
        self.touched: list[bytes] = []  # names of the fields written since the last `write`
        self._blocks: dict[bytes, Vector] = {}  # cache by key
        self._changed_blocks: set[bytes] = set()
        self._vector_changed = False
        self._load()

    def _load(self) -> None:
        self.vector = decode_vector(self.store.get(GLOBAL_VECTOR) or b"")
        self.indexed = self.store.get(INDEXED_FACT) is not None
        self._blocks.clear()
        self._changed_blocks.clear()
        self._vector_changed = False

    # --- reading

    def get(self, key: bytes) -> bytes | None:
        return self.pending[key] if key in self.pending else self.store.get(key)

    def state(self, id: Id, letter: str) -> bytes | None:
        return self.get(DATA + field_name(id, letter))

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As the store's; nothing may be pending in between, so `write` first."""
        assert not self.pending
        return self.store.scan(first, end)

    def fields(self, object_id: Id) -> dict[bytes, bytes]:
        """Key to state of everything that belongs to an object or class, what is pending too."""
        first = DATA + field_name(object_id, "\0")
        end = DATA + field_name(Id(object_id.source, object_id.progress | 0xFFF), "\x7f")
        found = dict(self.store.scan(first, end))
        for key, value in self.pending.items():
            if first <= key < end and value is not None:
                found[key] = value
        return dict(sorted(found.items()))

    def block_vector(self, id: Id) -> Vector:
        """Of the block that `id` lies in. Not to be changed by the caller."""
        return self._block(block_key(id))

    def _block(self, key: bytes) -> Vector:
        vector = self._blocks.get(key)
        if vector is None:
            if len(self._blocks) >= BLOCK_VECTORS_CACHED_MAX + len(self._changed_blocks):
                self._evict()
            vector = self._blocks[key] = decode_vector(self.store.get(key) or b"")
        return vector

    def _evict(self) -> None:
        for key in [key for key in self._blocks if key not in self._changed_blocks]:
            del self._blocks[key]

    @contextmanager
    def as_stored(self) -> Iterator[None]:
        """Within it states are read as they were before what waits now was applied."""
        pending, self.pending = self.pending, {}
        try:
            yield
        finally:
            assert not self.pending  # nobody writes meanwhile
            self.pending = pending

    # --- writing

    def merged(self, writes: list[Write]) -> dict[bytes, bytes]:
        """Name to new state of each field, before any of it is kept. PacketRefused: too large."""
        states: dict[bytes, bytes] = {}
        for id, letter, operand in writes:
            name = field_name(id, letter)
            old = states.get(name)
            if old is None:
                old = self.get(DATA + name)
            states[name] = merge(letter, old, operand)
        return states

    def keep(self, states: dict[bytes, bytes]) -> None:
        for name, state in states.items():
            self.pending[DATA + name] = state
        self.touched.extend(states)
        if self.on_kept is not None:
            self.on_kept(list(states))

    def touch(self, name: bytes, source: int, progress: int) -> None:
        """Enter a field under the packet that wrote it, unless a newer one of the source did."""
        if not self.indexed:
            return
        key = newest_key(name, source)
        old = self.get(key)
        if old is not None:
            present = int.from_bytes(old, "big")
            if present >= progress:
                return
            self.pending[change_key(source, present, name)] = None
        self.pending[key] = progress.to_bytes(_PROGRESS_SIZE, "big")
        self.pending[change_key(source, progress, name)] = b""

    def advance(self, entry: Id, blocks: tuple[Id, ...]) -> None:
        """Have the global vector, and those of the blocks that it touched, cover a packet."""
        if entry.progress > self.vector.get(entry.source, -1):
            self.vector[entry.source] = entry.progress
            self._vector_changed = True
        for block in blocks:
            key = block_key(block)
            vector = self._block(key)
            if entry.progress > vector.get(entry.source, -1):
                vector[entry.source] = entry.progress
                self._changed_blocks.add(key)

    def join_vector(self, vector: Vector) -> None:
        join(self.vector, vector)
        self._vector_changed = True

    def join_block(self, block: Id, vector: Vector) -> None:
        key = block_key(block)
        join(self._block(key), vector)
        self._changed_blocks.add(key)

    # --- the batch

    @property
    def changed(self) -> bool:
        """Whether something waits to be written."""
        return bool(self.pending) or self._vector_changed or bool(self._changed_blocks)

    def batch(self) -> dict[bytes, bytes | None]:
        """All that waits, vectors included. `written` or `forget` comes next."""
        for key in sorted(self._changed_blocks):
            self.pending[key] = encode_vector(self._blocks[key])
        if self._vector_changed:
            self.pending[GLOBAL_VECTOR] = encode_vector(self.vector)
        return self.pending

    def written(self) -> None:
        """The batch is durable."""
        self.pending = {}
        self.touched = []
        self._changed_blocks.clear()
        self._vector_changed = False

    def forget(self) -> None:
        """The batch could not be written: nothing of it happened."""
        self.pending = {}
        self.touched = []
        self._load()

    # --- the index

    def changes(self, source: int, after: bytes) -> Iterator[tuple[int, bytes]]:
        """(progress, name) of what the source touched, from the key `after` on, exclusive."""
        for key, _ in self.scan(after + b"\0", end_of(change_key(source, 0)[:9])):
            yield int.from_bytes(key[9:17], "big"), key[17:]

    def check_block_vectors(self) -> None:
        """PacketRefused names a block whose vector is ahead of the global one."""
        for key, value in self.scan(GLOBAL_VECTOR + b"\0", end_of(GLOBAL_VECTOR[:1])):
            for source, progress in decode_vector(value).items():
                if progress > self.vector.get(source, -1):
                    raise PacketRefused("block_vector_ahead", key.hex())
