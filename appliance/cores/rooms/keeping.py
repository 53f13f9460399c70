"""Which segments are old enough to go: by the time of the newest record in each; and what they say
of rooms, which goes with them unless it is stated anew.

oldest ... | all older than the cutoff | one record is younger ... open
           `keep` points here ──────────▲
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from appliance.formats.record import (
    BODY,
    FLAGS,
    FLAGS_KIND_MASK,
    KIND_AUDIT,
    KIND_ROOM_CREATE,
    SHARD_ROOM_ID,
    body_len_in,
    timestamp_in,
)
from appliance.formats.renaming import decode_renaming, encode_renaming
from appliance.formats.room_limits import decode_limiting, encode_limiting
from appliance.formats.room_names import decode_room_names
from appliance.formats.verified_segment import VerifiedSegment

DAY_US = 86_400 * 1_000_000


class Kept(NamedTuple):
    """What a shard keeps now, as its primary tells, and what limits what may go."""

    oldest: int  # segment
    segment_records: int
    log_seq: int  # newest record
    shipped: int  # newest record that is shipped
    ships: bool  # else what is not shipped may go
    corrected: bool = False  # the clock was, once: times of the log go back there


def said_in(segment: VerifiedSegment) -> Iterator[bytes]:
    """Bodies that state anew, with when it was said, what records of a sealed segment say of rooms:
    their names, and who may do what there. Raises SegmentBroken."""
    for entry in segment.rooms():
        if entry.room_id == SHARD_ROOM_ID:
            rows = segment.rows(entry.first_row, entry.row_count)
            for record in segment.at(slot for _, slot in rows):
                if record[FLAGS] & FLAGS_KIND_MASK == KIND_AUDIT:
                    body = _anew(_body(record), timestamp_in(record))
                    if body:
                        yield body


def _anew(body: bytes, committed_us: int) -> bytes:
    """Nothing: it says nothing of a room."""
    renaming = decode_renaming(body)
    if renaming is not None:
        return encode_renaming(renaming._replace(said_us=renaming.said_us or committed_us))
    limiting = decode_limiting(body)
    if limiting is not None:
        return encode_limiting(limiting._replace(said_us=limiting.said_us or committed_us))
    return b""


def names_in(segment: VerifiedSegment) -> Iterator[str]:
    """Names that are told by records of a sealed segment: by those that created rooms, and by
    operators' acts that stated such names anew. Raises SegmentBroken."""
    for entry in segment.rooms():
        if entry.room_id == SHARD_ROOM_ID:
            rows = segment.rows(entry.first_row, entry.row_count)
            for record in segment.at(slot for _, slot in rows):
                if record[FLAGS] & FLAGS_KIND_MASK == KIND_AUDIT:
                    yield from decode_room_names(_body(record))
        elif entry.previous == 0:  # the room begins here: elsewhere nothing need be read
            ((_, slot),) = segment.rows(entry.first_row, 1)
            record = segment.record(slot)
            if record[FLAGS] & FLAGS_KIND_MASK == KIND_ROOM_CREATE:
                yield _body(record).decode()


def _body(record: bytes) -> bytes:
    return record[BODY : BODY + body_len_in(record)]


def keep(
    kept: Kept, newest_us: Callable[[int], int | None], now_us: int, retention_days: float
) -> int:
    """The oldest segment to keep: `kept.oldest` when nothing may go.

    `newest_us(segment)` is the time of the newest record of a sealed segment, None when it cannot
    be read now: then it is kept, and what is newer too. The open segment always stays, and with
    `ships` all that is not shipped. What was written before the clock was corrected may bear a
    time that has not come yet, or has come meanwhile: it is as old as what follows at least. So in
    a log that was `corrected` all segments are looked at.
    """
    if not retention_days:
        return kept.oldest
    cutoff_us = now_us - int(retention_days * DAY_US)
    end = (kept.shipped if kept.ships else kept.log_seq) // kept.segment_records
    oldest = kept.oldest
    for segment in range(kept.oldest, end):
        newest = newest_us(segment)
        if newest is None or not kept.corrected and newest >= cutoff_us:
            break
        if newest < cutoff_us:
            oldest = segment + 1
    return oldest
