"""`tigerchat recover`: give a node whose volume was lost a new one, without forgetting what the old
one acknowledged.

    the group commits P operations    all that the lost volume may have acknowledged lies below them
    its view w is noted               the new volume begins at w + 2: in no view that the old one
                                      may have voted in, and with the log of none
    format, start, state sync         the replica serves and votes when it holds the group's state

With `--moved` nothing is made: a volume that was carried to another disk as it was left is let in.
"""

import asyncio
import os
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import counted
from appliance.cores.console.about import About
from appliance.cores.console.volume_acts import no_voucher, vouching_refusal
from appliance.drivers.host.durable_file import unusable, write_durable
from appliance.drivers.host.moved import say_moved
from appliance.drivers.host.node_folder import (
    NodeFolder,
    group_name,
    make_sockets_folder,
    read_node,
)
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.host.process import die_with_parent
from appliance.drivers.nvme.volume import GEOMETRIES, file_in
from appliance.formats.envelope import OPERATION_NOOP
from appliance.formats.site import Shard
from appliance.node.acting import ActSite
from appliance.node.catching_up import start_and_watch, superblock_of
from appliance.roles.operator.membership import begin_text
from appliance.roles.operator.session import OperatorSession
from appliance.roles.operator.volumes import (
    check_room,
    claim_node_devices,
    identities,
    lost_volumes,
    make_volumes,
    mark_formatted,
    volume_complete,
)


@click.command("recover")
@click.option(
    "--node-folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="F",
    help="The node that lost a volume; its site file and keys are still there.",
)
@click.option(
    "--patience",
    type=click.IntRange(1, 3600),
    default=30,
    show_default=True,
    metavar="S",
    help="Seconds that the rest of the group is given to answer.",
)
@click.option(
    "--once",
    is_flag=True,
    help="End when the replica is whole; else the node goes on until Ctrl-C.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="[VOLUME=]PATH",
    help="A raw device for a lost volume, as in `tigerchat format`.",
)
@click.option("--erase", count=True, help="Said twice: overwrite devices that carry something.")
@click.option(
    "--moved",
    is_flag=True,
    help="The volumes that are there were moved or copied after their replicas had stopped for the "
    "last time, and the others are gone: let the node open them. An older copy loses what was "
    "acknowledged since.",
)
@click.option("--geometry", type=click.Choice(tuple(GEOMETRIES)), default="production", hidden=True)
@click.option("--brief", is_flag=True, hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    node_folder: Path,
    patience: int,
    once: bool,
    devices: tuple[str, ...],
    erase: int,
    moved: bool,
    geometry: str,
    brief: bool,
) -> None:
    """Make the lost volumes of a node anew and bring them up to date."""
    work_as_owner(node_folder)
    folder = node_folder.absolute()
    node = read_node(folder)
    if moved:
        _let_in(node)
        return
    lost = lost_volumes(node)
    die_with_parent()
    try:
        with identities(node, lost):
            claim_node_devices(node, lost, list(devices), geometry, erase)
            _vouched(node, lost, patience)
            check_room(folder, [(node, shard) for shard in lost], geometry)
            make_volumes(node, geometry, click.echo, lost, brief=brief)
        make_sockets_folder(node.path)
        mark_formatted(node)
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if error.filename else folder
        raise unusable(path, error) from error
    ctx.exit(start_and_watch(node, lost, verb="recover", once=once, then=lambda: _record(node)))


def _record(node: NodeFolder) -> None:
    ActSite(node.path, node.path, node.site).record("recover", About(node.settings.index))


def _vouched(node: NodeFolder, lost: list[Shard], patience_s: float) -> None:
    """Have the others say what the lost volumes may have acknowledged. Where they do not, the
    sentence of the console's act stands before theirs, if it knows why."""
    try:
        for shard in lost:
            asyncio.run(_vouch(node, shard, patience_s))
    except StorageError as error:
        seen = ActSite(node.path, node.path, node.site).seen()
        why = vouching_refusal(seen, node.settings.index)
        if not why:
            raise
        raise StorageError(f"{why} ({error})") from error


def _let_in(node: NodeFolder) -> None:
    """Volumes that are other files than they were have forgotten nothing: the operator says so."""
    held = [shard for shard in node.held if volume_complete(node.volume(shard.number))]
    others = 0
    with identities(node, held):
        for shard in held:
            path, number = node.volume(shard.number), shard.number
            was, now = superblock_of(path).file, file_in(path)
            if now.is_other(than=was):
                say_moved(node.path, number, now)
                others += 1
                click.echo(
                    f"recover: shard {number}: {path} was open last as another file ({was}); "
                    f"this one ({now}) is let in: you say that it was made after its replica had "
                    "stopped for the last time, and that the other one will never run again"
                )
    if not others:
        raise ConfigurationError(
            f"{node.path}: its volumes are the files that they were: nothing to say; start the node"
        )
    click.echo("recover: start the node, unless its supervisor runs and does so itself")


async def _vouch(node: NodeFolder, shard: Shard, patience_s: float) -> None:
    """Let the group commit a pipeline of operations, and note what a new volume begins with."""
    position = shard.replica_index(node.settings.index)
    assert position is not None
    replica_id = shard.replica_ids[position]
    pipeline = GEOMETRIES["production"].pipeline_max
    async with OperatorSession(node, shard, "recover") as session:
        for count in range(pipeline):
            await session.ask(
                OPERATION_NOOP,
                b"",
                patience_s,
                f"operation {count + 1} of "
                f"{pipeline} that must follow all that the lost volume acknowledged",
            )
        group, view = session.configuration, session.view
    if replica_id not in group.members:
        raise ConfigurationError(
            f"{node.node.name} is no member of shard {shard.number} any more: add it again with "
            "`tigerchat member add`"
        )
    votes = group.members.index(replica_id) < group.replica_count
    if votes and (why := no_voucher(shard.number, group.replica_count)):
        raise StorageError(why)
    begin = view + 2 if votes else 0
    write_durable(node.path / group_name(shard.number), begin_text(group, begin))
    click.echo(
        f"recover: shard {shard.number}: {counted(pipeline, 'operation')} committed in view "
        f"{view} of epoch {group.epoch}; the new volume begins at view {begin}"
    )
