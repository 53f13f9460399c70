"""Ports for objects: given to a site of before, never to one that is to have none."""

import dataclasses
import socket
from pathlib import Path

import pytest

from appliance.formats.site import SITE_FILE, Site, encode_site, load_site
from appliance.node.local_ports import told_of_objects, with_objects
from appliance.node.new_node import OBJECTS_PORT
from tests.formats.test_site import example
from tests.ports import FreePorts


def placed(first: int, objects_port: int | None = None) -> Site:
    """A site whose nodes have a hundred ports each."""
    site = example()
    nodes = [
        dataclasses.replace(
            node,
            peer_port=first + 100 * node.index,
            client_port=first + 100 * node.index + 43,
            console_port=first + 100 * node.index + 80,
            objects_port=objects_port,
        )
        for node in site.nodes
    ]
    return dataclasses.replace(site, nodes=nodes)


def objects_ports(site: Site) -> list[int | None]:
    return [node.objects_port for node in site.nodes]


@pytest.fixture
def first(free_ports: FreePorts) -> int:
    while True:
        ports = free_ports(300)
        if ports[-1] - ports[0] == 299:
            return ports[0]


def test_a_site_of_before_has_a_port_for_objects_on_each_node_and_is_told_once(first: int) -> None:
    before = placed(first)
    now = with_objects(before)
    assert objects_ports(now) == [first + 100 * index + OBJECTS_PORT for index in range(3)]
    told = told_of_objects(before, now)
    assert f"have ports {', '.join(map(str, objects_ports(now)))} for" in told
    assert len(told.splitlines()) == 1
    assert with_objects(now) == now and told_of_objects(now, with_objects(now)) == ""


def test_a_port_that_somebody_has_is_passed_over(first: int) -> None:
    """A program beside the site, and the site itself, whoever chose its ports."""
    before = placed(first)
    own = dataclasses.replace(before.nodes[2], farm_port=first + 100 + OBJECTS_PORT)
    before = dataclasses.replace(before, nodes=[*before.nodes[:2], own])
    with socket.create_server(("127.0.0.1", first + OBJECTS_PORT)):
        now = with_objects(before)
    assert objects_ports(now) == [
        first + OBJECTS_PORT + 1,
        first + 100 + OBJECTS_PORT + 1,
        first + 200 + OBJECTS_PORT,
    ]


def test_who_wants_none_has_none(first: int, tmp_path: Path) -> None:
    """Also where one node alone is to have none; and it is still so once it was written down."""
    without = placed(first, 0)
    assert with_objects(without) == without
    but_one = dataclasses.replace(without, nodes=[*without.nodes[:2], placed(first).nodes[2]])
    path = tmp_path / SITE_FILE
    for site, found in ((without, [0, 0, 0]), (but_one, [0, 0, first + 200 + OBJECTS_PORT])):
        path.write_text(encode_site(site))
        assert objects_ports(with_objects(load_site(path))) == found


def test_where_no_port_is_left_the_site_goes_on_without() -> None:
    crowded = placed(65_535 - 200 - 80)  # the last node ends below where its port would be
    assert objects_ports(with_objects(crowded))[2] is None
    assert str(None) not in told_of_objects(crowded, with_objects(crowded))
