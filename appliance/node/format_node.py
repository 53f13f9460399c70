"""The volumes of one node, made once: `formatted`, the last file, says that a node was completed.

From then on nothing of it is made again, because a replica that lost its volume must not return
empty under its old identity.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.cores.vsr.open import format_writes
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    KEYS_FOLDER,
    SIGNING_KEY_FILE,
    NodeFolder,
    group_name,
    read_node,
)
from appliance.formats.site import SITE_FILE, Shard
from appliance.node.new_node import make_keys
from appliance.roles.operator.session import OperatorSession
from appliance.roles.operator.volumes import (
    WritesOf,
    check_capacity,
    check_room,
    claim_node_devices,
    identities,
    make_volumes,
    mark_formatted,
    volume_complete,
)

PROBE_S = 2.0  # for the other members to answer


def format_node_folder(
    folder: Path,
    geometry: str,
    *,
    new_site: bool = False,
    devices: Sequence[str] = (),
    erase: int = 0,
    brief: bool = False,
    writes_of: WritesOf = format_writes,
) -> None:
    """Make what is missing in a node's folder, or say which line of the site file is.

    An empty volume is made when a group has vouched for it, or when a `new_site` is said.
    """
    if not folder.is_dir() or not (folder / SITE_FILE).exists():
        raise ConfigurationError(
            f"{folder / SITE_FILE} is missing: put the site file and "
            "node.toml there (docs/operations.md), then run this again"
        )
    folder = folder.absolute()
    vouched = [*folder.glob(group_name("*"))]
    # A node that lost one volume may run: what it lacks is nobody's until it is complete.
    lock = None if vouched else lock_folder(folder)
    try:
        if (folder / FORMATTED_FILE).exists() and not vouched:
            raise ConfigurationError(
                f"{folder / FORMATTED_FILE} exists, the node is formatted: "
                f"start it with `tigerchat start --node-folder {folder}`"
            )
        if not (folder / SIGNING_KEY_FILE).exists():
            make_keys(folder, folder.name, "localhost")
            click.echo(f"format: keys were made in {folder / KEYS_FOLDER}")
        node = read_node(folder)
        _refuse_known_members(node, new_site=new_site)
        claim_node_devices(node, node.shards, list(devices), geometry, erase)
        check_room(folder, [(node, shard) for shard in node.shards], geometry)
        if not vouched:  # else the group's size is what it is
            paths = [node.volume(shard.number) for shard in node.shards]
            for segments_max in {shard.segments_max for shard in node.shards}:
                check_capacity(folder, paths, geometry, segments_max)
        format_node(node, geometry, vouched=False, brief=brief, writes_of=writes_of)
    finally:
        if lock is not None:
            os.close(lock)
    click.echo(f"format: {folder} is ready: `tigerchat start --node-folder {folder}`")


def _refuse_known_members(node: NodeFolder, *, new_site: bool) -> None:
    """A group that has stored anything may have counted on this member: an empty volume under its
    identity would deny that. Silence proves nothing: only who makes a new site may say that there
    is nothing to deny, only `recover` and `member add` may vouch for a member of a running one.
    """
    for shard in node.shards:
        path = node.volume(shard.number)
        if volume_complete(path) or (node.path / group_name(shard.number)).exists():
            continue
        begun = asyncio.run(_begun(node, shard))
        if begun:
            raise StorageError(
                f"shard {shard.number} has stored {begun} operations and knows this node as a "
                f"member: an empty volume would deny what it acknowledged; run `tigerchat recover "
                f"--node-folder {node.path}`"
            )
        if not new_site:
            heard = "no other member answers" if begun is None else "the others have stored nothing"
            raise StorageError(
                f"shard {shard.number}: {heard}, which does not prove that this node has "
                "acknowledged nothing: if it has ever run, bring the others up and run `tigerchat "
                f"recover --node-folder {node.path}`; if the whole site is new and holds no "
                "message yet, say --new-site"
            )


async def _begun(node: NodeFolder, shard: Shard) -> int | None:
    """How many operations the group has stored; None: nobody answers."""
    async with OperatorSession(node, shard) as session:
        await session.poll(PROBE_S)
        return session.commit if session.commit >= 0 else None


def format_node(
    node: NodeFolder,
    geometry: str,
    *,
    vouched: bool = True,
    fresh: bool = False,
    brief: bool = False,
    writes_of: WritesOf = format_writes,
) -> None:
    """Make the volumes of `node` that are not there yet, then say that it is formatted. Where other
    nodes were made elsewhere, the replicas ask each other before they believe in a new site. The
    replicas of a `fresh` site have ids of which nobody has heard. `writes_of` as in `make_volumes`.
    """
    if (node.path / FORMATTED_FILE).exists() and not [*node.path.glob(group_name("*"))]:
        click.echo(f"format: {node.node.name}: kept, it was complete")
        return
    missing = [s for s in node.shards if not volume_complete(node.volume(s.number))]
    with identities(node, missing, fresh=fresh):
        make_volumes(
            node,
            geometry,
            click.echo,
            node.shards,
            vouched=vouched,
            brief=brief,
            writes_of=writes_of,
        )
    mark_formatted(node)
