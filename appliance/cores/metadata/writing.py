"""From a value in the notation to the delta of a field; and objects as text."""

from appliance.base.errors import EditRefused
from appliance.cores.metadata import counter, map, register, set
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.states import empty
from appliance.formats.rdx.notation import Value
from appliance.formats.rdx.stamps import split_bare
from appliance.formats.rdx.text import state_text
from appliance.formats.rdx.values import decode_value, encode_value
from appliance.formats.toytlv.ids import FIELD_MASK, Id, typed_field


def declared_letter(replica: Replica, object_id: Id, field: int) -> str:
    """The type that the object's class declares for a field."""
    of_class = replica.class_of(object_id)
    if of_class is None:
        raise EditRefused(f"there is no object {object_id}")
    found = next((term for term in replica.terms_of(of_class) if term.field == field), None)
    if found is None:
        raise EditRefused(f"class {of_class} declares no field {field}")
    return found.letter


def named_field(replica: Replica, id: Id) -> tuple[Id, int]:
    """Object and number of the field that a typed id names; the class must agree with it."""
    named, letter = typed_field(id)
    if not named.field:
        raise EditRefused(f"{id} names no field: give its number too")
    declared = declared_letter(replica, named.object, named.field)
    if letter and letter != declared:
        raise EditRefused(
            f"{id} names field {named.field} of {named.object} as one of type {letter}; "
            f"its class declares {declared}"
        )
    return named.object, named.field


def initial(letter: str, value: Value, source: int) -> bytes:
    """The first state of a field, before its source is filled in."""
    return delta(letter, empty(letter), value, source) or empty(letter)


def delta(letter: str, state: bytes, value: Value, source: int) -> bytes:
    """What makes the field be, or count, what `value` says; empty if it does already."""
    if letter in "FIRST":
        return register.delta(state, _single(letter, value))
    if letter == "N" and value.letter == "N":
        return counter.raise_to(state, source, value.amount)
    if letter == "N" and value.letter == "N+":
        return counter.increment(state, source, value.amount)
    if letter == "Z" and value.letter in ("Z", "N"):
        return counter.set_to(state, source, value.amount)
    if letter == "Z" and value.letter in ("Z+", "N+"):
        return counter.add(state, source, value.amount)
    if letter == "E" and value.letter == "E":
        return set.become(state, set.members(value.state))
    if letter == "M" and (value.letter == "M" or (value.letter == "E" and not value.state)):
        return map.become(state, map.native(value.state))
    raise EditRefused(f"a field of type {letter} cannot become a value of type {value.letter}")


def addition(letter: str, state: bytes, value: Value) -> bytes:
    """What puts the elements of `value` into a set, its pairs into a map, besides what is there."""
    if letter == "E" and value.letter == "E":
        parts = [set.add(state, *member) for member in set.members(value.state)]
    elif letter == "M" and value.letter == "M":
        wanted = map.native(value.state)
        parts = [map.put(state, key, wanted[key]) for key in sorted(wanted)]
    else:
        raise EditRefused(f"a value of type {value.letter} cannot be added to one of type {letter}")
    return b"".join(parts)


def removal(letter: str, state: bytes, value: Value) -> bytes:
    """What takes the elements of the set `value` out of a set, or the keys that they are."""
    if value.letter != "E" or letter not in "EM":
        raise EditRefused("what is removed from a set or map is given as a set")
    if letter == "E":
        parts = [set.remove(state, one) for _, one in set.members(value.state)]
    else:
        parts = [map.remove(state, key) for key in set.members(value.state)]
    return b"".join(parts)


def _single(letter: str, value: Value) -> bytes:
    """The bytes of a single value, where an integer may stand for a float."""
    if value.letter not in ("F", "I", "R", "S", "T"):
        raise EditRefused(f"a field of type {letter} cannot become a value of type {value.letter}")
    found = split_bare(value.state).value
    if value.letter == letter:
        return found
    if letter == "F" and value.letter == "I":
        return encode_value("F", decode_value("I", found))
    raise EditRefused(f"a field of type {letter} cannot become a value of type {value.letter}")


def object_text(replica: Replica, object_id: Id) -> str:
    """An object by the terms of its class: `{_ref:a-1,Name:"Ann",Score:5}`."""
    of_class = replica.class_of(object_id)
    if of_class is None:
        raise EditRefused(f"there is no object {object_id}")
    rows = [f"_ref:{of_class}"]
    for field, letter, name in replica.terms_of(of_class):
        rows.append(f"{name}:{field_text(replica, object_id, field, letter)}")
    return "{" + ",".join(rows) + "}"


def field_text(replica: Replica, object_id: Id, field: int, letter: str) -> str:
    if not 0 < field <= FIELD_MASK:
        return ""
    state = replica.table.state(object_id.with_field(field), letter)
    return state_text(letter, empty(letter) if state is None else state)
