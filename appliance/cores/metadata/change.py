"""A change, parsed and checked: what C, O, Y and E come to."""

from typing import NamedTuple

from appliance.formats.toytlv.ids import Id

Write = tuple[Id, str, bytes]  # field, letter of its type, state


class Change(NamedTuple):
    """A parsed C, O, Y or E."""

    id: Id
    writes: list[Write]
    entry: Id  # to which the vectors advance
    blocks: tuple[Id, ...]  # whose vectors advance
    raw: bytes
