"""C: the terms of a class, which are only ever added.

A term is the type of a field, an index byte and the field's name; its revision is the number of the
field. Equal terms are one; different texts under one number both stay.
"""

from typing import NamedTuple

from appliance.base.errors import EditRefused
from appliance.formats.rdx.stamps import Element, element, runs
from appliance.formats.toytlv.ids import PACKED_FIELD_MAX
from appliance.formats.toytlv.integers import zigzag

_INDEX_NONE = "\0"


class Term(NamedTuple):
    """One field as its class declares it."""

    field: int
    letter: str
    name: str


def merge(old: bytes, new: bytes) -> bytes:
    found: dict[tuple[int, bytes], Element] = {}
    for one in runs(old, "T") + runs(new, "T"):
        name = zigzag(one.revision), one.value
        present = found.get(name)
        if present is None or one.raw > present.raw:  # the source may differ and is ignored
            found[name] = one
    return b"".join([found[name].raw for name in sorted(found)])


def encode_terms(terms: list[Term]) -> bytes:
    """The state of a class that declares these terms. EditRefused for what no class may hold."""
    parts = []
    for field, letter, name in terms:
        if not 1 <= field <= PACKED_FIELD_MAX:
            raise EditRefused(f"a class of ours has the fields 1 to {PACKED_FIELD_MAX}")
        if letter not in "FIRSTNZEMV" or len(letter) != 1:
            raise EditRefused(f"{letter!r} is no type of a field: one of F I R S T N Z E M V")
        if not name or len(name.encode()) > 255:
            raise EditRefused("a field has a name of 1 to 255 bytes")
        parts.append(element("T", field, 0, (letter + _INDEX_NONE + name).encode()))
    return merge(b"", b"".join(parts))


def decode_terms(state: bytes) -> list[Term]:
    """The terms in stored order. What does not begin with a letter is the name of a text field."""
    found = []
    for one in runs(state, "T"):
        letter = chr(one.value[0])
        if "A" <= letter <= "Z":
            name = one.value[2:]
        else:
            letter, name = "S", one.value
        found.append(Term(one.revision, letter, name.decode("utf-8", "replace")))
    return found
