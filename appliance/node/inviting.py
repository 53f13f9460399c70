"""A machine is let into a site that runs, by a code that one of its nodes made.

    log of shard 0 ◀── what the machine describes      every node writes it into its site file
    log of each shard ◀── the machine is a standby     the group says with what its volume begins
    machine ◀── site file, issuers of tokens, settings that are the site's, federation, farm

Nothing private of a node leaves it, but for the site's key among other sites, which all nodes of it
have. The machine that takes the place of a lost one is another node: with keys and a name of its
own it is a standby first, then votes in that one's place (`node/replacing.py`).
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import MEMBERS_MAX
from appliance.base.signature import SigningKey
from appliance.drivers.host.node_folder import FEDERATION_FILE, JWKS_FILE, NodeFolder, read_node
from appliance.drivers.network.ask import status_of
from appliance.drivers.network.tls import shown_at
from appliance.formats.joining_node import grown
from appliance.formats.revocation import SHARD
from appliance.formats.settings import SITE_SETTINGS
from appliance.formats.site import NODES_MAX, Node, Site
from appliance.formats.status.edge import EdgeStatus
from appliance.node.founding import (
    Row,
    answer,
    check_description,
    farm_port_of,
    node_of,
    row_of,
)
from appliance.roles.farm.node_files import told_of_farm
from appliance.roles.operator.describing import describe
from appliance.roles.operator.membership import addition, begin_text, change_members, group_of

DESCRIBED_S = 30.0  # for this node to write down what the log tells
POLL_S = 0.1
PROBE_S = 2.0  # for a lost node's port to answer after all


def index_of(site: Site, name: str) -> int:
    """The node of that name; ConfigurationError: there is none."""
    for node in site.nodes:
        if node.name == name:
            return node.index
    names = ", ".join(node.name for node in site.nodes)
    raise ConfigurationError(f"{name} is no node of the site; allowed: {names}")


async def check_invitation(node: NodeFolder, name: str, lost: str) -> None:
    """Refuse a code that could not be used: for a `name` that is taken, or in the place of a node
    that is not `lost`; empty: in nobody's place. ConfigurationError or StorageError."""
    site = node.site
    if any(other.name == name for other in site.nodes) and not await _is_outside(node, name):
        raise ConfigurationError(
            f"{name} is a node of the site: name the new machine otherwise; a node whose keys are "
            "left gets a lost volume back by `tigerchat recover`"
        )
    full = [shard.number for shard in site.shards if len(shard.members) >= MEMBERS_MAX]
    if full or len(site.nodes) >= NODES_MAX:
        raise ConfigurationError(
            f"the site file names {len(site.nodes)} nodes, {MEMBERS_MAX} of them for a shard; "
            "allowed: no more, in all its time"
        )
    if SHARD not in [shard.number for shard in node.shards]:
        raise ConfigurationError(f"{node.node.name} holds no replica of shard {SHARD}: ask one "
                                 "that does")  # fmt: skip
    if status_of(EdgeStatus, node.sockets, cluster=site.cluster) is None:
        raise StorageError(f"{node.node.name} does not run: start it, or invite on one that runs")
    if lost:
        await refuse_serving(node, lost)


async def refuse_serving(node: NodeFolder, lost: str) -> None:
    """The place of a node is given to another one only when nothing answers there by its key."""
    index = index_of(node.site, lost)
    other = node.site.nodes[index]
    if index == node.index:
        raise ConfigurationError(f"{lost} is this node, and it runs")
    groups = [await group_of(node, shard) for shard in node.site.shards_of(index)]
    ids = [shard.replica_id_of(index) for shard in node.site.shards_of(index)]
    if not any(one in group.members for one, group in zip(ids, groups, strict=True)):
        raise ConfigurationError(f"{lost} belongs to no shard any more: there is no place to take")
    for shard in node.site.shards_of(index):
        port = other.peer_port + shard.number
        try:
            shown = await asyncio.to_thread(shown_at, other.host, port, PROBE_S)
        except OSError:
            continue
        if shown == other.spki:
            raise StorageError(
                f"{lost} still serves shard {shard.number} at {other.host}:{port}: nobody takes "
                "its place; stop it first, or let a standby that has joined vote instead, with "
                f"`tigerchat member promote NAME --retire {lost}`"
            )


def check_machine(folder: Path, row: Row, name: str) -> None:
    """ConfigurationError for a machine that is not the invited one, or cannot be one of the
    site's."""
    node = read_node(folder)
    site = node.site
    known = _known(site, row)
    check_description(row, [row_of(other) for other in site.nodes if other is not known])
    if row["name"] != name:
        raise ConfigurationError(f"this code is for {name}, not for {row['name']}")
    if known is None:
        grown(site, _next(node, row))


async def let_in(folder: Path, row: Row, lost: str, site_key: SigningKey | None = None) -> Row:
    """Make the machine a standby of every shard; what it is told then. ConfigurationError or
    StorageError: it is none, or not of all shards, and the sentence says why. `site_key`: the
    offline key of the farm, if the machine may sign directories."""
    node = read_node(folder)
    if lost:
        await refuse_serving(node, lost)
    known = _known(node.site, row)
    if known is not None and not await _is_outside(node, known.name):
        raise ConfigurationError(
            f"{known.name} is a member already, and its volume may hold what it acknowledged: take "
            f"it out with `tigerchat member remove {known.name}`, then make another code"
        )
    if known is None:
        joining = _next(node, row)
        await describe(node, joining)
        node = await _describing(folder, joining)
        known = node.site.nodes[joining.index]
    begins = {}
    for shard in node.site.shards_of(known.index):
        group = await change_members(node, shard, addition(shard, known))
        begins[str(shard.number)] = begin_text(group)
    federation = folder / FEDERATION_FILE
    return answer(node.site, (folder / JWKS_FILE).read_text(), known.index) | {
        "begins": begins,
        "lost": lost,
        "settings": site_settings(node),
        "federation": federation.read_text() if federation.exists() else "",
        "farm": told_of_farm(node, known, site_key),
    }


def site_settings(node: NodeFolder) -> Row:
    """Those of a node's that all nodes of the site have alike."""
    return {name: getattr(node.settings, name) for name in SITE_SETTINGS}


def _known(site: Site, row: Row) -> Node | None:
    """The node that has this machine's key: it came before, and went away in the middle."""
    found = [node for node in site.nodes if node.public_key.hex() == row.get("public_key")]
    return found[0] if found else None


async def _is_outside(node: NodeFolder, name: str) -> bool:
    """Whether a node of the site file belongs to no group."""
    index = index_of(node.site, name)
    for shard in node.site.shards_of(index):
        if shard.replica_id_of(index) in (await group_of(node, shard)).members:
            return False
    return True


def _next(inviting: NodeFolder, row: Row) -> Node:
    """The machine as the next node of the site: with objects where others have them, and a member
    of the farm if the inviting one is."""
    site = inviting.site
    node = node_of(len(site.nodes), row)
    if not any(other.objects_port for other in site.nodes):
        node = replace(node, objects_port=0)
    return replace(node, farm_port=farm_port_of(row) if inviting.node.farm_port else 0)


async def _describing(folder: Path, joining: Node) -> NodeFolder:
    """This node, once its site file describes the position of who joins."""
    deadline = time.monotonic() + DESCRIBED_S
    while len((node := read_node(folder)).site.nodes) <= joining.index:
        if time.monotonic() > deadline:
            raise StorageError(
                f"{node.node.name} does not write down what shard {SHARD} tells of {joining.name}: "
                "see `tigerchat status` and its log, then make another code"
            )
        await asyncio.sleep(POLL_S)
    if (other := node.site.nodes[joining.index]).public_key != joining.public_key:
        raise StorageError(
            f"{other.name} joined at the same time and has its place: make another code"
        )
    return node
