"""Requests, their entries, and responses."""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from appliance.base.errors import FarmFrameError
from appliance.base.limits import (
    FARM_ENTRIES_MAX,
    FARM_ENTRIES_SIZE_MAX,
    FARM_ID_MAX,
    FARM_TERM_MAX,
)

# Types of requests, each followed by the type of its answer. 33 and 34 are ours, by negotiation.
REQUEST_VOTE, VOTE_RESPONSE = 1, 2
APPEND_ENTRIES, APPEND_RESPONSE = 3, 4
CLIENT_REQUEST = 5  # is answered by APPEND_RESPONSE: there is no type of its own
ADD_SERVER, ADD_SERVER_RESPONSE = 6, 7
REMOVE_SERVER, REMOVE_SERVER_RESPONSE = 8, 9
SYNC_LOG, SYNC_LOG_RESPONSE = 10, 11
JOIN_CLUSTER, JOIN_CLUSTER_RESPONSE = 12, 13
LEAVE_CLUSTER, LEAVE_CLUSTER_RESPONSE = 14, 15
INSTALL_SNAPSHOT, INSTALL_SNAPSHOT_RESPONSE = 16, 17
PRE_VOTE, PRE_VOTE_RESPONSE = 33, 34

ANSWER_OF = {
    REQUEST_VOTE: VOTE_RESPONSE,
    APPEND_ENTRIES: APPEND_RESPONSE,
    CLIENT_REQUEST: APPEND_RESPONSE,
    ADD_SERVER: ADD_SERVER_RESPONSE,
    REMOVE_SERVER: REMOVE_SERVER_RESPONSE,
    SYNC_LOG: SYNC_LOG_RESPONSE,
    JOIN_CLUSTER: JOIN_CLUSTER_RESPONSE,
    LEAVE_CLUSTER: LEAVE_CLUSTER_RESPONSE,
    INSTALL_SNAPSHOT: INSTALL_SNAPSHOT_RESPONSE,
    PRE_VOTE: PRE_VOTE_RESPONSE,
}
RESPONSES = frozenset(ANSWER_OF.values())
# Asked by anybody: source, destination, term and indexes are zero and are not looked at.
ADMINISTRATIVE = frozenset({CLIENT_REQUEST, ADD_SERVER, REMOVE_SERVER})

# Types of values.
APPLICATION, CONFIGURATION, CLUSTER_SERVER, LOG_PACK, SNAPSHOT_SYNC = 1, 2, 3, 4, 5

NOBODY = -1  # as the leader in an answer, where none is known
NO_SERVER = 0  # as source or destination: not a server

# type, source, destination, term, last_log_term, last_log_index, commit_index, size of entries
_REQUEST = struct.Struct(">Biiqqqqi")
# term, type, size of the value
_ENTRY = struct.Struct(">qBi")
# type, source, destination, term, next_index, accepted
_RESPONSE = struct.Struct(">BiiqqB")

REQUEST_SIZE = _REQUEST.size  # without entries
ENTRY_SIZE = _ENTRY.size  # without the value
RESPONSE_SIZE = _RESPONSE.size
assert (REQUEST_SIZE, ENTRY_SIZE, RESPONSE_SIZE) == (45, 13, 26)


class Entry(NamedTuple):
    """A value with the term in which it was made; 0 in messages of clients."""

    term: int
    type: int
    value: bytes


@dataclass(slots=True, frozen=True)
class Request:
    """Wire names: last_log_term, last_log_index, commit_index for the three after `term`."""

    type: int
    source: int = NO_SERVER
    destination: int = NO_SERVER
    term: int = 0
    previous_term: int = 0
    previous_index: int = 0
    commit: int = 0
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True, frozen=True)
class Response:
    """What `next_index` counts depends on the type: indexes, or bytes of a snapshot. `refusal`:
    why not, if that was told (`refusal.py`); 0: it was not."""

    type: int
    source: int
    destination: int
    term: int
    next_index: int
    accepted: bool
    refusal: int = 0


def encode_request(request: Request) -> bytes:
    """The request with its entries; the core that made it kept all bounds."""
    parts = [b""]
    size = 0
    for entry in request.entries:
        parts.append(_ENTRY.pack(entry.term, entry.type, len(entry.value)))
        parts.append(entry.value)
        size += ENTRY_SIZE + len(entry.value)
    assert size <= FARM_ENTRIES_SIZE_MAX
    parts[0] = _REQUEST.pack(
        request.type,
        request.source,
        request.destination,
        request.term,
        request.previous_term,
        request.previous_index,
        request.commit,
        size,
    )
    return b"".join(parts)


def entries_size_of(head: bytes | bytearray | memoryview) -> int:
    """Bytes of entries that follow the first REQUEST_SIZE bytes of a request.

    Raises what makes reading on pointless: a type that is no request, or an impossible size.
    """
    kind, size = head[0], _REQUEST.unpack_from(head)[7]
    if kind not in ANSWER_OF:
        word = "response_as_request" if kind in RESPONSES else "type_unknown"
        raise FarmFrameError(word, f"type {kind} is no request")
    if size < 0:
        raise FarmFrameError("size_negative", f"entries of {size} bytes")
    if size > FARM_ENTRIES_SIZE_MAX:
        sentence = f"entries of {size} bytes, at most {FARM_ENTRIES_SIZE_MAX} are allowed"
        raise FarmFrameError("size_too_large", sentence)
    return int(size)


def decode_request(data: bytes) -> Request:
    """One whole request, exactly."""
    if len(data) < REQUEST_SIZE:
        raise FarmFrameError("truncated", f"a request of {len(data)} bytes")
    size = entries_size_of(data)
    if len(data) != REQUEST_SIZE + size:
        sentence = f"{len(data) - REQUEST_SIZE} bytes of entries, {size} were announced"
        raise FarmFrameError("truncated", sentence)
    kind, source, destination, term, previous_term, previous_index, commit, _ = (
        _REQUEST.unpack_from(data)
    )
    check_id("source", source, 0)
    check_id("destination", destination, 0)
    for name, value in (
        ("term", term),
        ("last_log_term", previous_term),
        ("last_log_index", previous_index),
        ("commit_index", commit),
    ):
        check_index(name, value)
    entries = _decode_entries(data) if size else ()
    return Request(kind, source, destination, term, previous_term, previous_index, commit, entries)


def _decode_entries(data: bytes) -> tuple[Entry, ...]:
    found: list[Entry] = []
    offset, end = REQUEST_SIZE, len(data)
    while offset < end:
        if end - offset < ENTRY_SIZE:
            raise FarmFrameError("entry_remainder", f"{end - offset} bytes behind the last entry")
        if len(found) == FARM_ENTRIES_MAX:
            sentence = f"more than {FARM_ENTRIES_MAX} entries in a request"
            raise FarmFrameError("entries_too_many", sentence)
        term, kind, size = _ENTRY.unpack_from(data, offset)
        offset += ENTRY_SIZE
        check_index("term of an entry", term)
        if size < 0:
            raise FarmFrameError("size_negative", f"a value of {size} bytes")
        if size > end - offset:
            sentence = f"a value of {size} bytes where {end - offset} are left"
            raise FarmFrameError("entry_remainder", sentence)
        found.append(Entry(term, kind, data[offset : offset + size]))
        offset += size
    return tuple(found)


def encode_response(response: Response) -> bytes:
    """26 bytes, never followed by anything."""
    return _RESPONSE.pack(
        response.type,
        response.source,
        response.destination,
        response.term,
        response.next_index,
        1 if response.accepted else response.refusal,
    )


def decode_response(data: bytes) -> Response:
    """Exactly one response; anything but 1 in the last byte means no."""
    if len(data) != RESPONSE_SIZE:
        raise FarmFrameError("truncated", f"a response of {len(data)} bytes")
    kind, source, destination, term, next_index, accepted = _RESPONSE.unpack(data)
    if kind not in RESPONSES:
        raise FarmFrameError("type_unknown", f"type {kind} is no response")
    check_id("source", source, 0)
    check_id("destination", destination, NOBODY)
    check_index("term", term)
    check_index("next_index", next_index)
    refusal = 0 if accepted == 1 else accepted
    return Response(kind, source, destination, term, next_index, accepted == 1, refusal)


def check_id(name: str, value: int, least: int) -> None:
    """Refuse an id below `least`; the integer on the wire bounds it above."""
    if not least <= value <= FARM_ID_MAX:
        raise FarmFrameError("id_invalid", f"{name} {value}, from {least} on is allowed")


def check_index(name: str, value: int) -> None:
    """Refuse a term or an index outside of 0 .. FARM_TERM_MAX."""
    if not 0 <= value <= FARM_TERM_MAX:
        raise FarmFrameError("index_out_of_range", f"{name} {value}, at most 2^62 is allowed")
