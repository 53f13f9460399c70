"""A whole site on this machine: its site file, and for each node keys, settings and volumes.

Every step makes what is missing and keeps what is there, and the site file comes last: until it
names a node, nothing of it was begun.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MEMBERS_MAX, SEGMENTS_MAX_DEFAULT
from appliance.base.printable import counted
from appliance.cores.vsr.open import format_writes
from appliance.drivers.host import identity
from appliance.drivers.host.durable_file import lock_folder, write_durable
from appliance.drivers.host.node_folder import (
    CLIENT_CERTIFICATE_FILE,
    CLIENT_KEY_FILE,
    FARM_JOIN_FILE,
    FARM_KEY_FILE,
    FORMATTED_FILE,
    JWKS_FILE,
    TOKEN_KEY_FILE,
    node_name,
    read_node,
    volume_name,
)
from appliance.formats.settings import SETTINGS_FILE, chosen_settings, encode_settings
from appliance.formats.site import (
    SEGMENTS_MAX_LOW,
    SITE_FILE,
    Shard,
    Site,
    encode_site,
    load_site,
)
from appliance.node.format_node import format_node
from appliance.node.new_node import (
    FARM_PORT,
    PORTS_STEP,
    TOKEN_NAME,
    described_node,
    fresh_id,
    make_keys,
    make_once,
)
from appliance.roles.farm.node_files import make_farm_key, make_node_files
from appliance.roles.operator.volumes import (
    WritesOf,
    check_capacity,
    check_room,
    claim_devices,
    segments_that_fit,
)

SPARED_SHARE = 100  # of what fits, one part: others write to the disk until it is looked at again


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
    writes_of: WritesOf = format_writes,
    final: Path | None = None,
) -> None:
    """Make or complete the site in `folder`; `devices` and `erase` as in `claim_devices`, `brief`
    as in `create`, `writes_of` as in `make_volumes`; `final` is the name that the folder gets then.
    """
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
        node_folders = [folder / node_name(node.index) for node in site.nodes]
        if all((node_folder / FORMATTED_FILE).exists() for node_folder in node_folders):
            raise ConfigurationError(
                f"{folder / SITE_FILE} exists, {folder} is formatted: start it with `tigerchat "
                f"start --local {folder}`, choose another folder, or remove this one and all its "
                "messages"
            )
        for node, node_folder in zip(site.nodes, node_folders, strict=True):
            _local_node_files(folder, node_folder, node.index, encode_site(site))
        if site.farm_key:
            make_node_files(folder, site)
        opened = [read_node(node_folder) for node_folder in node_folders]
        check_room(folder, [(node, shard) for node in opened for shard in node.shards], geometry)
        for opened_node in opened:
            format_node(opened_node, geometry, fresh=fresh, brief=brief, writes_of=writes_of)
    finally:
        os.close(lock)
    folder = final or folder
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
        node_folder, first = folder / node_name(index), ports + PORTS_STEP * index
        if first + FARM_PORT > 65535:
            raise ConfigurationError(
                f"--ports {ports} leads to port {first + FARM_PORT} for "
                f"node {index}; allowed: at most 65535"
            )
        make_keys(node_folder, node_name(index), "127.0.0.1")
        _share_client_certificate(folder / node_name(0), node_folder)
        described.append(described_node(node_folder, index, first, objects=objects, farm=farm))
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


def _share_client_certificate(first: Path, node_folder: Path) -> None:
    """One certificate for the clients of all nodes: a browser that was told to trust it trusts the
    next node too when its own is gone."""
    if (node_folder / CLIENT_CERTIFICATE_FILE).exists():
        return
    if node_folder == first:
        key, certificate = identity.make_certificate(TOKEN_NAME, "127.0.0.1")
    else:
        key = (first / CLIENT_KEY_FILE).read_text()
        certificate = (first / CLIENT_CERTIFICATE_FILE).read_text()
    write_durable(node_folder / CLIENT_KEY_FILE, key, 0o600)
    write_durable(node_folder / CLIENT_CERTIFICATE_FILE, certificate)


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
    node_folder = folder / node_name(index)
    make_keys(node_folder, node_name(index), "127.0.0.1")
    _share_client_certificate(folder / site.nodes[0].name, node_folder)
    objects = any(other.objects_port for other in site.nodes)
    node = described_node(node_folder, index, first, objects=objects, farm=bool(site.farm_key))
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
    peer = chosen_settings(folder / site.nodes[0].name / SETTINGS_FILE)
    chosen = {name: value for name, value in peer.items() if name != "index"}
    make_once(node_folder / SETTINGS_FILE, lambda: encode_settings(index, **chosen), 0o644)
    _local_node_files(folder, node_folder, index, text)
    if site.farm_key:
        make_once(node_folder / FARM_JOIN_FILE, lambda: "", 0o644)
        make_node_files(folder, grown)
    # The top-level file last: until it names the node, nothing was begun.
    for other in site.nodes:
        write_durable(folder / other.name / SITE_FILE, text)
    write_durable(folder / SITE_FILE, text)


def _local_node_files(folder: Path, node_folder: Path, index: int, site_text: str) -> None:
    """The files of a node beside its keys."""
    token_key = (folder / TOKEN_KEY_FILE).read_text()
    make_once(node_folder / JWKS_FILE, lambda: identity.jwks_of(token_key), 0o644)
    make_once(node_folder / SETTINGS_FILE, lambda: encode_settings(index), 0o644)
    make_once(node_folder / SITE_FILE, lambda: site_text, 0o644)


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
