"""States as real replicas make them: each author edits what it has, and hears of others at times.

An author never gives one revision to two values, which is what the merges rely on.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from appliance.cores.metadata import counter, map, register, set, terms
from appliance.cores.metadata.states import empty, merge, sourced
from appliance.formats.rdx.values import encode_value
from appliance.formats.toytlv.ids import Id
from appliance.formats.toytlv.version_vectors import encode_vector

LETTERS = "FIRSTNZEMCV"
AUTHORS = 3
NATIVE = {
    "F": st.floats(allow_nan=False),
    "I": st.integers(-(1 << 63), (1 << 63) - 1),
    "R": st.builds(Id, st.integers(0, 0xFFFFF), st.integers(0, (1 << 44) - 1)),
    "S": st.text(max_size=6),
    "T": st.sampled_from(["", "null", "word", "a_1"]),
}


@dataclass(frozen=True)
class Step:
    """What one author does: write `values`, or hear of everything another one has."""

    author: int
    hears: int | None
    values: tuple[tuple[str, bytes], ...]
    number: int


def steps(letter: str) -> st.SearchStrategy[Step]:
    """One step; only what a write of this letter asks for is drawn, which takes most of the time
    of whoever draws many."""
    authors, numbers = st.sampled_from(range(AUTHORS)), st.sampled_from(range(6))
    hears = st.sampled_from([None] * AUTHORS + [*range(AUTHORS)])
    if letter in NATIVE:
        values, numbers = st.tuples(value(letter, NATIVE[letter])), st.just(0)
    elif letter in "EM":
        few = {"I": st.integers(0, 3), "S": st.sampled_from("xy"), "T": NATIVE["T"]}
        one = st.one_of([value(kind, native) for kind, native in few.items()])
        values = st.tuples(one, one) if letter == "M" else st.tuples(one)
    else:
        values = st.just((("I", b""),))
    return st.builds(Step, authors, hears, values, numbers)


def value(kind: str, native: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, bytes]]:
    return native.map(lambda one: (kind, encode_value(kind, one)))


def write(letter: str, state: bytes | None, step: Step, source: int) -> bytes:
    """What the step's author would send, before its source is filled in; empty for nothing."""
    present = state if state is not None else empty(letter)
    first, value = step.values[0], step.values[-1]
    if letter in NATIVE:
        return register.delta(state or b"", first[1])
    if letter == "N":
        return counter.increment(present, source, step.number)
    if letter == "Z":
        return counter.add(present, source, step.number - 2)
    if letter == "E":
        # one type for each element: those of equal bytes and different types are an exception
        kind, content = ("S", b"s" + first[1]) if first[0] != "I" else first
        remove = step.number == 0
        return set.remove(present, content) if remove else set.add(present, kind, content)
    if letter == "M":
        return map.remove(present, first) if step.number == 0 else map.put(present, first, value)
    if letter == "C":
        return terms.encode_terms([terms.Term(step.number + 1, "S", f"name{step.number % 3}")])
    assert letter == "V"
    return encode_vector({source: step.number << 12, 9: step.number})


@dataclass
class Authors:
    """All of them, with what each has, and every delta that was made."""

    letter: str
    states: list[bytes | None] = field(default_factory=lambda: [None] * AUTHORS)
    deltas: list[bytes] = field(default_factory=list)

    def take(self, step: Step) -> None:
        if step.hears is not None:
            heard = self.states[step.hears]
            if heard is not None:
                self.states[step.author] = merge(self.letter, self.states[step.author], heard)
            return
        source = step.author + 1
        made = write(self.letter, self.states[step.author], step, source)
        if made:
            made = sourced(self.letter, made, source)
            self.deltas.append(made)
            self.states[step.author] = merge(self.letter, self.states[step.author], made)


def histories(letter: str) -> st.SearchStrategy[Authors]:
    return st.lists(steps(letter), max_size=14).map(lambda taken: after(letter, taken))


def after(letter: str, taken: list[Step]) -> Authors:
    authors = Authors(letter)
    for step in taken:
        authors.take(step)
    return authors
