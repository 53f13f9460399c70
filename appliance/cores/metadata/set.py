"""E: a set of single values. A negative revision is a tombstone.

Elements are the same when their bytes are, whatever their types; they are stored in the order of
these bytes. The larger zig-zagged revision wins: 0 < -1 < 1 < -2 < 2.
"""

from appliance.cores.metadata.register import next_revision
from appliance.formats.rdx.stamps import Element, element, elements


def merge(old: bytes, new: bytes) -> bytes:
    best: dict[bytes, Element] = {}
    for one in elements(old) + elements(new):
        present = best.get(one.value)
        # last the bytes, as the types may differ: the same element wins everywhere
        if present is None or (one.rank, one.raw) > (present.rank, present.raw):
            best[one.value] = one
    return b"".join([best[value].raw for value in sorted(best)])


def members(state: bytes) -> list[tuple[str, bytes]]:
    """Letter and value of each element that is not removed, in stored order."""
    return [(chr(one.letter), one.value) for one in elements(state) if one.revision >= 0]


def add(state: bytes, letter: str, value: bytes) -> bytes:
    """What puts an element in; empty if it is there."""
    present = _find(state, value)
    if present is None:
        return element(letter, 0, 0, value)
    if present.revision >= 0:
        return b""
    return element(letter, next_revision(present.revision), 0, value)


def remove(state: bytes, value: bytes) -> bytes:
    """What takes an element out; empty if it is not there."""
    present = _find(state, value)
    if present is None or present.revision < 0:
        return b""
    return element(chr(present.letter), -next_revision(present.revision), 0, value)


def become(state: bytes, wanted: list[tuple[str, bytes]]) -> bytes:
    """What makes the set hold exactly these elements."""
    letters = {value: letter for letter, value in wanted}
    added = [add(state, letters[value], value) for value in sorted(letters)]
    removed = [remove(state, value) for _, value in members(state) if value not in letters]
    return merge(b"".join(removed), b"".join(added))


def _find(state: bytes, value: bytes) -> Element | None:
    return next((one for one in elements(state) if one.value == value), None)
