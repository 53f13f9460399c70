"""Which objects belong to a key: the index of the product's objects by their first field.

    K  class  key 0x00  id 16          nothing
    R  room 0x00  message ~  id 16     nothing: reactions, newest message first

Replicas that are cut off from each other may each make the object of one key; all of them are that
key's object. The index is local, and made again from the states when it is missing. Ids of messages
begin with their time, so their bytes, each one taken from 255, sort the newest first.
"""

from appliance.cores.metadata import product
from appliance.cores.metadata.state_table import StateTable
from appliance.cores.metadata.store import (
    DATA,
    FACT,
    ID_SIZE,
    SOURCE_SIZE,
    end_of,
    id_of_name,
    is_state,
    state_key,
)
from appliance.formats.rdx.stamps import split_bare
from appliance.formats.toytlv.ids import Id, id_of_key, key_of_id, unzip_id

_KEY, _ROOM, _KEYED_FACT = b"K", b"R", FACT + b"keyed2"
_FIELD_AT = 16  # in the key of a state
# how the keys of these fields' states end, but for the bits that they share with the packet number
_NOTED = tuple(
    state_key(Id(0, n), "S")[_FIELD_AT:] for n in (product.KEY_FIELD, product.REACTED_ROOM)
)
_TURNED = bytes(range(255, -1, -1))


class KeyIndex:
    """Kept by the state table, see `note`."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        table.on_kept = self.note
        if table.get(_KEYED_FACT) is None:
            self.rebuild()

    def note(self, states: list[bytes]) -> None:
        """The states under these keys have been written; a key of an object among them is entered.

        A key of a state is DATA, 14 bytes, and two more that end in the number of the field.
        """
        for state in states:
            if state[_FIELD_AT:] in _NOTED and state[_FIELD_AT - 1] & 0x0F == 0:
                self._enter(id_of_name(state[1:]).object)

    def _enter(self, of: Id) -> None:
        named = self.key_of(of)
        if named is None:
            return
        of_class, key = named
        self._table.pending[_prefix(of_class, key) + key_of_id(of)] = b""
        room = self.room_of(of) if of_class == product.REACTIONS else b""
        if room:
            self._table.pending[_room_prefix(room) + key.translate(_TURNED) + key_of_id(of)] = b""

    def key_of(self, of: Id) -> tuple[Id, bytes] | None:
        """Class and key of an object of the product; None: it is no such object."""
        parent = self._table.state(of, "O")
        state = self._table.state(of.with_field(product.KEY_FIELD), "S")
        if parent is None or state is None:
            return None
        of_class, key = unzip_id(parent), split_bare(state).value
        if of_class.source != product.SOURCE or not 0 < len(key) <= product.KEY_SIZE_MAX:
            return None
        return of_class, key

    def room_of(self, of: Id) -> bytes:
        """The room of reactions; empty if they tell none that could be one."""
        state = self._table.state(of.with_field(product.REACTED_ROOM), "S")
        room = split_bare(state).value if state is not None else b""
        return room if len(room) <= product.KEY_SIZE_MAX and b"\0" not in room else b""

    def find(self, of_class: Id, key: bytes) -> list[Id]:
        """The objects of a key, ascending: writes go to the first one."""
        prefix = _prefix(of_class, key)
        rows = {row for row, _ in self._table.store.scan(prefix, end_of(prefix))}
        rows |= {row for row in self._table.pending if row.startswith(prefix)}
        found = []
        for row in sorted(rows):
            of = id_of_key(row[len(prefix) :])
            state = self._table.state(of.with_field(product.KEY_FIELD), "S")
            if state is not None and split_bare(state).value == key:
                found.append(of)
        return found

    def messages(self, room: bytes, before: bytes, count: int) -> list[bytes]:
        """At most `count` messages of a room that have reactions, the newest first; with `before`
        those that are older. Nothing may be pending."""
        prefix = _room_prefix(room)
        first = prefix + before.translate(_TURNED) + b"\xff" * 16 if before else prefix
        found: dict[bytes, None] = {}
        for row, _ in self._table.scan(first, end_of(prefix)):
            message = row[len(prefix) : -ID_SIZE].translate(_TURNED)
            if message not in found and len(found) == count:
                break
            if message != before:
                found[message] = None
        return list(found)

    def rebuild(self) -> None:
        """From all states, what is not written yet included."""
        keys = [key for key, _ in self._table.store.scan(DATA, end_of(DATA)) if is_state(key)]
        keys += [key for key in self._table.pending if key[:1] == DATA]
        self.note(keys)
        self._table.pending[_KEYED_FACT] = b"1"


def _room_prefix(room: bytes) -> bytes:
    return _ROOM + room + b"\0"


def _prefix(of_class: Id, key: bytes) -> bytes:
    assert len(key) <= product.KEY_SIZE_MAX
    return _KEY + key_of_id(of_class)[SOURCE_SIZE:] + key + b"\0"
