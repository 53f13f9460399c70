"""A site whose nodes have network namespaces of their own, so that they can be parted."""

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appliance.formats.site import SITE_FILE, encode_site, load_site
from tests.system.local_site import LocalSite
from tests.system.network import Switch, host

FIRST_PORT = 7400  # any: a node has its namespace's ports to itself


class NetworkedSite(LocalSite):
    """As a local site, but each node has an address of its own.

    `places` on the switch, by node: all of them unless it is shared with other sites, whose
    `number` differs.
    """

    def __init__(
        self,
        folder: Path,
        switch: Switch,
        *,
        places: Sequence[int] = (),
        number: int = 1,
        **settings: Any,
    ) -> None:
        self.places = list(places or switch.nodes)
        super().__init__(folder, FIRST_PORT, nodes=len(self.places), **settings)
        self.switch, self.number = switch, number

    def host(self, node: int) -> str:
        return host(self.places[node])

    def _settle(self) -> None:
        """Write the nodes' addresses and the site's number into all site files."""
        site = load_site(self.folder / SITE_FILE)
        nodes = [dataclasses.replace(node, host=self.host(node.index)) for node in site.nodes]
        text = encode_site(dataclasses.replace(site, nodes=nodes, number=self.number))
        for place in (self.folder, *map(self.place, self.nodes)):
            (place / SITE_FILE).write_text(text)

    def _namespace(self, node: int) -> str:
        return self.switch.namespace(self.places[node])

    def edge_serves(self, node: int) -> bool:
        """Whether the clients' namespace reaches the node's client port."""
        reached: list[bool] = []

        def knock() -> None:
            address = (self.host(node), self.site.nodes[node].client_port)
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=0.5):
                reached.append(True)

        thread = threading.Thread(target=self.switch.in_load, args=(knock,))
        thread.start()
        thread.join()
        return bool(reached)
