"""Many entries as one gzip member.

    size of the index part, size of the data part     4 + 4
    index part                                        8 for each record: where it starts
    data part                                         term 8, type 1, value; no size

**Starts are absolute.** They are positions in the sender's own file of records: the next pack goes
on where this one ends, and JRaft copies them unchanged into its index file. So a sender counts
`record_size` over everything since the receiver's first entry, and a receiver subtracts the first.
"""

import struct
import zlib
from collections.abc import Sequence

from appliance.base.errors import FarmFrameError
from appliance.base.limits import FARM_PACK_SIZE_MAX
from appliance.formats.raft_legacy.frame import Entry, check_index

_HEAD = struct.Struct(">ii")
_RECORD = struct.Struct(">qB")
_GZIP_ONLY = 31  # for zlib: window of 32 KiB, gzip header and trailer


def record_size(entry: Entry) -> int:
    """Bytes of the entry in the data part of a pack, and in JRaft's file."""
    return _RECORD.size + len(entry.value)


def encode_log_pack(entries: Sequence[Entry], start: int) -> bytes:
    """`start`: where the first record begins in what the receiver holds, in bytes."""
    starts, records = [], []
    for entry in entries:
        starts.append(start)
        records.append(_RECORD.pack(entry.term, entry.type) + entry.value)
        start += len(records[-1])
    index = struct.pack(f">{len(starts)}q", *starts)
    data = b"".join(records)
    assert _HEAD.size + len(index) + len(data) <= FARM_PACK_SIZE_MAX
    packer = zlib.compressobj(wbits=_GZIP_ONLY)
    return packer.compress(_HEAD.pack(len(index), len(data)) + index + data) + packer.flush()


def decode_log_pack(value: bytes) -> tuple[int, tuple[Entry, ...]]:
    """(absolute start of the first record, entries). Never unpacks more than the two sizes say."""
    whole = _unpacked(value)
    index_size, data_size = _HEAD.unpack_from(whole)
    count = index_size // 8
    starts = struct.unpack_from(f">{count}q", whole, _HEAD.size)
    if not count:
        if data_size:
            raise FarmFrameError("pack_malformed", f"{data_size} bytes of data without an index")
        return 0, ()
    first, data = starts[0], _HEAD.size + index_size
    if first < 0:
        raise FarmFrameError("pack_malformed", f"a record starts at {first}")
    entries = []
    for position, following in zip(starts, (*starts[1:], first + data_size), strict=True):
        if following - position < _RECORD.size or following - first > data_size:
            sentence = f"a record from {position} to {following} in {data_size} bytes"
            raise FarmFrameError("pack_malformed", sentence)
        begin, end = data + position - first, data + following - first
        term, kind = _RECORD.unpack_from(whole, begin)
        check_index("term of an entry", term)
        entries.append(Entry(term, kind, whole[begin + _RECORD.size : end]))
    return first, tuple(entries)


def _unpacked(value: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_ONLY)
    try:
        head = unpacker.decompress(value, _HEAD.size)
        if len(head) < _HEAD.size:
            raise FarmFrameError("pack_malformed", f"{len(head)} bytes unpacked")
        index_size, data_size = _HEAD.unpack(head)
        if index_size < 0 or data_size < 0 or index_size % 8:
            sentence = f"index of {index_size} and data of {data_size} bytes"
            raise FarmFrameError("pack_malformed", sentence)
        size = index_size + data_size
        if _HEAD.size + size > FARM_PACK_SIZE_MAX:
            sentence = f"{size} bytes unpacked, at most {FARM_PACK_SIZE_MAX} are allowed"
            raise FarmFrameError("pack_too_large", sentence)
        rest = unpacker.decompress(unpacker.unconsumed_tail, size + 1)  # one more: to see a surplus
        if not unpacker.eof and len(rest) == size:
            rest += unpacker.decompress(unpacker.unconsumed_tail, 1)
    except zlib.error as error:
        raise FarmFrameError("pack_malformed", f"no gzip member: {error}") from error
    if len(rest) != size or not unpacker.eof or unpacker.unused_data:
        sentence = f"{len(rest)} bytes unpacked, {size} were announced, in one gzip member"
        raise FarmFrameError("pack_malformed", sentence)
    return head + rest
