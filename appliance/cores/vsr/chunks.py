"""Whole states: reading a checkpoint at open, fetching a peer's, mending its chunks, and
refilling sealed segments.

    Fetch      manifest -> table chunks, leaves of the open segment -> the state of the checkpoint
    Backfill   newest sealed segment -> footer -> leaves -> the one before -> ... -> none missing

A chunk is found by its place and verified by its id, a hash, so its source need not be trusted:
the local disk is asked first where it may have it, then any replica. What came from a peer is
written before it counts.
"""

from collections.abc import Callable
from typing import Protocol

from appliance.base.checksum import sha256
from appliance.base.errors import FormatError
from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr import membership, wal
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.checkpoint import zone_address
from appliance.cores.vsr.member import Member, Status
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats import segment as seg
from appliance.formats import superblock as sb
from appliance.formats.checkpoint import Place
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import MANIFEST_SIZE_MAX, RECORD_SIZE, TABLES
from appliance.formats.membership import Configuration
from appliance.formats.superblock import CheckpointState

CHUNKS_PER_MESSAGE_MAX = 32
CHUNKS_PER_PEER_MAX = 4  # asked of one peer at once
CHUNK_PATIENCE_TICKS = 20  # then another peer is asked
CHUNK_ENTRY_SIZE = 48  # id 32, place 16
READS_FOR_OTHERS_MAX = 16


class Chunk:
    """One wanted piece."""

    __slots__ = ("id", "place", "data", "reading", "asked_tick", "peer", "remote", "tries")

    def __init__(self, chunk_id: bytes, place: Place) -> None:
        self.id = chunk_id
        self.place = place
        self.data: bytes | None = None
        self.reading = False
        self.asked_tick = -CHUNK_PATIENCE_TICKS
        self.peer = -1
        self.remote = False  # came from a peer, so the local copy has to be written
        self.tries = 0  # times that a peer was asked


class Fetch:
    """The state of one checkpoint on its way into memory."""

    __slots__ = ("state", "manifest", "raw", "chunks", "writes", "leaves_written")

    def __init__(self, state: CheckpointState) -> None:
        self.state = state
        self.manifest: ck.Manifest | None = None
        self.raw = b""
        self.chunks: dict[Place, Chunk] = {}
        self.writes = 0
        self.leaves_written = False


class Backfill:
    """Sealed segments from `number` down to `low`, one at a time."""

    __slots__ = ("number", "id", "low", "chunks", "footer", "writes")

    def __init__(self, number: int, segment_id: bytes, low: int) -> None:
        self.number = number
        self.id = segment_id
        self.low = low
        self.chunks: dict[Place, Chunk] = {}
        self.footer: bytes = b""
        self.writes = -1  # not begun


def matches(chunk: Chunk, data: bytes | memoryview) -> bool:
    """Whether `data` is the chunk wanted."""
    if chunk.place.kind == ck.KIND_LEAF:
        return len(data) == chunk.place.count * RECORD_SIZE and seg.leaf_id(data) == chunk.id
    return sha256(data) == chunk.id


# --- state sync: deciding and installing --------------------------------------------------------


class Announced(Protocol):
    """What a start_view says, as far as a state sync needs it."""

    @property
    def state(self) -> CheckpointState: ...
    @property
    def configuration(self) -> Configuration: ...
    @property
    def headers(self) -> list[Header]: ...


def consider(member: Member, header: Header, announced: Announced) -> bool:
    """Whether a start_view was consumed because its checkpoint replaces ours."""
    geometry = member.geometry
    state, headers = announced.state, announced.headers
    own, theirs = member.checkpoint_op, state.header.op
    if theirs <= own or theirs <= member.commit_min:
        return False
    commit_max = max(member.commit_max, header.commit_num)
    following = geometry.checkpoint_next(own)
    if not geometry.durable(following, commit_max) and member.agreed_known:
        return False
    far = geometry.durable(following + geometry.checkpoint_ops, commit_max)
    # A log of which nothing fits our ring can be joined in no other way.
    out_of_reach = min(headers[-1].op, theirs) > geometry.prepare_max(own)
    if not far and not member.sync_asked and not out_of_reach and member.agreed_known:
        return False
    if member.checkpointing is not None or member.installing:
        member.mark("sync_waits_for_a_checkpoint")
        return True
    member.learn_members(announced.configuration)
    _install(member, state, header, headers)
    return True


def _install(member: Member, state: CheckpointState, header: Header, headers: list[Header]) -> None:
    """One superblock write makes the peer's checkpoint and the view's log ours, atomically."""
    member.mark("sync_started")
    assert member.checkpoint is not None
    fitting = [h for h in headers if h.op <= member.geometry.prepare_max(state.header.op)]
    assert fitting
    if member.sync_op_min == 0:
        member.sync_op_min = member.commit_min + 1
    if member.sync_log_seq == 0:
        member.sync_log_seq = member.checkpoint.log_seq + 1
    member.sync_op_max = state.header.op
    vc.leave_normal(member, Status.NORMAL)
    member.view = member.log_view = header.view
    member.heartbeat_ns = 0
    member.checkpoint = state
    member.checkpoint_next = state
    member.checkpoint_applied = state.header.op
    member.checkpoint_due = False
    applied = member.commit_min
    member.commit_min = state.header.op
    member.commit_reading = -1
    member.learn_commit(max(header.commit_num, state.header.op))
    _replace_log(member, state, fitting, applied)
    member.view_headers = headers[: member.geometry.pipeline_max + 1]
    member.view_headers_kind = sb.KIND_SV
    member.state_ready = False
    member.state_machine.reset()
    member.sessions = type(member.sessions)(member.geometry)
    member.replies_wanted.clear()
    member.backfill = None
    member.sync_asked = False
    begin(member, local=False)
    member.timeouts["heartbeat_lost"].start(10 + member.prng.below(4))
    member.timeouts["repair"].start()
    member.timeouts["repair_sync"].start()
    member.persist()


def _replace_log(
    member: Member, state: CheckpointState, fitting: list[Header], applied: int
) -> None:
    """Keep of the old log what lies in the new checkpoint's window; the rest is history or never
    was. What lies between the op applied last here and the checkpoint was never checked: some of
    it may belong to a log that was cut.
    """
    journal = member.journal
    head = fitting[0].op
    oldest = state.header.op - member.geometry.checkpoint_ops
    for slot, known in enumerate(journal.headers):
        if known is None:
            journal.forget_faults(slot)
        elif known.op > head or known.op < oldest or applied < known.op < state.header.op:
            journal.forget_header(slot)
            journal.forget_faults(slot)
    for known in reversed([*fitting, state.header]):
        vc.install_header(member, known)
    member.op = head
    member.chain_head = b""


# --- a checkpoint's state -----------------------------------------------------------------------


def begin(member: Member, *, local: bool) -> None:
    """Bring the state of our checkpoint into memory: from disk where `local`, else from peers."""
    state = member.checkpoint
    assert state is not None
    if state.header.op == 0:
        member.fetch = None
        member.state_ready = True
        return
    fetch = Fetch(state)
    member.fetch = fetch
    chunk = Chunk(state.checkpoint_id, Place(ck.KIND_MANIFEST, 0, 0, state.header.op))
    fetch.chunks[chunk.place] = chunk
    member.timeouts["chunks"].start()
    if local:
        _read_local(member, chunk, state.manifest_size, _on_fetched)


def _read_local(member: Member, chunk: Chunk, size: int, then: Callable[..., None]) -> None:
    """Read a chunk from our own disk; `then(member, chunk, data, owner)` gets what is there,
    unverified.
    """
    address, skip = local_address(member, chunk.place)
    chunk.reading = True
    length = -(-(skip + size) // SECTOR_SIZE) * SECTOR_SIZE
    owner = member.fetch if member.fetch is not None else member.backfill
    member.read(address, length, _on_local, chunk, skip, size, then, owner)


def _on_local(
    member: Member,
    data: bytes | None,
    chunk: Chunk,
    skip: int,
    size: int,
    then: Callable[..., None],
    owner: object,
) -> None:
    chunk.reading = False
    if owner is not member.fetch and owner is not member.backfill:
        return  # another target meanwhile
    piece = None if data is None else bytes(data[skip : skip + size])
    if piece is not None and matches(chunk, piece):
        then(member, chunk, piece)
        return
    member.mark("chunk_missing_locally")
    if member.alone and owner is member.fetch:
        member.halt(
            "CHECKPOINT_CORRUPT",
            f"{chunk.place} does not hash to its id and there is no peer to ask",
        )
    request(member)


def local_address(member: Member, place: Place) -> tuple[int, int]:
    """(address of the first sector, bytes to skip in it) of a chunk in our own data file."""
    geometry = member.geometry
    assert member.superblock is not None
    if place.kind in (ck.KIND_MANIFEST, ck.KIND_TABLE):
        return zone_address(member, place.number) + ck.zone_offset(geometry, place), 0
    extent = (
        geometry.data_size + place.number % member.superblock.segments_max * geometry.extent_size
    )
    if place.kind == ck.KIND_FOOTER:
        return extent + geometry.segment_data_size, 0
    offset = place.index * geometry.records_max * RECORD_SIZE
    return extent + offset - offset % SECTOR_SIZE, offset % SECTOR_SIZE


def _on_fetched(member: Member, chunk: Chunk, data: bytes) -> None:
    """A chunk of the checkpoint's state is here and verified."""
    fetch = member.fetch
    if fetch is None or fetch.chunks.get(chunk.place) is not chunk or chunk.data is not None:
        return
    chunk.data = data
    if chunk.remote and chunk.place.kind != ck.KIND_LEAF:
        address, _ = local_address(member, chunk.place)
        fetch.writes += 1
        member.write(address, wal.padded([data]), _on_chunk_written, fetch)
    if chunk.place.kind == ck.KIND_MANIFEST:
        _open_manifest(member, fetch, data, local=not chunk.remote)


def _on_chunk_written(member: Member, fetch: Fetch) -> None:
    fetch.writes -= 1


def _open_manifest(member: Member, fetch: Fetch, raw: bytes, *, local: bool) -> None:
    """Now the other chunks are known by id."""
    geometry = member.geometry
    manifest = ck.decode(raw, geometry)  # its hash is what the group agreed on
    fetch.manifest, fetch.raw = manifest, raw
    op = fetch.state.header.op
    wanted: list[tuple[Chunk, int]] = []
    for name in TABLES:
        for i, chunk_id in enumerate(manifest.tables[name].chunk_ids):
            place = Place(ck.KIND_TABLE, 0, ck.table_chunk_index(geometry, name, i), op)
            wanted.append((Chunk(chunk_id, place), geometry.table_chunk_size))
    number, count = divmod(manifest.log_seq, geometry.segment_records)
    for i, chunk_id in enumerate(manifest.leaf_ids):
        records = min(geometry.records_max, count - i * geometry.records_max)
        place = Place(ck.KIND_LEAF, records, i, number)
        wanted.append((Chunk(chunk_id, place), records * RECORD_SIZE))
    for chunk, size in wanted:
        fetch.chunks[chunk.place] = chunk
        if local or not member.sync_op_max:
            _read_local(member, chunk, size, _on_fetched)
    request(member)


def advance(member: Member) -> None:
    """Finish a fetch whose chunks are all here; go on with the backfill."""
    fetch = member.fetch
    if (
        fetch is not None
        and fetch.manifest is not None
        and fetch.writes == 0
        and not member.installing
    ):
        if all(c.data is not None for c in fetch.chunks.values()):
            if not fetch.leaves_written:
                _write_leaves(member, fetch)
            if fetch.writes == 0:
                _finish(member, fetch)
    if member.backfill is not None:
        _advance_backfill(member)


def _leaves(fetch: Fetch) -> list[Chunk]:
    leaves = [c for c in fetch.chunks.values() if c.place.kind == ck.KIND_LEAF]
    return sorted(leaves, key=lambda c: c.place.index)


def _write_leaves(member: Member, fetch: Fetch) -> None:
    """Leaves share sectors, so what came from peers is written together with what was here."""
    fetch.leaves_written = True
    leaves = _leaves(fetch)
    if not any(c.remote for c in leaves):
        return
    address, _ = local_address(member, Place(ck.KIND_LEAF, 1, 0, leaves[0].place.number))
    _write_in_steps(member, address, [c.data for c in leaves], _on_chunk_written, fetch)


def _finish(member: Member, fetch: Fetch) -> None:
    """Let the state machine and the sessions stand on what was fetched."""
    geometry, manifest, op = member.geometry, fetch.manifest, fetch.state.header.op
    assert manifest is not None
    tables: dict[str, list[bytes]] = {}
    for name in TABLES:
        places = [
            Place(ck.KIND_TABLE, 0, ck.table_chunk_index(geometry, name, i), op)
            for i in range(len(manifest.tables[name].chunk_ids))
        ]
        tables[name] = [fetch.chunks[p].data for p in places]  # type: ignore[misc]
    number = manifest.log_seq // geometry.segment_records
    leaves = [c.data for c in _leaves(fetch) if c.data is not None]
    member.state_machine.restore(manifest, tables, leaves)
    known = b"".join(tables["members"])
    high = manifest.tables["members"].row_high_water * geometry.table_row_size("members")
    membership.load_table(member, known[:high], manifest.epoch)
    rows = b"".join(tables["sessions"])
    member.sessions.load(
        rows[: manifest.tables["sessions"].row_high_water * geometry.table_row_size("sessions")]
    )
    if member.sync_op_max == op:  # the reply slots here are of another time
        for entry in member.sessions.entries.values():
            entry.faulty = True
            member.replies_wanted.add(entry.row)
    member.manifests[op] = fetch.raw
    member.fetch = None
    member.state_ready = True
    member.repair_due = True
    member.acknowledge_tail = True
    member.timestamp_last = max(member.timestamp_last, fetch.state.header.timestamp)
    member.mark("state_restored")
    if member.sync_log_seq and number > 0:
        low = (member.sync_log_seq - 1) // geometry.segment_records
        member.backfill = Backfill(
            number - 1, manifest.newest_segment_id, max(low, manifest.oldest_segment)
        )
        member.timeouts["chunks"].start()
    elif member.sync_log_seq:
        member.backfill = None


# --- sealed segments ----------------------------------------------------------------------------


def _advance_backfill(member: Member) -> None:
    """One segment at a time, newest first: its footer, its leaves, then both are written."""
    work = member.backfill
    if work.number < work.low:
        member.backfill = None
        member.acknowledge_tail = True
        member.mark("backfill_done")
        return
    geometry = member.geometry
    if not work.chunks:
        chunk = Chunk(work.id, Place(ck.KIND_FOOTER, 0, 0, work.number))
        work.chunks[chunk.place] = chunk
        address, _ = local_address(member, chunk.place)
        chunk.reading = True
        length = -(-geometry.footer_size_max // SECTOR_SIZE) * SECTOR_SIZE
        member.read(address, length, _on_local_footer, chunk, work)
    if any(c.data is None for c in work.chunks.values()) or len(work.chunks) == 1:
        return
    if work.writes < 0:
        _write_segment(member, work)
    if work.writes == 0:
        footer = seg.decode_footer(work.footer, geometry)
        member.backfill = Backfill(work.number - 1, footer.previous_id, work.low)
        member.mark("segment_backfilled")
        _advance_backfill(member) if work.number - 1 < work.low else None


def footer_of(data: bytes | None, member: Member) -> bytes | None:
    """The footer at the start of `data`, without what follows it."""
    if data is None:
        return None
    try:
        return bytes(data[: seg.decode_footer(data, member.geometry).size])
    except FormatError:
        return None


def _on_local_footer(member: Member, data: bytes | None, chunk: Chunk, work: Backfill) -> None:
    chunk.reading = False
    if member.backfill is not work:
        return
    footer = footer_of(data, member)
    if footer is not None and matches(chunk, footer):
        _on_backfilled(member, chunk, footer)
    else:
        request(member)


def _on_backfilled(member: Member, chunk: Chunk, data: bytes) -> None:
    """A chunk of the segment being refilled is here and verified."""
    work = member.backfill
    if work is None or work.chunks.get(chunk.place) is not chunk or chunk.data is not None:
        return
    chunk.data = data
    if chunk.place.kind != ck.KIND_FOOTER:
        return
    geometry = member.geometry
    work.footer = data
    footer = seg.decode_footer(data, geometry)
    for i, leaf_id in enumerate(seg.footer_leaf_ids(data, footer)):
        records = seg.leaf_record_count(geometry, i)
        leaf = Chunk(leaf_id, Place(ck.KIND_LEAF, records, i, work.number))
        work.chunks[leaf.place] = leaf
        _read_local(member, leaf, records * RECORD_SIZE, _on_backfilled)


def _write_segment(member: Member, work: Backfill) -> None:
    """Write what came from peers; a segment that was whole here is left as it is."""
    work.writes = 0
    if not any(c.remote for c in work.chunks.values()):
        return
    geometry = member.geometry
    leaves = sorted(
        (c for c in work.chunks.values() if c.place.kind == ck.KIND_LEAF),
        key=lambda c: c.place.index,
    )
    records = b"".join(c.data for c in leaves if c.data is not None)
    address, _ = local_address(member, Place(ck.KIND_LEAF, 1, 0, work.number))
    for at, data in ((address, records), (address + geometry.segment_data_size, work.footer)):
        _write_in_steps(member, at, [data], _on_segment_written, work)


def _write_in_steps(
    member: Member, address: int, parts: list, done: Callable[..., None], work: Fetch | Backfill
) -> None:
    """Write what may be larger than a volume takes at once; `work.writes` counts the steps."""
    raw = b"".join(wal.padded(parts))
    step = member.geometry.message_size_max
    for start in range(0, len(raw), step):
        work.writes += 1
        member.write(address + start, [raw[start : start + step]], done, work)


def _on_segment_written(member: Member, work: Backfill) -> None:
    work.writes -= 1


# --- single chunks of a checkpoint zone ---------------------------------------------------------

# then no peer has it any more: the next checkpoints write everything anew
MEND_TRIES_MAX = 20


def mend(member: Member, chunk: Chunk) -> None:
    """Fetch a table chunk that was found broken, and write it where it belongs."""
    member.mending.setdefault(chunk.place, chunk)
    # both zones are made whole by the next two checkpoints in any case
    member.freeze_everything = 2
    member.timeouts["chunks"].start()
    request(member)


def _on_mended(member: Member, chunk: Chunk, data: bytes) -> None:
    if member.mending.pop(chunk.place, None) is None or chunk.place.number not in member.manifests:
        return
    now = member.checkpointing
    geometry = member.geometry
    if now is not None and geometry.checkpoint_zone(now.header.op) == geometry.checkpoint_zone(
        chunk.place.number
    ):
        return  # its zone belongs to a newer checkpoint by now
    address, _ = local_address(member, chunk.place)
    member.write(address, wal.padded([data]), _on_mend_written)


def _on_mend_written(member: Member) -> None:
    member.mark("chunk_mended")


# --- asking and serving -------------------------------------------------------------------------


def request(member: Member) -> None:
    """Ask peers for chunks that are not here, a few of each at a time, first those of the
    checkpoint.
    """
    if member.alone:
        return
    owner = member.fetch or member.backfill
    wanted = [*(owner.chunks.values() if owner is not None else ()), *member.mending.values()]
    asked: dict[int, int] = {}
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
        room = CHUNKS_PER_PEER_MAX - asked.get(peer, 0)
        batch, missing = missing[: max(0, room)], missing[max(0, room) :]
        if not batch:
            continue
        for chunk in batch:
            chunk.asked_tick, chunk.peer = member.tick, peer
            chunk.tries += 1
            if chunk.tries > MEND_TRIES_MAX:
                member.mending.pop(chunk.place, None)
        body = b"".join(c.id + ck.encode_place(c.place) for c in batch)
        member.send(1 << peer, member.make(env.REQUEST_CHUNK, view=member.view, body=body), body)


def on_request_chunk(member: Member, message: Message) -> None:
    """Serve what we hold under exactly that id; about the rest stay silent.

    A zone may hold a whole chunk of a checkpoint that is not ours: of the one before, or of one
    whose writing was cut short. Its id tells, so whatever lies there is tried.
    """
    body = message.body
    if (
        len(body) % CHUNK_ENTRY_SIZE
        or len(body) > CHUNK_ENTRY_SIZE * CHUNKS_PER_MESSAGE_MAX
        or not len(body)
    ):
        return member.drop("request_chunk_invalid")
    mask = 1 << message.sender
    for offset in range(0, len(body), CHUNK_ENTRY_SIZE):
        place = ck.decode_place(body[offset + 32 : offset + 48], member.geometry)
        if place is None:
            return member.drop("request_chunk_invalid")
        _serve(member, Chunk(bytes(body[offset : offset + 32]), place), mask)
    return None


def _serve(member: Member, chunk: Chunk, mask: int) -> None:
    place = chunk.place
    geometry = member.geometry
    opening = member.fetch is not None and member.fetch.state.header.op == place.number
    if place.kind == ck.KIND_MANIFEST:
        raw = member.fetch.raw if opening else member.manifests.get(place.number)
        if raw:
            _send_chunk(member, chunk, raw, mask)
            return None
    by_checkpoint = place.kind in (ck.KIND_MANIFEST, ck.KIND_TABLE)
    if by_checkpoint and place.number % geometry.checkpoint_ops:
        return member.drop("request_chunk_invalid")
    if place.kind == ck.KIND_LEAF and member.state_ready:
        data = member.state_machine.leaf(place.number, place.index, place.count)
        if data is not None:
            return _send_chunk(member, chunk, data, mask)
    if member.reads_for_chunks >= READS_FOR_OTHERS_MAX:
        return member.drop("request_chunk_busy")
    sizes = {
        ck.KIND_MANIFEST: MANIFEST_SIZE_MAX,
        ck.KIND_TABLE: geometry.table_chunk_size,
        ck.KIND_FOOTER: geometry.footer_size_max,
        ck.KIND_LEAF: place.count * RECORD_SIZE,
    }
    address, skip = local_address(member, place)
    member.reads_for_chunks += 1
    length = -(-(skip + sizes[place.kind]) // SECTOR_SIZE) * SECTOR_SIZE
    member.read(address, length, _on_served, chunk, skip, sizes[place.kind], mask)
    return None


def _on_served(
    member: Member, data: bytes | None, chunk: Chunk, skip: int, size: int, mask: int
) -> None:
    member.reads_for_chunks -= 1
    piece = None if data is None else bytes(data[skip : skip + size])
    if chunk.place.kind == ck.KIND_FOOTER:
        piece = footer_of(piece, member)
    elif chunk.place.kind == ck.KIND_MANIFEST and piece is not None:
        piece = piece[: ck.size_of(piece)]
    if piece is not None:
        _send_chunk(member, chunk, piece, mask)


def _send_chunk(member: Member, chunk: Chunk, data: bytes, mask: int) -> None:
    if not matches(chunk, data):
        return member.drop("request_chunk_other_id")
    body = chunk.id + ck.encode_place(chunk.place) + data
    member.count("chunks_served")
    member.send(mask, member.make(env.CHUNK, view=member.view, body=body), body)
    return None


def on_chunk(member: Member, message: Message) -> None:
    body = message.body
    place = ck.decode_place(body[32:48], member.geometry) if len(body) >= CHUNK_ENTRY_SIZE else None
    if place is None:
        return member.drop("chunk_invalid")
    data = bytes(body[CHUNK_ENTRY_SIZE:])
    for wanted, then in (
        (member.fetch.chunks if member.fetch else {}, _on_fetched),
        (member.backfill.chunks if member.backfill else {}, _on_backfilled),
        (member.mending, _on_mended),
    ):
        chunk = wanted.get(place)
        if chunk is None or chunk.data is not None or chunk.id != body[:32]:
            continue
        if not matches(chunk, data):
            return member.drop("chunk_does_not_match")
        chunk.remote = True
        then(member, chunk, data)
        request(member)
        return None
    return member.drop("chunk_not_wanted")
