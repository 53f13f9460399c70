"""Ports of the nodes of a local site: all moved together, and one given for objects.

A site that was made before there were objects says nothing of a port for them, and gets one with
its next start. One that was made without them says 0, and stays as it is.
"""

import dataclasses
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.drivers.host.durable_file import write_durable
from appliance.formats.site import SITE_FILE, Node, Site, encode_site, ports_of
from appliance.node.new_node import OBJECTS_PORT
from appliance.node.ports import wait_bindable

_NAMES = ("peer_port", "client_port", "console_port", "objects_port", "farm_port")
_TRIED_MAX = 1000  # ports, for one node


def write_site(folder: Path, site: Site) -> None:
    """To all nodes, then to the site's own folder: until that has it, a start does it again."""
    text = encode_site(site)
    for path in (*(folder / node.name for node in site.nodes), folder):
        write_durable(path / SITE_FILE, text)


def moved(site: Site, first: int) -> Site:
    """Every node has the same ports relative to `first` as it had to node 0's peer port."""
    step = first - site.nodes[0].peer_port
    if step == 0:
        return site
    nodes = []
    for node in site.nodes:
        ports = {name: port + step for name in _NAMES if (port := getattr(node, name))}
        if any(not 0 < port < 65536 for port in ports.values()):
            raise ConfigurationError(
                f"--ports is {first}; allowed: such that all lie in 1 to 65535"
            )
        nodes.append(dataclasses.replace(node, **ports))
    return dataclasses.replace(site, nodes=nodes)


def with_objects(site: Site) -> Site:
    """Each node of which nothing is said has a port for objects; where none is free, nothing is
    said still, as nobody has asked for one."""
    for node in site.nodes:
        if node.objects_port is None:
            port = next(_free_ports(site, node), None)
            given = dataclasses.replace(node, objects_port=port)
            nodes = [given if other.index == node.index else other for other in site.nodes]
            site = dataclasses.replace(site, nodes=nodes)
    return site


def told_of_objects(before: Site, now: Site) -> str:
    """One line for who has not asked for it; empty where all is as it was."""
    pairs = zip(before.nodes, now.nodes, strict=True)
    given = [
        str(new.objects_port) for old, new in pairs if new.objects_port and not old.objects_port
    ]
    if not given:
        return ""
    ports = f"port{'s' if len(given) > 1 else ''} {', '.join(given)}"
    return (
        f"this site is older than objects (topics, pins, reactions): its nodes have {ports} for "
        f"them from now on; who wants none writes `objects_port = 0` into each {SITE_FILE}"
    )


def _free_ports(site: Site, node: Node) -> Iterator[int]:
    """From where a new node has its port on: what no node of this host has, nor anybody else."""
    taken = {
        port
        for other in site.nodes
        if other.host == node.host
        for port, _ in ports_of(site, other.index)
    }
    first = node.peer_port + OBJECTS_PORT
    for port in range(first, min(first + _TRIED_MAX, 65536)):
        if port not in taken and _is_bindable(node.host, port):
            yield port


def _is_bindable(host: str, port: int) -> bool:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        wait_bindable(found[0], found[1], found[4], time.monotonic())
    except OSError:
        return False
    return True
