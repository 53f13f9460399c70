"""Records as columns: the schemas of Spark and Parquet, derived from the layout of a record.

    16 bytes, little-endian   a UUID as clients see it; zero is null where zero means none
    u8, u4                    long; an author_id above 2^63 shows as negative, `author` names it
    timestamp                 microseconds, UTC
    body                      binary, as long as body_len says; of what was imported the text alone

Derived beside them: `shard`, `kind` (its name), `author` (its name) and `hash` of the record;
`said_at` and `said_by` of what was imported (`reports/imported`), else null.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Container, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from appliance.formats import record
from appliance.formats.author import author_name
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import BODY, FLAGS_KIND_MASK, RECORD
from appliance.reports.imported import heads, said_at, said_by
from appliance.reports.span import Array, by_room

KIND_NAMES = {
    value: name.removeprefix("KIND_").lower()
    for name, value in vars(record).items()
    if name.startswith("KIND_") and isinstance(value, int)
}
NULL_WHEN_ZERO = frozenset(("parent_id", "blob_hash"))
MAY_BE_NULL = NULL_WHEN_ZERO | {"said_at", "said_by"}
NOT_IN_TABLES = frozenset(("shard", "checksum", "prev_hash"))  # shard is a folder's name there

_ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "time": pa.timestamp("us", tz="UTC"),
}
_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "long": LongType(),
    "int": IntegerType(),
    "binary": BinaryType(),
    "time": TimestampType(),
}


def _form_of(name: str) -> str:
    """The form of a field of RECORD."""
    if name == "timestamp":
        return "time"
    width = RECORD[name]
    if width.kind == "V":
        return "string" if width.itemsize == 16 else "binary"
    return "long"


_FIELDS = {name: _form_of(name) for name in RECORD.names or () if not name.startswith("padding")}
FORMS = {
    "shard": "int",
    **_FIELDS,
    "kind": "string",
    "author": "string",
    "hash": "binary",
    "said_at": "time",
    "said_by": "string",
}
TABLE_NAMES = tuple(name for name in FORMS if name not in NOT_IN_TABLES)
TABLE_SCHEMA = pa.schema([pa.field(name, _ARROW[FORMS[name]]) for name in TABLE_NAMES])
DICTIONARY_NAMES = ("room_id", "client_id", "author_id", "kind", "author", "flags", "body_len")


def spark_schema(names: Sequence[str] = tuple(FORMS)) -> StructType:
    """The schema of these columns in Spark."""
    return StructType([StructField(name, _SPARK[FORMS[name]]) for name in names])


def batch_of(
    records: Array,
    names: Sequence[str],
    *,
    shard: int,
    hashes: Array | None = None,
    never_null: Container[str] = (),
) -> pa.RecordBatch:
    """These columns of records that lie one behind the other; `hashes` if `hash` is among them.
    Those in `never_null` say that they hold no null, which Spark compares with its schema."""
    arrays = [_column(records, name, shard, hashes) for name in names]
    fields = [
        pa.field(name, _ARROW[FORMS[name]], nullable=name not in never_null) for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _column(records: Array, name: str, shard: int, hashes: Array | None) -> pa.Array:
    if name == "shard":
        return pa.array(np.full(len(records), shard, np.int32))
    if name == "kind":
        return _named(records["flags"] & np.uint32(FLAGS_KIND_MASK), kind_name)
    if name == "author":
        return _named(records["author_id"], author_name)
    if name == "body":
        return _bodies(records)
    if name == "hash":
        assert hashes is not None
        return _fixed(hashes, None)
    if name == "said_at":
        return pa.array(said_at(records), pa.timestamp("us", tz="UTC"))
    if name == "said_by":
        return pa.array(said_by(records), pa.string())
    form = FORMS[name]
    if form == "time":
        return pa.array(records[name].astype("<i8"), pa.timestamp("us", tz="UTC"))
    if form == "long":
        return pa.array(records[name].astype("<i8"))
    width = records.dtype[name].itemsize
    raw = np.ascontiguousarray(records[name]).view(np.uint8).reshape(len(records), width)
    absent = np.logical_not(raw.any(axis=1)) if name in NULL_WHEN_ZERO else None
    if form == "binary":
        return _fixed(raw, absent)
    if name == "room_id":
        return _rooms(records[name])
    return _strings(uuid_texts(raw), absent)


def conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch` with the columns of today, which a file of an earlier program may lack."""
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in TABLE_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA)


def kind_name(kind: int) -> str:
    """As it stands in the tables; kinds that are not known yet have a name too."""
    return KIND_NAMES.get(kind, f"kind_{kind}")


def _named(values: Array, name_of: Callable[[int], str]) -> pa.Array:
    """A text for each value, made once for each that differs."""
    distinct, index = np.unique(values, return_inverse=True)
    names = pa.array([name_of(int(value)) for value in distinct], pa.string())
    return names.take(pa.array(index.reshape(-1)))


def _rooms(room_ids: Array) -> pa.Array:
    order, begins = by_room(room_ids)
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(begins) - 1
    raw = np.ascontiguousarray(room_ids[order[begins]]).view(np.uint8).reshape(-1, 16)
    return _strings(uuid_texts(raw), None).take(pa.array(index))


def uuid_texts(raw: Array) -> Array:
    """(count, 36) characters of the UUIDs whose little-endian 16 bytes are `raw`."""
    digits = np.frombuffer(binascii.hexlify(raw[:, ::-1].tobytes()), np.uint8).reshape(-1, 32)
    out = np.full((len(raw), 36), ord("-"), np.uint8)
    at = 0
    for start, length in ((0, 8), (9, 4), (14, 4), (19, 4), (24, 12)):
        out[:, start : start + length] = digits[:, at : at + length]
        at += length
    return out


def _strings(texts: Array, absent: Array | None) -> pa.Array:
    return _of_width(texts, absent, pa.string())


def _fixed(raw: Array, absent: Array | None) -> pa.Array:
    return _of_width(raw, absent, pa.binary())


def _of_width(rows: Array, absent: Array | None, form: pa.DataType) -> pa.Array:
    """An Arrow array of equally long values over one buffer, null where `absent`."""
    count, width = rows.shape
    if absent is not None and absent.all():
        return pa.nulls(count, form)
    present = None
    if absent is not None and absent.any():
        present = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype="<i4"))
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(form, count, [present, offsets, data])


def _bodies(records: Array) -> pa.Array:
    view = memoryview(np.ascontiguousarray(records).view(np.uint8))  # type: ignore[arg-type]
    lengths = np.minimum(records["body_len"], 2048)
    starts = list(range(BODY, len(records) * RECORD_SIZE, RECORD_SIZE))
    for index, said in heads(records):
        starts[index] += said.head_size
        lengths[index] -= said.head_size
    data = b"".join(
        [view[at : at + length] for at, length in zip(starts, lengths.tolist(), strict=True)]
    )
    offsets = np.zeros(len(records) + 1, "<i4")
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(records), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
