"""F I R S T: one value; the newest revision wins, whoever wrote it.

Between values of one revision the larger bytes win, then the larger source. The order of bytes is
not that of numbers: what counts is that it is the same everywhere.
"""

from appliance.base.errors import EditRefused
from appliance.base.limits import REVISION_MAX
from appliance.formats.rdx.stamps import bare, revision_of, split_bare


def merge(old: bytes, new: bytes) -> bytes:
    """The winner's own bytes."""
    if old == new:
        return new
    revision_one, revision_two = revision_of(old), revision_of(new)
    if revision_one != revision_two:
        return old if revision_one > revision_two else new
    one, two = split_bare(old), split_bare(new)
    # equal in all of these, one is the removal of the other's revision: the value stays
    rank_one = (abs(one.revision), one.value, one.source, one.revision)
    rank_two = (abs(two.revision), two.value, two.source, two.revision)
    return old if rank_one > rank_two else new


def delta(old: bytes, value: bytes) -> bytes:
    """What makes `value` of the state `old`; empty if it is that already. The source is 0: it is
    filled in where the edit is applied."""
    if not old:
        return bare(0, 0, value)
    revision, _, present = split_bare(old)
    if present == value:
        return b""
    return bare(next_revision(revision), 0, value)


def next_revision(revision: int) -> int:
    if abs(revision) >= REVISION_MAX:
        raise EditRefused("the value has been changed more often than a revision can count")
    return abs(revision) + 1
