"""`tigerchat retention`: how long a site keeps what was said, and what that would drop.

The setting is a line of the site file, the same on every node; the keeper of each node acts by it.
"""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from appliance.base.errors import StorageError
from appliance.cores.console.about import About
from appliance.cores.rooms.keeping import DAY_US, Kept, keep
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder, read_node
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.network.ask import status_of
from appliance.drivers.terminal.options import LOCAL_DEFAULT, node_options
from appliance.formats.settings import SHIP_OFF
from appliance.formats.site import SITE_FILE, Shard, encode_site, load_site, retention_days_of
from appliance.formats.status.replica import ReplicaStatus
from appliance.node.acting import ActSite
from appliance.roles.keeper import Segments, kept_of, time_of

GIB = 1 << 30


@click.group("retention")
def command() -> None:
    """Show and set how long messages are kept."""


@command.command("show")
@node_options
@click.option("--days", help="Try another setting: what it would drop. Nothing is changed.")
def show(local: Path | None, node_folder: Path | None, days: str | None) -> None:
    """Show what is kept, what is dropped next, and for how long the volume lasts."""
    folder, nodes = _folders(local, node_folder)
    site = load_site(folder / SITE_FILE)
    wanted = site.retention_days if days is None else retention_days_of(days)
    click.echo(f"retention: {_words(wanted)}{'' if days is None else ' (tried, not set)'}")
    for line in _shown(nodes, wanted):
        click.echo(line)


@command.command("set")
@click.argument("days")
@node_options
@click.option("--dry-run", is_flag=True, help="Say what it would drop, and change nothing.")
def set_(days: str, local: Path | None, node_folder: Path | None, dry_run: bool) -> None:
    """Keep messages for DAYS (a fraction is allowed), or `everything`.

    What is older is dropped a segment of 10,000 messages at a time, once it is shipped, or at once
    where shipping is off. It cannot be brought back except from what was shipped.
    """
    if node_folder is not None:
        work_as_owner(node_folder)
    folder, nodes = _folders(local, node_folder)
    wanted = retention_days_of(days)
    for line in _shown(nodes, wanted):
        click.echo(line)
    if dry_run:
        click.echo("retention: nothing was changed")
        return
    site = dataclasses.replace(load_site(folder / SITE_FILE), retention_days=wanted)
    text = encode_site(site)
    for path in {folder, *(node.path for node in nodes)}:
        write_durable(path / SITE_FILE, text)
    click.echo(f"retention: {_words(wanted)}, from the next start of the nodes on")
    if node_folder is not None:
        click.echo(f"retention: copy {folder / SITE_FILE} to the other nodes")
    if any(_status(node, shard) is not None for node in nodes for shard in node.shards):
        of_site = ActSite(folder, nodes[0].path, site)  # else nobody can write it, nor is asked to
        of_site.record("retention-set", About(), f"retention-set {days}")


def _words(days: float) -> str:
    return f"{days:g} days are kept" if days else "everything is kept"


def _folders(local: Path | None, node_folder: Path | None) -> tuple[Path, list[NodeFolder]]:
    """Where the site file lies, and the nodes of this machine."""
    if node_folder is not None:
        folder = node_folder.absolute()
        return folder, [read_node(folder)]
    folder = (local or Path(LOCAL_DEFAULT)).absolute()
    site = load_site(folder / SITE_FILE)
    found = neighbours(folder / site.nodes[0].name, site)
    return folder, [read_node(node.path) for node in found]


# --- what is kept ---------------------------------------------------------------------------------


def _shown(nodes: list[NodeFolder], days: float) -> Iterator[str]:
    if not nodes:
        raise StorageError("no node of the site is on this machine")
    for shard in nodes[0].site.shards:
        yield from _shard(nodes, shard, days)


def _shard(nodes: list[NodeFolder], shard: Shard, days: float) -> Iterator[str]:
    """As a replica of this machine tells that answers."""
    for node in nodes:
        status = _status(node, shard)
        if status is None or not status.serves:
            continue
        segments = Segments(node, shard)
        kept = kept_of(status, segments, ships=node.settings.ship_target != SHIP_OFF)
        yield from _lines(shard, kept, segments, status, days)
        return
    yield f"shard {shard.number}: no replica of this machine serves: start it to see what is kept"


def _status(node: NodeFolder, shard: Shard) -> ReplicaStatus | None:
    folder, cluster = node.path / SOCKETS_FOLDER, node.site.cluster
    return status_of(ReplicaStatus, folder, cluster=cluster, number=shard.number)


def _lines(
    shard: Shard, kept: Kept, segments: Segments, status: ReplicaStatus, days: float
) -> Iterator[str]:
    volume, now_us = status.volume, time_of(status)
    size = segments.geometry.extent_size
    newest = kept.log_seq // kept.segment_records
    begin_us = segments.oldest_us(kept.oldest)
    since = f", since {_day(begin_us)}" if begin_us else ""
    yield (
        f"shard {shard.number}: keeps {newest + 1 - kept.oldest} of {shard.segments_max} segments, "
        f"{(newest + 1 - kept.oldest) * size / GIB:.2f} GiB{since}"
    )
    oldest = keep(kept, segments.newest_us, now_us, days)
    if oldest > kept.oldest:
        end_us = segments.newest_us(oldest - 1)
        until = f", up to {_day(end_us)}" if end_us else ""
        yield (
            f"shard {shard.number}: drops {oldest - kept.oldest} of them, "
            f"{(oldest - kept.oldest) * size / GIB:.2f} GiB{until}"
        )
    elif days:
        waits = "; what is not shipped stays" if kept.ships and kept.shipped < kept.log_seq else ""
        yield f"shard {shard.number}: nothing is old enough{waits}"
    if begin_us and newest > kept.oldest and now_us > begin_us:
        free = min(shard.segments_max - volume.extents, volume.disk_free // size)
        lasts = free * (now_us - begin_us) / (newest - kept.oldest) / DAY_US
        yield f"shard {shard.number}: room for {free} more, about {lasts:,.1f} days at this pace"


def _day(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
