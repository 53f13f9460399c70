"""What lies at the front of a volume, as rows of plain values: superblocks and the WAL.

Reads only, also while the replica runs. The rules that judge what is found are the replica's own.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from appliance.base.limits import SUPERBLOCK_COPIES
from appliance.cores.vsr import open as opening
from appliance.cores.vsr.recovery import Decision, Found, Slot, decide, torn
from appliance.cores.vsr.wal import parse_prepare
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats import record, session, superblock
from appliance.formats.author import author_name
from appliance.formats.client.fields import id_of
from appliance.formats.envelope import OPERATIONS_APPEND, Header
from appliance.formats.geometry import (
    RECORD_SIZE,
    SESSION_BLOCK_SIZE,
    SUPERBLOCK_COPY_SIZE,
    SUPERBLOCK_COPY_STRIDE,
    Geometry,
    whole_sectors,
)
from appliance.formats.sharing import decode_federated, site_number_text
from appliance.formats.superblock import Superblock

Row = dict[str, Any]
Rows = Iterator[Row]


def superblock_rows(reader: VolumeReader) -> Rows:
    """A row for each copy, then the one that counts with all its fields."""
    copies = _superblock_copies(reader)
    for number, raw in enumerate(copies):
        found = superblock.decode(raw) if raw is not None else None
        block = found[0] if found else None
        yield {
            "kind": "superblock_copy",
            "place": number,
            "valid": found is not None,
            "copy": found[1] if found else None,
            "sequence": block.sequence if block else None,
            "view": block.view if block else None,
            "log_view": block.log_view if block else None,
            "checkpoint": block.checkpoint.header.op if block else None,
            "digest": found[2].hex() if found else None,
        }
    try:
        chosen, repairs = opening.choose(copies)
    except opening.VolumeUnusable as error:
        yield {"kind": "superblock", "halt": error.halt, "reason": str(error)}
        return
    yield _superblock_row(chosen, repairs)
    for header in chosen.view_headers:
        yield {"kind": "view_header", **_header_row(header)}


def _superblock_copies(reader: VolumeReader) -> list[bytes | None]:
    return reader.read_many(
        [(copy * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE) for copy in range(SUPERBLOCK_COPIES)]
    )


def _superblock_row(block: Superblock, repairs: list[int]) -> Row:
    names = (
        "shard",
        "sequence",
        "view",
        "log_view",
        "epoch",
        "incarnation",
        "commit_max",
        "sync_op_min",
        "sync_op_max",
        "sync_log_seq",
        "replica_count",
        "standby_count",
        "segments_max",
    )
    state = block.checkpoint
    replica = block.members.index(block.replica_id) if block.replica_id in block.members else None
    return {
        "kind": "superblock",
        **{name: getattr(block, name) for name in names},
        "cluster": block.cluster.hex(),
        "replica": replica,
        "replica_id": block.replica_id.hex(),
        "members": [member.hex() for member in block.members],
        "members_old": [member.hex() for member in block.members_old],
        "checkpoint": state.header.op,
        "checkpoint_id": state.checkpoint_id.hex(),
        "checkpoint_log_seq": state.log_seq,
        "manifest_size": state.manifest_size,
        "view_headers": "DVC" if block.view_headers_kind == superblock.KIND_DVC else "SV",
        "file_inode": block.file.inode,
        "file_birth_ns": block.file.birth_ns,
        "volume_id": block.file.volume_id.hex(),
        "copies_to_repair": repairs,
    }


def chosen_superblock(reader: VolumeReader) -> Superblock:
    """The one that counts, as at a start; VolumeUnusable where none can be trusted."""
    return opening.choose(_superblock_copies(reader))[0]


def _header_row(header: Header | None) -> Row:
    names = ("op", "view", "aux", "commit_num", "operation", "epoch", "body_size")
    row: Row = {name: getattr(header, name) if header else None for name in names}
    row["request"] = row.pop("aux")
    return {
        **row,
        "timestamp": header.timestamp if header else None,
        "digest": header.digest.hex() if header else None,
        "parent": header.parent.hex() if header else None,
    }


# --- write-ahead log ------------------------------------------------------------------------------


def _leave_as_it_is() -> None:
    """Nothing is flushed: what is found here counts for nobody, and the volume may be in use."""


def wal_rows(
    reader: VolumeReader, *, records: bool, every: bool = False, bodies: bool = True
) -> Rows:
    """A row for the whole, then one for each slot in the order of ops, each before its records.

    Without `bodies` none is verified (`body_ok` is None): a ring is up to a gigabyte.
    """
    assert bodies or not records
    geometry = reader.geometry
    loaded = opening.load(geometry, _leave_as_it_is, reader.read_many)
    block, slots = loaded.superblock, loaded.slots
    decisions, rows = _decisions(geometry, block, slots)
    ops = [h.op for slot in slots for h in (slot.witness_header, slot.prepare_header) if h]
    yield {
        "kind": "wal",
        "shard": block.shard,
        "slots": len(slots),
        "checkpoint": block.checkpoint.header.op,
        "commit_max": block.commit_max,
        "op_max": max(ops, default=0),
        "decisions": dict(sorted(Counter(d.name for d in decisions).items())),
    }

    def op_of(index: int) -> int:
        header = slots[index].prepare_header or slots[index].witness_header
        return header.op if header else -1

    for index in sorted(range(len(slots)), key=op_of):
        if decisions[index] == Decision.EMPTY and not every:
            continue
        slot = slots[index]
        header = slot.prepare_header
        reads_body = bodies and header is not None and header.op > 0
        body = _prepare_body(reader, index, header) if reads_body and header else None
        witness = slot.witness_header
        yield {
            "kind": "slot",
            "slot": index,
            "witness": Found(slot.witness).name.lower(),
            "witness_op": witness.op if witness else None,
            "witness_digest": witness.digest.hex() if witness else None,
            "prepare": Found(slot.prepare).name.lower(),
            **_header_row(header),
            "body_ok": body is not None if reads_body else None,
            "row": rows[index],
            "decision": decisions[index].name,
        }
        if records and body is not None and header is not None:
            yield from _prepare_records(header, body)


def _decisions(
    geometry: Geometry, block: Superblock, slots: list[Slot]
) -> tuple[list[Decision], list[int]]:
    """What a start would decide on each slot, and by which row of its table."""
    limit = geometry.prepare_max(block.checkpoint.header.op)
    op_max = max(
        (h.op for slot in slots for h in (slot.witness_header, slot.prepare_header) if h), default=0
    )
    solo = block.replica_count == 1
    log = block.epoch << 32 | block.log_view
    decided = [
        decide(slot, op_max=op_max, limit=limit, solo=solo, log_viewstamp=log) for slot in slots
    ]
    decisions = [decision for _, decision in decided]
    for index in torn(
        slots,
        decisions,
        op_max=op_max,
        limit=limit,
        checkpoint=block.checkpoint.header.op,
        geometry=geometry,
    ):
        decisions[index] = Decision.TORN
    return decisions, [row for row, _ in decided]


def _prepare_body(reader: VolumeReader, index: int, header: Header) -> memoryview | None:
    """The body of the prepare in a slot, if it is the one its header names."""
    geometry = reader.geometry
    address = geometry.wal_prepares_offset + index * geometry.message_size_max
    size = len(header.raw) + header.body_size
    data = reader.read(address, whole_sectors(size))
    message = parse_prepare(data, header)
    return memoryview(message.body) if message is not None else None


def _prepare_records(header: Header, body: memoryview) -> Rows:
    block = session.decode(body)
    if block is None or header.operation not in OPERATIONS_APPEND:
        return
    for index in range(block.record_count):
        start = SESSION_BLOCK_SIZE + index * RECORD_SIZE
        raw = bytes(body[start : start + RECORD_SIZE])
        yield {"kind": "prepared_record", "op": header.op, "index": index, **record_row(raw)}


def record_row(raw: bytes) -> Row:
    """All that a record says; ids as clients see them."""
    row = record.RECORD_STRUCT.unpack(raw)
    (
        room_id,
        msg_id,
        author_id,
        _,
        parent_id,
        timestamp,
        body_len,
        body,
        _,
        prev_hash,
        client_id,
        client_seq,
        blob_hash,
        flags,
        _,
        seq,
        log_seq,
    ) = row
    kind = flags & record.FLAGS_KIND_MASK
    return {
        "room_id": str(id_of(room_id)),
        "seq": seq,
        "log_seq": log_seq,
        "client_id": str(id_of(client_id)),
        "client_seq": client_seq,
        "msg_id": str(id_of(msg_id)),
        "parent_id": str(id_of(parent_id)),
        "author_id": str(author_id),
        "author": author_name(author_id),
        "timestamp": timestamp,
        "record_kind": kind,
        "flags": flags,
        "body": body[:body_len].hex(),
        "origin": _origin(kind, body[:body_len]),
        "blob_hash": blob_hash.hex(),
        "crc_ok": record.sealed(raw),
        "prev_hash": prev_hash.hex(),
        "hash": record.record_hash(raw).hex(),
    }


def _origin(kind: int, body: bytes) -> Row | None:
    """Where a federated record comes from. `site` is the number that `federation status` shows."""
    found = decode_federated(body) if kind == record.KIND_FEDERATED else None
    if found is None:
        return None
    site, message_id = site_number_text(found.site), found.message_id.hex()
    return {**found._asdict(), "site": site, "message_id": message_id}
