"""State sync: taking a peer's checkpoint when its log alone cannot bring us along; and reading the
state of our own checkpoint at open.

    consider   a start_view names a checkpoint -> its superblock and the view's log become ours
    Fetch      manifest -> table chunks, leaves of the open segment -> the state of the checkpoint
    then       sealed segments that were skipped are refilled at leisure: `backfill`
"""

from typing import Protocol

from appliance.cores.vsr import (
    backfill,
    checkpoint,
    chunks,
    commit,
    epochs,
    heartbeat,
    membership,
    skipped,
    tail,
    views,
    wal,
    wants,
    write_order,
)
from appliance.cores.vsr import effects as fx
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.chunks import Wanted
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Event
from appliance.formats import checkpoint as ck
from appliance.formats.checkpoint import ChunkLocation
from appliance.formats.envelope import Header
from appliance.formats.geometry import RECORD_SIZE, TABLES
from appliance.formats.group import Configuration
from appliance.formats.superblock import CheckpointState


class Fetch:
    """The state of one checkpoint on its way into memory."""

    __slots__ = ("state", "manifest", "raw", "chunks", "writes", "leaves_written")

    def __init__(self, state: CheckpointState) -> None:
        self.state = state
        self.manifest: ck.Manifest | None = None
        self.raw = b""
        self.chunks: dict[ChunkLocation, Wanted] = {}
        self.writes = 0
        self.leaves_written = False


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
    assert member.checkpointing is None
    assert theirs > own
    epochs.learn(member, announced.configuration)
    _install(member, state, header, headers)
    return True


def _install(member: Member, state: CheckpointState, header: Header, headers: list[Header]) -> None:
    """One superblock write makes the peer's checkpoint and the view's log ours, atomically."""
    member.mark("sync_started")
    fitting = [h for h in headers if h.op <= member.geometry.prepare_max(state.header.op)]
    assert fitting
    assert state.header.op > member.commit_min
    skipped.extend(member, state)
    assert 0 < member.sync_op_min <= member.sync_op_max
    vc.leave_normal(member, Event.LOG_INSTALLED)
    views.stand_in(member, header.view)
    heartbeat.forget(member)
    checkpoint.install(member, state)
    applied = member.commit_min
    commit.jump(member, state.header.op)
    member.learn_commit(max(header.commit_num, state.header.op))
    assert applied < member.commit_min <= member.commit_max
    _replace_log(member, state, fitting, applied)
    views.advertise(member, headers[: member.geometry.pipeline_max + 1])
    member.state_ready = False
    # What was to be published is in a ring that is emptied now, before anybody is told.
    member.effects = [effect for effect in member.effects if effect[0] != fx.PUBLISH]
    member.state_machine.reset()
    member.sessions = type(member.sessions)(member.geometry)
    member.replies_wanted.clear()
    backfill.end(member)
    wants.end_sync(member)
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
    assert applied < state.header.op
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
        tail.install_header(member, known)
    member.move_head(head)
    assert member.journal.at(head) is not None
    member.chain.forget()


# --- a checkpoint's state -----------------------------------------------------------------------


def begin(member: Member, *, local: bool) -> None:
    """Bring the state of our checkpoint into memory: from disk where `local`, else from peers."""
    state = member.checkpoint
    assert state is not None
    if state.header.op == 0:
        member.fetch = None
        member.state_ready = True
        return
    checkpoint.claim_zone(member, state.header.op)
    fetch = Fetch(state)
    member.fetch = fetch
    location = ChunkLocation(ck.KIND_MANIFEST, 0, 0, state.header.op)
    chunk = Wanted(state.checkpoint_id, location, _on_fetched)
    fetch.chunks[location] = chunk
    member.timeouts["chunks"].start()
    if local:
        chunks.read_local(member, chunk, state.manifest_size)


def _on_fetched(member: Member, chunk: Wanted, data: bytes) -> None:
    """A chunk of the checkpoint's state is here and verified."""
    fetch: Fetch = member.fetch
    assert chunk.data is None
    assert fetch.chunks[chunk.location] is chunk
    chunk.data = data
    if chunk.remote and chunk.location.kind != ck.KIND_LEAF:
        address, _ = chunks.local_address(member, chunk.location)
        fetch.writes += 1
        write_order.write(member, address, wal.padded([data]), _on_chunk_written, fetch)
    if chunk.location.kind == ck.KIND_MANIFEST:
        _open_manifest(member, fetch, data, local=not chunk.remote)


def _on_chunk_written(member: Member, fetch: Fetch) -> None:
    assert fetch.writes > 0
    fetch.writes -= 1


def _open_manifest(member: Member, fetch: Fetch, raw: bytes, *, local: bool) -> None:
    """Now the other chunks are known by id."""
    assert fetch.manifest is None
    geometry = member.geometry
    manifest = ck.decode(raw, geometry)  # its hash is what the group agreed on
    fetch.manifest, fetch.raw = manifest, raw
    op = fetch.state.header.op
    wanted: list[tuple[Wanted, int]] = []
    for name in TABLES:
        for i, chunk_id in enumerate(manifest.tables[name].chunk_ids):
            location = ChunkLocation(ck.KIND_TABLE, 0, ck.table_chunk_index(geometry, name, i), op)
            wanted.append((Wanted(chunk_id, location, _on_fetched), geometry.table_chunk_size))
    number, count = divmod(manifest.log_seq, geometry.segment_records)
    for i, chunk_id in enumerate(manifest.leaf_ids):
        records = min(geometry.records_max, count - i * geometry.records_max)
        location = ChunkLocation(ck.KIND_LEAF, records, i, number)
        wanted.append((Wanted(chunk_id, location, _on_fetched), records * RECORD_SIZE))
    for chunk, size in wanted:
        fetch.chunks[chunk.location] = chunk
        if local or not member.sync_op_max:
            chunks.read_local(member, chunk, size)
    chunks.request(member)


def advance(member: Member) -> None:
    """Finish a fetch whose chunks are all here."""
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


def _leaves(fetch: Fetch) -> list[Wanted]:
    assert fetch.manifest is not None
    leaves = [c for c in fetch.chunks.values() if c.location.kind == ck.KIND_LEAF]
    return sorted(leaves, key=lambda c: c.location.index)


def _write_leaves(member: Member, fetch: Fetch) -> None:
    """Leaves share sectors, so what came from peers is written together with what was here."""
    assert not fetch.leaves_written
    assert fetch.writes == 0
    fetch.leaves_written = True
    leaves = _leaves(fetch)
    if not any(c.remote for c in leaves):
        return
    address, _ = chunks.local_address(
        member, ChunkLocation(ck.KIND_LEAF, 1, 0, leaves[0].location.number)
    )
    data = [c.data for c in leaves if c.data is not None]
    fetch.writes += chunks.write_in_steps(member, address, data, _on_chunk_written, fetch)


def _finish(member: Member, fetch: Fetch) -> None:
    """Let the state machine and the sessions stand on what was fetched."""
    assert fetch.writes == 0
    assert not member.installing
    assert member.commit_min == fetch.state.header.op
    geometry, manifest, op = member.geometry, fetch.manifest, fetch.state.header.op
    assert manifest is not None
    tables: dict[str, list[bytes]] = {}
    for name in TABLES:
        locations = [
            ChunkLocation(ck.KIND_TABLE, 0, ck.table_chunk_index(geometry, name, i), op)
            for i in range(len(manifest.tables[name].chunk_ids))
        ]
        tables[name] = [fetch.chunks[p].data for p in locations]  # type: ignore[misc]
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
    wants.ask_repair(member)
    wants.ask_acknowledgements(member)
    member.learn_timestamp(fetch.state.header.timestamp)
    member.mark("state_restored")
    if member.sync_log_seq and number > 0:
        low = (member.sync_log_seq - 1) // geometry.segment_records
        low = max(low, manifest.oldest_segment)
        backfill.begin(member, number - 1, manifest.newest_segment_id, low)
    elif member.sync_log_seq:
        backfill.end(member)
