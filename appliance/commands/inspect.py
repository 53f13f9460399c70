"""`tigerchat inspect`: what lies in a volume, read from the medium, also while its replica runs.

For people a table, for programs one JSON object a line. The rules that judge what is found are the
replica's own: this module reads and shows, and writes nothing.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from appliance.base.checksum import sha256
from appliance.base.errors import ApplianceError, ConfigurationError, FormatError
from appliance.base.printable import json_line, one_line
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats import checkpoint, record, snapshot
from appliance.formats.geometry import (
    RECORD_SIZE,
    TABLES,
    Geometry,
)
from appliance.formats.segment import SegmentView, leaf_id
from appliance.formats.site import SITE_FILE, load_site
from appliance.roles.operator.volume_rows import (
    Row,
    Rows,
    chosen_superblock,
    record_row,
    superblock_rows,
    wal_rows,
)


@click.group("inspect")
def command() -> None:
    """Show what lies in a volume. Reads only; the replica may run."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    volume = click.option(
        "--volume",
        type=click.Path(path_type=Path),
        required=True,
        metavar="PATH",
        help="A volume, like node-0/shard-0.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
    return volume(as_json(function))


def _show(rows: Rows, as_json: bool) -> None:
    """Print rows; those of one kind share a table."""
    if as_json:
        for row in rows:
            click.echo(json_line(row))
        return
    table: list[Row] = []
    for row in rows:
        if table and (table[0].keys() != row.keys() or len(table) >= 1000):
            _show_table(table)
            table = []
        table.append(row)
    _show_table(table)


def _show_table(table: list[Row]) -> None:
    if not table:
        return
    names = [name for name in table[0] if name != "kind"]
    texts = [[_text(row[name]) for name in names] for row in table]
    if len(table) == 1:
        width = max(map(len, names))
        lines = [f"{name:{width}}  {text}" for name, text in zip(names, texts[0], strict=True)]
    else:
        widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
        lines = [
            "  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
            for line in (names, *texts)
        ]
    click.echo(f"{table[0]['kind']}\n" + "\n".join(f"  {line}" for line in lines))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, list | dict):
        return json.dumps(value)
    text = one_line(str(value))
    return text if len(text) <= 64 else text[:61] + "..."


# --- superblock -----------------------------------------------------------------------------------


@command.command("superblock")
@_options
def show_superblock(volume: Path, as_json: bool) -> None:
    """The four copies, and which state counts."""
    _show(superblock_rows(VolumeReader(volume)), as_json)


# --- write-ahead log ------------------------------------------------------------------------------


@command.command("wal")
@_options
@click.option("--records", is_flag=True, help="Also each record of each readable prepare.")
@click.option("--all", "every", is_flag=True, help="Also slots that were never used.")
def show_wal(volume: Path, as_json: bool, records: bool, every: bool) -> None:
    """The slots of both rings, how a start would judge them, and their records."""
    _show(wal_rows(VolumeReader(volume), records=records, every=every), as_json)


# --- segments -------------------------------------------------------------------------------------


@command.command("segment")
@_options
@click.option("--records", is_flag=True, help="Also each committed record.")
@click.option("--number", type=click.IntRange(0), help="Only this segment.")
def show_segment(volume: Path, as_json: bool, records: bool, number: int | None) -> None:
    """The segments on the medium, sealed and open, and their records."""
    _show(segment_rows(VolumeReader(volume), records=records, number=number), as_json)


def segment_rows(reader: VolumeReader, *, records: bool, number: int | None = None) -> Rows:
    """A row for each segment in order, each before its records."""
    heads: dict[str, tuple[str, int]] = {}
    segments = _segments(reader)
    if not segments:
        yield {"kind": "segment", "reason": "none yet: what there is stands in the WAL"}
    for found, extent in segments:
        if number is not None and found != number:
            continue
        data = reader.read_extent(extent)
        if data is None:
            yield {"kind": "segment", "segment": found, "extent": extent, "readable": False}
            continue
        yield from _segment(reader.geometry, found, extent, data, heads if records else None)


def _segments(reader: VolumeReader) -> list[tuple[int, int]]:
    """(segment number, extent) of each extent that holds records, by number.

    An extent names its segment by the log_seq of its first record.
    """
    found = []
    for extent in reader.extents():
        raw = reader.read_extent_start(extent)
        log_seq = _log_seq(raw, 0) if raw is not None else 0
        if log_seq:
            found.append(((log_seq - 1) // reader.geometry.segment_records, extent))
    return sorted(found)


def _log_seq(data: bytes, slot: int) -> int:
    return record.log_seq_in(data[slot * RECORD_SIZE : (slot + 1) * RECORD_SIZE])


def _segment(
    geometry: Geometry,
    number: int,
    extent: int,
    data: bytes,
    heads: dict[str, tuple[str, int]] | None,
) -> Rows:
    first = number * geometry.segment_records + 1
    count = 0
    while count < geometry.segment_records and _log_seq(data, count) == first + count:
        count += 1
    view, reason = _sealed(geometry, number, data)
    yield {
        "kind": "segment",
        "segment": number,
        "extent": extent,
        "readable": True,
        "records": count,
        "first_log_seq": first,
        "last_log_seq": first + count - 1,
        "sealed": view is not None,
        "id": view.id.hex() if view is not None else None,
        "previous_id": view.footer.previous_id.hex() if view is not None else None,
        "rooms": view.footer.room_count if view is not None else None,
        "verified": reason == "" if view is not None else None,
        "reason": reason,
    }
    if heads is None:
        return
    for slot in range(count):
        raw = data[slot * RECORD_SIZE : (slot + 1) * RECORD_SIZE]
        row = record_row(raw)
        yield {
            "kind": "record",
            "segment": number,
            "slot": slot,
            **row,
            "prev_hash_ok": _follows(heads.get(row["room_id"]), row),
        }
        heads[row["room_id"]] = (row["hash"], row["seq"])


def _sealed(geometry: Geometry, number: int, data: bytes) -> tuple[SegmentView | None, str]:
    """The view of a sealed segment and what is wrong with it, if anything."""
    try:
        view = SegmentView(data, geometry)
    except FormatError:
        return None, ""
    if view.number != number:
        return None, ""  # the footer of an older segment in the same extent
    try:
        view.verify(None)
    except FormatError as error:
        return view, str(error)
    return view, ""


def _follows(head: tuple[str, int] | None, row: Row) -> bool | None:
    """Whether a record continues its room's chain; None when what it follows is not here."""
    if head is None:
        return row["prev_hash"] == "00" * 32 if row["seq"] == 1 else None
    return head == (row["prev_hash"], row["seq"] - 1)


# --- checkpoint -----------------------------------------------------------------------------------


@command.command("checkpoint")
@_options
def show_checkpoint(volume: Path, as_json: bool) -> None:
    """The durable state that the superblock names: manifest, tables, open segment."""
    _show(checkpoint_rows(VolumeReader(volume)), as_json)


def checkpoint_rows(reader: VolumeReader) -> Rows:
    """A row for the manifest, then one for each table and for the open segment's leaves."""
    geometry, state = reader.geometry, chosen_superblock(reader).checkpoint
    op = state.header.op
    if op == 0:
        yield {"kind": "checkpoint", "checkpoint": 0, "reason": "none yet: the state at format"}
        return
    zone = (
        geometry.checkpoints_offset + geometry.checkpoint_zone(op) * geometry.checkpoint_zone_size
    )
    raw = reader.read(zone, state.manifest_size)
    if raw is None or sha256(raw) != state.checkpoint_id:
        yield {
            "kind": "checkpoint",
            "checkpoint": op,
            "verified": False,
            "reason": "the manifest does not hash to the checkpoint's id",
        }
        return
    manifest = checkpoint.decode(raw, geometry)
    yield {
        "kind": "checkpoint",
        "checkpoint": op,
        "verified": True,
        "checkpoint_id": state.checkpoint_id.hex(),
        "log_seq": manifest.log_seq,
        "timestamp": manifest.timestamp,
        "oldest_segment": manifest.oldest_segment,
        "newest_segment_id": manifest.newest_segment_id.hex(),
        "shipper_cursor": manifest.shipper_cursor,
        "shipper_generation": manifest.shipping.generation,
        "shipper_node": manifest.shipping.node,
        "shipped": manifest.shipping.manifest_count,
        "carrier_generation": manifest.carrying.generation,
        "carrier_node": manifest.carrying.node,
    }
    for name in TABLES:
        table = manifest.tables[name]
        start, size = zone + geometry.table_offset(name), geometry.table_chunk_size
        bad = [
            index
            for index, wanted in enumerate(table.chunk_ids)
            if _digest(reader.read(start + index * size, size)) != wanted
        ]
        yield {
            "kind": "table",
            "table": name,
            "rows": table.row_high_water,
            "chunks": len(table.chunk_ids),
            "bad_chunks": bad,
        }
    yield _leaves_row(reader, manifest)


def _digest(data: bytes | None) -> bytes | None:
    return None if data is None else sha256(data)


def _leaves_row(reader: VolumeReader, manifest: checkpoint.Manifest) -> Row:
    geometry = reader.geometry
    number, count = divmod(manifest.log_seq, geometry.segment_records)
    data = reader.read_extent(number % reader.segments_max) if count else b""
    bad = []
    for index, wanted in enumerate(manifest.leaf_ids):
        start = index * geometry.records_max
        end = min(start + geometry.records_max, count)
        records = data[start * RECORD_SIZE : end * RECORD_SIZE] if data is not None else b""
        if data is None or leaf_id(records) != wanted:
            bad.append(index)
    return {
        "kind": "open_segment",
        "segment": number,
        "records": count,
        "leaves": len(manifest.leaf_ids),
        "bad_leaves": bad,
    }


# --- snapshot -----------------------------------------------------------------------------------


@command.command("snapshot")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_options
@click.option("--records", is_flag=True, help="Also each record.")
def show_snapshot(file: Path, volume: Path, as_json: bool, records: bool) -> None:
    """A signed snapshot FILE, verified with the keys of the site that the volume belongs to."""
    _show(snapshot_rows(file, volume, records=records), as_json)


def snapshot_rows(file: Path, volume: Path, *, records: bool) -> Rows:
    """A row for the file, then its records."""
    reader = VolumeReader(volume)
    site = load_site(reader.folder.parent / SITE_FILE)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from error
    try:
        name, found = snapshot.parse_of_any(raw, ((n.name, n.public_key) for n in site.nodes))
    except FormatError as error:
        raise ApplianceError(
            f"{file}: {error}; no node of {reader.folder.parent / SITE_FILE} made this file"
        ) from error
    yield {"kind": "snapshot", "signed_by": name, **found.plain()}
    for index in range(found.record_count if records else 0):
        start = snapshot.HEAD_SIZE + index * RECORD_SIZE
        yield {"kind": "record", **record_row(raw[start : start + RECORD_SIZE])}
