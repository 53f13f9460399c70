"""Chunks: finding them by place, verifying them by id, asking peers for them, serving them.

    wanted     of a checkpoint's state   ->  `state_sync`
               of sealed segments        ->  `backfill`
               found broken in a zone    ->  written where it belongs, here

The id of a chunk is a hash, so its source need not be trusted: the local disk is asked first where
it may have it, then any replica. What came from a peer is written before it counts.
"""

from collections.abc import Callable, Iterator, Sequence

from appliance.base.checksum import sha256
from appliance.base.errors import FormatError
from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr import wal, write_order
from appliance.cores.vsr.checkpoint import freeze_everything, zone_address
from appliance.cores.vsr.member import Member
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats import segment as seg
from appliance.formats.checkpoint import ChunkLocation
from appliance.formats.command import (
    CHUNK_ENTRY_SIZE,
    CHUNKS_PER_MESSAGE_MAX,
    decode_entry,
    encode_entry,
)
from appliance.formats.envelope import Message
from appliance.formats.geometry import MANIFEST_SIZE_MAX, RECORD_SIZE, whole_sectors

CHUNKS_PER_PEER_MAX = 4  # asked of one peer at once
CHUNK_PATIENCE_TICKS = 20  # then another peer is asked
READS_FOR_OTHERS_MAX = 16
MEND_TRIES_MAX = 20  # then no peer has it any more: the next checkpoints write everything anew


class Chunk:
    """A piece of a checkpoint or of a segment: what it hashes to, and where it lies."""

    __slots__ = ("id", "location")

    def __init__(self, chunk_id: bytes, location: ChunkLocation) -> None:
        assert len(chunk_id) == 32
        self.id = chunk_id
        self.location = location


class Wanted(Chunk):
    """A chunk that is to come into memory; `then(member, wanted, data)` gets it, verified."""

    __slots__ = ("then", "data", "reading", "asked_tick", "peer", "remote", "tries")

    def __init__(self, chunk_id: bytes, location: ChunkLocation, then: "Then") -> None:
        super().__init__(chunk_id, location)
        self.then = then
        self.data: bytes | None = None
        self.reading = False
        self.asked_tick = -CHUNK_PATIENCE_TICKS
        self.peer = b""  # who was asked last
        self.remote = False  # came from a peer, so the local copy has to be written
        self.tries = 0  # times that a peer was asked


Then = Callable[[Member, Wanted, bytes], None]


def matches(chunk: Chunk, data: bytes | memoryview) -> bool:
    """Whether `data` is the chunk wanted."""
    assert len(chunk.id) == 32
    if chunk.location.kind == ck.KIND_LEAF:
        return len(data) == chunk.location.count * RECORD_SIZE and seg.leaf_id(data) == chunk.id
    return sha256(data) == chunk.id


def local_address(member: Member, location: ChunkLocation) -> tuple[int, int]:
    """(address of the first sector, bytes to skip in it) of a chunk in our own data file."""
    geometry = member.geometry
    assert member.superblock is not None
    if location.kind in (ck.KIND_MANIFEST, ck.KIND_TABLE):
        return zone_address(member, location.number) + ck.zone_offset(geometry, location), 0
    extent = (
        geometry.data_size + location.number % member.superblock.segments_max * geometry.extent_size
    )
    if location.kind == ck.KIND_FOOTER:
        return extent + geometry.segment_data_size, 0
    offset = location.index * geometry.records_max * RECORD_SIZE
    assert location.kind == ck.KIND_LEAF
    assert extent % SECTOR_SIZE == 0
    return extent + offset - offset % SECTOR_SIZE, offset % SECTOR_SIZE


def footer_of(data: bytes | None, member: Member) -> bytes | None:
    """The footer at the start of `data`, without what follows it."""
    if data is None:
        return None
    try:
        return bytes(data[: seg.decode_footer(data, member.geometry).size])
    except FormatError:
        return None


# --- what is wanted -----------------------------------------------------------------------------


def _owners(member: Member) -> Iterator[dict[ChunkLocation, Wanted]]:
    """What is wanted, most urgent first. A checkpoint's zone still belongs to the one before until
    the superblock that names it is durable.
    """
    if member.fetch is not None and not member.installing:
        yield member.fetch.chunks
    if member.backfill is not None:
        yield member.backfill.chunks
    yield member.mending


def is_wanted(member: Member, chunk: Wanted) -> bool:
    """Whether `chunk` is not here yet and its owner still asks for it."""
    return chunk.data is None and any(
        owner.get(chunk.location) is chunk for owner in _owners(member)
    )


def read_local(member: Member, chunk: Wanted, size: int) -> None:
    """See whether our own disk has it, and ask peers if not. A footer's `size` is the largest that
    a footer can have.
    """
    assert chunk.data is None
    assert not chunk.reading
    assert size > 0
    address, skip = local_address(member, chunk.location)
    assert 0 <= skip < SECTOR_SIZE
    chunk.reading = True
    length = whole_sectors(skip + size)
    member.read(address, length, _on_local, chunk, skip, size)


def _on_local(member: Member, data: bytes | None, chunk: Wanted, skip: int, size: int) -> None:
    assert chunk.reading
    chunk.reading = False
    if not is_wanted(member, chunk):
        return  # another target meanwhile
    piece = None if data is None else bytes(data[skip : skip + size])
    if chunk.location.kind == ck.KIND_FOOTER:
        piece = footer_of(piece, member)
    if piece is not None and matches(chunk, piece):
        assert not chunk.remote
        chunk.then(member, chunk, piece)
        return
    member.mark("chunk_missing_locally")
    if member.alone and member.fetch is not None and chunk.location in member.fetch.chunks:
        member.halt(
            "CHECKPOINT_CORRUPT",
            f"{chunk.location} does not hash to its id and there is no peer to ask",
        )
    request(member)


def write_in_steps(
    member: Member,
    address: int,
    parts: Sequence[bytes | memoryview],
    done: Callable[..., None],
    *args: object,
) -> int:
    """Write what may be larger than a volume takes at once; the number of writes, each of which
    ends with `done(member, *args)`.
    """
    assert address % SECTOR_SIZE == 0
    raw = memoryview(b"".join(wal.padded([*parts])))
    step = member.geometry.message_size_max
    assert len(raw) % SECTOR_SIZE == 0
    assert step % SECTOR_SIZE == 0
    starts = range(0, len(raw), step)
    for start in starts:
        write_order.write(member, address + start, [raw[start : start + step]], done, *args)
    return len(starts)


# --- single chunks of a checkpoint zone ---------------------------------------------------------


def mend(member: Member, chunk: Chunk) -> None:
    """Fetch a table chunk that was found broken, and write it where it belongs."""
    assert chunk.location.kind == ck.KIND_TABLE
    assert chunk.location.number in member.manifests
    member.mending.setdefault(chunk.location, Wanted(chunk.id, chunk.location, _on_mended))
    freeze_everything(member)  # both zones are made whole in any case
    member.timeouts["chunks"].start()
    request(member)


def _on_mended(member: Member, chunk: Wanted, data: bytes) -> None:
    assert member.mending[chunk.location] is chunk
    del member.mending[chunk.location]
    assert chunk.location.number in member.manifests
    address, _ = local_address(member, chunk.location)
    write_order.write(member, address, wal.padded([data]), _on_mend_written)


def _on_mend_written(member: Member) -> None:
    member.mark("chunk_mended")


# --- asking and serving -------------------------------------------------------------------------


def request(member: Member) -> None:
    """Ask peers for chunks that are not here, a few of each at a time, first those of the
    checkpoint.
    """
    if member.alone:
        return
    wanted = [chunk for owner in _owners(member) for chunk in owner.values()]
    asked: dict[bytes, int] = {}
    for chunk in wanted:
        if chunk.data is None and member.tick - chunk.asked_tick < CHUNK_PATIENCE_TICKS:
            asked[chunk.peer] = asked.get(chunk.peer, 0) + 1
    missing = [
        c
        for c in wanted
        if c.data is None and not c.reading and member.tick - c.asked_tick >= CHUNK_PATIENCE_TICKS
    ]
    peers = [i for i in range(member.replica_count) if i != member.index]
    member.prng.shuffle(peers)
    for peer in peers:
        room = CHUNKS_PER_PEER_MAX - asked.get(member.members[peer], 0)
        batch, missing = missing[: max(0, room)], missing[max(0, room) :]
        if not batch:
            continue
        for chunk in batch:
            assert chunk.data is None
            chunk.asked_tick, chunk.peer = member.tick, member.members[peer]
            chunk.tries += 1
            if chunk.tries > MEND_TRIES_MAX:
                member.mending.pop(chunk.location, None)
        assert 0 < len(batch) <= CHUNKS_PER_PEER_MAX
        body = b"".join(encode_entry(c.id, ck.encode_location(c.location)) for c in batch)
        member.send(1 << peer, member.make(env.REQUEST_CHUNK, view=member.view, body=body), body)


def on_request_chunk(member: Member, message: Message) -> None:
    """Serve what we hold under exactly that id; about the rest stay silent.

    A zone may hold a whole chunk of a checkpoint that is not ours: of the one before, or of one
    whose writing was cut short. Its id tells, so whatever lies there is tried.
    """
    body = message.body
    assert 0 < len(body) <= CHUNK_ENTRY_SIZE * CHUNKS_PER_MESSAGE_MAX
    assert len(body) % CHUNK_ENTRY_SIZE == 0
    asker = member.members[message.sender]
    for offset in range(0, len(body), CHUNK_ENTRY_SIZE):
        chunk_id, raw = decode_entry(body, offset)
        location = ck.decode_location(raw, member.geometry)
        if location is None:
            return member.drop("request_chunk_invalid")
        _serve(member, Chunk(chunk_id, location), asker)
    return None


def _serve(member: Member, chunk: Chunk, asker: bytes) -> None:
    location = chunk.location
    geometry = member.geometry
    opening = member.fetch is not None and member.fetch.state.header.op == location.number
    if location.kind == ck.KIND_MANIFEST:
        raw = member.fetch.raw if opening else member.manifests.get(location.number)
        if raw:
            _send_chunk(member, chunk, raw, asker)
            return None
    by_checkpoint = location.kind in (ck.KIND_MANIFEST, ck.KIND_TABLE)
    if by_checkpoint and location.number % geometry.checkpoint_ops:
        return member.drop("request_chunk_invalid")
    if location.kind == ck.KIND_LEAF and member.state_ready:
        data = member.state_machine.leaf(location.number, location.index, location.count)
        if data is not None:
            return _send_chunk(member, chunk, data, asker)
    if member.reads_for_chunks >= READS_FOR_OTHERS_MAX:
        return member.drop("request_chunk_busy")
    sizes = {
        ck.KIND_MANIFEST: MANIFEST_SIZE_MAX,
        ck.KIND_TABLE: geometry.table_chunk_size,
        ck.KIND_FOOTER: geometry.footer_size_max,
        ck.KIND_LEAF: location.count * RECORD_SIZE,
    }
    assert location.kind in sizes
    address, skip = local_address(member, location)
    assert 0 <= member.reads_for_chunks < READS_FOR_OTHERS_MAX
    member.reads_for_chunks += 1
    length = whole_sectors(skip + sizes[location.kind])
    member.read(address, length, _on_served, chunk, skip, sizes[location.kind], asker)
    return None


def _on_served(
    member: Member, data: bytes | None, chunk: Chunk, skip: int, size: int, asker: bytes
) -> None:
    assert member.reads_for_chunks > 0
    assert size > 0
    member.reads_for_chunks -= 1
    piece = None if data is None else bytes(data[skip : skip + size])
    if chunk.location.kind == ck.KIND_FOOTER:
        piece = footer_of(piece, member)
    elif chunk.location.kind == ck.KIND_MANIFEST and piece is not None:
        piece = piece[: ck.size_of(piece)]
    if piece is not None:
        _send_chunk(member, chunk, piece, asker)


def _send_chunk(member: Member, chunk: Chunk, data: bytes, asker: bytes) -> None:
    if not matches(chunk, data):
        return member.drop("request_chunk_other_id")
    body = encode_entry(chunk.id, ck.encode_location(chunk.location)) + data
    member.count("chunks_served")
    member.send_to(asker, member.make(env.CHUNK, view=member.view, body=body), body)
    return None


def _wanted(member: Member, body: bytes | memoryview) -> Wanted | None:
    """The chunk that a message brings, if it is still wanted."""
    assert len(body) >= CHUNK_ENTRY_SIZE
    chunk_id, raw = decode_entry(body)
    location = ck.decode_location(raw, member.geometry)
    if location is not None:
        for owner in _owners(member):
            chunk = owner.get(location)
            if chunk is not None and chunk.data is None and chunk.id == chunk_id:
                return chunk
    return None


def ignores_chunk(member: Member, message: Message) -> str | None:
    """Why a chunk is of no use; None: it is, if it hashes to its id."""
    _, raw = decode_entry(message.body)
    if ck.decode_location(raw, member.geometry) is None:
        return "chunk_invalid"
    return None if _wanted(member, message.body) is not None else "chunk_not_wanted"


def on_chunk(member: Member, message: Message) -> None:
    ignored = ignores_chunk(member, message)
    if ignored is not None:
        return member.drop(ignored)
    chunk = _wanted(member, message.body)
    assert chunk is not None
    assert chunk.data is None
    data = bytes(message.body[CHUNK_ENTRY_SIZE:])
    if not matches(chunk, data):
        return member.drop("chunk_does_not_match")
    assert not chunk.remote
    chunk.remote = True
    chunk.then(member, chunk, data)
    request(member)
    return None
