"""Another site, in the process of a test: the links of its one node, by which sites are known."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.exchange import Exchange
from appliance.drivers.host.federation_file import read_federation
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.federation_site import PeerNode, PeerSite
from appliance.roles.federation.carrier import Carrier
from appliance.roles.federation.rooms import Identity
from appliance.roles.federation.shard import now_ms
from appliance.roles.federation.site_links import Listening, SiteLinks
from tests.drivers.network.site import make_node


class NoRooms:
    """The log of a site that shares none."""

    def append(self, channel: str, due: told.Append) -> None:
        raise AssertionError(channel)


@asynccontextmanager
async def neighbour(
    name: str, folder: Path, port: int, node: NodeFolder
) -> AsyncIterator[PeerSite]:
    """A site called `name` that knows the site of `node` by that node alone; what is to be known
    of it there. Links go over streams, and over datagrams too."""
    site, own = read_federation(node.path), make_node(folder, 0)
    carrier = Carrier(Exchange(name), {}, NoRooms(), now_ms=now_ms, tell=lambda *_: None)
    links = SiteLinks(
        Listening("127.0.0.1", port, own.certificate, own.private, own.pem),
        Identity(name, own.key),
        carrier,
        Prng(port),
        Counter(),
    )
    there = PeerNode(node.node.host, site.ports[node.index], node.node.certificate_pem)
    await links.start((PeerSite(site.name, site.key.public.hex(), (there,), "datagram"),))
    carrier.start({})
    try:
        here = PeerNode("127.0.0.1", port, own.pem)
        yield PeerSite(name, own.key.public.hex(), (here,), "datagram")
    finally:
        carrier.still()
        await links.close()
        carrier.close()
