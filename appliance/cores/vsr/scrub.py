"""Reading at leisure what nobody asked for, so that damage is found while a peer still has the
bytes.

One item a turn, round and round:

    superblock -> slots of both rings -> reply slots -> chunks of the last two checkpoints ->
    the open segment, and sealed ones that no checkpoint names yet -> sealed segments

Told to hurry it reads at each tick, until all was read once more.

What is found broken is only noted here; `repair` and `chunks` mend it like any other loss.
"""

from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.base.padding import is_zero
from appliance.cores.vsr import backfill, chunks, replies, reported, wal, wants, write_order
from appliance.cores.vsr.checkpoint import zone_address
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats import checkpoint as ck
from appliance.formats import segment as seg
from appliance.formats import superblock as sb
from appliance.formats.checkpoint import ChunkLocation
from appliance.formats.envelope import Header
from appliance.formats.geometry import (
    HEADER_SIZE,
    RECORD_SIZE,
    SUPERBLOCK_COPY_SIZE,
    SUPERBLOCK_COPY_STRIDE,
    TABLES,
    whole_sectors,
)
from appliance.formats.local import SCRUB
from appliance.formats.record import sealed

OPEN_SEGMENTS = 2  # the ring holds as many
ROUNDS_HURRIED = 2  # within which all is read that is there now
SEGMENT_PATIENCE_TURNS = 1000  # then the rest of the round goes on without this segment


class Tour:
    """Where the round stands: a kind of item, and the next one of it."""

    __slots__ = (
        "kind",
        "next",
        "segment",
        "id",
        "footer",
        "rounds",
        "hurried",
        "leisure",
        "busy",
        "waited",
    )

    def __init__(self) -> None:
        self.kind = 0
        self.next = 0
        self.segment = -1  # sealed segment being read, downwards
        self.id = b""
        self.footer = b""
        self.rounds = 0
        self.hurried = 0  # until so many rounds are over
        self.leisure = 0  # ticks between two items while there is no hurry; 0: as it is now
        self.busy = False  # an item is being read
        self.waited = 0  # turns spent waiting for a segment to be refilled


def hurry(member: Member, asked: bytes | memoryview) -> None:
    """Read at each tick, if that is asked: the round under way has read a part already, so one more
    follows it."""
    tour, timeout = member.tour, member.timeouts["scrub"]
    if asked != SCRUB or tour is None:
        return
    tour.leisure = tour.leisure or timeout.after
    tour.hurried = tour.rounds + ROUNDS_HURRIED
    timeout.start(1)


def on_timeout(member: Member) -> None:
    """Read the next item, unless the member has better things to do."""
    tour = member.tour
    if tour.busy or member.status != Status.NORMAL or not member.state_ready or member.installing:
        return
    if tour.leisure and tour.rounds >= tour.hurried:
        member.timeouts["scrub"].start(tour.leisure)
        tour.leisure = 0
    _KINDS[tour.kind](member, tour)
    assert 0 <= tour.kind < len(_KINDS)


def _turn(tour: Tour) -> None:
    """On to the next kind of item."""
    assert not tour.busy
    tour.next = 0
    tour.segment = -1
    tour.kind += 1
    if tour.kind == len(_KINDS):
        tour.kind = 0
        tour.rounds += 1


def _superblock(member: Member, tour: Tour) -> None:
    copy = tour.next
    if copy == SUPERBLOCK_COPIES or member.superblock_writing is not None:
        return _turn(tour)
    tour.next += 1
    tour.busy = True
    member.read(
        copy * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE, _on_superblock, copy, member.superblock
    )
    return None


def _on_superblock(member: Member, data: bytes | None, copy: int, block: sb.Superblock) -> None:
    assert member.tour.busy
    member.tour.busy = False
    if member.superblock is not block or member.superblock_writing is not None:
        return  # written meanwhile
    if data != sb.encode(block, copy):
        member.mark("scrub_found_superblock")
        member.persist()


# --- the write-ahead rings ----------------------------------------------------------------------


def _slot(member: Member, tour: Tour) -> None:
    journal = member.journal
    while tour.next < journal.slot_count:
        slot = tour.next
        tour.next += 1
        header = journal.headers[slot]
        if header is None or header.op == 0 or journal.dirty[slot] or slot in member.wal.prepares:
            continue
        tour.busy = True
        member.read(
            member.geometry.wal_headers_offset + slot * SECTOR_SIZE,
            SECTOR_SIZE,
            _on_witness,
            header,
        )
        return
    _turn(tour)


def _on_witness(member: Member, data: bytes | None, header: Header) -> None:
    assert member.tour.busy
    slot = member.journal.slot(header.op)
    if member.journal.clean(header) and slot not in member.wal.witnesses:
        if data is None or bytes(data) != header.raw.ljust(SECTOR_SIZE, b"\0"):
            member.mark("scrub_found_witness")
            member.journal.set_dirty(slot, 1)
            wal.write_witness(member, header)
    wal.read_prepare(member, header, _on_prepare)


def _on_prepare(member: Member, message: object, header: Header) -> None:
    assert member.tour.busy
    member.tour.busy = False
    if message is None:
        member.mark("scrub_found_prepare")
        wal.on_unreadable(member, header)
        wants.ask_repair(member)


# --- replies ------------------------------------------------------------------------------------


def _reply(member: Member, tour: Tour) -> None:
    rows = member.sessions.rows
    while tour.next < len(rows):
        row = tour.next
        tour.next += 1
        entry = rows[row]
        if (
            entry is None
            or entry.reply is None
            or entry.dirty
            or entry.faulty
            or replies.writing(member, row)
        ):
            continue
        tour.busy = True
        length = whole_sectors(HEADER_SIZE + entry.reply.body_size)
        member.read(replies.address(member, row), length, _on_reply, row, entry.reply)
        return
    _turn(tour)


def _on_reply(member: Member, data: bytes | None, row: int, reply: Header) -> None:
    assert member.tour.busy
    member.tour.busy = False
    entry = member.sessions.rows[row]
    if entry is None or entry.reply is not reply or entry.dirty or replies.writing(member, row):
        return
    if wal.parse_prepare(data, reply) is not None:
        return
    member.mark("scrub_found_reply")
    if entry.body is not None:
        replies.write(member, row, reply, entry.body, _written)
        return
    entry.faulty = True
    member.replies_wanted.add(row)
    wants.ask_repair(member)


def _written(member: Member) -> None:
    """Nobody waits for this one."""


# --- checkpoints --------------------------------------------------------------------------------


def _chunk(member: Member, tour: Tour) -> None:
    """Manifest and table chunks of the checkpoints whose manifests we hold, the newest first."""
    items: list[tuple[bytes, ChunkLocation, int]] = []
    for op, raw in sorted(member.manifests.items(), reverse=True):
        items.append((ck.checkpoint_id(raw), ChunkLocation(ck.KIND_MANIFEST, 0, 0, op), len(raw)))
        manifest = ck.decode(raw, member.geometry)
        for name in TABLES:
            for i, chunk_id in enumerate(manifest.tables[name].chunk_ids):
                index = ck.table_chunk_index(member.geometry, name, i)
                location = ChunkLocation(ck.KIND_TABLE, 0, index, op)
                items.append((chunk_id, location, member.geometry.table_chunk_size))
    if tour.next >= len(items):
        return _turn(tour)
    chunk_id, location, size = items[tour.next]
    tour.next += 1
    tour.busy = True
    address = zone_address(member, location.number) + ck.zone_offset(member.geometry, location)
    length = whole_sectors(size)
    member.read(address, length, _on_chunk, chunks.Chunk(chunk_id, location), size)
    return None


def _on_chunk(member: Member, data: bytes | None, chunk: chunks.Chunk, size: int) -> None:
    assert member.tour.busy
    member.tour.busy = False
    good = data is not None and chunks.matches(chunk, bytes(data[:size])) and is_zero(data[size:])
    if good or chunk.location.number not in member.manifests:
        return  # or overwritten meanwhile
    member.mark("scrub_found_chunk")
    if chunk.location.kind == ck.KIND_MANIFEST:
        raw = member.manifests[chunk.location.number]
        address = zone_address(member, chunk.location.number)
        write_order.write(member, address, wal.padded([raw]), _written)
    else:
        chunks.mend(member, chunk)


# --- the open segment ---------------------------------------------------------------------------


def _open(member: Member, tour: Tour) -> None:
    """Leaves that no checkpoint names as sealed: what is durable must be what the ring holds."""
    machine, size = member.state_machine, member.geometry.message_size_max
    first = reported.newest_sealed(member) + 1
    while tour.next < OPEN_SEGMENTS * member.geometry.leaf_count_max:
        segment, piece = divmod(tour.next, member.geometry.leaf_count_max)
        tour.next += 1
        offset = piece * size
        wanted = machine.durable_sectors(first + segment, offset, size)
        if wanted:
            address = _extent(member, first + segment) + offset
            tour.busy = True
            member.read(address, len(wanted), _on_open, first + segment, address, wanted)
            return
    _turn(tour)


def _extent(member: Member, number: int) -> int:
    """The address of the extent of segment `number`."""
    return chunks.local_address(member, ChunkLocation(ck.KIND_LEAF, 0, 0, number))[0]


def _on_open(member: Member, data: bytes | None, number: int, address: int, wanted: bytes) -> None:
    """Write again what the medium lost: the ring has it, and is the records' own memory."""
    assert member.tour.busy
    member.tour.busy = False
    if data == wanted or not member.state_machine.in_ring(number):
        return
    if not _records_whole(wanted, address - _extent(member, number)):
        member.mark("scrub_found_ring")  # what is wrong is the memory
        return
    member.mark("scrub_found_open_segment")
    write_order.write(member, address, [wanted], _written)


def _records_whole(data: bytes, offset: int) -> bool:
    """Whether each record that lies in `data` as a whole, from `offset` on in a segment, has the
    CRCs it was stored with."""
    first = -offset % RECORD_SIZE
    return all(sealed(data, at) for at in range(first, len(data) - RECORD_SIZE + 1, RECORD_SIZE))


# --- sealed segments ----------------------------------------------------------------------------


def _segment(member: Member, tour: Tour) -> None:
    """Footer and leaves of each sealed segment, the newest first."""
    # sealed segments are being refilled: see again when that is done
    if member.backfill is not None:
        tour.waited += 1
        if tour.waited < SEGMENT_PATIENCE_TURNS:
            return None
        if member.backfill.low == member.backfill.number == tour.segment:
            backfill.end(member)  # no peer has it
        return _turn(tour)
    tour.waited = 0
    if tour.segment < 0 and not _first_segment(member, tour):
        return _turn(tour)
    oldest = member.state_machine.oldest_segment
    if tour.segment < oldest:
        return _turn(tour)  # it was dropped meanwhile
    geometry = member.geometry
    if not tour.footer:
        address, _ = chunks.local_address(member, ChunkLocation(ck.KIND_FOOTER, 0, 0, tour.segment))
        tour.busy = True
        member.read(address, whole_sectors(geometry.footer_size_max), _on_footer, tour.segment)
        return None
    footer = seg.decode_footer(tour.footer, geometry)
    ids = seg.footer_leaf_ids(tour.footer, footer)
    if tour.next < len(ids):
        records = seg.leaf_record_count(geometry, tour.next)
        location = ChunkLocation(ck.KIND_LEAF, records, tour.next, tour.segment)
        chunk = chunks.Chunk(ids[tour.next], location)
        address, skip = chunks.local_address(member, chunk.location)
        length = whole_sectors(skip + records * RECORD_SIZE)
        tour.next += 1
        tour.busy = True
        member.read(address, length, _on_leaf, chunk, skip, tour.segment)
        return None
    tour.segment -= 1
    tour.next, tour.id, tour.footer = 0, footer.previous_id, b""
    if tour.segment < oldest:
        return _turn(tour)
    return None


def _first_segment(member: Member, tour: Tour) -> bool:
    """Begin with the newest that is durable, if there is one."""
    tour.segment = reported.newest_durable(member)
    tour.id, tour.footer, tour.next = member.reports.ids.get(tour.segment, b""), b"", 0
    return tour.segment >= 0


def _on_footer(member: Member, data: bytes | None, number: int) -> None:
    assert member.tour.busy
    tour = member.tour
    tour.busy = False
    if tour.segment != number:
        return
    footer = chunks.footer_of(data, member)
    if footer is not None and seg.segment_id(footer) == tour.id and data is not None:
        end = whole_sectors(len(footer))
        if not is_zero(data[len(footer) : end]):
            _write_footer(member, number, footer)
        tour.footer = footer
        previous = seg.decode_footer(footer, member.geometry).previous_id
        reported.learn(member, number - 1, previous)
        return
    _mend_segment(member, tour, number)


def _write_footer(member: Member, number: int, footer: bytes) -> None:
    """Write again a footer that is whole, for what rotted behind it: no peer is asked for that."""
    member.mark("scrub_found_segment")
    if number >= member.state_machine.oldest_segment:  # else its extent may be another one's
        address, _ = chunks.local_address(member, ChunkLocation(ck.KIND_FOOTER, 0, 0, number))
        write_order.write(member, address, wal.padded([footer]), _written)


def _on_leaf(
    member: Member, data: bytes | None, chunk: chunks.Chunk, skip: int, number: int
) -> None:
    assert member.tour.busy
    tour = member.tour
    tour.busy = False
    if tour.segment != number:
        return
    size = chunk.location.count * RECORD_SIZE
    if data is None or not chunks.matches(chunk, bytes(data[skip : skip + size])):
        _mend_segment(member, tour, number)


def _mend_segment(member: Member, tour: Tour, number: int) -> None:
    """Refill this segment from peers; what is whole in it stays.

    The tour goes on at its next turn.
    """
    assert not tour.busy
    member.mark("scrub_found_segment")
    if member.backfill is None:
        backfill.begin(member, number, tour.id, number)
    tour.next, tour.footer = 0, b""


_KINDS = (_superblock, _slot, _reply, _chunk, _open, _segment)
