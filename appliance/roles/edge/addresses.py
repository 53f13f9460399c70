"""Under which names and addresses clients reach a site, as a node's files say."""

from typing import Any

from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.client.address import client_url


def host_names(node: NodeFolder) -> list[str]:
    """Under which browsers may reach this site."""
    chosen = node.settings.client_hosts.split(",")
    names = [other.host for other in node.site.nodes] + [name.strip() for name in chosen]
    return [name for name in names if name]


def addresses_of(node: NodeFolder) -> list[dict[str, Any]]:
    """Where clients connect: every node that belongs to the site now. Their settings are taken to
    be alike."""
    return [
        {
            "index": other.index,
            "name": other.name,
            "url": client_url(other.host, other.client_port, tls=node.settings.client_tls),
        }
        for other in node.view.nodes
    ]


def elsewhere(node: NodeFolder, content: dict[str, Any]) -> list[str]:
    """The addresses of all other nodes but those that the directory keeps out; `content` is empty
    where there is none."""
    out = set(content.get("excluded", ()))
    others = (other for other in node.view.nodes if other.index != node.settings.index)
    kept = {other.index for other in others if str(other.farm_id) not in out}
    return [address["url"] for address in addresses_of(node) if address["index"] in kept]


def elsewhere_listed(content: dict[str, Any], node: NodeFolder) -> tuple[str, ...]:
    """If the directory keeps this node out: the addresses of the others in it, each as often as its
    weight is high. Empty while it does not, and when it lists nobody else: then clients stay."""
    own = str(node.node.farm_id)
    if own not in content["excluded"]:
        return ()
    weights = {
        endpoint["address"]: endpoint["weight"]
        for endpoint in content["endpoints"]
        if str(endpoint["node"]) != own and endpoint["address"]
    }
    return tuple(url for url, weight in sorted(weights.items()) for _ in range(1 + weight // 25))
