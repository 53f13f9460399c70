"""The log of a volume that is whole, for another cluster: its records and the tables of its
checkpoint as they are, each footer made anew.

Of one whose oldest segments were dropped there is no other way: rooms and devices go back to what
is not there any more, so nothing of it can be committed again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from appliance.base.checksum import sha256
from appliance.base.errors import StorageError
from appliance.cores.rooms.open_segment import SegmentWrite
from appliance.cores.rooms.rebuild import SEGMENTS_BOUND, Rebuild
from appliance.formats.geometry import Geometry, whole_sectors
from appliance.formats.segment import ROOM, decode_footer, encode_footer, leaf_record_count
from appliance.roles.operator.log_source import LogSource, Span, read_best
from appliance.roles.operator.volume_source import VolumeSource


def take_kept(
    rebuild: Rebuild,
    volume: VolumeSource,
    sources: Sequence[LogSource],
    cluster: bytes,
    on_progress: Callable[[int], object],
) -> Iterator[SegmentWrite]:
    """All up to the volume's checkpoint; `rebuild` goes on behind it. LogBroken where a record, a
    footer or a table is not whole in any of `sources`."""
    manifest, geometry = volume.manifest, volume.geometry
    assert manifest is not None
    open_number, count = divmod(manifest.log_seq, geometry.segment_records)
    previous_id = manifest.newest_segment_id
    for number in range(manifest.oldest_segment, open_number):
        span = _whole(sources, number, geometry, geometry.segment_records)
        rebuild.note_names(memoryview(span.records))
        on_progress(len(span.digests))
        old = volume.footer(number)
        if old is None:
            raise _broken(number, "its footer")
        head = decode_footer(old, geometry)
        rooms = np.frombuffer(old, ROOM, head.room_count, head.rooms_offset)
        ids = [room_id.tobytes() for room_id in rooms["room_id"]]
        links = dict(zip(ids, rooms["previous"].tolist(), strict=True))
        footer = encode_footer(
            memoryview(span.records),
            cluster=cluster,
            shard=manifest.shard,
            number=number,
            # of what was dropped, whose footer nobody makes anew
            previous_id=head.previous_id if number == manifest.oldest_segment else previous_id,
            leaf_ids=_leaf_ids(span.digests, geometry),
            previous_of=links.__getitem__,
        )
        previous_id = sha256(footer)
        last, start = (number + 1) * geometry.segment_records, geometry.segment_data_size
        records = bytes(span.records).ljust(start, b"\0")
        yield SegmentWrite(number, 0, records, last, tail=False)
        padded = footer.ljust(whole_sectors(len(footer)), b"\0")
        yield SegmentWrite(number, start, padded, last, tail=False)
    leaves = _whole(sources, open_number, geometry, count).records
    rebuild.note_names(memoryview(leaves))
    named = replace(
        manifest, cluster=cluster, newest_segment_id=previous_id, segments_max=SEGMENTS_BOUND
    )
    yield from rebuild.resume(named, volume.tables(), bytes(leaves))


def _whole(sources: Sequence[LogSource], number: int, geometry: Geometry, count: int) -> Span:
    """The first `count` records of a segment, each vouched for; of as many spans as it takes."""
    first, found = number * geometry.segment_records + 1, Span(bytearray(), [], [])
    while (had := len(found.digests)) < count:
        span = read_best(sources, first + had)
        part = None if span is None else span.head(count - had)
        if part is None or part.doubtful:
            raise _broken(number, "a record")
        found.records += part.records
        found.digests += part.digests
    return found


def _leaf_ids(digests: list[bytes], geometry: Geometry) -> list[bytes]:
    ids, first = [], 0
    for leaf in range(geometry.leaf_count_max):
        end = first + leaf_record_count(geometry, leaf)
        ids.append(sha256(b"".join(digests[first:end])))
        first = end
    return ids


class LogBroken(StorageError):
    """It cannot be kept as it is."""


def _broken(number: int, what: str) -> LogBroken:
    return LogBroken(
        f"the oldest records were dropped from the volumes, and {what} of segment {number} is "
        "broken in all that was named: name the archive of what was shipped as well (--from), or "
        "another volume"
    )
