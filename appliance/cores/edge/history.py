"""History: one page of a room between two ops, forward or backward, ascending in the page."""

from appliance.base.limits import CHUNK_FRAME_SIZE_MAX
from appliance.cores.edge.log import ShardLog
from appliance.formats.client.frame import HEAD_SIZE, binary_head, encode_binary, encode_json
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.records import message_binary, message_of
from appliance.formats.record import BODY_LEN, SEQ

_ITEM_SIZE = 256  # bytes of a message beside its body, at least in JSON


def _size(record: bytes) -> int:
    return _ITEM_SIZE + int.from_bytes(record[BODY_LEN : BODY_LEN + 4], "little")


def _fitting(records: list[bytes], backward: bool) -> list[bytes]:
    """As many from the start (or the end) as fit one frame, at least one."""
    size = count = 0
    for record in reversed(records) if backward else records:
        size += _size(record)
        if count and size > CHUNK_FRAME_SIZE_MAX:
            break
        count += 1
    return records[len(records) - count :] if backward else records[:count]


def page(
    log: ShardLog, room_id: bytes, head: int, frame: SnapshotRequest
) -> tuple[list[bytes], bool, int]:
    """(records, has_more, cursor) for a request about a tracked room. Raises Unavailable."""
    low = max(frame.from_op or 1, 1)
    high = head if frame.until_op is None else min(frame.until_op, head)
    first = max(low, high - frame.limit + 1) if frame.backward else low
    wanted = min(frame.limit, high - first + 1)
    records = log.read(room_id, first, wanted) if wanted > 0 else []
    if not records and wanted > 0:  # freed: begin with the oldest that is kept
        first = log.first_op(room_id)
        wanted = min(frame.limit, high - first + 1)
        records = log.read(room_id, first, wanted) if wanted > 0 else []
    records = _fitting(records, frame.backward)
    if not records:
        return [], False, high if frame.backward else low
    first_op, last_op = (
        int.from_bytes(raw[SEQ : SEQ + 8], "little") for raw in (records[0], records[-1])
    )
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
