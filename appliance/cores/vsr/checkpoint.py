"""Making a state durable: freeze, write tables and manifest, then one superblock names it.

    apply(trigger) -> freeze -> segments, replies, table chunks, manifest durable -> superblock ->
    checkpoint

Applying goes on meanwhile: what was frozen are copies. The old checkpoint's zone is not touched,
so a crash at any point leaves one whole state. The other zone stops being what it was when the
first write of it begins (`claim_zone`).
"""

from collections.abc import Mapping

from appliance.base.checksum import sha256
from appliance.base.table import Table
from appliance.cores.vsr import commit, membership, replies, skipped, views, wal, wants, write_order
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats import superblock as sb
from appliance.formats.envelope import Header
from appliance.formats.geometry import MEMBER_ROW_SIZE, TABLES


class Checkpointing:
    """One checkpoint on its way to the disk."""

    __slots__ = ("header", "manifest", "log_seq", "writes", "superblock")

    def __init__(self, header: Header, manifest: bytes, log_seq: int) -> None:
        assert header.op > 0
        assert manifest
        assert log_seq >= 0
        self.header = header
        self.manifest = manifest
        self.log_seq = log_seq
        self.writes = 0  # not yet durable
        self.superblock = False  # the superblock that names it is wanted


def recall(member: Member, state: sb.CheckpointState) -> None:
    """At open: the one that the superblock names."""
    member.checkpoint = state
    member.checkpoint_applied = state.header.op


def install(member: Member, state: sb.CheckpointState) -> None:
    """A peer's checkpoint replaces ours, and what was to be one; its superblock follows."""
    assert state.header.op > member.checkpoint_op
    recall(member, state)
    member.checkpoint_next = state
    commit.unblock(member)


def is_installed(member: Member, durable: int) -> bool:
    """Whether the superblock of a peer's checkpoint has just become durable."""
    installed = member.checkpoint_next
    if installed is None or member.checkpointing is not None or durable != installed.header.op:
        return False
    member.checkpoint_next = None
    return True


def is_due(member: Member) -> bool:
    """Whether a checkpoint is to be begun, or is under way."""
    return member.checkpoint_due or member.checkpointing is not None


def advance(member: Member) -> None:
    """Begin a checkpoint that is due; finish one whose writes are durable."""
    if member.checkpoint_due and member.checkpointing is None and _may_begin(member):
        _begin(member)
    now = member.checkpointing
    assert now is None or now.writes >= 0
    if now is None:
        return
    if not now.superblock and now.writes == 0:
        if member.state_machine.durable_log_seq() >= now.log_seq:
            _name(member, now)
    if now.superblock and member.superblock is not None:
        if member.superblock.checkpoint.header.op == now.header.op:
            _finish(member, now)


def _may_begin(member: Member) -> bool:
    """Not while the group's members at this op are unknown: a volume made anew for a group that
    changed later lacks what was before. It takes a peer's checkpoint instead.
    """
    assert member.checkpoint_due
    if member.agreed_known:
        return True
    wants.ask_sync(member)
    return False


def _begin(member: Member) -> None:
    """Freeze the state at commit_min and start its writes."""
    assert member.checkpoint_due
    assert member.checkpointing is None
    assert member.commit_min > member.checkpoint_op
    assert member.commit_min % member.geometry.checkpoint_ops == 0
    header = member.journal.at(member.commit_min)
    assert header is not None
    assert member.superblock is not None
    commit.unblock(member)
    member.checkpoint_applied = member.commit_min
    member.state_machine.flush()
    commit.write_segments(member)
    state = member.state_machine.checkpoint()
    assert state.log_seq == member.state_machine.log_seq
    tables, writes = _tables(member, state.tables)
    manifest = ck.encode(
        ck.Manifest(
            cluster=member.cluster,
            shard=member.shard,
            epoch=member.agreed.epoch,
            op=header.op,
            timestamp=header.timestamp,
            prepare_digest=header.digest,
            log_seq=state.log_seq,
            shipper_cursor=state.shipper_cursor,
            oldest_segment=state.oldest_segment,
            oldest_segment_before=state.oldest_segment_before,
            newest_segment_id=state.newest_segment_id,
            segments_max=member.superblock.segments_max,
            leaf_ids=state.leaf_ids,
            tables=tables,
            shipping=state.shipping,
            carrying=state.carrying,
            ahead_us=state.ahead_us,
        )
    )
    now = Checkpointing(header, manifest, state.log_seq)
    member.checkpointing = now
    geometry = member.geometry
    claim_zone(member, header.op)
    zone = zone_address(member, header.op)
    for index, data in writes:
        address = zone + ck.zone_offset(
            geometry, ck.ChunkLocation(ck.KIND_TABLE, 0, index, header.op)
        )
        _write(member, now, address, data)
    _write(member, now, zone, manifest)
    for entry, reply in member.sessions.dirty_replies():
        entry.dirty = False
        now.writes += 1
        replies.write(member, entry.row, reply.header, bytes(reply.body), _on_written, now)
    member.mark("checkpoint_begun")


def zone_address(member: Member, op: int) -> int:
    """Where the zone of checkpoint `op` starts."""
    assert op >= 0
    geometry = member.geometry
    return (
        geometry.checkpoints_offset + geometry.checkpoint_zone(op) * geometry.checkpoint_zone_size
    )


def claim_zone(member: Member, op: int) -> None:
    """The zone of checkpoint `op` is written anew from here on: what it held before is no longer
    read at leisure, nor mended.
    """
    assert op > 0
    zone = member.geometry.checkpoint_zone
    for held in [held for held in member.manifests if zone(held) == zone(op)]:
        del member.manifests[held]
    for location in [location for location in member.mending if zone(location.number) == zone(op)]:
        del member.mending[location]


def freeze_everything(member: Member) -> None:
    """Let the next checkpoint of each zone write all chunks, changed or not."""
    member.freeze_everything = 2


def _tables(
    member: Member, frozen: Mapping[str, Table]
) -> tuple[dict[str, ck.TableState], list[tuple[int, bytes]]]:
    """(table states of the manifest, chunks to write by their index in the zone)."""
    geometry = member.geometry
    tables: dict[str, ck.TableState] = {}
    writes: list[tuple[int, bytes]] = []
    assert member.freeze_everything >= 0
    for name, table in frozen.items():
        rows, chunk_ids, changed = table.freeze(member.freeze_everything > 0)
        tables[name] = ck.TableState(rows, chunk_ids)
        writes += [(ck.table_chunk_index(geometry, name, i), data) for i, data in changed]
    member.freeze_everything = max(0, member.freeze_everything - 1)
    for name, raw, row_size in (
        ("sessions", member.sessions.encode(), geometry.table_row_size("sessions")),
        ("members", membership.table(member), MEMBER_ROW_SIZE),
    ):
        chunks = [
            raw[i : i + geometry.table_chunk_size].ljust(geometry.table_chunk_size, b"\0")
            for i in range(0, len(raw), geometry.table_chunk_size)
        ]
        tables[name] = ck.TableState(len(raw) // row_size, [sha256(c) for c in chunks])
        writes += [(ck.table_chunk_index(geometry, name, i), c) for i, c in enumerate(chunks)]
    assert set(tables) == set(TABLES)
    return tables, writes


def _write(member: Member, now: Checkpointing, address: int, data: bytes) -> None:
    assert data
    assert not now.superblock
    now.writes += 1
    write_order.write(member, address, wal.padded([data]), _on_written, now)


def _on_written(member: Member, now: Checkpointing) -> None:
    assert now.writes > 0
    assert not now.superblock
    now.writes -= 1


def _name(member: Member, now: Checkpointing) -> None:
    """Everything is durable: let the next superblock name it."""
    old = member.checkpoint
    assert now is member.checkpointing
    assert now.writes == 0
    assert not now.superblock
    assert member.checkpoint_next is None
    assert old is not None
    assert now.header.op > old.header.op
    now.superblock = True
    member.checkpoint_next = sb.CheckpointState(
        header=now.header,
        checkpoint_id=sha256(now.manifest),
        parent=old.checkpoint_id,
        grandparent=old.parent,
        manifest_size=len(now.manifest),
        log_seq=now.log_seq,
    )
    if member.sync_log_seq and member.backfill is None and not member.syncing:
        skipped.forget(member)
    refresh_view_headers(member)
    member.persist()


def refresh_view_headers(member: Member) -> None:
    """Advertise the log's present suffix, if all of it is known; a list that reaches higher
    stays.
    """
    if member.status != Status.NORMAL or member.view != member.log_view:
        return
    if member.view_headers[0].op > member.op:
        return
    headers: list[Header] = []
    for op in range(member.op, -1, -1):
        header = member.journal.at(op)
        if header is None or (headers and headers[-1].parent != header.digest):
            return
        headers.append(header)
        if op <= member.commit_max:
            break
    if len(headers) <= member.geometry.pipeline_max + 1:
        assert headers[0].op == member.op
        views.advertise(member, headers)


def _finish(member: Member, now: Checkpointing) -> None:
    """The checkpoint is durable: older slots are free, withheld acknowledgements may go."""
    assert now is member.checkpointing
    assert now.superblock
    assert member.superblock is not None
    member.checkpoint = member.superblock.checkpoint
    assert member.checkpoint.header.op == now.header.op <= member.commit_min
    member.checkpoint_next = None
    member.checkpointing = None
    member.manifests[now.header.op] = now.manifest
    wants.ask_acknowledgements(member)
    member.mark("checkpoint_durable")


def root_state(cluster: bytes, shard: int) -> sb.CheckpointState:
    """The state at op 0: nothing."""
    return sb.CheckpointState(env.root(cluster, shard), bytes(32), bytes(32), bytes(32), 0, 0)
