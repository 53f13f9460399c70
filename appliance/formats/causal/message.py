"""One message of Scalable Data Sync: a content, sync or ephemeral message.

Kinds carry no tag, they follow from what is present:

    lamport and content        content message: logged, buffered, acknowledged
    lamport, no content        sync message: what its sender has, never stored
    content, no lamport        ephemeral message: passed on, never stored

Encoded with fields in ascending order, so that bytes can be compared. Decoded in any order, with
unknown fields, within the caps of base/limits.py.
Source: the SDS draft, "Messages"; docs/federation.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError, EncodeError

from appliance.base.errors import CausalRefused
from appliance.base.limits import (
    CAUSAL_ENTRIES_MAX,
    CAUSAL_FIELDS_UNKNOWN_MAX,
    CAUSAL_FILTER_SIZE_MAX,
    CAUSAL_HINT_SIZE_MAX,
    CAUSAL_ID_SIZE_MAX,
    CAUSAL_LAMPORT_MAX,
    CAUSAL_MESSAGE_SIZE_MAX,
    CAUSAL_REPAIRS_MAX,
)
from appliance.formats.causal import causal_pb2
from appliance.formats.causal.wire import LENGTH, VARINT, fields_of, without_field

CONTENT, SYNC, EPHEMERAL = "content", "sync", "ephemeral"

HISTORY, FILTER, REPAIR = 11, 12, 13  # field numbers
_WIRE_TYPES = {1: LENGTH, 2: LENGTH, 3: LENGTH, 10: VARINT, 11: LENGTH, 12: LENGTH, 13: LENGTH}
_WIRE_TYPES[20] = LENGTH
_COUNT_MAX = {HISTORY: CAUSAL_ENTRIES_MAX, REPAIR: CAUSAL_REPAIRS_MAX}
_ENTRY_ID, _ENTRY_SENDER = 1 << 3 | LENGTH, 3 << 3 | LENGTH  # octets of an entry's tags
_ENTRY_FIELDS_MAX = 3 + CAUSAL_FIELDS_UNKNOWN_MAX


class HistoryEntry(NamedTuple):
    """A message that is referred to: who sent it, and where a store keeps it, if known."""

    message_id: str
    retrieval_hint: bytes | None = None
    sender_id: str | None = None


@dataclass(slots=True, frozen=True)
class Message:
    """The fields of the wire; `lamport` starts at ms since the epoch, ephemeral ones have none."""

    sender_id: str
    message_id: str
    channel_id: str
    lamport: int | None = None
    causal_history: tuple[HistoryEntry, ...] = ()
    bloom_filter: bytes | None = None
    repair_requests: tuple[HistoryEntry, ...] = ()
    content: bytes | None = None

    @property
    def kind(self) -> str:
        """CONTENT, SYNC or EPHEMERAL; a message with neither lamport nor content is none."""
        if self.lamport is None:
            return EPHEMERAL
        return CONTENT if self.content else SYNC


def encode(message: Message) -> bytes:
    """The message's bytes; a filter or content of no bytes is left out, as peers would choke."""
    assert message.lamport is not None or message.content
    out = causal_pb2.Message(
        sender_id=message.sender_id,
        message_id=message.message_id,
        channel_id=message.channel_id,
    )
    if message.lamport is not None:
        out.lamport_timestamp = message.lamport
    for entry in message.causal_history:
        _put(out.causal_history.add(), entry)
    if message.bloom_filter:
        out.bloom_filter = message.bloom_filter
    for entry in message.repair_requests:
        _put(out.repair_request.add(), entry)
    if message.content:
        out.content = message.content
    try:
        encoded: bytes = out.SerializeToString(deterministic=True)
    except EncodeError as error:  # pragma: no cover - every field was set above
        raise AssertionError(str(error)) from error
    return encoded


def decode(data: bytes) -> Message:
    """The message in `data`. Raises `CausalRefused`, whose `reason` is counted."""
    if len(data) > CAUSAL_MESSAGE_SIZE_MAX:
        raise CausalRefused(
            "message_size", f"message of {len(data)} bytes, at most {CAUSAL_MESSAGE_SIZE_MAX}"
        )
    _check_fields(data)
    try:
        read = causal_pb2.Message.FromString(data)
    except DecodeError as error:
        raise CausalRefused("malformed", str(error)) from error
    lamport = read.lamport_timestamp if read.HasField("lamport_timestamp") else None
    content = read.content if read.content else None
    if lamport is None and content is None:
        raise CausalRefused("kind", "neither lamport timestamp nor content")
    if lamport is not None and lamport >= CAUSAL_LAMPORT_MAX:
        raise CausalRefused("lamport_bound", f"lamport timestamp {lamport}")
    _check_id("message_id", read.message_id)
    if not read.message_id:
        raise CausalRefused("message_id", "no message id")
    _check_id("sender_id", read.sender_id)
    _check_id("channel_id", read.channel_id)
    return Message(
        sender_id=read.sender_id,
        message_id=read.message_id,
        channel_id=read.channel_id,
        lamport=lamport,
        causal_history=tuple([entry_of(entry) for entry in read.causal_history]),
        bloom_filter=read.bloom_filter if read.HasField("bloom_filter") else None,
        repair_requests=tuple([entry_of(entry) for entry in read.repair_request]),
        content=content,
    )


def stored_form(data: bytes) -> bytes:
    """A message as it is kept and repeated: byte for byte, but without its filter."""
    return without_field(data, FILTER)


def entry_of(read: causal_pb2.HistoryEntry) -> HistoryEntry:
    """A parsed entry, within the caps; raises `CausalRefused`."""
    message_id = read.message_id
    if not message_id:
        raise CausalRefused("entry_id", "an entry without a message id")
    _check_id("entry_id", message_id)
    hint = read.retrieval_hint if read.HasField("retrieval_hint") else None
    if hint is not None and len(hint) > CAUSAL_HINT_SIZE_MAX:
        raise CausalRefused("hint_size", f"hint of {len(hint)} bytes")
    sender = read.sender_id if read.HasField("sender_id") else None
    if sender:
        _check_id("entry_sender", sender)
    return HistoryEntry(message_id, hint, sender)


def _check_fields(data: bytes) -> None:
    """Wire types and counts of what a parser would build objects for."""
    counts = {HISTORY: 0, REPAIR: 0}
    unknown = 0
    for number, wire_type, _, value, end in fields_of(data):
        expected = _WIRE_TYPES.get(number)
        if expected is None:
            unknown += 1
            if unknown > CAUSAL_FIELDS_UNKNOWN_MAX:
                raise CausalRefused("fields_unknown", "too many unknown fields")
            continue
        if wire_type != expected:
            raise CausalRefused("wire_type", f"field {number} has wire type {wire_type}")
        if number == FILTER and end - value > CAUSAL_FILTER_SIZE_MAX:
            raise CausalRefused("filter_size", f"filter of {end - value} bytes")
        if number in counts:
            counts[number] += 1
            if counts[number] > _COUNT_MAX[number]:
                raise CausalRefused("entries", f"more than {_COUNT_MAX[number]} entries")
            _check_entry(data[value:end])


def _check_entry(data: bytes) -> None:
    if _is_plain_entry(data):
        return
    for count, (number, wire_type, *_) in enumerate(fields_of(data)):
        if number <= 3 and wire_type != LENGTH:
            raise CausalRefused("wire_type", f"field {number} of an entry: {wire_type}")
        if count >= _ENTRY_FIELDS_MAX:
            raise CausalRefused("fields_unknown", "too many fields in an entry")


def _is_plain_entry(data: bytes) -> bool:
    """Whether it has an id, and perhaps a sender, both short, and nothing else: as most have."""
    size = len(data)
    if size < 2 or data[0] != _ENTRY_ID or data[1] >= 0x80:
        return False
    at = 2 + data[1]
    if at == size:
        return True
    if at + 2 > size or data[at] != _ENTRY_SENDER or data[at + 1] >= 0x80:
        return False
    return at + 2 + data[at + 1] == size


def _check_id(field: str, text: str) -> None:
    # four bytes a character at most: most ids need not be encoded to be measured
    if len(text) * 4 > CAUSAL_ID_SIZE_MAX and len(text.encode()) > CAUSAL_ID_SIZE_MAX:
        raise CausalRefused(field, f"more than {CAUSAL_ID_SIZE_MAX} bytes")


def _put(out: causal_pb2.HistoryEntry, entry: HistoryEntry) -> None:
    out.message_id = entry.message_id
    if entry.retrieval_hint is not None:
        out.retrieval_hint = entry.retrieval_hint
    if entry.sender_id is not None:
        out.sender_id = entry.sender_id
