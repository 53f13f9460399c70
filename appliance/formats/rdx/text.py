"""States as text, for people and for comparing replicas."""

from appliance.formats.rdx.stamps import SINGLE, Element, counts, elements, runs, split_bare
from appliance.formats.rdx.values import value_text
from appliance.formats.toytlv.ids import unzip_id
from appliance.formats.toytlv.integers import unzip_signed
from appliance.formats.toytlv.version_vectors import decode_vector, vector_text

COUNT_MASK = (1 << 64) - 1  # sums of counters are taken modulo 2^64


def state_text(letter: str, state: bytes) -> str:
    """A state that passed `check_state`, in the notation; hex where a type has none."""
    if letter in SINGLE:
        return value_text(letter, split_bare(state).value) if state else "null"
    if letter == "N":
        return str(count_of(state))
    if letter == "Z":
        return str(two_way_count_of(state))
    if letter == "E":
        return "{" + ",".join(_text(one) for one in elements(state) if one.revision >= 0) + "}"
    if letter == "M":
        return "{" + ",".join(_pairs(elements(state))) + "}"
    if letter == "C":
        terms = [value_text("S", one.value) for one in runs(state, "T")]
        return "[" + ",".join(terms) + "]"
    if letter == "V":
        return vector_text(decode_vector(state))
    if letter in "OY":
        return str(unzip_id(state))
    return state.hex()


def count_of(state: bytes) -> int:
    return sum(one.value for one in counts(state)) & COUNT_MASK


def two_way_count_of(state: bytes) -> int:
    """The signed sum, wrapped to 64 bits."""
    total = sum(unzip_signed(one.value) for one in runs(state, "I")) & COUNT_MASK
    return total - (1 << 64) if total >> 63 else total


def _text(one: Element) -> str:
    return value_text(chr(one.letter), one.value)


def _pairs(found: list[Element]) -> list[str]:
    pairs = []
    for key, value in zip(found[::2], found[1::2], strict=True):
        if key.revision >= 0:
            gone = value.revision < 0 or (not value.value and value.letter == ord("T"))
            pairs.append(f"{_text(key)}:{'null' if gone else _text(value)}")
    return pairs
