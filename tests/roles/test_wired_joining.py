"""A node that runs lets a machine in: it is described by the log, and a standby of the group."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError, StorageError
from appliance.drivers.host.node_folder import read_node
from appliance.formats.joining_node import decode_joining
from appliance.formats.record import BODY, BODY_LEN, SHARD_ROOM_ID
from appliance.formats.site import SITE_FILE, load_site
from appliance.node import founding
from appliance.node.inviting import check_invitation, let_in
from appliance.roles.operator.membership import group_of
from tests.roles.replica_group import peer_ports
from tests.roles.wired_site import UNLIMITED, WiredSite, process_kept, until


@pytest.fixture
def site(disk_folder: Path, monkeypatch: pytest.MonkeyPatch, hurried: None) -> Iterator[WiredSite]:
    with peer_ports(4) as ports, process_kept(monkeypatch):
        yield WiredSite(disk_folder, nodes=2, ports=ports, **UNLIMITED)


def machine(site: WiredSite, name: str, index: int) -> founding.Row:
    first = load_site(site.node(0) / SITE_FILE).nodes[0].peer_port
    return founding.describe(site.folder.parent / name, name, "127.0.0.1", first + 100 * index)


def invited(site: WiredSite, name: str, lost: str = "") -> None:
    """As the verb does, in a process of its own."""
    asyncio.run(check_invitation(read_node(site.node(0)), name, lost))


def test_a_machine_is_let_in_once_and_two_at_once_are_not(site: WiredSite) -> None:
    async def story(site: WiredSite) -> None:
        await site.start_replica(1)
        await site.start_replica(0)
        with pytest.raises(StorageError, match="node-0 does not run"):
            await asyncio.to_thread(invited, site, "c")
        edge = await site.start_edge(0)
        await until(lambda: not edge.health())

        await asyncio.to_thread(invited, site, "c")
        for name, lost, why in (
            ("node-1", "", "node-1 is a node of the site"),
            ("c", "d", "d is no node of the site"),
            ("c", "node-0", "node-0 is this node"),
            ("c", "node-1", "node-1 still serves shard 0"),
        ):
            with pytest.raises((ConfigurationError, StorageError), match=why):
                await asyncio.to_thread(invited, site, name, lost)
        row = machine(site, "c", 2)
        with pytest.raises(StorageError, match="node-1 still serves shard 0"):
            await let_in(site.node(0), row, "node-1")
        assert len(load_site(site.node(0) / SITE_FILE).nodes) == 2, "refused, and it was described"

        told = await let_in(site.node(0), row, "")
        node = read_node(site.node(0))
        assert [other.name for other in node.site.nodes] == ["node-0", "node-1", "c"]
        assert node.site.nodes[2].objects_port == row["objects_port"] and told["index"] == 2
        group = await group_of(node, node.site.shards[0])
        assert group.members == tuple(node.site.shards[0].replica_ids) and group.replica_count == 2
        begin = json.loads(told["begins"]["0"])
        assert begin["members"] == [member.hex() for member in group.members]
        await until(lambda: edge._watch.view.site == node.site)

        with pytest.raises(ConfigurationError, match="c is a member already, and its volume may"):
            await let_in(site.node(0), row, "")
        rows = machine(site, "d", 3), machine(site, "e", 3)
        both = (let_in(site.node(0), row, "") for row in rows)
        ends = await asyncio.gather(*both, return_exceptions=True)
        refusals = [end for end in ends if isinstance(end, StorageError)]
        assert len(refusals) == 1, ends
        first, second = [("d", "e"), ("e", "d")][isinstance(ends[0], StorageError)]
        assert f"{first} joined at the same time and has its place" in str(refusals[0])
        names = [other.name for other in load_site(site.node(0) / SITE_FILE).nodes]
        assert names == ["node-0", "node-1", "c", first] and second not in names
        acts = edge._edge.logs[0].read(SHARD_ROOM_ID, 1, 100)
        sizes = [int.from_bytes(act[BODY_LEN : BODY_LEN + 4], "little") for act in acts]
        bodies = [act[BODY : BODY + size] for act, size in zip(acts, sizes, strict=True)]
        described = [node for node in map(decode_joining, bodies) if node is not None]
        assert [node.name for node in described] == ["c", first], "one for each position"

    site.run(story)
