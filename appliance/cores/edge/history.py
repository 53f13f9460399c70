"""History: one page of a room between two ops, forward or backward, ascending in the page."""

from appliance.base.limits import CHUNK_FRAME_SIZE_MAX
from appliance.cores.edge.log import ShardLog
from appliance.formats.client.frame import HEAD_SIZE, binary_head, encode_binary, encode_json
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.records import message_binary, message_of
from appliance.formats.record import body_len_in, seq_in

_PART_RECORDS = 16  # that are read first; each further part has twice as many
_ITEM_SIZE = 256  # bytes of a message beside its body, at least in JSON


def _size(record: bytes) -> int:
    return _ITEM_SIZE + body_len_in(record)


def _read(log: ShardLog, room_id: bytes, low: int, high: int, backward: bool) -> list[bytes]:
    """Records from op `low` up to `high`, or the other way: as many as fit one frame, at least one,
    ascending. Empty when the first to be read was freed. They are read in growing parts, for most
    of what a client asks for may not fit."""
    found: list[bytes] = []
    space, part_max = CHUNK_FRAME_SIZE_MAX, _PART_RECORDS
    while low <= high and space > 0:
        count = min(part_max, high - low + 1)
        part = log.read(room_id, high - count + 1 if backward else low, count)
        if backward:
            if found and len(part) < count:  # freed meanwhile: what was found borders on nothing
                break
            part.reverse()
        for record in part:
            space -= _size(record)
            if space < 0 and found:
                break
            found.append(record)
        if len(part) < count:
            break
        low, high = (low, high - count) if backward else (low + count, high)
        part_max *= 2
    if backward:
        found.reverse()
    return found


def page(
    log: ShardLog, room_id: bytes, head: int, frame: SnapshotRequest
) -> tuple[list[bytes], bool, int]:
    """(records, has_more, cursor) for a request about a tracked room. Raises Unavailable."""
    low = max(frame.from_op or 1, 1)
    high = head if frame.until_op is None else min(frame.until_op, head)
    first = max(low, high - frame.limit + 1) if frame.backward else low
    wanted = min(frame.limit, high - first + 1)
    records = _read(log, room_id, first, first + wanted - 1, frame.backward)
    if not records and wanted > 0:  # freed: begin with the oldest that is kept
        first = log.first_op(room_id)
        wanted = min(frame.limit, high - first + 1)
        records = _read(log, room_id, first, first + wanted - 1, frame.backward)
    if not records:
        return [], False, high if frame.backward else low
    first_op, last_op = (seq_in(raw) for raw in (records[0], records[-1]))
    if frame.backward:
        return records, first_op > low, first_op - 1
    return records, last_op < high, last_op + 1


def encode_page(
    binary: bool,
    frame: SnapshotRequest,
    records: list[bytes],
    has_more: bool,
    cursor: int,
    stale_since: int | None,
) -> bytes:
    """The answer to `frame`, encoded; binary ones straight from the records."""
    chunk = SnapshotChunk(
        room_id=frame.room_id,
        has_more=has_more,
        cursor=cursor,
        stale_since=stale_since,
        request=frame.request,
        messages=[] if binary else [message_of(record) for record in records],
    )
    if not binary:
        return encode_json(chunk)
    head = encode_binary(chunk)[HEAD_SIZE:]
    return b"".join(
        [
            binary_head(SnapshotChunk, len(records)),
            head,
            *map(message_binary, records),
        ]
    )
