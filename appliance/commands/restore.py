"""`tigerchat restore`: a new cluster out of what is left of one that is gone.

    survey     volumes and archives are opened, their fronts verified; the old nodes are asked
    keep       what a volume's checkpoint vouches for stays as it is, if all of it is whole
    rebuild    else every record that verifies is committed again, under the number that it had
    write      each new volume gets segments, checkpoint, log, superblock; its facts come last

Nothing of the sources is changed. A site of this machine is made beside its place and named in the
end, so what an interrupted run leaves is nothing, and the next run removes it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from appliance.base.errors import ConfigurationError
from appliance.base.limits import REPLICAS_MAX
from appliance.base.printable import counted, json_line, one_line
from appliance.cores.vsr.open import NewReplica
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host.durable_file import unusable
from appliance.drivers.host.node_folder import node_name, read_node, volume_name
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.nvme.volume import GEOMETRIES, Write
from appliance.drivers.terminal.options import accept_two_option, device_option, erase_option
from appliance.drivers.terminal.way_out import bare
from appliance.formats.client.fields import id_of
from appliance.formats.configuration import check_table
from appliance.formats.geometry import Geometry
from appliance.formats.settings import KEYS, Settings
from appliance.formats.site import SEGMENTS_MAX_HIGH, SEGMENTS_MAX_LOW
from appliance.node.format_node import format_node_folder
from appliance.node.format_site import format_local
from appliance.node.new_node import PORTS_DEFAULT, refuse_two
from appliance.node.restore_site import (
    Remains,
    refuse_lacking,
    refuse_living,
    staging_of,
    survey,
)
from appliance.roles.operator.log_source import LogSource
from appliance.roles.operator.restoring import RestoredRoom, ShardRestore, gap_room_of

# What --local alone takes: how a new site is made.
_OF_LOCAL = ("nodes", "accept_two_replicas", "ports", "segments_max", "objects", "farm")
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("restore")
@click.option(
    "--from",
    "locations",
    multiple=True,
    required=True,
    metavar="VOLUME|ARCHIVE",
    help="A volume, like node-0/shard-0; or shipped files: a folder that holds cluster=..., or "
    "http(s)://name-node:9870/folder. May be given several times.",
)
@click.option(
    "--local",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Make a site for this machine in DIR, which must not be there yet.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, REPLICAS_MAX),
    default=3,
    show_default=True,
    help="With --local: of the new site, however many the old one had.",
)
@accept_two_option
@click.option(
    "--ports",
    type=click.IntRange(1, 65535),
    default=PORTS_DEFAULT,
    show_default=True,
    help="With --local: first port of node 0.",
)
@click.option(
    "--node-folder",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Make the volumes of one node of a new site whose site.toml and node.toml lie in F; on "
    "every node from the same sources.",
)
@click.option(
    "--segments-max",
    type=click.IntRange(SEGMENTS_MAX_LOW, SEGMENTS_MAX_HIGH),
    help="With --local: extents of 23 MiB that a shard may come to hold.",
)
@click.option(
    "--objects/--without-objects",
    "--with-objects/--no-objects",
    default=True,
    show_default=True,
    help="With --local: as `format` has it.",
)
@click.option(
    "--farm/--no-farm",
    default=True,
    show_default=True,
    help="With --local: as `format` has it.",
)
@click.option("--site", "site_file", type=_FILE, metavar="FILE", help="The old site file.")
@click.option("--keys", "keys_file", type=_FILE, metavar="FILE",
              help="Trust these keys, as `tigerchat ship keys` printed them.")  # fmt: skip
@click.option(
    "--old-is-gone",
    is_flag=True,
    help="Where no site file says whom to ask: no node of the old cluster will ever run again.",
)
@click.option(
    "--lost-shard",
    "lost",
    type=click.IntRange(0),
    multiple=True,
    metavar="S",
    help="Nothing is left of this shard: it begins empty.",
)
@click.option("--ship-user", default="tigerchat", show_default=True, help="Of WebHDFS.")
@click.option("--ship-token-file", default="", metavar="FILE", help="Of WebHDFS with Kerberos.")
@click.option("--ship-ca-file", default="", metavar="FILE", help="Vouches for https.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, no bar.")
@device_option
@erase_option
@click.option("--geometry", type=click.Choice(tuple(GEOMETRIES)), default="production", hidden=True)
@click.option("--brief", is_flag=True, hidden=True)
def command(**given: Any) -> None:
    """Make a new cluster out of what is left of one that is gone.

    Last resort: it knows only what the volumes and files that are named hold. Where a quorum of the
    old cluster answers, this is refused.
    """
    options = _Options(**given)
    if (options.local is None) == (options.node_folder is None):
        raise click.UsageError("say either --local DIR or --node-folder F")
    if options.node_folder is not None:
        _refuse_for_node(click.get_current_context())
    remains: Remains | None = None
    try:
        remains = survey(
            options.locations, options.settings(), options.site_file, options.keys_file
        )
        # what `format` says stands beside what programs read
        with contextlib.redirect_stdout(sys.stderr if options.as_json else sys.stdout):
            making = _make(options, remains)
    except OSError as error:
        where = Path(os.fsdecode(error.filename)) if error.filename else options.folder
        raise unusable(where, error) from error
    finally:
        if remains is not None:
            remains.close()
    making.tell(as_json=options.as_json, start=f"tigerchat start {options.words}")


def _refuse_for_node(context: click.Context) -> None:
    """What says how a new site is made is nothing that one node of it can be told."""
    for option in context.command.params:
        said = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if said and option.name in _OF_LOCAL:
            raise click.UsageError(
                f"{option.opts[0]} is of a site that --local makes: with --node-folder the files "
                "in F say what the new site is"
            )


@dataclass(frozen=True, slots=True)
class _Options:
    """The options, by their names."""

    locations: tuple[str, ...]
    local: Path | None
    nodes: int
    accept_two_replicas: bool
    ports: int
    node_folder: Path | None
    segments_max: int | None
    objects: bool
    farm: bool
    site_file: Path | None
    keys_file: Path | None
    old_is_gone: bool
    lost: tuple[int, ...]
    ship_user: str
    ship_token_file: str
    ship_ca_file: str
    as_json: bool
    devices: tuple[str, ...]
    erase: int
    geometry: str
    brief: bool

    @property
    def folder(self) -> Path:
        """Of the site or node that is made."""
        return self.local or self.node_folder or Path()

    @property
    def words(self) -> str:
        """Those by which it is started."""
        return f"{'--local' if self.local else '--node-folder'} {self.folder}"

    def settings(self) -> Settings:
        """How an archive is reached."""
        given = {
            "ship_user": self.ship_user,
            "ship_token_file": self.ship_token_file,
            "ship_ca_file": self.ship_ca_file,
        }
        chosen = {name: value for name, value in given.items() if value}
        return Settings(**check_table(Path("--from"), {"index": 0, **chosen}, KEYS))

    def say(self, text: str) -> None:
        """For people."""
        if not self.as_json:
            click.echo(f"restore: {text}")


def _make(options: _Options, remains: Remains) -> "_Making":
    """Refuse what must not be; then make the site or the node."""
    refuse_living(remains, gone=options.old_is_gone, say=options.say)
    remains.open(options.say)
    for reason in remains.unusable:
        options.say(f"not used: {reason}")
    sources = {number: remains.sources(number, options.say) for number in range(remains.shards)}
    refuse_lacking(remains, sources, set(options.lost))
    held = next((volume.geometry for volume in remains.volumes), GEOMETRIES[options.geometry])
    geometry = next(name for name, sizes in GEOMETRIES.items() if sizes == held)
    quiet = options.as_json
    if options.local is not None:
        refuse_two(options.nodes, is_accepted=options.accept_two_replicas)
        staging = staging_of(options.local.absolute())
        making = _Making(remains, sources, staging / node_name(0), quiet=quiet)
        format_local(
            staging,
            nodes=options.nodes,
            shards=remains.shards,
            ports=options.ports,
            segments_max=options.segments_max,
            geometry=geometry,
            objects=options.objects,
            farm=options.farm,
            devices=list(options.devices),
            erase=options.erase,
            brief=options.brief,
            writes_of=making.writes,
            final=options.local,
        )
        staging.rename(options.local.absolute())
        sync_folder(options.local.absolute().parent)
        return making
    assert options.node_folder is not None
    work_as_owner(options.node_folder)
    _check_new(remains, options.node_folder)
    making = _Making(remains, sources, options.node_folder, quiet=quiet)
    format_node_folder(
        options.node_folder,
        geometry,
        new_site=True,
        devices=list(options.devices),
        erase=options.erase,
        brief=options.brief,
        writes_of=making.writes,
    )
    return making


def _check_new(remains: Remains, node_folder: Path) -> None:
    """The site file there is of another cluster, with as many shards."""
    site = read_node(node_folder).site
    if site.cluster == remains.cluster:
        raise ConfigurationError(
            f"{node_folder} has the site file of the old cluster: a restored one is another, with "
            "an id of its own; make a new site file"
        )
    if len(site.shards) != remains.shards:
        raise ConfigurationError(
            f"the new site file has {counted(len(site.shards), 'shard')}; allowed: "
            f"{remains.shards}, as the old cluster had: a room's shard follows from it"
        )


class _Making:
    """Volumes of all shards, and what is told of them."""

    def __init__(
        self, remains: Remains, sources: dict[int, list[LogSource]], node: Path, *, quiet: bool
    ) -> None:
        self._remains, self._sources, self._node, self._quiet = remains, sources, node, quiet
        self._shards: dict[int, ShardRestore] = {}

    def writes(self, geometry: Geometry, new: NewReplica) -> Iterator[Write]:
        """What a volume begins with; as `format_writes`."""
        shard = new.shard
        if shard in self._shards:
            yield from self._shards[shard].writes(geometry, new)
            return
        remains = self._remains
        gap_room = gap_room_of(shard, remains.shards, remains.cluster)
        made = ShardRestore(self._sources[shard], self._node / volume_name(shard), gap_room)
        with click.progressbar(
            length=max(1, made.last_log_seq),
            label=f"shard {shard}",
            hidden=self._quiet,
            file=bare(sys.stdout),
        ) as bar:
            made.on_progress = bar.update
            yield from made.writes(geometry, new)
        self._shards[shard] = made

    def tell(self, *, as_json: bool, start: str) -> None:
        """How far each room goes on, and what nobody can know."""
        for number, made in sorted(self._shards.items()):
            if as_json:
                _tell_json(number, made)
            else:
                _tell_text(number, made)
        if not as_json:
            click.echo(
                "what cannot be known: whether anything that was acknowledged came after these ops"
            )
            click.echo(f"restore: done: `{start}`")


def _tell_json(number: int, made: ShardRestore) -> None:
    outcome = made.outcome
    for room in outcome.rooms:
        row = {
            "room": room.name,
            "room_id": str(id_of(room.room_id)),
            "last_op": room.last_op,
            "lost": list(room.lost) if room.lost else None,
        }
        click.echo(json_line({"kind": "room", "shard": number, **row}))
    whole: dict[str, Any] = {
        "log_seq": outcome.log_seq,
        "state": made.state_id,
        "unreadable": outcome.unreadable,
        "uncommitted": outcome.uncommitted,
        "gap_room": outcome.gap_room,
        "findings": outcome.findings,
    }
    click.echo(json_line({"kind": "shard", "shard": number, **whole}))


def _tell_text(number: int, made: ShardRestore) -> None:
    outcome = made.outcome
    click.echo(f"shard {number}: {counted(outcome.log_seq, 'record')}, state {made.state_id[:16]}")
    for finding in outcome.findings:
        click.echo(f"  found: {one_line(finding)}")
    if outcome.unreadable:
        click.echo(f"  {counted(outcome.unreadable, 'record')} could not be verified")
    if outcome.uncommitted:
        click.echo(
            f"  {counted(outcome.uncommitted, 'operation')} at the end may never have been "
            "acknowledged, and are taken"
        )
    if outcome.gap_room:
        click.echo(f"  the room {one_line(outcome.gap_room)!r} has a record for each that is lost")
    for room in outcome.rooms:
        click.echo(f"  {_room_line(room)}")


def _room_line(room: RestoredRoom) -> str:
    name = f"{id_of(room.room_id)}, whose name is unknown" if room.name is None else room.name
    goes_on = f"goes on after op {room.last_op}" if room.last_op else "nothing of it is restored"
    line = f"{one_line(name)}: {goes_on}"
    if room.lost:
        first, last = room.lost
        line += f"; ops {first} to {last} are lost, and perhaps later ones"
    return line
