"""A node with a new volume is brought up to date: it is started, and followed until it lacks
nothing."""

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.cores.vsr import open as opening
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.process import child_environment
from appliance.drivers.network.ask import status_of
from appliance.drivers.nvme.reader import VolumeReader
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.site import Shard
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.superblock import Superblock
from appliance.node import forked
from appliance.roles.operator.volume_rows import chosen_superblock

POLL_S = 0.5
STRANGER_S = 5.0  # for a process that works on another volume to end


def start_and_watch(
    node: NodeFolder,
    lost: list[Shard],
    *,
    verb: str,
    once: bool,
    then: Callable[[], None] = lambda: None,
) -> int:
    """Start the node, unless its supervisor runs and does so itself, and wait until its replicas of
    `lost` are whole; `then` is done before it stops again, or goes on until Ctrl-C. The exit
    code."""
    child: forked.Begun | None = None
    try:
        os.close(lock_folder(node.path))
        free = True
    except ConfigurationError:
        free = False
    if free:
        words = ["start", "--node-folder", str(node.path), "--quiet"]
        child = forked.begin(words, child_environment())
    try:
        for shard in lost:
            _watch(node, shard, child, verb)
        then()
        if child is not None and not once:
            click.echo(f"{verb}: done; the node goes on, Ctrl-C stops it")
            return child.wait()
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            child.wait()
    return 0


def _watch(node: NodeFolder, shard: Shard, child: forked.Begun | None, verb: str) -> None:
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
                click.echo(f"{verb}: shard {shard.number}: {line}")
                told = line
            if whole(status):
                click.echo(
                    f"{verb}: shard {shard.number}: whole after "
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
        block = superblock_of(volume)
    except opening.VolumeUnusable:  # in the middle of an update: asked again soon
        return False
    return status.incarnation == block.incarnation


def superblock_of(volume: Path) -> Superblock:
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
