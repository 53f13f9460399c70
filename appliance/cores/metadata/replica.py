"""A replica: applies changes whole or not at all, and makes changes of its own.

A change of our own is applied at once and waits in `outbox` for whoever sends it; nobody may send
it, or answer for it, before `write` has made it durable: after a crash its number is given out
again, and two packets of one number would be taken for one.
"""

import hashlib
from collections import Counter
from collections.abc import Callable

from appliance.base.errors import EditRefused, ObjectsFull, PacketRefused
from appliance.base.limits import PACKET_SIZE_MAX
from appliance.cores.metadata import log0, packets, terms
from appliance.cores.metadata.change import Change
from appliance.cores.metadata.state_table import StateTable
from appliance.cores.metadata.states import SORTED, merge
from appliance.cores.metadata.store import (
    INDEXED_FACT,
    NAME_FACT,
    SOURCE_FACT,
    VECTOR,
    Store,
    end_of,
    id_of_name,
    letter_of_name,
)
from appliance.formats.rdx.check import check_state
from appliance.formats.toytlv.ids import (
    FIELD_BITS,
    ID0,
    PACKED_FIELD_MAX,
    SEQUENCE_MAX,
    SOURCE_MAX,
    Id,
    make_id,
    unzip_id,
)
from appliance.formats.toytlv.records import record

FieldWrite = tuple[int, str, bytes]  # number of the field, letter of its type, delta
_SHARED_SOURCES = 2  # 0 of the protocol and 1 of the product: nobody's own


class Replica:
    """One replica over one store, which nobody else writes."""

    def __init__(
        self,
        store: Store,
        *,
        source: int,
        name: str = "",
        admits: Callable[[int], bool] | None = None,
        counters: Counter[str] | None = None,
        shared: tuple[bytes, ...] = (),
    ) -> None:
        """`shared`: packets of source 1 that all replicas of a product begin with. `admits` says
        which sources may write: all, if there is none.
        """
        if not _SHARED_SOURCES <= source <= SOURCE_MAX:
            raise EditRefused(f"a replica's source lies in 2 to {SOURCE_MAX:x}, not {source:x}")
        self.source = source
        self.table = StateTable(store)
        self.outbox: list[bytes] = []
        self.counters: Counter[str] = Counter() if counters is None else counters
        self._admits = admits
        self._open(name)
        self._share(shared)

    def _open(self, name: str) -> None:
        """Bring an empty store to its first state; refuse one of another source."""
        own = self.table.get(SOURCE_FACT)
        if own is not None:
            if int.from_bytes(own, "big") != self.source:
                raise EditRefused(
                    f"the store belongs to source {int.from_bytes(own, 'big'):x}, not "
                    f"{self.source:x}"
                )
            return
        table = self.table
        table.pending[SOURCE_FACT] = self.source.to_bytes(8, "big")
        table.pending[NAME_FACT] = name.encode()
        table.pending[INDEXED_FACT], table.indexed = b"1", True
        for packet in (*log0.SHARED, log0.replica_record(self.source, name)):
            self._apply(packets.parse_change(packet))
        self.write()

    def _share(self, shared: tuple[bytes, ...]) -> None:
        """Apply what a store of an older version lacks."""
        for packet in shared:
            change = packets.parse_change(packet)
            assert change.id.source == 1
            if change.entry.progress > self.table.vector.get(1, -1):
                self._apply(change)
        self.write()

    # --- changes of others

    @property
    def last(self) -> Id:
        """The newest packet of our own."""
        return Id(self.source, self.table.vector[self.source])

    def admits(self, source: int) -> bool:
        return (
            source < _SHARED_SOURCES
            or source == self.source
            or self._admits is None
            or self._admits(source)
        )

    def follows(self, change: Change) -> bool:
        """Whether it leaves nothing out: all that its source made before it is here."""
        known = self.table.vector.get(change.id.source, -1)
        return change.id.sequence <= (known >> FIELD_BITS) + 1

    def receive(self, change: Change) -> bool:
        """Apply a change of another replica; whether it was new. Refused, it leaves nothing."""
        source, progress = change.entry
        new = progress > self.table.vector.get(source, -1)
        if new and source == self.source:
            raise PacketRefused("own_source_ahead", f"packet {change.id} of ours is not known here")
        if new and source < _SHARED_SOURCES:
            raise PacketRefused("shared_source", f"nobody makes packets of source {source}")
        if self._admits is not None and not self.admits(source):
            raise PacketRefused("unknown_source", f"source {source:x} was announced by nobody")
        self._apply(change)
        self.counters["applied" if new else "applied_again"] += 1
        return new

    def _apply(self, change: Change) -> None:
        table = self.table
        states = table.merged(change.writes)  # refuses before anything is kept
        table.keep(states)
        source, progress = change.entry
        table.touch(states, source, progress)
        table.advance(change.entry, change.blocks)

    # --- changes of our own

    def create_class(self, declared: list[terms.Term], edited: Id = ID0) -> Id:
        """A new class, or more terms of an `edited` one. The id of the packet."""
        return self._make("C", edited, terms.encode_terms(declared))

    def create_object(self, of_class: Id, values: list[tuple[str, bytes]]) -> Id:
        """A new object: letter and state of its fields, from 1 on, in order."""
        if self.table.state(of_class, "C") is None:
            raise EditRefused(f"there is no class {of_class}")
        if not 1 <= len(values) <= PACKED_FIELD_MAX:
            raise EditRefused(f"an object has 1 to {PACKED_FIELD_MAX} fields, not {len(values)}")
        body = b"".join([record(letter, state) for letter, state in values])
        return self._make("O", of_class, body)

    def edit(self, object_id: Id, writes: list[FieldWrite]) -> Id:
        """Change fields of one object, all in one packet. Only what is not empty counts."""
        for field, letter, _ in writes:
            if not 1 <= field <= PACKED_FIELD_MAX:
                raise EditRefused(f"field {field} of {object_id}: 1 to {PACKED_FIELD_MAX}")
            if len(letter) != 1 or not "A" <= letter <= "Z":
                raise EditRefused(f"{letter!r} is no type of a field")
        if not writes:
            raise EditRefused("an edit changes at least one field")
        if self.class_of(object_id) is None:
            raise EditRefused(f"there is no object {object_id}")
        body = b"".join([packets.edited(*write) for write in writes])
        return self._make("E", object_id, body)

    def _make(self, letter: str, ref: Id, body: bytes) -> Id:
        id = self._next_id()
        packet = packets.change(letter, id, ref, body)
        if len(packet) > PACKET_SIZE_MAX:
            raise EditRefused(f"a packet of {len(packet)} bytes, at most {PACKET_SIZE_MAX}")
        try:
            self._apply(packets.parse_change(packet))
        except PacketRefused as refusal:
            raise EditRefused(str(refusal)) from refusal
        self.outbox.append(packet)
        self.counters["made"] += 1
        return id

    def _next_id(self) -> Id:
        sequence = (self.table.vector[self.source] >> FIELD_BITS) + 1
        if sequence > SEQUENCE_MAX:
            raise EditRefused("this replica has used all its packet numbers: give it a new source")
        return make_id(self.source, sequence)

    # --- reading

    def class_of(self, object_id: Id) -> Id | None:
        """The class of an object; of a replica record what stands there; None: no such object."""
        state = self.table.state(object_id, "O")
        if state is None:
            state = self.table.state(object_id, "Y")
        return unzip_id(state) if state is not None else None

    def terms_of(self, class_id: Id) -> list[terms.Term]:
        state = self.table.state(class_id, "C")
        return terms.decode_terms(state) if state is not None else []

    # --- durability

    def write(self) -> None:
        """Make all that was applied durable. ObjectsFull: nothing of it happened."""
        if not self.table.changed:
            return
        try:
            self.table.store.write(self.table.batch())
        except ObjectsFull:
            self.forget()
            raise
        self.table.written()

    def forget(self) -> None:
        """Drop what was applied and not written: nobody has heard of it."""
        self.table.forget()
        self.outbox.clear()

    # --- looking at all of it

    def dump(self) -> list[tuple[bytes, bytes]]:
        """Keys and values of states and vectors, in order; nothing may be pending."""
        return [*self.table.states(), *self.table.scan(VECTOR, end_of(VECTOR))]

    def verify(self) -> str:
        """The digest over all (id, letter, state); PacketRefused names what is not as it must be.

        Two replicas that have seen the same packets have the same digest.
        """
        table = self.table
        digest = hashlib.blake2b(digest_size=16)
        for key, state in table.states():
            name = key[1:]
            letter = letter_of_name(name)
            check_state(letter, state)
            if letter in SORTED and merge(letter, None, state) != state:
                raise PacketRefused("unsorted_state", f"{id_of_name(name)} {letter}")
            digest.update(len(key).to_bytes(2, "big") + key + len(state).to_bytes(4, "big"))
            digest.update(state)
        table.check_block_vectors()
        return digest.hexdigest()
