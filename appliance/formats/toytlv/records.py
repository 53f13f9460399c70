"""Records of type, length and value.

    tiny     '0'..'9'          the body of 0 to 9 bytes follows; the type is lost
    short    'a'..'z' length   one byte of length
    long     'A'..'Z' length   four bytes of length, at most 0x7fffffff

Types are given as upper-case ordinals; a tiny record has the type `TINY` and fits any type that is
expected. Where the type carries meaning no tiny record may stand.
"""

from collections.abc import Iterator

from appliance.base.errors import PacketRefused

TINY = ord("0")
TINY_SIZE_MAX = 9
SHORT_SIZE_MAX = 255
BODY_SIZE_MAX = 0x7FFF_FFFF

# kinds of a first byte
_NONE, _TINY, _SHORT, _LONG = range(4)
_KIND = bytes(
    _TINY if 0x30 <= byte <= 0x39 else _SHORT if 0x61 <= byte <= 0x7A else
    _LONG if 0x41 <= byte <= 0x5A else _NONE
    for byte in range(256)
)  # fmt: skip


def record(letter: str, body: bytes) -> bytes:
    """A record that keeps its type: short or long."""
    size = len(body)
    if size <= SHORT_SIZE_MAX:
        return bytes((ord(letter) | 0x20, size)) + body
    assert size <= BODY_SIZE_MAX
    return ord(letter).to_bytes(1, "little") + size.to_bytes(4, "little") + body


def tiny_record(letter: str, body: bytes) -> bytes:
    """A record whose type the place tells: tiny if it is short enough."""
    if len(body) <= TINY_SIZE_MAX:
        return bytes((TINY + len(body),)) + body
    return record(letter, body)


def take(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Type, start and end of the body of the record at `at`, all of it before `end`.

    Raises PacketRefused when it is cut off or no record.
    """
    if at >= end:
        raise PacketRefused("incomplete_record", "a record is missing")
    first = data[at]
    kind = _KIND[first]
    if kind == _TINY:
        start = at + 1
        stop = start + first - TINY
        letter = TINY
    elif kind == _SHORT:
        start = at + 2
        if start > end:
            raise PacketRefused("incomplete_record", "a header is cut off")
        stop = start + data[at + 1]
        letter = first - 0x20
    elif kind == _LONG:
        start = at + 5
        if start > end:
            raise PacketRefused("incomplete_record", "a header is cut off")
        stop = start + int.from_bytes(data[at + 1 : start], "little")
        letter = first
    else:
        raise PacketRefused("bad_record", f"byte {first:02x} begins no record")
    if stop > end:
        raise PacketRefused("incomplete_record", f"a body of {stop - start} bytes is cut off")
    return letter, start, stop


def take_as(data: bytes, at: int, end: int, wanted: int) -> tuple[int, int]:
    """As `take`, of type `wanted` or tiny: start and end of the body."""
    letter, start, stop = take(data, at, end)
    if letter != wanted and letter != TINY:
        raise PacketRefused(
            "unexpected_record", f"{chr(letter)} stands where {chr(wanted)} belongs"
        )
    return start, stop


def records(data: bytes, at: int = 0, end: int = -1) -> Iterator[tuple[int, bytes]]:
    """Type and body of each of the records that fill `data[at:end]`."""
    end = len(data) if end < 0 else end
    while at < end:
        letter, start, at = take(data, at, end)
        yield letter, data[start:at]


class Splitter:
    """Cuts a stream into whole records. Holds at most `size_max` bytes and a header.

    A byte that begins no record, and a length over `size_max`, raise PacketRefused: the stream
    cannot be followed any more.
    """

    __slots__ = ("_held", "_size_max")

    def __init__(self, size_max: int) -> None:
        assert 0 < size_max <= BODY_SIZE_MAX
        self._held = bytearray()
        self._size_max = size_max

    @property
    def held(self) -> int:
        """Bytes of a record whose end has not come."""
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """The records that are whole now, headers included, in order."""
        held = self._held
        held += data
        at, found = 0, []
        try:
            while (stop := self._end(at)) <= len(held):
                found.append(bytes(held[at:stop]))
                at = stop
        finally:
            del held[:at]
        return found

    def _end(self, at: int) -> int:
        """Where the record at `at` ends; past the held bytes if its header is not there yet."""
        held = self._held
        if at >= len(held):
            return at + 1
        first = held[at]
        kind = _KIND[first]
        if kind == _TINY:
            return at + 1 + first - TINY
        if kind == _SHORT:
            return at + 2 + held[at + 1] if at + 1 < len(held) else at + 2
        if kind == _NONE:
            raise PacketRefused("bad_record", f"byte {first:02x} begins no record")
        if at + 5 > len(held):
            return at + 5
        size = int.from_bytes(held[at + 1 : at + 5], "little")
        if size > self._size_max:
            raise PacketRefused(
                "record_too_large", f"a record of {size} bytes, at most {self._size_max}"
            )
        return at + 5 + size
