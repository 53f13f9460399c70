"""Appending to the write-ahead ring: first the prepare, durable, then its witness, durable.

    append -> write prepare -> write witness -> clean -> acknowledgement (in settle)

Two writes to one slot never overlap. At most `wal_writes_max` prepares are in flight, which
bounds how many tails a crash can tear. If the slot came to belong to another header meanwhile,
the completion leaves it dirty.
"""

from collections.abc import Callable
from typing import Any

from appliance.base.limits import SECTOR_SIZE
from appliance.base.padding import is_zero
from appliance.cores.vsr import wants
from appliance.cores.vsr.effects import Buffers
from appliance.cores.vsr.member import Member
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE, whole_sectors

_PAD = bytes(SECTOR_SIZE)


def padded(buffers: Buffers) -> Buffers:
    """`buffers` with zeros to the next sector."""
    size = sum(len(b) for b in buffers)
    rest = -size % SECTOR_SIZE
    assert size > 0
    return [*buffers, _PAD[:rest]] if rest else buffers


def append(member: Member, message: Message) -> None:
    """Write a prepare whose header owns its slot."""
    header = message.header
    assert header.command == env.PREPARE
    assert header.op > 0
    slot = member.journal.slot(header.op)
    known = member.journal.headers[slot]
    assert known is not None
    assert known.digest == header.digest
    if not member.journal.dirty[slot]:
        return
    member.keep_prepare(message)
    writing = member.wal.prepares.get(slot)
    if writing is not None or slot in member.wal.witnesses:
        if writing is None or writing.header.digest != header.digest:
            member.wal.waiting[slot] = message
        return
    if len(member.wal.prepares) >= _writes_max(member):
        member.wal.queue.setdefault(header.digest, message)
        return
    _write_prepare(member, slot, message)


def _writes_max(member: Member) -> int:
    """Prepares in flight. A lone replica writes one after the other: with a hole below a later op
    it could not tell a torn append from a lost one, and there is nobody to ask.
    """
    return 1 if member.alone else member.geometry.wal_writes_max


def _write_prepare(member: Member, slot: int, message: Message) -> None:
    assert slot not in member.wal.prepares
    assert slot not in member.wal.witnesses
    member.wal.prepares[slot] = message
    member.journal.present[slot] = None
    address = member.geometry.wal_prepares_offset + slot * member.geometry.message_size_max
    member.write(
        address, padded([message.header.raw, message.body]), _on_prepare_written, slot, message
    )


def _on_prepare_written(member: Member, slot: int, message: Message) -> None:
    assert member.wal.prepares[slot] is message
    del member.wal.prepares[slot]
    digest = message.header.digest
    member.journal.present[slot] = digest
    owner = member.journal.headers[slot]
    if owner is not None and owner.digest == digest:
        if slot not in member.wal.waiting:
            write_witness(member, message.header)
    _next(member, slot)


def write_witness(member: Member, header: Header) -> None:
    """Write the header ring's entry of a prepare that is durable in the prepare ring."""
    slot = member.journal.slot(header.op)
    assert slot not in member.wal.witnesses
    member.wal.witnesses[slot] = header.digest
    address = member.geometry.wal_headers_offset + slot * SECTOR_SIZE
    member.write(
        address, [header.raw, _PAD[: SECTOR_SIZE - HEADER_SIZE]], _on_witness_written, slot, header
    )


def _on_witness_written(member: Member, slot: int, header: Header) -> None:
    assert member.wal.witnesses[slot] == header.digest
    del member.wal.witnesses[slot]
    owner = member.journal.headers[slot]
    if (
        owner is not None
        and owner.digest == header.digest
        and member.journal.present[slot] == header.digest
    ):
        member.journal.set_clean(header)
        member.clean_ops.append(header.op)
    _next(member, slot)


def _next(member: Member, slot: int) -> None:
    """Start what waited for this slot, then what waited for room."""
    if not member.wal.busy(slot):
        waiting = member.wal.waiting.pop(slot, None)
        if waiting is not None:
            _start(member, waiting)
    queue = member.wal.queue
    while queue and len(member.wal.prepares) < _writes_max(member):
        _start(member, queue.pop(next(iter(queue))))
        wants.ask_repair(member)  # there is room for what was not asked for


def _start(member: Member, message: Message) -> None:
    """Append again, if the slot still wants this prepare."""
    slot = member.journal.slot(message.header.op)
    owner = member.journal.headers[slot]
    if owner is not None and owner.digest == message.header.digest and member.journal.dirty[slot]:
        append(member, message)


def rewrite_witness(member: Member, slot: int) -> None:
    """At open: the prepare was found good and its witness was not."""
    assert 0 <= slot < member.journal.slot_count
    assert member.superblock is not None
    header = member.journal.headers[slot]
    if header is None:
        header = env.reserved(slot, member.cluster, member.shard)
        member.wal.witnesses[slot] = header.digest
        member.write(
            member.geometry.wal_headers_offset + slot * SECTOR_SIZE,
            [header.raw, _PAD[: SECTOR_SIZE - HEADER_SIZE]],
            _on_reserved_written,
            slot,
        )
    elif slot not in member.wal.witnesses:
        write_witness(member, header)


def _on_reserved_written(member: Member, slot: int) -> None:
    assert slot in member.wal.witnesses
    del member.wal.witnesses[slot]
    _next(member, slot)


def writing(member: Member, header: Header) -> bool:
    """Whether this very prepare is on its way to the disk."""
    slot = member.journal.slot(header.op)
    now = member.wal.prepares.get(slot)
    if now is not None and now.header.digest == header.digest:
        return True
    later = member.wal.waiting.get(slot)
    if later is not None and later.header.digest == header.digest:
        return True
    return member.wal.witnesses.get(slot) == header.digest or header.digest in member.wal.queue


def read_prepare(member: Member, header: Header, done: Callable[..., None], *args: Any) -> None:
    """Read and verify a prepare; `done(member, message or None, header, *args)`.

    The length asked for is the prepare's own, whole sectors: the padding is verified with it.
    """
    assert header.command == env.PREPARE
    assert header.op > 0
    slot = member.journal.slot(header.op)
    length = whole_sectors(HEADER_SIZE + header.body_size)
    address = member.geometry.wal_prepares_offset + slot * member.geometry.message_size_max
    member.read(address, length, _on_prepare_read, header, done, args)


def _on_prepare_read(
    member: Member,
    data: bytes | None,
    header: Header,
    done: Callable[..., None],
    args: tuple[Any, ...],
) -> None:
    done(member, parse_prepare(data, header), header, *args)


def parse_prepare(data: bytes | None, header: Header) -> Message | None:
    """The prepare in `data` if it is exactly the one named, padding included."""
    if data is None or bytes(data[:HEADER_SIZE]) != header.raw:
        return None
    end = HEADER_SIZE + header.body_size
    body = bytes(data[HEADER_SIZE:end])
    if not env.body_valid(header, body) or not is_zero(data[end:]):
        return None
    return Message(header, body)


def on_unreadable(member: Member, header: Header) -> None:
    """A slot that was believed readable is not: remember the hole, never deny it."""
    slot = member.journal.slot(header.op)
    if member.journal.present[slot] != header.digest or slot in member.wal.prepares:
        return  # overwritten or being written meanwhile
    owner = member.journal.headers[slot]
    if owner is not None and owner.digest == header.digest:
        member.mark("prepare_found_corrupt")
        member.journal.set_broken(slot)
    else:
        member.journal.present[slot] = None
