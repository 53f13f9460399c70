"""`tigerchat format`: the keys and volumes of a whole local site, or the volumes of one node.

Every step makes what is missing and keeps what is there, and a name appears only when its contents
are durable; so a second run completes whatever the first one had begun.
"""

import os
from pathlib import Path

import click

from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX, SEGMENTS_MAX_DEFAULT
from appliance.drivers.host.durable_file import unusable
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.drivers.terminal.options import accept_two_option, device_option, erase_option
from appliance.formats.site import SEGMENTS_MAX_HIGH, SEGMENTS_MAX_LOW, SITE_FILE
from appliance.node.format_node import format_node_folder
from appliance.node.format_site import describe_another, format_local
from appliance.node.new_node import PORTS_DEFAULT, PORTS_STEP, refuse_two

SHARDS_LOCAL_MAX = 40  # peer ports of a node end where its client port begins


@click.command("format")
@click.option(
    "--local",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Make a whole site for this machine in DIR.",
)
@click.option("--nodes", type=click.IntRange(1, REPLICAS_MAX), default=3, show_default=True)
@click.option(
    "--standbys",
    type=click.IntRange(0, MEMBERS_MAX - 1),
    default=0,
    show_default=True,
    help="Nodes beside these that follow every shard without a vote.",
)
@accept_two_option
@click.option("--shards", type=click.IntRange(1, SHARDS_LOCAL_MAX), default=1, show_default=True)
@click.option(
    "--ports",
    type=click.IntRange(1, 65535),
    default=PORTS_DEFAULT,
    show_default=True,
    help=f"First port of node 0; each node has {PORTS_STEP}.",
)
@click.option(
    "--segments-max",
    type=click.IntRange(SEGMENTS_MAX_LOW, SEGMENTS_MAX_HIGH),
    help="Extents of 23 MiB that a shard may come to hold; left out, as many as the disk holds, at "
    f"most {SEGMENTS_MAX_DEFAULT}.",
)
@click.option(
    "--objects/--without-objects",
    "--with-objects/--no-objects",
    default=True,
    show_default=True,
    help="With --local: give each node a port for objects, which nodes share without a quorum; "
    "without, no later start gives them one.",
)
@click.option(
    "--farm/--no-farm",
    default=True,
    show_default=True,
    help="With --local: make each node a member of a farm, which keeps the site's directory.",
)
@click.option(
    "--node-folder",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Make the volumes of one node whose site.toml and node.toml lie in F.",
)
@click.option(
    "--new-site",
    is_flag=True,
    help="With --node-folder: the site is new, no node of it has stored a message yet.",
)
@device_option
@erase_option
@click.option("--another", is_flag=True, hidden=True)
@click.option("--geometry", type=click.Choice(tuple(GEOMETRIES)), default="production", hidden=True)
@click.option("--brief", is_flag=True, hidden=True)
def command(
    local: Path | None,
    nodes: int,
    standbys: int,
    accept_two_replicas: bool,
    shards: int,
    ports: int,
    segments_max: int | None,
    objects: bool,
    farm: bool,
    node_folder: Path | None,
    new_site: bool,
    devices: tuple[str, ...],
    erase: int,
    another: bool,
    geometry: str,
    brief: bool,
) -> None:
    """Make the keys and volumes of a site or of one node.

    Nothing that was formatted is ever overwritten. What an interrupted format left is completed.
    """
    if (local is None) == (node_folder is None):
        raise click.UsageError("say either --local DIR or --node-folder F")
    if nodes + standbys > MEMBERS_MAX:
        raise click.UsageError(
            f"--nodes and --standbys are {nodes} and {standbys}; allowed: at "
            f"most {MEMBERS_MAX} together"
        )
    try:
        if local is not None and another:
            describe_another(local)
        elif local is not None:
            if not (local / SITE_FILE).exists():  # else it says what was begun
                refuse_two(nodes, is_accepted=accept_two_replicas)
            format_local(
                local,
                nodes=nodes,
                standbys=standbys,
                shards=shards,
                ports=ports,
                segments_max=segments_max,
                geometry=geometry,
                objects=objects,
                farm=farm,
                devices=list(devices),
                erase=erase,
                brief=brief,
            )
        elif node_folder is not None:
            work_as_owner(node_folder)
            format_node_folder(
                node_folder,
                geometry,
                new_site=new_site,
                devices=list(devices),
                erase=erase,
                brief=brief,
            )
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if error.filename else local or node_folder
        raise unusable(path or Path(), error) from error
