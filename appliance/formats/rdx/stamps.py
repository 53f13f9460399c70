"""Stamps: the revision and the source of a value; and runs of records that begin with one.

    bare value     T record, tiny if short: zipped pair of zig-zagged revision and source; value
    element        a bare value in a record of its type, which is never tiny

A negative revision marks what was removed.
"""

from typing import NamedTuple

from appliance.base.errors import PacketRefused
from appliance.base.limits import REVISION_MAX
from appliance.formats.toytlv.integers import FIRST_HALF, unzigzag, unzip_pair, zigzag, zip_pair
from appliance.formats.toytlv.records import TINY, TINY_SIZE_MAX, record, take, tiny_record

SINGLE = "FIRST"  # letters of the types with one value
AUTHOR_MAX = (1 << 32) - 1
_T = ord("T")
# first byte of a tiny stamp -> where its revision ends
_REVISION_END = {TINY + s: 1 + half for s, half in FIRST_HALF.items() if s <= TINY_SIZE_MAX}
_SINGLE = frozenset(ord(letter) for letter in SINGLE)


class Stamped(NamedTuple):
    """A bare value, cut into its parts."""

    revision: int
    source: int
    value: bytes


class Element(NamedTuple):
    """An enveloped value and its own bytes."""

    letter: int
    revision: int
    source: int
    value: bytes
    raw: bytes

    @property
    def rank(self) -> tuple[int, int]:
        """The larger one wins between elements that are the same."""
        return zigzag(self.revision), self.source


def stamp(revision: int, source: int) -> bytes:
    return tiny_record("T", zip_pair(zigzag(revision), source))


def bare(revision: int, source: int, value: bytes) -> bytes:
    return tiny_record("T", zip_pair(zigzag(revision), source)) + value


def element(letter: str, revision: int, source: int, value: bytes) -> bytes:
    return record(letter, bare(revision, source, value))


def split_bare(data: bytes, at: int = 0, end: int = -1) -> Stamped:
    """The parts of the bare value in `data[at:end]`."""
    end = len(data) if end < 0 else end
    letter, start, stop = take(data, at, end)
    if letter != TINY and letter != _T:
        raise PacketRefused("unexpected_record", f"{chr(letter)} stands where a stamp belongs")
    revision, source = unzip_pair(data[start:stop])
    revision = unzigzag(revision)
    if not -REVISION_MAX <= revision <= REVISION_MAX:
        raise PacketRefused("revision_too_large", f"{revision}, at most {REVISION_MAX}")
    if source > AUTHOR_MAX:
        raise PacketRefused("bad_author", f"source {source:x} is wider than 32 bits")
    return Stamped(revision, source, data[stop:end])


def revision_of(data: bytes) -> int:
    """How large the revision of a bare value is, its sign aside; the value passed its check."""
    end = _REVISION_END.get(data[0])
    if end is None:
        return abs(split_bare(data).revision)
    return (int.from_bytes(data[1:end], "little") + 1) >> 1


def elements(data: bytes) -> list[Element]:
    """The elements that a set or map is made of."""
    found = []
    at, end = 0, len(data)
    while at < end:
        first = at
        letter, start, at = take(data, at, end)
        if letter not in _SINGLE:
            raise PacketRefused("bad_element", f"{chr(letter)} is no type of an element")
        revision, source, value = split_bare(data, start, at)
        found.append(Element(letter, revision, source, value, data[first:at]))
    return found


def runs(data: bytes, wanted: str) -> list[Element]:
    """The records of type `wanted` that a counter or a log is made of."""
    found = []
    letter_wanted = ord(wanted)
    at, end = 0, len(data)
    while at < end:
        first = at
        letter, start, at = take(data, at, end)
        if letter != letter_wanted:
            raise PacketRefused("bad_element", f"{chr(letter)} stands where {wanted} belongs")
        revision, source, value = split_bare(data, start, at)
        found.append(Element(letter, revision, source, value, data[first:at]))
    return found


class Count(NamedTuple):
    """What one source has counted, and its record."""

    source: int
    value: int
    raw: bytes


def count_record(value: int, source: int) -> bytes:
    """A record of a grow-only counter: no revision, the value stands in its place."""
    return record("T", tiny_record("T", zip_pair(value, source)))


def counts(data: bytes) -> list[Count]:
    """The records of a grow-only counter."""
    found = []
    at, end = 0, len(data)
    while at < end:
        first = at
        letter, start, at = take(data, at, end)
        if letter != _T:
            raise PacketRefused("bad_element", f"{chr(letter)} stands in a counter")
        inner, begin, stop = take(data, start, at)
        if (inner != TINY and inner != _T) or stop != at:
            raise PacketRefused("bad_element", "a count is a stamp and nothing else")
        value, source = unzip_pair(data[begin:stop])
        if source > AUTHOR_MAX:
            raise PacketRefused("bad_author", f"source {source:x} is wider than 32 bits")
        found.append(Count(source, value, data[first:at]))
    return found
