"""Which objects belong to a key: the index of the product's objects by their first field.

    K  class  key 0x00  id 16     nothing

Replicas that are cut off from each other may each make the object of one key; all of them are that
key's object. The index is local, and made again from the states when it is missing.
"""

from appliance.cores.metadata import product
from appliance.cores.metadata.state_table import StateTable
from appliance.cores.metadata.store import DATA, FACT, end_of, field_name, id_of_name
from appliance.formats.rdx.stamps import split_bare
from appliance.formats.toytlv.ids import Id, id_of_key, key_of_id, unzip_id

_KEY, _KEYED_FACT = b"K", FACT + b"keyed"
_KEY_FIELD = field_name(Id(0, product.KEY_FIELD), "S")[15:]  # how the name of a key field ends


class KeyIndex:
    """Kept by the state table, see `note`."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        table.on_kept = self.note
        if table.get(_KEYED_FACT) is None:
            self.rebuild()

    def note(self, names: list[bytes]) -> None:
        """These fields have been written; a key among them is entered."""
        for name in names:
            if name[15:] == _KEY_FIELD and name[14] & 0x0F == 0:
                self._enter(name)

    def _enter(self, name: bytes) -> None:
        table = self._table
        of = id_of_name(name).object
        parent = table.state(of, "O")
        state = table.get(DATA + name)
        if parent is None or state is None:
            return
        of_class = unzip_id(parent)
        if of_class.source == product.SOURCE:
            key = split_bare(state).value
            if 0 < len(key) <= product.KEY_SIZE_MAX:
                table.pending[_prefix(of_class, key) + key_of_id(of)] = b""

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

    def rebuild(self) -> None:
        """From all states, what is not written yet included."""
        names = [key[1:] for key, _ in self._table.store.scan(DATA, end_of(DATA))]
        names += [key[1:] for key in self._table.pending if key[:1] == DATA]
        self.note(names)
        self._table.pending[_KEYED_FACT] = b"1"


def _prefix(of_class: Id, key: bytes) -> bytes:
    assert len(key) <= product.KEY_SIZE_MAX
    return _KEY + key_of_id(of_class)[8:] + key + b"\0"
