"""`tigerchat member`: who belongs to the shards of a site, and how that is changed while it works.

Every change is an operation of the shard's log: the group commits it, or says why not. Nodes are
described in the site file, which every node reads again by itself; their order there never changes.
"""

import asyncio
import secrets
import subprocess
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.signature import SigningKey
from appliance.cores.console.about import About
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
    group_name,
    node_name,
    read_node,
    read_seed,
)
from appliance.drivers.host.process import child_environment, own_command
from appliance.drivers.network.joining import Gathering
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.drivers.terminal.options import node_options_saying
from appliance.formats.join_code import SECRET_SIZE, JoinCode, encode_join_code
from appliance.formats.site import SITE_FILE, load_site
from appliance.node.acting import READY_S, ActSite
from appliance.node.founding import JOIN_PORT, Row, fingerprint
from appliance.node.inviting import check_invitation, check_machine, index_of, let_in
from appliance.roles.operator.farm import Asker, lift_departure, take_out_for_good
from appliance.roles.operator.membership import (
    addition,
    begin_text,
    change_members,
    exchange,
    group_of,
    name_of,
    take_out,
)

_NODE_OPTIONS = node_options_saying(node="A site on several machines, asked from the node in F.")


@click.group("member")
def command() -> None:
    """List, add, invite, remove, promote and retire the members of a site's shards."""


@command.command("list")
@_NODE_OPTIONS
def list_(local: Path | None, node_folder: Path | None) -> None:
    """Who votes and who follows, by shard, as the groups themselves say."""
    node = _asker(local, node_folder)
    for shard in node.site.shards:
        group = asyncio.run(group_of(node, shard))
        click.echo(f"shard {shard.number}  epoch {group.epoch}  since op {group.op}")
        for position, replica_id in enumerate(group.members):
            role = "replica" if position < group.replica_count else "standby"
            click.echo(f"  {position}  {role}  {name_of(node.site, shard, replica_id)}")


@command.command("add")
@click.argument("name", required=False)
@_NODE_OPTIONS
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
    index = index_of(node.site, name)
    node_path = _local(local) / name if node_folder is None else None
    for shard in node.site.shards_of(index):
        group = asyncio.run(change_members(node, shard, addition(shard, node.site.nodes[index])))
        begin = begin_text(group)
        if node_path is not None:
            write_durable(node_path / group_name(shard.number), begin)
        else:
            click.echo(
                f"member: put this into {group_name(shard.number)} in the folder of {name}, "
                f"before `tigerchat format --node-folder`:\n{begin}",
                nl=False,
            )
    about = ActSite(node.path, node.path, node.site)
    about.record("member-add", About(index))
    if node_path is not None:
        words = ["--brief"] if brief else []
        _run("format", "--node-folder", str(node_path), "--geometry", geometry, *words)
        click.echo(f"member: start it with `tigerchat start --node-folder {node_path}`")


@command.command("invite")
@click.argument("name")
@click.option(
    "--node-folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="F",
    help="Of the node that lets the new machine in; it runs.",
)
@click.option("--replace", "lost", default="", metavar="NODE",
              help="A lost node, whose place the new machine takes.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0, 1440), default=60, show_default=True,
              help="For the machine to come; then the code expires.")  # fmt: skip
@click.option("--farm-key", type=click.Path(path_type=Path), metavar="FILE",
              help="The site's farm.key: the machine may sign directories, too.")  # fmt: skip
def invite(name: str, node_folder: Path, lost: str, minutes: float, farm_key: Path | None) -> None:
    """Print a code by which one new machine, NAME, joins this site while it runs, and wait for it.

    The machine becomes a standby of every shard. With --replace it votes in the place of a lost
    node as soon as it holds all that the others have.
    """
    folder = node_folder.absolute()
    node = read_node(folder)
    asyncio.run(check_invitation(node, name, lost))
    site_key = None if farm_key is None else _farm_key(node, farm_key)
    secret = secrets.token_bytes(SECRET_SIZE)
    host, port = node.node.host, node.node.peer_port + JOIN_PORT
    waiting = Gathering(
        folder / TLS_CERTIFICATE_FILE,
        folder / TLS_KEY_FILE,
        [secret],
        cluster=node.site.cluster,
        seconds=minutes * 60,
        check=lambda row, others: check_machine(folder, row, name),
        told=lambda line: click.echo(f"member: {line}"),
        expired=f"the code has expired before {name} came: make another one; nothing was changed",
    )
    code = JoinCode(host, port, node.site.cluster, fingerprint(folder), secret)

    def listens() -> None:
        click.echo(f"member: on {name}, within {minutes:g} minutes:")
        click.echo(f"tigerchat join {encode_join_code(code)}")

    async def form(rows: list[Row]) -> list[Row]:
        told = [await let_in(folder, row, lost, site_key) for row in rows]
        await asyncio.to_thread(_let_into_farm, folder, name)
        return told

    try:
        asyncio.run(waiting.gather(host, port, form, listens))
    except OSError as error:
        raise ConfigurationError(
            f"port {port} on {host} cannot be used ({error.strerror}): codes are made there; wait "
            "until an invitation that runs has ended, or invite on another node"
        ) from error
    promise = f", and takes the place of {lost} when it holds all" if lost else ""
    click.echo(f"member: {name} is a standby{promise}")
    if lost:
        leave_farm(node, None, folder, lost)


@command.command("remove")
@click.argument("name")
@_NODE_OPTIONS
def remove(name: str, local: Path | None, node_folder: Path | None) -> None:
    """Take the standby NAME out of every shard, and of the farm if the site has one; its process
    falls silent and may be stopped."""
    node = _asker(local, node_folder)
    index = index_of(node.site, name)
    act_site = ActSite(node.path, node.path, node.site, "member")
    act_site.refuse("remove", About(index))
    asyncio.run(take_out(node, index))
    act_site.record("remove", About(index))
    leave_farm(node, local, node_folder, name)


@command.command("promote")
@click.argument("name")
@click.option("--retire", "other", required=True, metavar="NODE", help="Whose place it takes.")
@_NODE_OPTIONS
def promote(name: str, other: str, local: Path | None, node_folder: Path | None) -> None:
    """Let the standby NAME vote, in the place of another node, which becomes a standby."""
    _exchange("promote", _asker(local, node_folder), name, other)


@command.command("retire")
@click.argument("name")
@click.option("--promote", "other", required=True, metavar="NODE", help="Who takes its place.")
@_NODE_OPTIONS
def retire(name: str, other: str, local: Path | None, node_folder: Path | None) -> None:
    """Let the replica NAME vote no more; a standby takes its place."""
    _exchange("retire", _asker(local, node_folder), other, name)


def _farm_key(node: NodeFolder, path: Path) -> SigningKey:
    """ConfigurationError: it is not that of this site."""
    key = SigningKey(read_seed(path))
    if key.public != node.site.farm_key:
        raise ConfigurationError(f"{path} is not the key of which {SITE_FILE} has the public half")
    return key


def _let_into_farm(folder: Path, name: str) -> None:
    """A machine that was taken out, and comes again, may be a member again."""
    node = read_node(folder)
    joining = node.site.nodes[index_of(node.site, name)]
    if not node.site.farm_key or not joining.farm_port:
        return
    try:
        lift_departure(Asker(None, folder), joining)
    except StorageError as error:  # it is a standby by now, and is to be told so
        click.echo(f"member: {name} may stay out of the farm ({error}): look with `tigerchat farm "
                   f"status`, then run `tigerchat farm admit {name}`")  # fmt: skip


def leave_farm(node: NodeFolder, local: Path | None, node_folder: Path | None, name: str) -> None:
    """A node that belongs to no shard any more is no member of the farm either."""
    gone = node.site.nodes[index_of(node.site, name)]
    if not node.site.farm_key or not gone.farm_port:
        return
    try:
        take_out_for_good(Asker(local, node_folder), gone)
    except StorageError as error:
        raise StorageError(
            f"{name} is out of the shards, and may still be a member of the farm ({error}): run "
            f"`tigerchat farm remove {name}` where members of it run"
        ) from error
    click.echo(f"member: {name} is a member of the farm no more")


# --- who asks, and about whom ---------------------------------------------------------------------


def _local(local: Path | None) -> Path:
    return (local if local is not None else Path("run")).absolute()


def _asker(local: Path | None, node_folder: Path | None) -> NodeFolder:
    """A node whose keys open the connections."""
    if node_folder is not None:
        return read_node(node_folder.absolute())
    folder = _local(local)
    site = load_site(folder / SITE_FILE)
    found = neighbours(folder / site.nodes[0].name, site)  # the first may be gone for long
    if not found:
        raise ConfigurationError(f"{folder} holds no node of its site: correct the path")
    return read_node(found[0].path)


def _exchange(act: str, node: NodeFolder, standby: str, replica: str) -> None:
    up, down = index_of(node.site, standby), index_of(node.site, replica)
    about = About(up, other=down) if act == "promote" else About(down, other=up)
    act_site = ActSite(node.path, node.path, node.site, "member")
    if not act_site.is_so(act, about):
        act_site.refuse(act, about, level_s=READY_S)
    asyncio.run(exchange(node, up, down))
    act_site.record(act, about)


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
