"""What shard 0 tells of nodes that join becomes the site file of each node, or is told as wrong."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.cores.edge.shard_room import ShardRoom
from appliance.drivers.host.identity import make_certificate
from appliance.formats.group import Configuration
from appliance.formats.joining_node import encode_joining, grown, replica_id_of
from appliance.formats.site import Node, encode_site, load_site
from appliance.formats.site_view import SiteView
from appliance.roles.edge.site_growth import SiteGrowth
from tests.formats.test_site import example

LOG = logging.getLogger("growth")
_, PEM = make_certificate("m", "10.0.0.4")
JOINING = Node(3, "m", "10.0.0.4", 7400, 7443, 7480, bytes([9]) * 32, PEM, objects_port=7490)


class Grower:
    """A node's site file, and the first edge that looks after it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "site.toml"
        self.path.write_text(encode_site(example()))
        self.view = SiteView(load_site(self.path))
        self.growth = SiteGrowth(self.path, self.view, LOG)
        self.room = ShardRoom(self.growth.joining)

    def hear(self, *nodes: Node) -> None:
        acts = [(1, encode_joining(node, node="node-0", at_us=1)) for node in nodes]
        self.growth.joining.learn(acts)

    def go_on(self) -> None:
        """A second passes; whoever follows the file reads it."""
        self.growth.go_on(self.view, self.room)
        self.view = self.view.described(load_site(self.path))


@pytest.fixture
def grower(tmp_path: Path) -> Grower:
    return Grower(tmp_path)


def test_nodes_are_appended_in_the_order_of_their_positions(grower: Grower) -> None:
    other = replace(JOINING, index=4, name="o", host="10.0.0.5", public_key=bytes([8]) * 32)
    grower.hear(other)
    grower.go_on()
    assert len(grower.view.site.nodes) == 3
    grower.hear(JOINING)
    for _ in range(3):
        grower.go_on()
    assert [node.name for node in grower.view.site.nodes[3:]] == ["m", "o"]
    assert grower.view.site == load_site(grower.path)
    wanted = grown(grown(example(), JOINING), other)
    assert grower.path.read_text() == encode_site(wanted), "the same text on every node"


def test_a_file_that_somebody_else_has_written_meanwhile_is_left_alone(
    grower: Grower, caplog: pytest.LogCaptureFixture
) -> None:
    grower.hear(JOINING)
    text = encode_site(grown(example(), replace(JOINING, public_key=bytes([7]) * 32)))
    grower.path.write_text(text)
    grower.go_on()
    assert grower.path.read_text() == text and not caplog.records, "it is no fault"


def test_who_would_use_the_ports_of_another_is_refused_and_told_once(
    grower: Grower, caplog: pytest.LogCaptureFixture
) -> None:
    before = grower.path.read_text()
    grower.hear(replace(JOINING, host="127.0.0.1"))
    for _ in range(3):
        grower.growth.go_on(grower.view, grower.room)
    assert grower.path.read_text() == before
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "both use port" in told[0]


def test_the_room_is_read_anew_when_the_group_has_a_member_whom_nobody_described(
    grower: Grower,
) -> None:
    def read_by_now() -> None:
        grower.room.is_read = True

    read_by_now()
    grower.go_on()
    assert grower.room.is_read
    ids = (*grower.view.site.shards[0].replica_ids, replica_id_of(JOINING.public_key, 0))
    grower.view = grower.view.learned(0, Configuration(0, 9, 3, tuple(ids)))
    grower.go_on()
    assert not grower.room.is_read and grower.growth.joining.is_missed
    read_by_now()
    grower.go_on()
    assert grower.room.is_read, "what is not there is not looked for again and again"
    grower.hear(JOINING)
    for _ in range(2):
        grower.go_on()
    assert grower.room.is_read and not grower.growth.joining.is_missed
