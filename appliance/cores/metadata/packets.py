"""Packets: bytes of other replicas become values, or are refused; and how ours are written.

    C O Y E     a change: made once by its source, numbered, passed on verbatim
    H D V       a diff: who I am and what I have, fields of one block, the end
    P B         ping or pong, bye

A change is parsed and checked whole before any of it is applied. Its values carry the source of
its id from here on.

Taken as well, and never made, is what the first protocol says in another way: a handshake without
mode and trace, or even without an id, of a replica whose diff is a stream of changes; and an edit
of several objects, or of fields that are named as it named them.
"""

from typing import NamedTuple

from appliance.base.errors import PacketRefused
from appliance.base.limits import EDIT_OBJECTS_MAX
from appliance.cores.metadata.change import Change, Write
from appliance.cores.metadata.plain_edit import plain_edit
from appliance.cores.metadata.states import sourced
from appliance.formats.rdx.check import check_state
from appliance.formats.toytlv.ids import (
    BLOCK_MASK,
    FIELD_MASK,
    ID0,
    Id,
    first_field,
    unzip_id,
    zip_id,
)
from appliance.formats.toytlv.integers import unzip_int, zip_int
from appliance.formats.toytlv.records import TINY, record, take, take_as, tiny_record
from appliance.formats.toytlv.version_vectors import Vector, decode_vector, encode_vector

TRACE_SIZE = 10
MODE_READ, MODE_WRITE, MODE_LIVE = 1, 2, 4
_REASON_SIZE_MAX = 80  # bytes of what a peer says when it goes
MODE_ALL = MODE_READ | MODE_WRITE | MODE_LIVE
PING, PONG = b"ping", b"pong"
_F, _I, _M, _R, _S, _T, _V = (ord(letter) for letter in "FIMRSTV")


class Handshake(NamedTuple):
    """A parsed H: `last` names its sender's newest own packet."""

    last: Id
    mode: int
    vector: Vector
    trace: bytes
    raw: bytes
    is_first: bool = False  # of the first protocol: changes follow, and no V


class BlockDiff(NamedTuple):
    """A parsed D."""

    last: Id
    block: Id
    writes: list[Write]


class DiffEnd(NamedTuple):
    """A parsed V."""

    last: Id
    vectors: list[tuple[Id, Vector]]  # of each block that was sent


# --- reading --------------------------------------------------------------------------------------


def letter_of(packet: bytes) -> str:
    """The type of a whole record."""
    return chr(take(packet, 0, len(packet))[0])


def parse_change(packet: bytes) -> Change:
    """A C, O, Y or E. PacketRefused, with the rule that it breaks."""
    return plain_edit(packet) or parse_any_change(packet)


def parse_any_change(packet: bytes) -> Change:
    """As `parse_change`, of which each packet is read by the rules, a plain edit too."""
    end = len(packet)
    letter, at, stop = take(packet, 0, end)
    if stop != end:
        raise PacketRefused("trailing_bytes", f"after a packet of type {chr(letter)}")
    start, at = take_as(packet, at, end, _I)
    id = unzip_id(packet[start:at])
    if id.progress & FIELD_MASK:
        raise PacketRefused("id_with_field", f"packet {id}")
    ref = ID0
    if at < end:
        second, start, after = take(packet, at, end)
        if second == _R:
            ref, at = unzip_id(packet[start:after]), after
    if letter == ord("E"):
        return _edit(packet, at, id, ref)
    if letter == ord("C"):
        target = id if ref == ID0 else ref
        if target.progress & FIELD_MASK:
            raise PacketRefused("id_with_field", f"class {target}")
        state = packet[at:]
        check_state("C", state)
        return Change(id, [(target, "C", state)], id, (target.block,), packet)
    return _object(packet, at, id, ref, chr(letter))


def _object(packet: bytes, at: int, id: Id, ref: Id, letter: str) -> Change:
    if letter == "O" and ref == ID0:
        raise PacketRefused("object_without_class", f"object {id}")
    if letter == "Y" and ref != ID0:
        raise PacketRefused("replica_with_class", f"replica record {id}")
    writes: list[Write] = [(id, letter, zip_id(ref))]
    end, number = len(packet), 0
    while at < end:
        number += 1
        if number > FIELD_MASK:
            raise PacketRefused("field_too_large_number", f"more than {FIELD_MASK} fields")
        kind, start, at = _value(packet, at, end)
        state = sourced(kind, packet[start:at], id.source)  # checks it
        writes.append((Id(id.source, id.progress | number), kind, state))
    return Change(id, writes, Id(id.source, id.progress | number), (id.block,), packet)


def _edit(packet: bytes, at: int, id: Id, ref: Id) -> Change:
    """One object, or several: R of each stands before what is written of it."""
    writes: list[Write] = []
    objects: set[Id] = set()
    end = len(packet)
    while True:
        if ref == ID0:
            raise PacketRefused("edit_of_nothing", f"edit {id}")
        objects.add(ref.object)
        if len(objects) > EDIT_OBJECTS_MAX:
            raise PacketRefused("too_many_objects", f"edit {id}, at most {EDIT_OBJECTS_MAX}")
        if ref.field:
            at = _first_edited(packet, at, id, ref, writes)
        else:
            at = _edited(packet, at, id, ref, writes)
        if at == end:
            break
        letter, start, at = take(packet, at, end)
        if letter != _R:
            raise PacketRefused("unexpected_record", f"{chr(letter)} in edit {id}")
        ref = unzip_id(packet[start:at])
    blocks = tuple(dict.fromkeys(one.block for one in sorted(objects)))
    return Change(id, writes, id, blocks, packet)


def _edited(packet: bytes, at: int, id: Id, ref: Id, writes: list[Write]) -> int:
    """Fields of one object, each with its number; where the next object begins."""
    end = len(packet)
    while at < end:
        letter, start, after = take(packet, at, end)
        if letter == _R:
            break
        if letter not in (_F, TINY):
            raise PacketRefused("unexpected_record", f"{chr(letter)} in edit {id}")
        number = unzip_int(packet[start:after])
        if number > FIELD_MASK:
            raise PacketRefused("field_too_large_number", f"field {number}")
        kind, start, at = _value(packet, after, end)
        state = sourced(kind, packet[start:at], id.source)  # checks it
        writes.append((ref.with_field(number), kind, state))
    return at


def _first_edited(packet: bytes, at: int, id: Id, ref: Id, writes: list[Write]) -> int:
    """The field that R names by number and type, as the first protocol does; where it ends."""
    named = first_field(ref)
    if named is None:
        raise PacketRefused("id_with_field", f"edit of {ref}")
    kind, start, at = _value(packet, at, len(packet))
    if kind != named[1]:
        raise PacketRefused("id_with_field", f"{ref} is no field of type {kind}")
    writes.append((named[0], kind, sourced(kind, packet[start:at], id.source)))
    return at


def _value(packet: bytes, at: int, end: int) -> tuple[str, int, int]:
    """Letter, start and end of a value, which is not checked yet."""
    letter, start, stop = take(packet, at, end)
    if letter == TINY:
        raise PacketRefused("value_without_type", "a value stands in a tiny record")
    return chr(letter), start, stop


def parse_handshake(packet: bytes) -> Handshake:
    end = len(packet)
    _, at, _ = take(packet, 0, end)
    first = _first_handshake(packet, at)
    if first is not None:
        return first
    start, at = take_as(packet, at, end, _T)
    last = unzip_id(packet[start:at])
    start, at = take_as(packet, at, end, _M)
    mode = unzip_int(packet[start:at])
    if mode > MODE_ALL:
        raise PacketRefused("bad_mode", f"mode {mode}")
    letter, start, at = take(packet, at, end)
    if letter != _V:
        raise PacketRefused("unexpected_record", "a handshake has its vector third")
    vector = decode_vector(packet, start, at)
    start, at = take_as(packet, at, end, _S)
    if at - start != TRACE_SIZE:
        raise PacketRefused("bad_trace", f"{at - start} bytes, not {TRACE_SIZE}")
    return Handshake(last, mode, vector, packet[start:at], packet)


def _first_handshake(packet: bytes, at: int) -> Handshake | None:
    """The handshake of the first protocol: I, which may be missing, and V; None: it is none."""
    end = len(packet)
    letter, start, after = take(packet, at, end)
    last = ID0
    if letter in (_I, TINY):
        last = unzip_id(packet[start:after])
        letter, start, after = take(packet, after, end)
    if letter != _V:
        return None
    return Handshake(last, MODE_ALL, decode_vector(packet, start, after), b"", packet, True)


def parse_block_diff(packet: bytes) -> BlockDiff:
    end = len(packet)
    _, at, _ = take(packet, 0, end)
    start, at = take_as(packet, at, end, _T)
    last = unzip_id(packet[start:at])
    start, at = take_as(packet, at, end, _R)
    block = unzip_id(packet[start:at])
    writes: list[Write] = []
    while at < end:
        start, at = take_as(packet, at, end, _F)
        offset = unzip_int(packet[start:at])
        if offset + (block.progress & BLOCK_MASK) > BLOCK_MASK:
            raise PacketRefused("outside_of_block", f"offset {offset:x} in block {block}")
        letter, start, at = _value(packet, at, end)
        state = packet[start:at]
        check_state(letter, state)
        writes.append((Id(block.source, block.progress + offset), letter, state))
    return BlockDiff(last, block, writes)


def parse_diff_end(packet: bytes) -> DiffEnd:
    end = len(packet)
    _, at, _ = take(packet, 0, end)
    start, at = take_as(packet, at, end, _T)
    last = unzip_id(packet[start:at])
    vectors = []
    while at < end:
        start, at = take_as(packet, at, end, _V)
        begin, after = take_as(packet, start, at, _R)
        vectors.append((unzip_id(packet[begin:after]), decode_vector(packet, after, at)))
    return DiffEnd(last, vectors)


def parse_ping(packet: bytes) -> bytes:
    """PING or PONG."""
    _, at, end = take(packet, 0, len(packet))
    _, at = take_as(packet, at, end, _T)
    if packet[at:end] not in (PING, PONG):
        raise PacketRefused("bad_ping", "neither ping nor pong")
    return packet[at:end]


def parse_bye(packet: bytes) -> str:
    """The reason that the peer gives, cut to a line."""
    _, at, end = take(packet, 0, len(packet))
    _, at = take_as(packet, at, end, _T)
    return packet[at:end][:_REASON_SIZE_MAX].decode("utf-8", "replace")


# --- writing --------------------------------------------------------------------------------------


def change(letter: str, id: Id, ref: Id, body: bytes) -> bytes:
    return record(letter, record("I", zip_id(id)) + record("R", zip_id(ref)) + body)


def edited(field: int, letter: str, state: bytes) -> bytes:
    """One field of an E."""
    return tiny_record("F", zip_int(field)) + record(letter, state)


def handshake(last: Id, mode: int, vector: Vector, trace: bytes) -> bytes:
    assert len(trace) == TRACE_SIZE
    return record(
        "H",
        tiny_record("T", zip_id(last))
        + tiny_record("M", zip_int(mode))
        + record("V", encode_vector(vector))
        + record("S", trace),
    )


def block_diff(last: Id, block: Id, rows: list[tuple[Id, str, bytes]]) -> bytes:
    parts = [record("T", zip_id(last)), record("R", zip_id(block))]
    for id, letter, state in rows:
        assert id.block == block
        parts.append(record("F", zip_int(id.progress - block.progress)))
        parts.append(record(letter, state))
    return record("D", b"".join(parts))


def diff_end(last: Id, vectors: list[tuple[Id, Vector]]) -> bytes:
    parts = [record("T", zip_id(last))]
    for block, vector in vectors:
        parts.append(record("V", record("R", zip_id(block)) + encode_vector(vector)))
    return record("V", b"".join(parts))


def ping(word: bytes) -> bytes:
    return record("P", tiny_record("T", b"") + word)


def bye(last: Id, reason: str) -> bytes:
    return record("B", tiny_record("T", zip_id(last)) + reason.encode())
