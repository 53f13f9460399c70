"""What a replica's disk says was stored: segments up to the checkpoint, then the log above it.

The segments give committed records as they are. Above the checkpoint the prepares of the
write-ahead log are executed once more by the rule that clients rely on: a device's next number is
stored, any other one is not; one of the shipper's must be one that may follow, too. Records that
segments hold beyond the checkpoint must be what that gives.
"""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from uuid import UUID

from appliance.cores.rooms.retention import Retention
from appliance.cores.rooms.shipping import Shipping
from appliance.formats import record
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.event import CARRY_CLAIM, Shipped, decode_shipped
from appliance.formats.sharing import FEDERATED_PREFIX_SIZE, carrier_client_id
from tests.system.ledger import Stored
from tests.system.local_site import LocalSite

Row = dict[str, Any]
KINDS = {"record", "prepared_record"}
TEXTS = {record.KIND_MESSAGE, record.KIND_ROOM_CREATE, record.KIND_FEDERATED}
SHARD_ROOM = str(id_of(record.SHARD_ROOM_ID))


def stored(row: Row) -> Stored:
    """A row of `inspect` as the ledger knows records; of what another site said, its text."""
    body = bytes.fromhex(row["body"])
    start = FEDERATED_PREFIX_SIZE if row["record_kind"] == record.KIND_FEDERATED else 0
    return Stored(
        room=row["room_id"],
        op=row["seq"],
        client=row["client_id"],
        seq=row["client_seq"],
        body=body[start:].decode(errors="strict" if row["record_kind"] in TEXTS else "replace"),
        msg_id=row["msg_id"],
        timestamp=row["timestamp"],
        hash=row["hash"],
    )


def histories(site: LocalSite, nodes: Iterable[int], *, level: bool = True) -> list[list[Stored]]:
    """What the disks of each node say was stored, one shard after the other. Not `level`: a node
    may have been stopped while it was still sent what it had missed, see `history`."""

    def one(node: int) -> list[Stored]:
        shards = range(site.shards)
        return [record for shard in shards for record in of_shard(site, node, shard, level=level)]

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, nodes))


def of_shard(site: LocalSite, node: int, shard: int, *, level: bool = True) -> list[Stored]:
    """What the disk of one node says was stored in one shard."""
    blocks = site.inspect(node, "superblock", shard=shard)
    block = next(row for row in blocks if row["kind"] == "superblock")
    return history(
        site.inspect(node, "segment", "--records", shard=shard),
        site.inspect(node, "wal", "--records", shard=shard),
        block["checkpoint_log_seq"],
        level=level,
    )


def history(
    segments: Iterable[Row], wal: Iterable[Row], checkpoint_log_seq: int, *, level: bool = True
) -> list[Stored]:
    """All committed records of a replica that stopped with nothing in flight, by log_seq. Not
    `level`: those before the first operation that its log lacks, later ones of which it may hold.
    """
    rows = [row for row in segments if row["kind"] == "record"]
    for position, row in enumerate(rows, 1):
        assert row["log_seq"] == position and row["crc_ok"], row
        assert row["prev_hash_ok"] is True, row
    assert len(rows) >= checkpoint_log_seq
    state = _Rooms(rows[:checkpoint_log_seq])
    wal_rows = list(wal)
    checkpoint_op = next(row["checkpoint"] for row in wal_rows if row["kind"] == "wal")
    for row in _in_order(wal_rows, checkpoint_op, level):
        state.execute(row)
    for beyond in rows[checkpoint_log_seq:]:
        assert state.records[beyond["log_seq"] - 1] == stored(beyond), beyond
    return state.records


def _in_order(rows: list[Row], checkpoint_op: int, level: bool) -> Iterator[Row]:
    """Records of all prepares above the checkpoint; each op must be there, chained to the last."""
    slots = {
        row["op"]: row
        for row in rows
        if row["kind"] == "slot"
        and row["op"] is not None
        and row["op"] > checkpoint_op
        and row["prepare"] == "op"
    }
    records: dict[int, list[Row]] = {}
    for row in rows:
        if row["kind"] == "prepared_record":
            records.setdefault(row["op"], []).append(row)
    parent = None
    for op in range(checkpoint_op + 1, max(slots, default=checkpoint_op) + 1):
        slot = slots.get(op)
        if slot is None and not level:  # what follows may be there, and waits for it
            return
        assert slot is not None, f"op {op} is not in the log, which goes on to {max(slots)}"
        assert slot["body_ok"] and (parent is None or slot["parent"] == parent), slot
        parent = slot["digest"]
        yield from records.get(op, [])


class _Rooms:
    """Rooms, windows and chains after some records."""

    def __init__(self, rows: list[Row]) -> None:
        self.records = [stored(row) for row in rows]
        self.heads = {record.room: (record.op, record.hash) for record in self.records}
        self.newest = {(r.room, r.client): r.seq for r in self.records}
        claims = filter(None, map(_claimed, rows))
        self.claim = max(claims, default=0)  # under which messages of other sites are taken
        self.shipping = Shipping(cast(Retention, _Cursor()))
        for said in filter(None, map(_shipped, rows)):
            self.shipping.take(said)

    def execute(self, row: Row) -> None:
        """Store a prepared record, if it is its device's next, and of the carrier of then."""
        device = row["room_id"], row["client_id"]
        creates = row["record_kind"] == record.KIND_ROOM_CREATE
        claim = _claimed(row)
        if row["client_seq"] != self.newest.get(device, 0) + 1:
            return
        if row["room_id"] != SHARD_ROOM and creates == (row["room_id"] in self.heads):
            return
        if claim and claim != self.claim + 1:
            return
        said, log_seq = _shipped(row), len(self.records)
        if said and not self.shipping.may_take(said, row["timestamp"], log_seq):
            return
        carrier = str(id_of(carrier_client_id(self.claim)))
        if row["record_kind"] == record.KIND_FEDERATED and row["client_id"] != carrier:
            return
        op, head = self.heads.get(row["room_id"], (0, "00" * 32))
        raw = _committed(row, op + 1, log_seq + 1, bytes.fromhex(head))
        done = stored({**row, "seq": op + 1, "hash": hashlib.sha256(raw).hexdigest()})
        self.records.append(done)
        self.heads[done.room] = done.op, done.hash
        self.newest[device] = done.seq
        self.claim = claim or self.claim
        if said:
            self.shipping.take(said)


class _Cursor:
    """Of what is shipped, as the rules of shipping want it."""

    shipper_cursor = 0

    def ship(self, last: int) -> None:
        self.shipper_cursor = last


def _shipped(row: Row) -> Shipped | None:
    """What a record says of shipping; None: it says nothing of that."""
    if row["record_kind"] != record.KIND_SHIPPED:
        return None
    said = decode_shipped(bytes.fromhex(row["body"]))
    return said if said and said.action != CARRY_CLAIM else None


def _claimed(row: Row) -> int:
    """The generation that a record claims the shared rooms for; 0: it is no claim."""
    if row["record_kind"] != record.KIND_SHIPPED:
        return 0
    said = decode_shipped(bytes.fromhex(row["body"]))
    return said.generation if said and said.action == CARRY_CLAIM else 0


def _committed(row: Row, seq: int, log_seq: int, prev_hash: bytes) -> bytes:
    """The bytes of a record once it is committed."""
    ids = {
        name: id_bytes(UUID(row[name])) for name in ("room_id", "msg_id", "client_id", "parent_id")
    }
    raw = bytearray(
        record.encode(
            **ids,
            author_id=int(row["author_id"]),
            body=bytes.fromhex(row["body"]),
            client_seq=row["client_seq"],
            kind=row["record_kind"],
            timestamp=row["timestamp"],
        )
    )
    raw[record.PREV_HASH : record.PREV_HASH + 32] = prev_hash
    raw[record.SEQ : record.SEQ + 8] = seq.to_bytes(8, "little")
    raw[record.LOG_SEQ : record.LOG_SEQ + 8] = log_seq.to_bytes(8, "little")
    return bytes(raw)
