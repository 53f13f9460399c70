"""Edits of every type, at any node, of whatever that node knows."""

from appliance.base.prng import Prng
from appliance.cores.metadata import counter, map, register, set
from appliance.cores.metadata.states import empty
from appliance.cores.metadata.store import DATA, end_of, field_name, id_of_name, is_state
from appliance.cores.metadata.terms import Term
from appliance.formats.rdx.values import encode_value
from appliance.formats.toytlv.ids import Id
from appliance.formats.toytlv.version_vectors import encode_vector
from appliance.simulation.objects.node import Node

LETTERS = "FIRSTNZEMV"
_TERMS = [Term(number, letter, f"field {letter}") for number, letter in enumerate(LETTERS, 1)]
_WORDS = ("null", "a", "b", "long_word")
Adds = list[tuple[bytes, int]]


def edit(node: Node, prng: Prng) -> None:
    """One edit; the node must be alive. Some make a class or an object."""
    replica = node.replica
    objects = _objects(node)
    dice = prng.below(100)
    if dice < 4 or not _classes(node):
        replica.create_class(_TERMS)
        node.note([])
    elif dice < 7:
        more = Term(prng.between(11, 20), prng.choice("SI"), f"more {prng.below(3)}")
        replica.create_class([more], prng.choice(_classes(node)))
        node.note([])
    elif dice < 20 or not objects:
        values = [(letter, empty(letter)) for letter in LETTERS]
        replica.create_object(prng.choice(_classes(node)), values)
        node.note([])
    else:
        _edit_fields(node, prng.choice(objects), prng)


def _edit_fields(node: Node, of: Id, prng: Prng) -> None:
    writes, adds = [], []
    numbers = sorted({prng.between(1, len(LETTERS)) for _ in range(prng.between(1, 3))})
    for number in numbers:
        letter = LETTERS[number - 1]
        delta, added = _delta(node, of.with_field(number), letter, prng)
        if delta:
            writes.append((number, letter, delta))
            adds += [(field_name(of.with_field(number), letter), added)] if added else []
    if writes:
        node.replica.edit(of, writes)
        node.note(adds)


def _delta(node: Node, field: Id, letter: str, prng: Prng) -> tuple[bytes, int]:
    """A delta, empty if nothing would change; and what it adds to a counter."""
    state = node.replica.table.state(field, letter) or empty(letter)
    if letter in "FIRST":
        return register.delta(state, _single(letter, prng)), 0
    if letter == "N":
        count = prng.below(5)
        delta = counter.increment(state, node.source, count)
        # some say all they know and not only their own part, which must change nothing else
        whole = counter.merge_counts(state, delta) if prng.chance(1, 3) else delta
        return (whole if delta else b""), count
    if letter == "Z":
        amount = prng.between(-4, 4)
        delta = counter.add(state, node.source, amount)
        return delta, amount if delta else 0
    if letter == "E":
        kind = prng.choice("IST")
        value = _single(kind, prng)[:4]
        if prng.chance(1, 3):
            return set.remove(state, value), 0
        return set.add(state, kind, value), 0
    if letter == "M":
        key = ("S", bytes([0x61 + prng.below(4)]))
        if prng.chance(1, 4):
            return map.remove(state, key), 0
        return map.put(state, key, ("I", _single("I", prng))), 0
    assert letter == "V"
    return encode_vector({prng.below(4): prng.below(1000)}), 0


def _single(letter: str, prng: Prng) -> bytes:
    if letter == "F":
        return encode_value("F", float(prng.between(-9, 9)))
    if letter == "I":
        return encode_value("I", prng.between(-300, 300))
    if letter == "R":
        return encode_value("R", Id(prng.below(20), prng.below(1 << 20)))
    if letter == "T":
        return prng.choice(_WORDS).encode()
    return prng.bytes(prng.choice((1, 2, 3, 400)))


def _objects(node: Node) -> list[Id]:
    return [id for id in _of(node, b"O") if id.source > 1]


def _classes(node: Node) -> list[Id]:
    return [id for id in _of(node, b"C") if id.source > 1]


def _of(node: Node, letter: bytes) -> list[Id]:
    """Ids of everything with a state of that type, what waits to be written too."""
    table = node.replica.table
    keys = [key for key, _ in table.store.scan(DATA, end_of(DATA))]
    keys += [key for key in table.pending if key[:1] == DATA]
    names = {key[1:] for key in keys if is_state(key) and key[-1:] == letter}
    return [id_of_name(name) for name in sorted(names)]
