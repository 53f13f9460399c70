"""What holds for the states of every type: merge, empty state, new source, way into a diff."""

from collections.abc import Callable

from appliance.base.errors import PacketRefused
from appliance.base.limits import FIELD_SIZE_MAX
from appliance.cores.metadata import counter, map, register, set, terms
from appliance.formats.rdx.check import check_state, split_checked
from appliance.formats.rdx.stamps import SINGLE, bare, elements, split_bare
from appliance.formats.toytlv.records import record
from appliance.formats.toytlv.version_vectors import decode_vector, encode_vector, join

EMPTY_SINGLE = bare(0, 0, b"")


def _oldest(old: bytes, new: bytes) -> bytes:
    """O and Y never change."""
    return old


def _joined(old: bytes, new: bytes) -> bytes:
    vector = decode_vector(old)
    join(vector, decode_vector(new))
    return encode_vector(vector)


def _appended(old: bytes, new: bytes) -> bytes:
    """Types without a merge, as Go treats them: not even twice the same is once. Never made by us,
    stored and passed on."""
    return old + new


MERGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    **dict.fromkeys(SINGLE, register.merge),
    "N": counter.merge_counts,
    "Z": counter.merge_two_way_counts,
    "E": set.merge,
    "M": map.merge,
    "C": terms.merge,
    "V": _joined,
    "O": _oldest,
    "Y": _oldest,
}
SORTED = frozenset("NZEMCV")  # a first state is brought into order too
_RESOURCED_RUNS = frozenset("EM")


def merge(letter: str, old: bytes | None, new: bytes) -> bytes:
    """The state after `new` has come to `old`; both passed `check_state`.

    None is no state yet. Raises PacketRefused when the result is larger than a field may be.
    """
    rule = MERGES.get(letter, _appended)
    if old is None:
        if letter not in SORTED:
            return new
        old = b""
    state = rule(old, new)
    if len(state) > FIELD_SIZE_MAX:
        raise PacketRefused("field_too_large", f"merged, at most {FIELD_SIZE_MAX} bytes")
    return state


def empty(letter: str) -> bytes:
    """The state of a field that nobody has written."""
    return EMPTY_SINGLE if letter in SINGLE else b""


def sourced(letter: str, state: bytes, source: int) -> bytes:
    """The state as written by `source`: a packet's values carry its source, whatever they said.

    Counters and vectors keep what they say: their records name who counted. PacketRefused when it
    is no state of this type.
    """
    if letter in SINGLE:
        revision, present, value = split_checked(letter, state)
        return state if present == source else bare(revision, source, value)
    check_state(letter, state)
    if letter in _RESOURCED_RUNS:
        found = elements(state)
        if all(one.source == source for one in found):
            return state
        return b"".join(
            [record(chr(one.letter), bare(one.revision, source, one.value)) for one in found]
        )
    return state


def in_diff(letter: str, state: bytes, changed: dict[int, int]) -> bool:
    """Whether a field that the peer has seen before belongs into a diff for it.

    `changed` holds the sources of which it has not seen everything; the rule of Go, which knows no
    more than that.
    """
    if letter in "OY":
        return False
    if letter in SINGLE:
        return split_bare(state).source in changed
    return True
