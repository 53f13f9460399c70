"""One example of each layout, every field with a value of its own, as it is at rest or on the wire.

The `.bin` files beside this one are what these gave when the layout was fixed. They are never made
anew: a difference means that yesterday's bytes are no longer understood.
"""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from appliance.base.signature import SigningKey
from appliance.formats import (
    checkpoint,
    curves,
    envelope,
    event,
    record,
    segment,
    session,
    snapshot,
)
from appliance.formats import (
    manifest as shipped,
)
from appliance.formats.checkpoint import ChunkLocation, Manifest, ShippingState, TableState
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.record import RECORD

FOLDER = Path(__file__).parent
CLUSTER = bytes(range(0x40, 0x50))
KEY = SigningKey(bytes(range(32)))


def committed_record() -> bytes:
    """A record after commit."""
    row = np.zeros(1, RECORD)
    values = {
        "room_id": b"R" * 16,
        "msg_id": b"M" * 16,
        "author_id": 0x0102030405060708,
        "parent_id": b"P" * 16,
        "timestamp": 1_750_000_000_123_456,
        "body_len": 5,
        "body": b"hello",
        "prev_hash": b"H" * 32,
        "client_id": b"C" * 16,
        "client_seq": 77,
        "blob_hash": b"B" * 32,
        "flags": record.KIND_MESSAGE,
        "seq": 1001,
        "log_seq": 70_007,
    }
    for name, value in values.items():
        row[name] = value
    raw = bytearray(row.tobytes())
    record.seal(raw, 0)
    return bytes(raw)


def frame() -> bytes:
    """A prepare as sent: header with its transport fields, body, signature."""
    body = b"a body"
    header = envelope.make(
        envelope.PREPARE,
        cluster=CLUSTER,
        shard=0x0203,
        epoch=4,
        operation=16,
        view=0x05060708,
        aux=9,
        op=0x0A0B,
        commit_num=0x0A0A,
        area=b"D" * 16 + struct.pack("<Q", 1_750),
        body=body,
    )
    return b"".join(
        envelope.frame(header, body, sender=2, route=0b101, nonce=0x11121314_15161718, key=KEY)
    )


def session_block() -> bytes:
    return session.encode(
        session.SessionBlock(
            client=b"c" * 16,
            session=0x0102030405060708,
            record_count=468,
            reply_parent=b"p" * 16,
            request_digest=b"q" * 16,
            checkpoint_id=b"k" * 32,
        )
    )


def result() -> bytes:
    return session.RESULT_STRUCT.pack(
        1001, 70_007, 1_750_000_000_123_456, session.SEQUENCE_GAP, b"", b"h" * 32
    )


def segment_records() -> bytes:
    """A full segment of the small geometry, number 2, of rooms 3, 1 and 2 in turn; chained."""
    out, heads = bytearray(), {}
    for slot in range(SMALL.segment_records):
        room = b"room" + bytes([3, 1, 2][slot % 3 : slot % 3 + 1]) * 12
        seq, head = heads.get(room, (40 * (3 - slot % 3), b"\5" * 32))
        raw = bytearray(
            record.encode(
                room_id=room,
                msg_id=(slot * 7919 % 100).to_bytes(16, "big"),
                author_id=slot,
                body=b"text %d" % slot,
                client_id=b"device of tests.",
                client_seq=slot + 1,
                timestamp=1_750_000_000_000_000 + slot,
            )
        )
        raw[record.PREV_HASH : record.PREV_HASH + 32] = head
        struct.pack_into("<QQ", raw, record.SEQ, seq + 1, 201 + slot)
        heads[room] = (seq + 1, record.record_hash(raw))
        out += raw
    return bytes(out)


def segment_footer() -> bytes:
    records = segment_records()
    size = SMALL.records_max * RECORD_SIZE
    leaves = [segment.leaf_id(records[at : at + size]) for at in range(0, len(records), size)]
    return segment.encode_footer(
        records,
        cluster=CLUSTER,
        shard=0x0203,
        number=2,
        previous_id=b"i" * 32,
        leaf_ids=leaves,
        previous_of=lambda room_id: room_id[4] - 1,
    )


def manifest_value() -> Manifest:
    tables = {
        name: TableState(rows, [bytes([i, n]) * 16 for n in range(chunks)])
        for i, (name, rows, chunks) in enumerate(
            (("rooms", 16, 1), ("windows", 8, 1), ("sessions", 5, 1), ("members", 3, 1))
        )
    }
    return Manifest(
        cluster=CLUSTER,
        shard=0x0203,
        epoch=4,
        op=480,
        timestamp=1_750_000_000_123_456,
        prepare_digest=b"d" * 16,
        log_seq=716,
        shipper_cursor=345,
        oldest_segment=3,
        oldest_segment_before=2,
        newest_segment_id=b"n" * 32,
        segments_max=64,
        leaf_ids=[bytes([n]) * 32 for n in range(1, 4)],
        tables=tables,
    )


def manifest() -> bytes:
    return checkpoint.encode(manifest_value())


def manifest_shipping_value() -> Manifest:
    """The state above in the middle of a period that is announced."""
    return replace(
        manifest_value(),
        shipping=ShippingState(7, 2, 42, b"m" * 32, 1_749_999_600_000_000, 3_600_000_000, 701),
    )


def manifest_shipping() -> bytes:
    return checkpoint.encode(manifest_shipping_value())


def shipped_value() -> event.Shipped:
    return event.Shipped(
        event.SHIP_MANIFEST,
        2,
        7,
        42,
        1_749_999_600_000_000,
        3_600_000_000,
        346,
        700,
        702,
        b"h" * 32,
    )


def shipped_body() -> bytes:
    return event.encode_shipped(shipped_value())


def place() -> bytes:
    return checkpoint.encode_location(
        ChunkLocation(checkpoint.KIND_LEAF, 6, 13, 0x0102030405060708)
    )


def snapshot_file() -> bytes:
    """The first three records of a room of the segment above, signed."""
    raw = segment_records()
    records = [raw[slot * RECORD_SIZE : (slot + 1) * RECORD_SIZE] for slot in (0, 3, 6)]
    return b"".join(
        snapshot.render(records, room_id=records[0][:16], op=123, record_count=3, key=KEY)
    )


def period_manifest_value() -> shipped.PeriodManifest:
    """Two files, the second with a chunk more than full."""
    return shipped.PeriodManifest(
        cluster=CLUSTER,
        shard=7,
        number=42,
        previous=b"p" * 32,
        period_start_us=1_749_999_600_000_000,
        period_us=3_600_000_000,
        first_log_seq=9_990,
        last_log_seq=20_001,
        files=(
            shipped.ShippedFile(9_990, 10_000, b"s" * 32, (b"a" * 32,)),
            shipped.ShippedFile(10_001, 20_001, b"t" * 32, (b"b" * 32, b"c" * 32)),
        ),
    )


def period_manifest() -> bytes:
    return shipped.sign_manifest(period_manifest_value(), KEY)


def shipped_head_value() -> shipped.ShippedHead:
    return shipped.ShippedHead(
        cluster=CLUSTER,
        shard=7,
        number=42,
        manifest=shipped.manifest_hash(period_manifest_value()),
        period_start_us=1_749_999_600_000_000,
        period_us=3_600_000_000,
        last_log_seq=20_001,
    )


def shipped_head() -> bytes:
    return shipped.sign_head(shipped_head_value(), KEY)


def trusted_keys_value() -> shipped.TrustedKeys:
    return shipped.TrustedKeys(CLUSTER, 2, (("node-1", KEY.public), ("node-2", b"k" * 32)))


def trusted_keys() -> bytes:
    return shipped.encode_keys(trusted_keys_value())


CURVES = {
    curves.Curve(curves.Figure.RECORDS, 0, 1): 0,
    curves.Curve(curves.Figure.FREE_BYTES, 2, 1): 1,
    curves.Curve(curves.Figure.DELAY_S, 63, 64): 127,
}


def curve_rows() -> bytes:
    """The head of a console's curves, a row of a second and one of a step."""
    second, step = np.zeros((), curves.CURVES_SECOND), np.zeros((), curves.CURVES_STEP)
    second["second"], step["second"] = 1_750_000_007, 1_750_000_000
    second["value"] = step["mean"] = step["most"] = np.nan
    second["value"][:2] = 2500.5, 250e9
    step["mean"][:2], step["most"][:2] = (1250.25, 251e9), (2500.5, 252e9)
    rows = curves.encode_row(second), curves.encode_row(step)
    return curves.encode_head(CLUSTER, CURVES) + b"".join(rows)


EXAMPLES = {
    "record": committed_record,
    "frame": frame,
    "session_block": session_block,
    "result": result,
    "segment_footer": segment_footer,
    "manifest": manifest,
    "place": place,
    "snapshot": snapshot_file,
    "period_manifest": period_manifest,
    "shipped_head": shipped_head,
    "trusted_keys": trusted_keys,
    "manifest_shipping": manifest_shipping,
    "shipped_body": shipped_body,
    "curve_rows": curve_rows,
}


def golden(name: str) -> bytes:
    return (FOLDER / f"{name}.bin").read_bytes()
