"""The data file of a replica that begins with a state that was made elsewhere.

    op    root | (nothing) | K            | K+1 ... K+P+1
                             checkpoint     operations without effect

The checkpoint is the first that there can be, and all members are made with it. So that none asks
another for what led to it, each holds as many operations behind it as say that a quorum has it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from appliance.base.checksum import sha256
from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.base.table import Table
from appliance.cores.vsr import membership
from appliance.cores.vsr.open import NewReplica, format_writes
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats import superblock as sb
from appliance.formats.command import Prepare
from appliance.formats.envelope import Header
from appliance.formats.geometry import (
    SUPERBLOCK_COPY_STRIDE,
    TABLES,
    Geometry,
    whole_sectors,
)

Write = tuple[int, bytes]  # address, bytes: whole sectors
RESTORER = b"tigerchat-restor"  # whose session nobody knows


class State(Protocol):
    """What a state machine says of its state, for a manifest."""

    @property
    def log_seq(self) -> int: ...
    @property
    def shipper_cursor(self) -> int: ...
    @property
    def oldest_segment(self) -> int: ...
    @property
    def oldest_segment_before(self) -> int: ...
    @property
    def newest_segment_id(self) -> bytes: ...
    @property
    def leaf_ids(self) -> list[bytes]: ...
    @property
    def tables(self) -> Mapping[str, Table]: ...
    @property
    def shipping(self) -> ck.ShippingState: ...
    @property
    def carrying(self) -> ck.CarryingState: ...
    @property
    def ahead_us(self) -> int: ...


class FirstCheckpoint(NamedTuple):
    """A state as a zone holds it; the same for every member of the shard."""

    manifest: bytes
    chunks: list[tuple[int, bytes]]  # index in the zone, bytes
    header: Header  # of the operation that leads to it
    log_seq: int

    @property
    def id(self) -> bytes:
        """Names the state."""
        return ck.checkpoint_id(self.manifest)


def first_checkpoint(
    geometry: Geometry,
    state: State,
    new: NewReplica,
    *,
    timestamp: int,
) -> FirstCheckpoint:
    """`state` as the checkpoint of a new cluster, at `timestamp` of the log; of the shard and group
    of `new`, whichever of them that is."""
    assert timestamp >= state.ahead_us
    op = geometry.checkpoint_next(0)
    header, _ = _nothing(new, op, bytes(16), timestamp, bytes(32))
    tables, chunks = {}, []
    for name in TABLES:
        if name in state.tables:
            rows, ids, frozen = state.tables[name].freeze(everything=True)
        else:
            whose = membership.rows_of(new.members, new.replica_count) if name == "members" else b""
            rows, ids, frozen = _frozen(geometry, name, whose)
        tables[name] = ck.TableState(rows, ids)
        chunks += [(ck.table_chunk_index(geometry, name, i), data) for i, data in frozen]
    manifest = ck.Manifest(
        cluster=new.cluster,
        shard=new.shard,
        epoch=0,
        op=op,
        timestamp=timestamp,
        prepare_digest=header.digest,
        log_seq=state.log_seq,
        shipper_cursor=state.shipper_cursor,
        oldest_segment=state.oldest_segment,
        oldest_segment_before=state.oldest_segment_before,
        newest_segment_id=state.newest_segment_id,
        segments_max=new.segments_max,
        leaf_ids=state.leaf_ids,
        tables=tables,
        shipping=state.shipping,
        carrying=state.carrying,
        ahead_us=state.ahead_us,
    )
    manifest.check(geometry)
    return FirstCheckpoint(ck.encode(manifest), chunks, header, state.log_seq)


def _frozen(
    geometry: Geometry, name: str, rows: bytes
) -> tuple[int, list[bytes], list[tuple[int, bytes]]]:
    """As `Table.freeze`, of rows that fit one chunk; none at all: no chunk."""
    assert len(rows) <= geometry.table_chunk_size
    chunks = [rows.ljust(geometry.table_chunk_size, b"\0")] if rows else []
    count = len(rows) // geometry.table_row_size(name)
    return count, [sha256(chunk) for chunk in chunks], list(enumerate(chunks))


def _nothing(
    new: NewReplica, op: int, parent: bytes, timestamp: int, checkpoint_id: bytes
) -> tuple[Header, bytes]:
    """A prepare without effect: its header and its body."""
    body = ses.encode(ses.SessionBlock(RESTORER, op, 0, bytes(16), bytes(16), checkpoint_id))
    header = env.make(
        env.PREPARE,
        cluster=new.cluster,
        shard=new.shard,
        operation=env.OPERATION_NOOP,
        view=new.view,
        op=op,
        commit_num=op - 1,
        area=Prepare.pack(parent, timestamp),
        body=body,
    )
    assert Prepare.invalid(header) is None
    return header, body


def restored_writes(geometry: Geometry, new: NewReplica, state: FirstCheckpoint) -> Iterator[Write]:
    """(address, bytes) of all but the segments, over a file of zeros; the superblock comes last."""
    assert state.header.view == new.view
    assert new.log_view in (None, new.view)
    assert (new.epoch, new.members_op) == (0, 0)
    op = state.header.op
    zone = (
        geometry.checkpoints_offset + geometry.checkpoint_zone(op) * geometry.checkpoint_zone_size
    )
    for index, data in state.chunks:
        yield zone + ck.zone_offset(geometry, ck.ChunkLocation(ck.KIND_TABLE, 0, index, op)), data
    yield zone, _padded(state.manifest)
    superblocks = []
    for address, data in format_writes(geometry, new):
        if address < geometry.wal_headers_offset:
            superblocks.append(data)
        else:
            yield address, data
    assert len(superblocks) == SUPERBLOCK_COPIES
    headers: list[Header] = []
    timestamp, parent = state.header.timestamp, bytes(16)
    for number in range(op, op + geometry.pipeline_max + 2):
        stood_on = state.id if headers else bytes(32)
        time_us = timestamp + number - op
        header, body = _nothing(new, number, parent, time_us, stood_on)
        slot = number % geometry.slot_count
        prepare = geometry.wal_prepares_offset + slot * geometry.message_size_max
        yield prepare, _padded(header.raw + body)
        yield geometry.wal_headers_offset + slot * SECTOR_SIZE, _padded(header.raw)
        headers.insert(0, header)
        parent = header.digest
    assert headers[-1].digest == state.header.digest
    assert geometry.durable(op, headers[0].op)
    yield from _superblocks(state, superblocks[0], headers[: geometry.pipeline_max + 1])


def _superblocks(
    state: FirstCheckpoint, formatted: bytes, headers: list[Header]
) -> Iterator[Write]:
    """The copies that format would write, with the state and the log that there are."""
    decoded = sb.decode(formatted)
    assert decoded is not None
    named = sb.CheckpointState(
        header=state.header,
        checkpoint_id=state.id,
        parent=bytes(32),
        grandparent=bytes(32),
        manifest_size=len(state.manifest),
        log_seq=state.log_seq,
    )
    block = replace(
        decoded[0], commit_max=headers[0].op, checkpoint=named, view_headers=list(headers)
    )
    for copy in range(SUPERBLOCK_COPIES):
        yield copy * SUPERBLOCK_COPY_STRIDE, sb.encode(block, copy)


def _padded(data: bytes) -> bytes:
    return data.ljust(whole_sectors(len(data)), b"\0")
