"""Who belongs to a site: as its groups report, and as the file describes only where none did."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.formats.group import Configuration
from appliance.formats.site import Node, Shard, Site
from appliance.formats.site_view import UNDESCRIBED, SiteView, Standing, configuration_in
from tests.cores.console.worlds import site
from tests.statuses import replica_status

IDS = [bytes([1, i]) * 8 for i in range(5)]


def grown(nodes: int = 4, standbys: int = 1) -> Site:
    """A site file with so many nodes, the last of them described as standbys."""
    found = site(nodes)
    (shard,) = found.shards
    counts = {"replica_count": nodes - standbys, "standby_count": standbys}
    return replace(found, shards=[replace(shard, **counts)])


def group_of(*nodes: int, voters: int = 3, op: int = 10, epoch: int = 1) -> Configuration:
    return Configuration(epoch, op, voters, tuple(IDS[node] for node in nodes))


def test_what_nobody_has_reported_of_is_as_the_site_file_describes_it() -> None:
    view = SiteView(grown())
    (group,) = view.groups
    assert (group.epoch, group.replica_count, group.standby_count, group.quorum) == (0, 3, 1, 2)
    assert (group.voter_nodes, group.standby_nodes) == ((0, 1, 2), (3,))
    assert [group.standing(at) for at in (0, 3)] == [Standing.VOTER, Standing.STANDBY]
    assert not view.outside and list(view.nodes) == view.site.nodes


def test_what_a_group_reports_counts_and_not_the_order_of_the_file() -> None:
    view = SiteView(grown()).learned(0, group_of(3, 1, 2, 0))
    (group,) = view.groups
    assert group.voters == (3, 1, 2) and group.members == (3, 1, 2, 0)
    assert group.standing(0) is Standing.STANDBY and group.standing(3) is Standing.VOTER
    view = view.learned(0, group_of(3, 1, 2, op=11))
    assert view.groups[0].standing(0) is Standing.OUTSIDE
    assert view.outside == {0} and [node.index for node in view.nodes] == [1, 2, 3]
    assert view.groups[0].standby_count == 0
    assert len(view.public_keys) == 4, "what a former node signed stays signed"


def test_a_node_that_is_described_and_not_added_yet_is_outside() -> None:
    view = SiteView(grown()).learned(0, group_of(0, 1, 2, op=0, epoch=0))
    assert view.outside == {3}
    assert not view.learned(0, group_of(0, 1, 2, 3, epoch=0)).outside


def test_an_older_report_changes_nothing_whoever_tells_it() -> None:
    newest = SiteView(grown()).learned(0, group_of(3, 1, 2, op=11))
    assert newest.learned(0, group_of(0, 1, 2, 3, op=5, epoch=0)) is newest
    assert newest.learned(0, group_of(3, 1, 2, op=11)) is newest
    assert newest.learned(0, None) is newest and newest.learned(7, group_of(0)) is newest


def test_a_member_that_the_file_does_not_describe_is_nobody_else() -> None:
    view = SiteView(site(3)).learned(0, group_of(3, 1, 2))
    (group,) = view.groups
    assert group.voters == (UNDESCRIBED, 1, 2) and group.voter_nodes == (1, 2)
    assert group.quorum == 2 and view.outside == {0}
    described = view.described(grown())
    assert described.groups[0].voter_nodes == (3, 1, 2)
    assert described.described(grown()) is described


def test_a_node_is_outside_once_it_belongs_to_no_shard_at_all() -> None:
    view = SiteView(site(3, shards=2))
    second = view.site.shards[1].replica_ids
    view = view.learned(0, group_of(0, 1, voters=2))
    assert not view.outside
    left = tuple(i for i in second if view.site.shards[1].node_of(i) != 2)
    assert view.learned(1, Configuration(0, 9, 2, left)).outside == {2}


def test_a_node_without_a_shard_is_not_outside() -> None:
    alone = Node(3, "node-3", "127.0.0.1", 1, 2, 3, b"k" * 32, "")
    found = site(3)
    view = SiteView(replace(found, nodes=[*found.nodes, alone]))
    assert not view.learned(0, group_of(0, 1, 2)).outside


def test_replicas_and_nodes_are_known_by_each_other() -> None:
    shard: Shard = site(3, shards=2).shards[1]
    assert [shard.node_of(shard.replica_id_of(node)) for node in range(3)] == [0, 1, 2]
    assert shard.node_of(b"?" * 16) is None


STATUS: dict[str, Any] = {
    "epoch": 1,
    "members_op": 10,
    "replica_count": 3,
    "members": [IDS[i].hex() for i in (3, 1, 2, 0)],
}


def test_the_group_in_a_status_is_what_the_replica_goes_by() -> None:
    assert configuration_in(replica_status(**STATUS)) == group_of(3, 1, 2, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"members": ["zz"]},
        {"members": [IDS[0].hex(), IDS[0].hex(), IDS[1].hex()]},
        {"members": [IDS[0].hex()[2:]], "replica_count": 1},
        {"members": [bytes([9, i]).hex() * 8 for i in range(9)]},
        {"members": []},
        {"replica_count": 0},
        {"replica_count": 5},
        {"epoch": -1},
        {"members_op": -1},
    ],
)
def test_a_status_that_tells_of_no_group_is_no_report(change: dict[str, Any]) -> None:
    assert configuration_in(replica_status(**STATUS | change)) is None


def test_an_older_program_tells_of_no_group() -> None:
    assert configuration_in(replica_status()) is None
