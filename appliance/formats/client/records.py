"""From committed records to what clients get of them: events, and messages of a page."""

import struct
from typing import Any

from appliance.formats.author import author_name
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import layout_of
from appliance.formats.client.history import StoredMessage
from appliance.formats.client.subscribing import MessageEvent
from appliance.formats.event import POLICY_BITS_SIZE
from appliance.formats.imported import decode_imported
from appliance.formats.record import (
    KIND_FEDERATED,
    KIND_IMPORTED,
    KIND_MESSAGE,
    KIND_ROOM_POLICY,
    RECORD,
)
from appliance.formats.sharing import FEDERATED_PREFIX_SIZE

_EVENT = layout_of(MessageEvent).struct()
_RECORD_PARTS = struct.Struct("<16s16sQ8x16sQI")
_RECORD_TAIL = struct.Struct("<16sQ32xI4xQ")
_PARTS_END = _RECORD_PARTS.size
_TAIL_START = RECORD.fields["client_id"][1]  # type: ignore[index]
assert KIND_MESSAGE == 0  # which is why `event_binary` looks at other kinds only
assert _PARTS_END == RECORD.fields["body"][1]  # type: ignore[index]


def _shown(kind: int, size: int) -> tuple[int, int]:
    """(start, end) in the record of what clients get of its body: of a message from another site
    the text, of a policy its bits; the rest is for those who carry the room, and is no text.
    """
    if kind == KIND_FEDERATED:
        return _PARTS_END + FEDERATED_PREFIX_SIZE, _PARTS_END + size
    if kind == KIND_ROOM_POLICY:
        return _PARTS_END, _PARTS_END + min(size, POLICY_BITS_SIZE)
    return _PARTS_END, _PARTS_END + size


def event_binary(record: bytes | memoryview) -> bytes:
    """A committed record as one item of a message_event frame."""
    room, msg, author, parent, timestamp, size = _RECORD_PARTS.unpack_from(record)
    client, client_seq, flags, op = _RECORD_TAIL.unpack_from(record, _TAIL_START)
    kind = flags & 0xFF
    start, end = _shown(kind, size) if kind else (_PARTS_END, _PARTS_END + size)
    return (
        _EVENT.pack(room, op, msg, author, parent, timestamp, client, client_seq, kind, end - start)
        + record[start:end]
    )


def message_binary(record: bytes | memoryview) -> bytes:
    """A committed record as one item of a snapshot_chunk: the event without its room."""
    return event_binary(record)[16:]


def _message_fields(record: bytes | memoryview) -> dict[str, Any]:
    _, msg, author, parent, timestamp, size = _RECORD_PARTS.unpack_from(record)
    client, client_seq, flags, op = _RECORD_TAIL.unpack_from(record, _TAIL_START)
    kind = flags & 0xFF
    start, end = _shown(kind, size)
    said = {}
    if kind == KIND_IMPORTED and (found := decode_imported(bytes(record[start:end]))):
        said = {"said_at": found.said_us, "said_by": found.author}
        start += found.head_size
    body = bytes(record[start:end]).decode(errors="replace")
    return {
        **said,
        "op": op,
        "msg_id": id_of(msg),
        "author_id": str(author),
        "author": author_name(author),
        "parent_id": id_of(parent) if any(parent) else None,
        "timestamp": timestamp,
        "client_id": id_of(client),
        "client_seq": client_seq,
        "kind": kind,
        "body": body,
    }


def event_of(record: bytes | memoryview) -> MessageEvent:
    """A committed record as a frame: what a JSON subscriber gets."""
    return MessageEvent(room_id=id_of(bytes(record[:16])), **_message_fields(record))


def message_of(record: bytes | memoryview) -> StoredMessage:
    """A committed record as a message of a snapshot_chunk."""
    return StoredMessage(**_message_fields(record))
