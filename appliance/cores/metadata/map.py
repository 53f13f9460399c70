"""M: a map of single values. The stamp of the key decides for the pair.

Pairs are stored by the key's type, then by its bytes. A pair with negative revisions is hidden.
Key and value of what we write carry the same revision.
"""

from appliance.cores.metadata.register import next_revision
from appliance.formats.rdx.stamps import Element, element, elements

Pair = tuple[Element, Element]
Single = tuple[str, bytes]  # letter and value


def pairs(state: bytes) -> list[Pair]:
    found = elements(state)
    return list(zip(found[::2], found[1::2], strict=True))


def merge(old: bytes, new: bytes) -> bytes:
    best: dict[tuple[int, bytes], Pair] = {}
    for pair in pairs(old) + pairs(new):
        name = pair[0].letter, pair[0].value
        present = best.get(name)
        if present is None or _rank(pair) > _rank(present):
            best[name] = pair
    return b"".join([best[name][0].raw + best[name][1].raw for name in sorted(best)])


def _rank(pair: Pair) -> tuple[tuple[int, int], bytes, bytes]:
    """Last the bytes: should a revision be used twice, the same pair wins everywhere."""
    return pair[0].rank, pair[0].raw, pair[1].raw


def native(state: bytes) -> dict[Single, Single]:
    """Key to value of the pairs that are not hidden."""
    return {
        (chr(key.letter), key.value): (chr(value.letter), value.value)
        for key, value in pairs(state)
        if key.revision >= 0
    }


def put(state: bytes, key: Single, value: Single, revision: int | None = None) -> bytes:
    """What makes `key` stand for `value`; empty if it does.

    `revision` is given where a number of the outside orders the values; then a smaller or equal
    one than the present changes nothing.
    """
    present = _find(state, key)
    if present is not None and present[0].revision >= 0:
        if (chr(present[1].letter), present[1].value) == value and revision is None:
            return b""
    if revision is None:
        revision = 0 if present is None else _after(present)
    elif present is not None and abs(present[0].revision) >= revision:
        return b""
    return _pair(key, value, revision)


def remove(state: bytes, key: Single) -> bytes:
    """What hides the pair; empty if there is none."""
    present = _find(state, key)
    if present is None or present[0].revision < 0:
        return b""
    value = chr(present[1].letter), present[1].value
    return _pair(key, value, -_after(present))


def become(state: bytes, wanted: dict[Single, Single]) -> bytes:
    """What makes the map hold exactly these pairs."""
    put_in = [put(state, key, wanted[key]) for key in sorted(wanted)]
    taken = [remove(state, key) for key in native(state) if key not in wanted]
    return merge(b"".join(taken), b"".join(put_in))


def _after(pair: Pair) -> int:
    return next_revision(max(abs(pair[0].revision), abs(pair[1].revision)))


def _pair(key: Single, value: Single, revision: int) -> bytes:
    return element(key[0], revision, 0, key[1]) + element(value[0], revision, 0, value[1])


def _find(state: bytes, key: Single) -> Pair | None:
    wanted = ord(key[0]), key[1]
    return next((pair for pair in pairs(state) if (pair[0].letter, pair[0].value) == wanted), None)
