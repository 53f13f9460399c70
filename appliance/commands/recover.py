"""`tigerchat recover`: give a node whose volume was lost a new one, without forgetting what the old
one acknowledged.

    the group commits P operations    all that the lost volume may have acknowledged lies below them
    its view w is noted               the new volume begins at w + 2: in no view that the old one
                                      may have voted in, and with the log of none
    format, start, state sync         the replica serves and votes when it holds the group's state

With `--moved` nothing is made: a volume that was carried to another disk as it was left is let in.
"""

import asyncio
import json
import os
import subprocess
import time
from contextlib import closing
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import counted
from appliance.cores.vsr import open as opening
from appliance.drivers.host.durable_file import lock_folder, unusable, write_durable
from appliance.drivers.host.moved import say_moved
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    NodeFolder,
    group_name,
    make_sockets_folder,
    read_node,
)
from appliance.drivers.host.process import child_environment, die_with_parent, own_command
from appliance.drivers.network.ask import status_of
from appliance.drivers.nvme.reader import VolumeReader
from appliance.drivers.nvme.volume import GEOMETRIES, file_in, read_facts
from appliance.formats.envelope import OPERATION_NOOP
from appliance.formats.geometry import (
    RECORD_SIZE,
)
from appliance.formats.site import Shard
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.superblock import Superblock
from appliance.roles.operator.session import OperatorSession
from appliance.roles.operator.volume_rows import chosen_superblock
from appliance.roles.operator.volumes import (
    check_room,
    claim_node_devices,
    identities,
    make_volumes,
    mark_formatted,
    volume_complete,
)

REPLICAS_MIN = 3  # in a smaller group nothing can be committed without the lost one
POLL_S = 0.5
STRANGER_S = 5.0  # for a process that works on another volume to end


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
    folder = node_folder.absolute()
    node = read_node(folder)
    if moved:
        _let_in(node)
        return
    lost = [shard for shard in node.shards if not volume_complete(node.volume(shard.number))]
    if not lost:
        raise ConfigurationError(
            f"{folder} lacks no volume: nothing to recover; a volume that is broken beyond repair "
            f"has to be moved away first ({node.volume(node.shards[0].number)})"
        )
    die_with_parent()
    try:
        with identities(node, lost):
            claim_node_devices(node, lost, list(devices), geometry, erase)
            for shard in lost:
                asyncio.run(_vouch(node, shard, patience))
            check_room(folder, [(node, shard) for shard in lost], geometry)
            make_volumes(node, geometry, click.echo, lost, brief=brief)
        make_sockets_folder(node.path)
        mark_formatted(node)
    except OSError as error:
        place = Path(os.fsdecode(error.filename)) if error.filename else folder
        raise unusable(place, error) from error
    ctx.exit(_start_and_watch(node, lost, once=once))


def _let_in(node: NodeFolder) -> None:
    """Volumes that are other files than they were have forgotten nothing: the operator says so."""
    held = [shard for shard in node.shards if volume_complete(node.volume(shard.number))]
    others = 0
    with identities(node, held):
        for shard in held:
            place, number = node.volume(shard.number), shard.number
            was, now = _superblock(place).file, file_in(place)
            if now.is_other(than=was):
                say_moved(node.path, number, now)
                others += 1
                click.echo(
                    f"recover: shard {number}: {place} was open last as another file ({was}); "
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
    if votes and group.replica_count < REPLICAS_MIN:
        raise StorageError(
            f"shard {shard.number} has {group.replica_count} replicas: nobody else can vouch for "
            "what the lost one acknowledged; only a copy of its folder can bring it back that was "
            "made after it had stopped for the last time"
        )
    begin = {
        "epoch": group.epoch, "members_op": group.op, "replica_count": group.replica_count,
        "members": [member.hex() for member in group.members],
        "view": view + 2 if votes else 0, "log_view": 0,
    }  # fmt: skip
    write_durable(node.path / group_name(shard.number), json.dumps(begin) + "\n")
    click.echo(
        f"recover: shard {shard.number}: {counted(pipeline, 'operation')} committed in view "
        f"{view} of epoch {group.epoch}; the new volume begins at view {begin['view']}"
    )


# --- bringing it up to date -----------------------------------------------------------------------


def _start_and_watch(node: NodeFolder, lost: list[Shard], *, once: bool) -> int:
    """Start the node, unless its supervisor runs and does so itself; the exit code."""
    child: subprocess.Popen[bytes] | None = None
    try:
        os.close(lock_folder(node.path))
        free = True
    except ConfigurationError:
        free = False
    if free:
        words = [*own_command(), "start", "--node-folder", str(node.path), "--quiet"]
        child = subprocess.Popen(words, env=child_environment())
    try:
        for shard in lost:
            _watch(node, shard, child)
        if child is not None and not once:
            click.echo("recover: done; the node goes on, Ctrl-C stops it")
            return child.wait()
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            child.wait()
    return 0


def _watch(node: NodeFolder, shard: Shard, child: "subprocess.Popen[bytes] | None") -> None:
    """Tell how far the replica has come, until it holds all. What answers must work on the volume
    that was just made, and on no other one."""
    begun, told = time.monotonic(), ""
    volume = node.volume(shard.number)
    strange_since = begun
    while True:
        status = status_of(
            ReplicaStatus,
            node.path / SOCKETS_FOLDER,
            cluster=node.site.cluster,
            number=shard.number,
        )
        if child is not None and child.poll() is not None:
            raise StorageError(f"the node ended with code {child.returncode}: see its lines above")
        if status is not None and not works_on(status, volume):
            if time.monotonic() > strange_since + STRANGER_S:
                raise StorageError(
                    f"shard {shard.number}: the replica that answers in {node.path} works on "
                    f"another volume than {volume}: stop it, then start the node"
                )
        elif status is not None:
            strange_since = time.monotonic()
            done, total = status.synced
            line = progress(done, total, time.monotonic() - begun)
            if line != told:
                click.echo(f"recover: shard {shard.number}: {line}")
                told = line
            if whole(status):
                click.echo(
                    f"recover: shard {shard.number}: whole after "
                    f"{time.monotonic() - begun:.1f} s, {status.role} in view "
                    f"{status.view}, {status.log_seq} records"
                )
                return
        time.sleep(POLL_S)


def works_on(status: ReplicaStatus, volume: Path) -> bool:
    """Whether a replica says by its status that it works on this volume, in the life that its
    superblock names: a copy of the volume has the same id."""
    if status.volume.id != read_facts(volume)["id"]:
        return False
    try:
        block = _superblock(volume)
    except opening.VolumeUnusable:  # in the middle of an update: asked again soon
        return False
    return status.incarnation == block.incarnation


def _superblock(volume: Path) -> Superblock:
    """The one that counts; VolumeUnusable as at a start."""
    with closing(VolumeReader(volume)) as reader:
        return chosen_superblock(reader)


def whole(status: ReplicaStatus) -> bool:
    """Whether the replica lacks nothing that the group had committed a moment ago."""
    done, total = status.synced
    lag = status.commit_max - status.commit_min
    return (
        status.serves
        and status.state_ready
        and status.commit_max > 0
        and done == total
        and lag <= 2 * GEOMETRIES["production"].pipeline_max
    )


def progress(done: int, total: int, seconds: float) -> str:
    """Records and bytes, in words."""
    mib = done * RECORD_SIZE / (1 << 20)
    rate = done / max(seconds, 0.001)
    return f"{done} of {total} records, {mib:.0f} MiB, {rate:.0f} records/s"
