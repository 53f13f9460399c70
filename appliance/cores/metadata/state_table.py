"""What a replica holds, over its store: states, vectors, and the index of changes.

What was applied waits in memory, as one batch, until `write` has made it durable; until then it is
read from there. `forget` drops it: everything is then as the store has it.

Invariants, once written: every state is what merging it with itself gives; each entry of a block's
vector is at most that of the global vector; each field stands in the index under the newest packet
of each source that touched it, and under older ones until these are swept away.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from appliance.base.errors import PacketRefused
from appliance.base.limits import BLOCK_VECTORS_CACHED_MAX
from appliance.cores.metadata.change import Write
from appliance.cores.metadata.states import merge
from appliance.cores.metadata.store import (
    CHANGE,
    DATA,
    EARLIER_NEWEST,
    GLOBAL_VECTOR,
    INDEXED_FACT,
    PROGRESS_SIZE,
    SOURCE_SIZE,
    SWEPT_FACT,
    Store,
    block_key,
    change_of,
    changes_of,
    end_of,
    is_state,
    newest_of_all,
    progress_of,
    state_key,
    touched_by,
)
from appliance.formats.toytlv.ids import Id
from appliance.formats.toytlv.version_vectors import Vector, decode_vector, encode_vector, join

_SWEPT = 2  # entries of the index looked at for each one that is made


class StateTable:
    """`vector` is the global one; nobody else changes it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pending: dict[bytes, bytes | None] = {}
        self.vector: Vector = {}
        self.on_kept: Callable[[list[bytes]], None] | None = None  # an index of someone else
        self.touched: list[bytes] = []  # keys of the fields written since the last `write`
        self._newest: dict[bytes, int] = {}  # newest key -> progress to be entered in the index
        self._doubtful: set[bytes] = set()  # those of which the store may know a newer one
        self._blocks: dict[bytes, Vector] = {}  # cache by key
        self._changed_blocks: set[bytes] = set()
        self._vector_changed = False
        self._load()

    def _load(self) -> None:
        self.vector = decode_vector(self.store.get(GLOBAL_VECTOR) or b"")
        self.indexed = self.store.get(INDEXED_FACT) is not None
        self._newest.clear()
        self._doubtful.clear()
        earlier = self.store.scan(EARLIER_NEWEST, end_of(EARLIER_NEWEST))
        self._has_earlier = next(earlier, None) is not None
        self._swept = self.store.get(SWEPT_FACT) or CHANGE
        self._blocks.clear()
        self._changed_blocks.clear()
        self._vector_changed = False

    # --- reading

    def get(self, key: bytes) -> bytes | None:
        pending = self.pending
        return pending[key] if key in pending else self.store.get(key)

    def state(self, id: Id, letter: str) -> bytes | None:
        return self.get(state_key(id, letter))

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As the store's; nothing may be pending in between, so `write` first."""
        assert not self.pending
        return self.store.scan(first, end)

    def states(
        self, first: bytes = DATA, end: bytes = end_of(DATA)
    ) -> Iterator[tuple[bytes, bytes]]:
        """Of `scan` the states: key and state of each field, class and object."""
        return ((key, state) for key, state in self.scan(first, end) if is_state(key))

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
        """Key to new state of each field, before any of it is kept. PacketRefused: too large."""
        states: dict[bytes, bytes] = {}
        pending, get = self.pending, self.store.get
        for id, letter, operand in writes:
            key = state_key(id, letter)
            old = states.get(key)
            if old is None:
                old = pending[key] if key in pending else get(key)
            states[key] = merge(letter, old, operand)
        return states

    def keep(self, states: dict[bytes, bytes]) -> None:
        self.pending.update(states)
        self.touched.extend(states)
        if self.on_kept is not None:
            self.on_kept(list(states))

    def touch(self, keys: Collection[bytes], source: int, progress: int) -> None:
        """Enter fields under the packet that wrote them, unless a newer one of the source did.

        They stand in the index with the batch: what is touched again and again is entered once.
        What the vector does not cover is newer than all that the index has of its source. So the
        vector advances after this.
        """
        if not self.indexed:
            return
        numbers, suffix = self._newest, source.to_bytes(SOURCE_SIZE, "big")
        if progress > self.vector.get(source, -1):
            for key in keys:
                numbers[key + suffix] = progress
            if self._doubtful:
                self._doubtful.difference_update([key + suffix for key in keys])
            return
        for key in keys:
            newest = key + suffix
            if newest not in numbers:
                self._doubtful.add(newest)
            numbers[newest] = max(progress, numbers.get(newest, -1))

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
        return bool(self.pending or self._newest or self._changed_blocks) or self._vector_changed

    def batch(self) -> dict[bytes, bytes | None]:
        """All that waits, vectors included. `written` or `forget` comes next."""
        for key in sorted(self._changed_blocks):
            self.pending[key] = encode_vector(self._blocks[key])
        if self._vector_changed:
            self.pending[GLOBAL_VECTOR] = encode_vector(self.vector)
        self._enter()
        return self.pending

    def _enter(self) -> None:
        """What was touched, into the index."""
        pending = self.pending
        numbers, size = self._newest, PROGRESS_SIZE
        entered = {key: number.to_bytes(size, "big") for key, number in numbers.items()}
        present = dict(self.store.get_all(sorted(self._doubtful)))
        if self._has_earlier:
            keys = [EARLIER_NEWEST + key[1:] for key in sorted(entered) if key not in present]
            for newest_key, old in self.store.get_all(keys).items():
                pending[newest_key] = None
                pending[DATA + newest_key[1:]] = present[DATA + newest_key[1:]] = old
        for newest, old in present.items():
            if old >= entered[newest]:
                del entered[newest]
        pending.update(entered)
        # in the order in which packets came: nearly that of the keys
        for newest, number in entered.items():
            pending[change_of(newest, number)] = b""
        numbers.clear()
        self._doubtful.clear()
        if entered:
            self._sweep(_SWEPT * len(entered))

    def _sweep(self, count: int) -> None:
        """Look at so many entries of the index, where it was left, and drop those out of date.

        What is out of date lies scattered; swept in order, many go with one page. Twice as many
        are looked at as are entered, so that at most half of the index is ever out of date.
        """
        pending = self.pending
        found = self.store.keys(self._swept, end_of(CHANGE), count)
        self._swept = found[-1] + b"\0" if len(found) == count else CHANGE
        pending[SWEPT_FACT] = self._swept
        keys = newest_of_all(found)
        newest = self.store.get_all(keys).get
        for change, newest_key in zip(found, keys, strict=True):
            if newest(newest_key, b"") > progress_of(change):
                pending[change] = None

    def written(self) -> None:
        """The batch is durable."""
        self.pending, self.touched = {}, []
        self._changed_blocks.clear()
        self._vector_changed = False

    def forget(self) -> None:
        """The batch could not be written: nothing of it happened."""
        self.pending, self.touched = {}, []
        self._load()

    # --- the index

    def changes(self, source: int, after: bytes) -> Iterator[tuple[int, bytes]]:
        """(progress, name) of what the source touched, from the key `after` on, exclusive.

        A number may be missing or too small where an earlier version has written since: so only
        what is certainly out of date is passed over.
        """
        for key, _ in self.scan(after + b"\0", end_of(changes_of(source))):
            progress, (newest,) = progress_of(key), newest_of_all([key])
            if (self.store.get(newest) or b"") <= progress:
                yield int.from_bytes(progress, "big"), touched_by(key)

    def check_block_vectors(self) -> None:
        """PacketRefused names a block whose vector is ahead of the global one."""
        for key, value in self.scan(GLOBAL_VECTOR + b"\0", end_of(GLOBAL_VECTOR[:1])):
            for source, progress in decode_vector(value).items():
                if progress > self.vector.get(source, -1):
                    raise PacketRefused("block_vector_ahead", key.hex())
