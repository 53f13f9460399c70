"""`tigerchat format`: the keys and volumes of a whole local site, or the volumes of one node.

Every step makes what is missing and keeps what is there, and a name appears only when its contents
are durable; so a second run completes whatever the first one had begun. `formatted`, the last file,
says that a node was completed: from then on nothing of it is made again, because a replica that
lost its volume must not return empty under its old identity.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX, SEGMENTS_MAX_DEFAULT
from appliance.base.printable import counted
from appliance.drivers.host import identity
from appliance.drivers.host.durable_file import lock_folder, unusable, write_durable
from appliance.drivers.host.node_folder import (
    CLIENT_CERTIFICATE_FILE,
    CLIENT_KEY_FILE,
    FARM_JOIN_FILE,
    FARM_KEY_FILE,
    FORMATTED_FILE,
    JWKS_FILE,
    KEYS_FOLDER,
    SIGNING_KEY_FILE,
    TOKEN_KEY_FILE,
    NodeFolder,
    group_name,
    node_name,
    read_node,
    volume_name,
)
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.drivers.terminal.options import accept_two_option, device_option, erase_option
from appliance.formats.configuration import read_toml
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.site import (
    SEGMENTS_MAX_HIGH,
    SEGMENTS_MAX_LOW,
    SITE_FILE,
    Shard,
    Site,
    encode_site,
    load_site,
)
from appliance.node.new_node import (
    FARM_PORT,
    PORTS_DEFAULT,
    PORTS_STEP,
    TOKEN_NAME,
    described_node,
    fresh_id,
    make_keys,
    make_once,
    refuse_two,
)
from appliance.roles.farm.node_files import make_farm_key, make_node_files
from appliance.roles.operator.volumes import (
    check_capacity,
    check_room,
    claim_devices,
    claim_node_devices,
    identities,
    make_volumes,
    mark_formatted,
    segments_that_fit,
    volume_complete,
)

SHARDS_LOCAL_MAX = 40  # peer ports of a node end where its client port begins
LOOK_S = 2.0  # for the other members to answer
SPARED_SHARE = 100  # of what fits, one part: others write to the disk until it is looked at again


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
        place = Path(os.fsdecode(error.filename)) if error.filename else local or node_folder
        raise unusable(place or Path(), error) from error


# --- a site on this machine -----------------------------------------------------------------------


def format_local(
    folder: Path,
    *,
    nodes: int,
    shards: int,
    ports: int,
    segments_max: int | None,
    geometry: str,
    standbys: int = 0,
    objects: bool = True,
    farm: bool = True,
    devices: Sequence[str] = (),
    erase: int = 0,
    brief: bool = False,
) -> None:
    """Make or complete the site in `folder`; `devices` and `erase` as in `claim_devices`, `brief`
    as in `create`."""
    _make_folder(folder)
    lock = lock_folder(folder)
    try:
        volumes = [
            folder / node_name(node) / volume_name(shard)
            for node in range(nodes + standbys)
            for shard in range(shards)
        ]
        wanted = segments_max if segments_max is not None else SEGMENTS_MAX_LOW
        claim_devices(folder, list(devices), volumes, geometry, wanted, erase)
        if segments_max is None:
            fit = segments_that_fit(folder, volumes, geometry)
            fit -= fit // SPARED_SHARE
            segments_max = max(SEGMENTS_MAX_LOW, min(fit, SEGMENTS_MAX_DEFAULT))
        fresh = not (folder / SITE_FILE).exists()  # else it says what was begun
        if fresh:
            check_capacity(folder, volumes, geometry, segments_max)
        site = _local_site(
            folder, (nodes, standbys), shards, ports, segments_max, objects=objects, farm=farm
        )
        places = [folder / node_name(node.index) for node in site.nodes]
        if all((place / FORMATTED_FILE).exists() for place in places):
            raise ConfigurationError(
                f"{folder / SITE_FILE} exists, {folder} is formatted: start it with `tigerchat "
                f"start --local {folder}`, choose another folder, or remove this one and all its "
                "messages"
            )
        for node, place in zip(site.nodes, places, strict=True):
            _local_node_files(folder, place, node.index, encode_site(site))
        if site.farm_key:
            make_node_files(folder, site)
        opened = [read_node(place) for place in places]
        check_room(folder, [(node, shard) for node in opened for shard in node.shards], geometry)
        for opened_node in opened:
            format_node(opened_node, geometry, fresh=fresh, brief=brief)
    finally:
        os.close(lock)
    click.echo(f"format: {folder} is ready: `tigerchat start --local {folder}`")


def _local_site(
    folder: Path,
    counts: tuple[int, int],
    shards: int,
    ports: int,
    segments_max: int,
    *,
    objects: bool,
    farm: bool,
) -> Site:
    """The site of an earlier run, if it is the one asked for; else a new one, after its keys."""
    path = folder / SITE_FILE
    nodes = sum(counts)
    if path.exists():
        site = load_site(path)
        there = (site.shards[0].replica_count, site.shards[0].standby_count)
        if (there, len(site.shards)) != (counts, shards):
            standbys = f", {there[1]} standbys" if there[1] else ""
            raise ConfigurationError(
                f"{path} has {counted(there[0], 'node')}{standbys} and "
                f"{counted(len(site.shards), 'shard')}: name "
                "these, choose another folder, or remove this one and all its messages"
            )
        return site
    make_once(folder / TOKEN_KEY_FILE, identity.make_token_key, 0o600)
    described = []
    for index in range(nodes):
        place, first = folder / node_name(index), ports + PORTS_STEP * index
        if first + FARM_PORT > 65535:
            raise ConfigurationError(
                f"--ports {ports} leads to port {first + FARM_PORT} for "
                f"node {index}; allowed: at most 65535"
            )
        make_keys(place, node_name(index), "127.0.0.1")
        _share_client_certificate(folder / node_name(0), place)
        described.append(described_node(place, index, first, objects=objects, farm=farm))
    members = list(range(nodes))
    made = [
        Shard(
            number=number,
            members=members,
            replica_ids=[fresh_id() for _ in members],
            replica_count=counts[0],
            standby_count=counts[1],
            segments_max=segments_max,
        )
        for number in range(shards)
    ]
    site = Site(
        cluster=fresh_id(),
        nodes=described,
        shards=made,
        token_issuer=TOKEN_NAME,
        token_audience=TOKEN_NAME,
        farm_key=make_farm_key(folder).public if farm else b"",
    )
    write_durable(path, encode_site(site))
    return site


def _share_client_certificate(first: Path, place: Path) -> None:
    """One certificate for the clients of all nodes: a browser that was told to trust it trusts the
    next node too when its own is gone."""
    if (place / CLIENT_CERTIFICATE_FILE).exists():
        return
    if place == first:
        key, certificate = identity.make_certificate(TOKEN_NAME, "127.0.0.1")
    else:
        key = (first / CLIENT_KEY_FILE).read_text()
        certificate = (first / CLIENT_CERTIFICATE_FILE).read_text()
    write_durable(place / CLIENT_KEY_FILE, key, 0o600)
    write_durable(place / CLIENT_CERTIFICATE_FILE, certificate)


def describe_another(folder: Path) -> None:
    """Add one node to the site in `folder`: its keys, its place at the end of every shard, and the
    settings of the first node. Its volumes are made later, when the groups have taken it in.
    """
    site = load_site(folder / SITE_FILE)
    index, first = len(site.nodes), site.nodes[-1].peer_port + PORTS_STEP
    if len(site.shards[0].members) == MEMBERS_MAX:
        raise ConfigurationError(
            f"{folder / SITE_FILE} names {MEMBERS_MAX} members of a shard; "
            "allowed: no more, in all its time"
        )
    place = folder / node_name(index)
    make_keys(place, node_name(index), "127.0.0.1")
    _share_client_certificate(folder / site.nodes[0].name, place)
    objects = any(other.objects_port for other in site.nodes)
    node = described_node(place, index, first, objects=objects, farm=bool(site.farm_key))
    if not objects:  # a site of before gives one to all at its next start
        node = replace(node, objects_port=site.nodes[0].objects_port)
    shards = [
        replace(
            shard,
            members=[*shard.members, index],
            replica_ids=[*shard.replica_ids, fresh_id()],
            standby_count=shard.standby_count + 1,
        )
        for shard in site.shards
    ]
    grown = replace(site, nodes=[*site.nodes, node], shards=shards)
    text = encode_site(grown)
    peer = read_toml(folder / site.nodes[0].name / SETTINGS_FILE)
    chosen = {name: value for name, value in peer.items() if name != "index"}
    make_once(place / SETTINGS_FILE, lambda: encode_settings(index, **chosen), 0o644)
    _local_node_files(folder, place, index, text)
    if site.farm_key:
        make_once(place / FARM_JOIN_FILE, lambda: "", 0o644)
        make_node_files(folder, grown)
    # The top-level file last: until it names the node, nothing was begun.
    for other in site.nodes:
        write_durable(folder / other.name / SITE_FILE, text)
    write_durable(folder / SITE_FILE, text)


def _local_node_files(folder: Path, place: Path, index: int, site_text: str) -> None:
    """The files of a node beside its keys."""
    token_key = (folder / TOKEN_KEY_FILE).read_text()
    make_once(place / JWKS_FILE, lambda: identity.jwks_of(token_key), 0o644)
    make_once(place / SETTINGS_FILE, lambda: encode_settings(index), 0o644)
    make_once(place / SITE_FILE, lambda: site_text, 0o644)


# --- one node of a site that is described elsewhere -----------------------------------------------


def format_node_folder(
    folder: Path,
    geometry: str,
    *,
    new_site: bool = False,
    devices: Sequence[str] = (),
    erase: int = 0,
    brief: bool = False,
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
            places = [node.volume(shard.number) for shard in node.shards]
            for segments_max in {shard.segments_max for shard in node.shards}:
                check_capacity(folder, places, geometry, segments_max)
        format_node(node, geometry, vouched=False, brief=brief)
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
        place = node.volume(shard.number)
        if volume_complete(place) or (node.path / group_name(shard.number)).exists():
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
    from appliance.roles.operator.session import OperatorSession

    async with OperatorSession(node, shard) as session:
        await session.look(LOOK_S)
        return session.commit if session.commit >= 0 else None


def format_node(
    node: NodeFolder,
    geometry: str,
    *,
    vouched: bool = True,
    fresh: bool = False,
    brief: bool = False,
) -> None:
    """Make the volumes of `node` that are not there yet, then say that it is formatted. Where other
    nodes were made elsewhere, the replicas ask each other before they believe in a new site. The
    replicas of a `fresh` site have ids of which nobody has heard.
    """
    if (node.path / FORMATTED_FILE).exists() and not [*node.path.glob(group_name("*"))]:
        click.echo(f"format: {node.node.name}: kept, it was complete")
        return
    missing = [s for s in node.shards if not volume_complete(node.volume(s.number))]
    with identities(node, missing, fresh=fresh):
        make_volumes(node, geometry, click.echo, node.shards, vouched=vouched, brief=brief)
    mark_formatted(node)


# --- places ---------------------------------------------------------------------------------------


def _make_folder(folder: Path) -> None:
    """Have the folder there, and nobody else's things in it."""
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is no folder: volumes are files in a folder; make a "
            "file system on a device first and name a folder on it"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = (SITE_FILE, TOKEN_KEY_FILE, FARM_KEY_FILE)
    own = {".lock", *files, *(f"{name}.new" for name in files)}
    foreign = sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.name not in own | {"lost+found"} and not entry.name.startswith(node_name(""))
    )
    if foreign and not (folder / SITE_FILE).exists():
        raise ConfigurationError(
            f"{folder} holds {foreign[0]}, which is not of a site: choose an empty folder"
        )
