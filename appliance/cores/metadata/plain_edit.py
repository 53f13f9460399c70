"""The plain edit: single values of one object, in short records. Most packets are one.

It is read in one go here, at a third of what the rules in `packets` take, and to the same writes.
Whatever is not quite so, bytes to be refused among it, is None: they say what it is.
"""

import struct

from appliance.base.limits import REVISION_MAX
from appliance.cores.metadata.change import Change, Write
from appliance.formats.toytlv.ids import BLOCK_MASK, FIELD_MASK, PROGRESS_MASK, Id
from appliance.formats.toytlv.integers import PAIRS, zigzag, zip_pair
from appliance.formats.toytlv.records import SHORT_SIZE_MAX, TINY, TINY_SIZE_MAX, tiny_record

_E, _I, _R = b"eir"  # first bytes of short records of these types
# of the types with one value: letter, bytes of a value; an R is left to who knows all of ids
_SINGLE = {
    ord("f"): ("F", 8),
    ord("i"): ("I", 8),
    ord("s"): ("S", SHORT_SIZE_MAX),
    ord("t"): ("T", SHORT_SIZE_MAX),
}
# first byte of a tiny stamp -> what reads the pair in it
_STAMPS = {TINY + size: unpack for size, unpack in PAIRS.items() if size <= TINY_SIZE_MAX}
# what stands before a stamp of so many bytes: a tiny record, or a short one
_STAMP_HEADS = {size: tiny_record("T", bytes(size))[:-size] for size in PAIRS if size}
_STAMP_HEADS[0] = tiny_record("T", b"")
_STAMP_MAX = zigzag(REVISION_MAX)
_NO_OBJECT = ~(PROGRESS_MASK & ~FIELD_MASK)  # bits that the progress of an object has not
_number = int.from_bytes
_new = tuple.__new__  # what Id(...) and Change(...) call: half of their time


def plain_edit(packet: bytes) -> Change | None:
    """The change that a plain edit is; None: it is none."""
    end = len(packet)
    writes: list[Write] = []
    try:
        if packet[0] != _E or packet[1] != end - 2 or packet[2] != _I:
            return None
        size = packet[3]
        source, progress = PAIRS[size](packet, 4)
        at = 4 + size
        if packet[at] != _R:
            return None
        size = packet[at + 1]
        of_source, of_progress = PAIRS[size](packet, at + 2)
        at += 2 + size
        if (progress | of_progress) & _NO_OBJECT or not (of_source or of_progress):
            return None
        while at < end:
            size = packet[at] - TINY
            if not 0 <= size <= 2:
                return None
            at += 1
            number = packet[at] if size == 1 else _number(packet[at : at + size], "little")
            at += size
            letter, size_max = _SINGLE[packet[at]]
            start = at + 2
            at = start + packet[at + 1]
            revision, author = _STAMPS[packet[start]](packet, start + 1)  # the first one zig-zagged
            value_at = start + 1 + packet[start] - TINY  # 4 bytes of author at most: it fits
            if number > FIELD_MASK or revision > _STAMP_MAX or not 0 <= at - value_at <= size_max:
                return None
            if author == source:
                state = packet[start:at]
            else:
                stamp = zip_pair(revision, source)
                state = _STAMP_HEADS[len(stamp)] + stamp + packet[value_at:at]
            writes.append((_new(Id, (of_source, of_progress | number)), letter, state))
    except (IndexError, KeyError, struct.error):  # cut off, or of a size that nobody writes
        return None
    if at != end:
        return None
    id = _new(Id, (source, progress))
    block = _new(Id, (of_source, of_progress & ~BLOCK_MASK))
    return _new(Change, (id, writes, id, (block,), packet))
