"""N and Z: counters. Each source counts for itself, the value is the sum.

A grow-only counter keeps the largest count of each source, a two-way counter the newest one. The
records of edits carry their real source: it is not filled in where they are applied.
"""

from appliance.base.errors import EditRefused
from appliance.cores.metadata.register import next_revision
from appliance.formats.rdx.stamps import Element, count_record, counts, element, runs
from appliance.formats.rdx.text import count_of, two_way_count_of
from appliance.formats.rdx.values import INTEGER_MAX, INTEGER_MIN
from appliance.formats.toytlv.integers import unzip_signed, zip_signed

COUNT_MAX = (1 << 64) - 1


def merge_counts(old: bytes, new: bytes) -> bytes:
    """Of a grow-only counter: the larger count of each source."""
    best: dict[int, tuple[int, bytes]] = {}
    for source, value, raw in counts(old) + counts(new):
        if source not in best or (value, raw) > best[source]:
            best[source] = value, raw
    return b"".join([best[source][1] for source in sorted(best)])


def merge_two_way_counts(old: bytes, new: bytes) -> bytes:
    """Of a two-way counter: the larger revision of each source."""
    best: dict[int, Element] = {}
    for one in runs(old, "I") + runs(new, "I"):
        present = best.get(one.source)
        # an author never uses a revision twice; should one, the same record wins everywhere
        if present is None or (one.rank, one.raw) > (present.rank, present.raw):
            best[one.source] = one
    return b"".join([best[source].raw for source in sorted(best)])


def increment(state: bytes, source: int, count: int) -> bytes:
    """What counts `count` more, as `source`."""
    assert count >= 0
    own = next((one.value for one in counts(state) if one.source == source), 0)
    if own + count > COUNT_MAX:
        raise EditRefused(f"a counter ends at {COUNT_MAX}")
    return count_record(own + count, source) if count else b""


def raise_to(state: bytes, source: int, value: int) -> bytes:
    """What makes the sum `value`; EditRefused if it is larger already."""
    present = count_of(state)
    if value < present:
        raise EditRefused(f"this counter only grows: it is {present}, and cannot become {value}")
    return increment(state, source, value - present)


def add(state: bytes, source: int, amount: int) -> bytes:
    """What adds `amount`, which may be negative, as `source`."""
    own = next((one for one in runs(state, "I") if one.source == source), None)
    if not amount and own is not None:
        return b""
    contribution = amount + (unzip_signed(own.value) if own is not None else 0)
    if not INTEGER_MIN <= contribution <= INTEGER_MAX:
        raise EditRefused("what one source contributes to a counter fits 64 bits")
    revision = next_revision(own.revision) if own is not None else 0
    return element("I", revision, source, zip_signed(contribution))


def set_to(state: bytes, source: int, value: int) -> bytes:
    """What makes the sum `value`."""
    return add(state, source, value - two_way_count_of(state))
