"""Who belongs to a site is known to all roles soon after it has changed, and none starts again.

Old nodes are the ones that are looked at: what they knew at their start was right then.
"""

import asyncio
import json
import logging
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import StorageError
from appliance.base.signature import SEED_SIZE
from appliance.commands.ship import ShippingSite
from appliance.drivers.host import service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.federation_file import write_federation
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import group_name, open_node, read_node
from appliance.formats.federation_site import FederationSite
from appliance.formats.group import Configuration
from appliance.formats.membership import KIND_ADD, KIND_REMOVE, MemberChange
from appliance.formats.settings import SHIP_FOLDER
from appliance.formats.site import SITE_FILE, encode_site, load_site
from appliance.formats.site_view import SiteView
from appliance.node.catalogue import ROLES
from appliance.node.format_node import format_node
from appliance.node.format_site import describe_another
from appliance.roles.console.role import ConsoleRole
from appliance.roles.edge.addresses import elsewhere
from appliance.roles.edge.role import EdgeRole
from appliance.roles.federation.role import FederationRole
from appliance.roles.operator.membership import change_members, reconfigure
from appliance.roles.shipper.role import ShipperRole
from tests.roles.replica_group import peer_ports
from tests.roles.wired_site import UNLIMITED, WiredSite, process_kept, until

NEW = 2  # the node that joins two others
BEATS = 2  # in this time all know
PERIOD_S = 0.5  # instead of a second: nothing here is about how often


@pytest.fixture
def site(disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WiredSite]:
    monkeypatch.setattr(service, "HEARTBEAT_S", PERIOD_S)
    with peer_ports(3) as ports, process_kept(monkeypatch):
        yield WiredSite(disk_folder, nodes=2, ports=ports, ship_target=SHIP_FOLDER, **UNLIMITED)


async def soon(beat: Beat, condition: Callable[[], bool]) -> bool:
    """Whether it holds after at most so many beats of a role."""
    for _ in range(BEATS):
        due_s = beat._due_s
        await until(lambda due_s=due_s: condition() or beat._due_s != due_s)  # type: ignore[misc]
    return condition()


class Observers:
    """The roles of node 0 beside its replica: each told once who belongs to the site."""

    def __init__(self, site: WiredSite, edge: EdgeRole, shipper: ShipperRole) -> None:
        self.site, self.edge, self.shipper = site, edge, shipper
        self.console = ConsoleRole(open_node(site.node(0)), logging.getLogger(), ROLES)
        write_federation(site.node(0), FederationSite("north", "17" * SEED_SIZE, (1, 2)))
        self.carrying = FederationRole(open_node(site.node(0)), logging.getLogger())

    def may_be_chosen(self) -> list[int]:
        """To carry shared rooms, once a second has passed."""
        self.carrying._each_second()
        return sorted(self.carrying.shards[0].turn.nodes.values())

    def handed_out(self) -> list[int]:
        return [ship_site["index"] for ship_site in self.edge._listeners.pages._nodes()]

    def turns(self) -> tuple[int, ...]:
        return self.shipper.shards[0].core.role.members

    async def all_know(self, handed_out: list[int], *turns: tuple[int, ...]) -> None:
        """Turns are those of the shipper, in one of these orders."""
        assert await soon(self.edge._beat, lambda: self.handed_out() == handed_out), (
            self.handed_out()
        )
        assert await soon(self.shipper._tasks.beat, lambda: self.turns() in turns), self.turns()
        url = f"http://127.0.0.1:{self.edge._listeners.port}/nodes.json"
        answer = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(url)))
        assert [ship_site["index"] for ship_site in answer["nodes"]] == handed_out
        ports = {node.client_port: node.index for node in self.edge._node.site.nodes}
        next_ones = [
            int(url.rsplit(":", 1)[1].split("/")[0]) for url in elsewhere(self.edge._node, {})
        ]
        assert [ports[port] for port in next_ones] == [n for n in handed_out if n != 0]
        assert await self.shippers_asked() == handed_out

    async def shippers_asked(self) -> list[int]:
        """Of whom `ship status` and `ship now` expect an answer."""
        site = self.edge._node.site
        ship_site = ShippingSite(site, neighbours(self.site.node(0), site))
        return await asyncio.to_thread(lambda: [node.index for node in ship_site.members])

    async def console_shows(self, **roles: str) -> None:
        """Who leads and who only follows, by one poll."""
        await self.console.watch.poll_beside()
        shown = self.console.watch.console
        (shard,) = shown.shards()
        names = {m.node: f"node_{m.node}" for m in shard.members if not m.removed}
        leads = None if shard.primary is None else shard.primary.node
        found = {
            names[m.node]: "primary" if m.node == leads else "standby" if m.standby else "backup"
            for m in shard.members
            if not m.removed
        }
        assert found == roles
        assert "no_quorum" not in {alarm.name for alarm in shown.alarms()}


def add(site: WiredSite) -> MemberChange:
    described = read_node(site.node(0)).site
    shard, node = described.shards[0], described.nodes[NEW]
    address = f"{node.host}:{node.peer_port}"
    return MemberChange(0, KIND_ADD, shard.replica_id_of(NEW), node.public_key, address)


def describe_on_another_host(site: WiredSite, host: str) -> None:
    """One more node, which holds no shard, in the file of node 0."""
    path = site.node(0) / SITE_FILE
    known = load_site(path)
    last = known.nodes[-1]
    another = replace(last, index=NEW + 1, name="late", host=host, public_key=bytes([9]) * 32)
    write_durable(path, encode_site(replace(known, nodes=[*known.nodes, another])))


def begin(site: WiredSite, group: Configuration) -> None:
    """The volume of the new node, as `member add` has it made."""
    words: dict[str, Any] = {
        "epoch": group.epoch,
        "members_op": group.op,
        "replica_count": group.replica_count,
        "members": [member.hex() for member in group.members],
        "view": 0,
        "log_view": 0,
    }
    (site.node(NEW) / group_name(0)).write_text(json.dumps(words))
    format_node(read_node(site.node(NEW)), "small", brief=True)


async def roles_of(site: WiredSite, *nodes: int) -> dict[str, str]:
    """As their replicas have it, whoever leads, once they agree."""

    def agree() -> bool:
        found = [site.replicas[node].status() for node in nodes]
        views = {(said.status, said.epoch, said.view) for said in found}
        return len(views) == 1 and all(said.serves for said in found)

    await until(lambda: agree() and "primary" in {role_of(site, node)[1] for node in nodes})
    return {f"node_{node}": role_of(site, node)[1] for node in nodes}


def role_of(site: WiredSite, node: int) -> tuple[str, str]:
    status = site.replicas[node].status()
    return status.status, status.role


def test_edge_shipper_and_console_of_an_old_node_follow_all_changes_of_members(
    site: WiredSite,
) -> None:
    async def story(site: WiredSite) -> None:
        await site.start_replica(1)
        await site.start_replica(0)
        edge, shipper = await site.start_edge(0), await site.start_shipper(0)
        await until(lambda: not edge.health())
        seen = Observers(site, edge, shipper)
        await seen.all_know([0, 1], (0, 1))
        assert seen.may_be_chosen() == [0, 1]
        await until(lambda: edge._watch.view.reported)
        await seen.console_shows(**await roles_of(site, 0, 1))

        await asyncio.to_thread(describe_another, site.folder)
        described = open_node(site.node(0))
        (shard,) = described.shards
        await until(lambda: edge._watch.view.site == described.site)
        assert seen.handed_out() == [0, 1], "it is described and belongs to no group yet"
        assert seen.may_be_chosen() == [0, 1, NEW]
        group = await change_members(described, shard, add(site))
        await seen.all_know([0, 1, NEW], (0, 1, NEW))

        await asyncio.to_thread(begin, site, group)
        await site.start_replica(NEW)
        await until(lambda: role_of(site, NEW) == ("normal", "standby"))
        await seen.console_shows(**await roles_of(site, 0, 1), node_2="standby")

        # Where the replica of a node is away, those of others tell its edge by their answers.
        newest = Configuration(0, group.op, 2, tuple(described.site.shards[0].replica_ids))
        await until(lambda: (0, newest) in edge._log_sessions.sessions.configurations())
        edge._watch.view = SiteView(described.site)  # as it is where nobody here has told of it
        edge._each_second()
        assert edge._watch.view.reported == {0: newest}
        edge._log_sessions.sessions.configurations = lambda: iter(())  # type: ignore[method-assign]

        await reconfigure(described, shard, NEW, 0)
        await until(lambda: role_of(site, 0) == ("normal", "standby"))
        await seen.all_know([0, 1, NEW], (NEW, 1, 0))
        await seen.console_shows(node_0="standby", **await roles_of(site, 1, NEW))

        gone = MemberChange(0, KIND_REMOVE, shard.replica_id_of(0))
        with pytest.raises(StorageError, match="the group has changed meanwhile"):
            await change_members(described, shard, gone, of=newest)
        with pytest.raises(StorageError, match="the group has changed meanwhile"):
            await reconfigure(described, shard, 0, NEW, of=newest)
        await change_members(described, shard, gone)
        await until(lambda: role_of(site, 0)[1] == "removed")
        await seen.all_know([1, NEW], (NEW, 1))
        await seen.console_shows(**await roles_of(site, 1, NEW))

        hosts = edge._listeners._hosts
        assert not hosts.may_connect("https://late.example", "127.0.0.1")
        describe_on_another_host(site, "late.example")
        page = "https://late.example", "127.0.0.1"
        assert await soon(edge._beat, lambda: hosts.may_connect(*page))

    site.run(story)
