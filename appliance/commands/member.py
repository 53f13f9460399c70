"""`tigerchat member`: who belongs to the shards of a site, and how that is changed while it works.

Every change is an operation of the shard's log: the group commits it, or says why not. Nodes are
described in the site file, which every node reads again by itself; their order there never changes.
"""

import asyncio
import subprocess
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    REMOVED_FILE,
    NodeFolder,
    group_name,
    node_name,
    read_node,
)
from appliance.drivers.host.process import child_environment, own_command
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.roles.operator.membership import (
    addition,
    begin_text,
    change_members,
    group_of,
    name_of,
    reconfigure,
    removal,
)

_LOCAL = click.option(
    "--local",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The local site in DIR; run if nothing else is said.",
)
_NODE = click.option(
    "--node-folder",
    type=click.Path(path_type=Path),
    metavar="F",
    help="A site on several machines, asked from the node in F.",
)


@click.group("member")
def command() -> None:
    """List, add, remove, promote and retire the members of a site's shards."""


@command.command("list")
@_LOCAL
@_NODE
def list_(local: Path | None, node_folder: Path | None) -> None:
    """Who votes and who follows, by shard, as the groups themselves say."""
    node = _asker(local, node_folder)
    for shard in node.site.shards:
        group = asyncio.run(group_of(node, shard))
        click.echo(f"shard {shard.number}  epoch {group.epoch}  since op {group.op}")
        for place, replica_id in enumerate(group.members):
            role = "replica" if place < group.replica_count else "standby"
            click.echo(f"  {place}  {role}  {name_of(node.site, shard, replica_id)}")


@command.command("add")
@click.argument("name", required=False)
@_LOCAL
@_NODE
@click.option("--geometry", type=click.Choice(tuple(GEOMETRIES)), default="production", hidden=True)
@click.option("--brief", is_flag=True, hidden=True)
def add(
    name: str | None, local: Path | None, node_folder: Path | None, geometry: str, brief: bool
) -> None:
    """Add a standby to every shard: a new node of a local site, or NAME of the site file."""
    node = _asker(local, node_folder)
    if node_folder is None:
        folder = _local(local)
        _describe_local(folder, geometry)
        node = _asker(local, None)
        name = node.site.nodes[-1].name
    if name is None:
        raise click.UsageError("say which node of the site file is to be added")
    index = _index(node.site, name)
    place = _local(local) / name if node_folder is None else None
    for shard in node.site.shards_of(index):
        group = asyncio.run(change_members(node, shard, addition(shard, node.site.nodes[index])))
        begin = begin_text(group)
        if place is not None:
            write_durable(place / group_name(shard.number), begin)
        else:
            click.echo(
                f"member: put this into {group_name(shard.number)} in the folder of {name}, "
                f"before `tigerchat format --node-folder`:\n{begin}",
                nl=False,
            )
    if place is not None:
        words = ["--brief"] if brief else []
        _run("format", "--node-folder", str(place), "--geometry", geometry, *words)
        click.echo(f"member: start it with `tigerchat start --node-folder {place}`")


@command.command("remove")
@click.argument("name")
@_LOCAL
@_NODE
def remove(name: str, local: Path | None, node_folder: Path | None) -> None:
    """Take the standby NAME out of every shard; its process falls silent and may be stopped."""
    node = _asker(local, node_folder)
    index = _index(node.site, name)
    for shard in node.site.shards_of(index):
        asyncio.run(change_members(node, shard, removal(shard, index)))
    if node_folder is None:
        place = _local(local) / name
        write_durable(place / REMOVED_FILE, f"{name} belongs to no shard any more\n")
        click.echo(f"member: {name} is started no more with this site")


@command.command("promote")
@click.argument("name")
@click.option("--retire", "other", required=True, metavar="NODE", help="Whose place it takes.")
@_LOCAL
@_NODE
def promote(name: str, other: str, local: Path | None, node_folder: Path | None) -> None:
    """Let the standby NAME vote, in the place of another node, which becomes a standby."""
    _exchange(_asker(local, node_folder), name, other)


@command.command("retire")
@click.argument("name")
@click.option("--promote", "other", required=True, metavar="NODE", help="Who takes its place.")
@_LOCAL
@_NODE
def retire(name: str, other: str, local: Path | None, node_folder: Path | None) -> None:
    """Let the replica NAME vote no more; a standby takes its place."""
    _exchange(_asker(local, node_folder), other, name)


# --- who asks, and about whom ---------------------------------------------------------------------


def _local(local: Path | None) -> Path:
    return (local if local is not None else Path("run")).absolute()


def _asker(local: Path | None, node_folder: Path | None) -> NodeFolder:
    """A node whose keys open the connections."""
    if local is not None and node_folder is not None:
        raise click.UsageError("say --local DIR or --node-folder F, not both")
    if node_folder is not None:
        return read_node(node_folder.absolute())
    folder = _local(local)
    site = load_site(folder / SITE_FILE)
    found = neighbours(folder / site.nodes[0].name, site)  # the first may be gone for long
    if not found:
        raise ConfigurationError(f"{folder} holds no node of its site: correct the path")
    return read_node(found[0].path)


def _index(site: Site, name: str) -> int:
    for node in site.nodes:
        if node.name == name:
            return node.index
    names = ", ".join(node.name for node in site.nodes)
    raise ConfigurationError(f"{name} is no node of the site; allowed: {names}")


def _exchange(node: NodeFolder, standby: str, replica: str) -> None:
    """Let two members change places in every shard that both belong to."""
    up, down = _index(node.site, standby), _index(node.site, replica)
    shards = [s for s in node.site.shards if up in s.members and down in s.members]
    if not shards:
        raise ConfigurationError(f"{standby} and {replica} share no shard")
    for shard in shards:
        asyncio.run(reconfigure(node, shard, up, down))


# --- a new node of a local site -------------------------------------------------------------------


def _describe_local(folder: Path, geometry: str) -> None:
    """Make the keys of one more node and write it into every site file; a node that was begun and
    not formatted is taken again.
    """
    site = load_site(folder / SITE_FILE)
    last = folder / site.nodes[-1].name
    if not (last / FORMATTED_FILE).exists():
        return
    name = node_name(len(site.nodes))
    _run("format", "--local", str(folder), "--another", "--geometry", geometry)
    click.echo(f"member: {name} is described in {folder / SITE_FILE} and in every node's")


def _run(*words: str) -> None:
    done = subprocess.run([*own_command(), *words], env=child_environment(), check=False)
    if done.returncode:
        raise StorageError(f"`tigerchat {words[0]}` ended with code {done.returncode}; see above")
