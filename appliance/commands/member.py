"""`tigerchat member`: who belongs to the shards of a site, and how that is changed while it works.

Every change is an operation of the shard's log: the group commits it, or says why not. Nodes are
described in the site file, which every node reads again by itself; their order there never changes.
"""

import asyncio
import dataclasses
import json
import subprocess
import time
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import MEMBERS_MAX
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
from appliance.formats.envelope import OPERATION_MEMBER_CHANGE, OPERATION_RECONFIGURE
from appliance.formats.group import Configuration
from appliance.formats.membership import (
    KIND_ADD,
    KIND_REMOVE,
    MemberChange,
    Reconfigure,
    Verdict,
    decode_verdict,
    encode_change,
    encode_reconfigure,
)
from appliance.formats.site import SITE_FILE, Shard, Site, load_site
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0
READY_S = 60.0  # for a standby to come close enough to be promoted
AGAIN_S = 0.5
REMEDIES = {
    Verdict.EPOCH_IN_PAST: "the group has changed meanwhile: look with `tigerchat member list`",
    Verdict.EPOCH_IN_FUTURE: "the group has changed meanwhile: look with `tigerchat member list`",
    Verdict.CONFLICT: "another change won: look with `tigerchat member list`",
    Verdict.STANDBY_NOT_READY: "the standby is away or lags: wait until `tigerchat status` shows "
    "it close to the others",
    Verdict.IN_PROGRESS: "the change before is not settled: wait, and run this again",
    Verdict.TOO_MANY_MEMBERS: f"allowed: {MEMBERS_MAX} members; remove a standby first",
    Verdict.NOT_A_STANDBY: "a replica that votes must be retired first, with `member retire`",
}
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
        group = asyncio.run(_group(node, shard))
        click.echo(f"shard {shard.number}  epoch {group.epoch}  since op {group.op}")
        for place, replica_id in enumerate(group.members):
            role = "replica" if place < group.replica_count else "standby"
            click.echo(f"  {place}  {role}  {_name(node.site, shard, replica_id)}")


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
        replica_id = shard.replica_id_of(index)
        other = node.site.nodes[index]
        made = MemberChange(
            0,
            KIND_ADD,
            replica_id,
            other.public_key,
            f"{other.host}:{other.peer_port + shard.number}",
        )
        group = asyncio.run(change_members(node, shard, made))
        begin = json.dumps({
            "epoch": group.epoch, "members_op": group.op, "replica_count": group.replica_count,
            "members": [member.hex() for member in group.members], "view": 0, "log_view": 0,
        }) + "\n"  # fmt: skip
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
        replica_id = shard.replica_id_of(index)
        asyncio.run(change_members(node, shard, MemberChange(0, KIND_REMOVE, replica_id)))
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


def _name(site: Site, shard: Shard, replica_id: bytes) -> str:
    index = shard.node_of(replica_id)
    if index is None:
        return f"replica {replica_id.hex()}, not in the site file"
    return site.nodes[index].name


# --- asking ---------------------------------------------------------------------------------------


async def _group(node: NodeFolder, shard: Shard) -> Configuration:
    async with OperatorSession(node, shard, "member") as session:
        if not await session.look(PATIENCE_S):
            raise StorageError(f"shard {shard.number}: no member answers: start the site first")
        return session.configuration


async def change_members(node: NodeFolder, shard: Shard, change: MemberChange) -> Configuration:
    """Have a standby added or removed; the group afterwards."""
    what = "add" if change.kind == KIND_ADD else "remove"
    name = _name(node.site, shard, change.replica_id)
    deadline = time.monotonic() + READY_S
    async with OperatorSession(node, shard, "member") as session:
        while True:
            if not await session.look(PATIENCE_S):
                raise StorageError(f"shard {shard.number}: no member answers: start the site first")
            now = dataclasses.replace(change, epoch=session.configuration.epoch)
            raw = await session.ask(
                OPERATION_MEMBER_CHANGE,
                encode_change(now),
                PATIENCE_S,
                f"the change ({what})",
                again=False,  # somebody may have changed it back
            )
            verdict = decode_verdict(raw)
            if verdict != Verdict.IN_PROGRESS or time.monotonic() > deadline:
                break
            session.waits("the end of a change that is under way")
            await asyncio.sleep(AGAIN_S)
        _judge(shard, verdict, f"{what} {name}")
        wanted = change.kind == KIND_ADD
        while (change.replica_id in session.configuration.members) != wanted:
            if time.monotonic() > deadline + PATIENCE_S:
                raise StorageError(f"shard {shard.number}: changed, but no member tells so yet")
            session.waits("a member that tells of the change")
            session.greet()
            await asyncio.sleep(AGAIN_S)
        return session.configuration


def _exchange(node: NodeFolder, standby: str, replica: str) -> None:
    """Let two members change places in every shard that both belong to."""
    up, down = _index(node.site, standby), _index(node.site, replica)
    shards = [s for s in node.site.shards if up in s.members and down in s.members]
    if not shards:
        raise ConfigurationError(f"{standby} and {replica} share no shard")
    for shard in shards:
        asyncio.run(reconfigure(node, shard, up, down))


async def reconfigure(node: NodeFolder, shard: Shard, up: int, down: int) -> None:
    ids = [shard.replica_id_of(index) for index in (up, down)]
    what = f"promote {node.site.nodes[up].name}, retire {node.site.nodes[down].name}"
    deadline = time.monotonic() + READY_S
    async with OperatorSession(node, shard, "member") as session:
        while True:
            if not await session.look(PATIENCE_S):
                raise StorageError(f"shard {shard.number}: no member answers: start the site first")
            group = session.configuration
            members = exchanged(group, shard.number, *ids)
            if members is None:
                click.echo(f"member: shard {shard.number}: {what}: it is so already")
                return
            order = Reconfigure(group.epoch + 1, group.replica_count, members)
            raw = await session.ask(
                OPERATION_RECONFIGURE, encode_reconfigure(order), PATIENCE_S, "the reconfiguration"
            )
            verdict = decode_verdict(raw)
            waits = verdict in (Verdict.STANDBY_NOT_READY, Verdict.IN_PROGRESS)
            if not waits or time.monotonic() > deadline:
                break
            session.waits(f"what a change needs: {verdict.name.lower()}")
            await asyncio.sleep(AGAIN_S)
    _judge(shard, verdict, what)


def exchanged(
    group: Configuration, shard: int, standby: bytes, replica: bytes
) -> tuple[bytes, ...] | None:
    """The members once a standby and a replica have changed places; None: they have already.
    ConfigurationError when they are no such pair: then nothing would be exchanged."""
    members = list(group.members)
    if standby not in members or replica not in members:
        raise ConfigurationError(
            f"shard {shard}: both must be members: look with `tigerchat member list`"
        )
    a, b = members.index(standby), members.index(replica)
    up_votes, down_votes = a < group.replica_count, b < group.replica_count
    if up_votes and not down_votes:
        return None
    if up_votes or not down_votes:
        both = "both vote already" if up_votes else "neither of them votes"
        raise ConfigurationError(
            f"shard {shard}: {both}: name a standby to promote and a replica to retire, as "
            "`tigerchat member list` shows them"
        )
    members[a], members[b] = members[b], members[a]
    return tuple(members)


def _judge(shard: Shard, verdict: Verdict, what: str) -> None:
    """Say what was committed; StorageError for a refusal."""
    said = verdict.name.lower()
    if verdict not in (Verdict.OK, Verdict.ALREADY_APPLIED):
        remedy = REMEDIES.get(verdict, "look with `tigerchat member list`")
        raise StorageError(f"shard {shard.number}: {what}: {said}; {remedy}")
    click.echo(f"member: shard {shard.number}: {what}: {said}")


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
