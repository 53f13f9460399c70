"""When and by whom it was said what `tigerchat import` stored.

An imported record tells both (`formats/imported`), and only a token with the right to import stores
one. Before there was that kind, and that right, a message of an archive had a UUIDv8 as its id,
which holds the time of then (what is sent has a UUIDv7, of the time it was sent), and began with a
line of author and time; a further piece of a long one had the same time, and named the first piece
as its parent. Whoever might send could store what looks so, until edges refused it.

The author is shown as `NAME (imported)`: nobody but the importer vouches for him, whereas a
record's own author is what a token said. What came without the right is shown as
`NAME (imported, unproved)`: perhaps nobody has ever imported it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from appliance.formats.imported import Imported, decode_imported
from appliance.formats.record import (
    BODY,
    FLAGS_KIND_MASK,
    KIND_IMPORTED,
    KIND_MESSAGE,
    body_len_in,
    msg_id_in,
    parent_id_in,
)
from appliance.reports.span import Array

IMPORTED, UNPROVED = " (imported)", " (imported, unproved)"
_VERSION_BYTE, _VARIANT_BYTE = 9, 7  # of a UUID's little-endian bytes
_VERSION, _VARIANT = 8, 2
_LINE = re.compile(rb"([^\n]{1,1000}) \xc2\xb7 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z\n")
_HEAD_SIZE_MAX = 1100  # bytes of a body that are looked at for its first line


def _ids(records: Array, name: str) -> Array:
    """(count, 16) bytes of a column of UUIDs, little-endian."""
    return np.ascontiguousarray(records[name]).view(np.uint8).reshape(len(records), 16)


def _mask(records: Array) -> Array:
    """Which records have an id as imports give."""
    ids = _ids(records, "msg_id")
    versions, variants = ids[:, _VERSION_BYTE] >> 4, ids[:, _VARIANT_BYTE] >> 6
    mask: Array = (versions == _VERSION) & (variants == _VARIANT)
    return mask


def _kinds(records: Array) -> Array:
    return records["flags"] & np.uint32(FLAGS_KIND_MASK)


def heads(records: Array) -> Iterator[tuple[int, Imported]]:
    """Of each imported record among these its place, and what stands before its text."""
    for index in np.flatnonzero(_kinds(records) == KIND_IMPORTED).tolist():
        raw = records[index].tobytes()
        size = body_len_in(raw)
        said = decode_imported(raw[BODY : BODY + size])
        if said is not None:
            yield index, said


def _milliseconds(ids: Array) -> Array:
    """The time in UUIDs laid out as version 7 has it."""
    padded = np.zeros((len(ids), 8), np.uint8)
    padded[:, :6] = ids[:, 10:16]
    return padded.view("<u8").reshape(-1)


def said_at(records: Array) -> list[int | None]:
    """Microseconds since the epoch of each imported record; None for what was sent."""
    return [None if found is None else found[0] for found in _said(records)]


def said_by(records: Array) -> list[str | None]:
    """The author of each imported record; None for what was sent."""
    return [None if found is None else found[1] for found in _said(records)]


def _said(records: Array) -> list[tuple[int, str] | None]:
    """Time and author of what has an import's id and first line, or follows one that has among
    these records: an id alone, which any device may choose, says nothing."""
    found: list[tuple[int, str] | None] = [None] * len(records)
    for index, head in heads(records):
        found[index] = head.said_us, head.author + IMPORTED
    firsts: dict[bytes, tuple[int, str]] = {}  # by id
    mask = _mask(records) & (_kinds(records) == KIND_MESSAGE)
    if not mask.any():
        return found
    times = _milliseconds(_ids(records, "msg_id")).astype(np.int64) * 1000
    for index in np.flatnonzero(mask).tolist():
        raw = records[index].tobytes()
        size = min(_HEAD_SIZE_MAX, body_len_in(raw))
        line = _LINE.match(raw[BODY : BODY + size])
        time = int(times[index])
        if line is not None and line[2].decode() == str(np.datetime64(time // 1_000_000, "s")):
            said = time, line[1].decode("utf-8", "replace") + UNPROVED
            found[index] = firsts[msg_id_in(raw)] = said
        else:
            first = firsts.get(parent_id_in(raw))
            found[index] = first if first is not None and first[0] == time else None
    return found
