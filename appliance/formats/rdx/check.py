"""Whether bytes are a state of their type. Nothing is kept of a packet before this has been asked.

So a merge never meets bytes that it cannot read.
"""

from collections.abc import Callable

from appliance.base.errors import PacketRefused
from appliance.base.limits import FIELD_SIZE_MAX
from appliance.formats.rdx.stamps import SINGLE, Stamped, counts, elements, runs, split_bare
from appliance.formats.rdx.values import check_value
from appliance.formats.toytlv.ids import unzip_id
from appliance.formats.toytlv.integers import unzip_signed
from appliance.formats.toytlv.version_vectors import decode_vector


def _single(letter: str) -> Callable[[bytes], None]:
    def check(state: bytes) -> None:
        check_value(letter, split_bare(state).value)

    return check


def split_checked(letter: str, state: bytes) -> Stamped:
    """As `check_state` of a type with one value; its parts."""
    if len(state) > FIELD_SIZE_MAX:
        raise PacketRefused("field_too_large", f"{len(state)} bytes, at most {FIELD_SIZE_MAX}")
    stamped = split_bare(state)
    check_value(letter, stamped.value)
    return stamped


def _count(state: bytes) -> None:
    counts(state)


def _two_way_count(state: bytes) -> None:
    for one in runs(state, "I"):
        check_value("I", one.value)
        unzip_signed(one.value)


def _set(state: bytes) -> None:
    for one in elements(state):
        check_value(chr(one.letter), one.value)


def _map(state: bytes) -> None:
    found = elements(state)
    if len(found) % 2:
        raise PacketRefused("bad_map", "a key has no value")
    for index, one in enumerate(found):
        if index % 2 and not one.value:
            continue  # a key may be kept and its value taken away, whatever its type
        check_value(chr(one.letter), one.value)


def _terms(state: bytes) -> None:
    for one in runs(state, "T"):
        if len(one.value) < 2:
            raise PacketRefused("short_term", f"a term of a class has {len(one.value)} bytes")


def _vector(state: bytes) -> None:
    decode_vector(state)


def _parent(state: bytes) -> None:
    unzip_id(state)


_CHECKS: dict[str, Callable[[bytes], None]] = {
    **{letter: _single(letter) for letter in SINGLE},
    "N": _count,
    "Z": _two_way_count,
    "E": _set,
    "M": _map,
    "C": _terms,
    "V": _vector,
    "O": _parent,
    "Y": _parent,
}


def check_state(letter: str, state: bytes) -> None:
    """PacketRefused unless `state` can be stored and merged as a state of type `letter`."""
    if len(state) > FIELD_SIZE_MAX:
        raise PacketRefused("field_too_large", f"{len(state)} bytes, at most {FIELD_SIZE_MAX}")
    check = _CHECKS.get(letter)
    if check is not None:
        check(state)
