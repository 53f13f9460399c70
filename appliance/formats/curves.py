"""The file of a console's curves: what it keeps of the past, in a fixed number of rows.

    0           head: whose curves, and which curve is in which column
    4,096       3,600 rows of a second, an hour; second s at row s % 3,600
    1,904,896   8,640 rows of ten seconds, a day; the step that holds s at row s // 10 % 8,640

A row says of which time it is, so nothing has to be cleared when time goes on without a console:
what a row holds of an earlier round is just not of the time that is looked for. Each has a checksum
of its own, for a row that was torn by a power cut is a gap, and no reason to forget the others.

Not a number (NaN) is a gap. Figures are IEEE singles: seven digits.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from appliance.base.checksum import crc32c
from appliance.base.errors import FormatError
from appliance.base.layout import offset_of
from appliance.base.limits import SECTOR_SIZE

MAGIC = b"TIGRCURV"
VERSION = 1
CURVES_MAX = 128  # of one console
HOUR_S = 3600
STEP_S = 10  # seconds that a row of the day is about
DAY_STEPS = 86_400 // STEP_S


class Figure(IntEnum):
    """What a curve shows. Numbers are never given twice."""

    RECORDS = 1  # committed a second, of a shard
    COMMIT_MS = 2  # from request to answer, of a shard
    CONNECTIONS = 3  # of an edge
    RECEIVED = 4  # messages acknowledged a second, of an edge
    SENT = 5  # messages delivered a second, of an edge
    FLUSH_MS = 6  # of a durable write, of a replica's volume
    FREE_BYTES = 7  # on its disk
    WAITING = 8  # records that are not shipped, of a shipper and shard
    DELAY_S = 9  # by which that is late


class Curve(NamedTuple):
    """`node` is 0 for what is a shard's; `number` is of the shard, or of the edge on its node."""

    figure: Figure
    node: int
    number: int


CURVE = np.dtype(
    [
        ("figure", "<u2"),  # 0: the column is no curve's
        ("node", "<u2"),
        ("number", "<u2"),
        ("reserved", "V2"),
    ]
)
CURVES_HEAD = np.dtype(
    [
        ("checksum", "<u4"),  # CRC32C of what follows
        ("version", "<u4"),
        ("magic", "V8"),
        ("cluster_id", "V16"),
        ("curves", CURVE, (CURVES_MAX,)),  # by column
        ("reserved", "V3040"),
    ]
)
CURVES_SECOND = np.dtype(
    [
        ("checksum", "<u4"),  # CRC32C of what follows
        ("reserved", "V4"),
        ("second", "<u8"),  # since the epoch; 0: the row was never written
        ("value", "<f4", (CURVES_MAX,)),
    ]
)
CURVES_STEP = np.dtype(
    [
        ("checksum", "<u4"),  # CRC32C of what follows
        ("reserved", "V4"),
        ("second", "<u8"),  # the first of the step; 0: the row was never written
        ("mean", "<f4", (CURVES_MAX,)),  # of the seconds that are known
        ("most", "<f4", (CURVES_MAX,)),
    ]
)
assert CURVES_HEAD.itemsize == SECTOR_SIZE
SECONDS_AT = CURVES_HEAD.itemsize
STEPS_AT = SECONDS_AT + HOUR_S * CURVES_SECOND.itemsize
SIZE = STEPS_AT + DAY_STEPS * CURVES_STEP.itemsize
assert (SECONDS_AT, STEPS_AT, SIZE) == (4096, 1_904_896, 10_890_496)

Rows = np.ndarray[Any, np.dtype[np.void]]


class Kept(NamedTuple):
    """What a file holds: rows in the order of the file, which the caller owns."""

    columns: dict[Curve, int]
    seconds: Rows
    steps: Rows
    damaged: int  # rows that are not what was written; they are empty here


def empty() -> Kept:
    return Kept({}, np.zeros(HOUR_S, CURVES_SECOND), np.zeros(DAY_STEPS, CURVES_STEP), 0)


def encode_head(cluster: bytes, columns: Mapping[Curve, int]) -> bytes:
    head = np.zeros((), CURVES_HEAD)
    head["version"], head["magic"], head["cluster_id"] = VERSION, MAGIC, cluster
    for curve, column in columns.items():
        for name in Curve._fields:
            head["curves"][name][column] = getattr(curve, name)
    return _sealed(head.tobytes())


def encode_row(row: np.void) -> bytes:
    """A row of a second or of a step."""
    return _sealed(row.tobytes())


def decode(raw: bytes | memoryview, cluster: bytes) -> Kept:
    """Of the file of that cluster. FormatError: it is damaged, or not of this version."""
    if len(raw) != SIZE:
        raise FormatError(f"has {len(raw)} bytes, not {SIZE}")
    head = np.frombuffer(raw, CURVES_HEAD, 1)[0]
    if head["magic"].tobytes() != MAGIC:
        raise FormatError("magic: no file of curves")
    if head["version"] != VERSION:
        raise FormatError(f"version {head['version']}, not {VERSION}")
    if not _is_whole(raw, 0, CURVES_HEAD.itemsize):
        raise FormatError("checksum: the head is damaged")
    if head["cluster_id"].tobytes() != cluster:
        raise FormatError("cluster_id: it is of another site")
    seconds = _written(np.frombuffer(raw, CURVES_SECOND, HOUR_S, SECONDS_AT))
    steps = _written(np.frombuffer(raw, CURVES_STEP, DAY_STEPS, STEPS_AT))
    damaged = _cleared(raw, SECONDS_AT, seconds, 1) + _cleared(raw, STEPS_AT, steps, STEP_S)
    return Kept(_columns(head["curves"]), seconds, steps, damaged)


def _written(rows: Rows) -> Rows:
    """A copy; rows that were never written take no memory."""
    copy, here = np.zeros(len(rows), rows.dtype), np.flatnonzero(rows["second"])
    copy[here] = rows[here]
    return copy


def _columns(rows: Rows) -> dict[Curve, int]:
    try:
        return {
            Curve(Figure(row["figure"]), int(row["node"]), int(row["number"])): column
            for column, row in enumerate(rows)
            if row["figure"]
        }
    except ValueError as error:
        raise FormatError(f"figure: {error}") from error


def _cleared(raw: bytes | memoryview, start: int, rows: Rows, span_s: int) -> int:
    """How many rows are not what was written; these are emptied."""
    size = rows.dtype.itemsize
    times = rows["second"]
    here = times % span_s != 0
    here |= times // span_s % len(rows) != np.arange(len(rows))
    for at in np.flatnonzero(times):
        here[at] |= not _is_whole(raw, start + int(at) * size, size)
    wrong = np.flatnonzero(here & (times != 0))
    rows[wrong] = np.zeros((), rows.dtype)
    return len(wrong)


_CHECKED = offset_of(CURVES_SECOND, "reserved")
assert offset_of(CURVES_HEAD, "version") == offset_of(CURVES_STEP, "reserved") == _CHECKED


def _is_whole(raw: bytes | memoryview, start: int, size: int) -> bool:
    told = int.from_bytes(raw[start : start + _CHECKED], "little")
    return told == crc32c(memoryview(raw)[start + _CHECKED : start + size])


def _sealed(raw: bytes) -> bytes:
    return crc32c(raw[_CHECKED:]).to_bytes(_CHECKED, "little") + raw[_CHECKED:]
