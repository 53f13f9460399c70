"""Links to the nodes of other sites: listens, dials, and follows which sites are known.

Of two sites the one whose name is smaller dials. Every node is linked to every node of the other
site, since only the two that carry a room have it to offer, and either may change at any time.
"""

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from appliance.base.limits import SITE_DIAL_MS_MAX
from appliance.base.prng import Prng
from appliance.drivers.network.quic_links.quic_link import Identity as QuicIdentity
from appliance.drivers.network.stream.acceptor import Acceptor
from appliance.drivers.network.stream.certificate import add_anchor
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.tls import client_context, server_context
from appliance.formats.federation_site import PeerSite
from appliance.formats.site import spki_of
from appliance.roles.federation.carrier import LinkEnd
from appliance.roles.federation.datagrams import Peer, QuicPort
from appliance.roles.federation.rooms import Identity


@dataclass(slots=True, frozen=True)
class Listening:
    """Where other sites reach this end, by TCP and UDP; the files (PEM) of what they are shown."""

    host: str
    port: int
    certificate: Path
    private_key: Path
    certificate_pem: str

    @property
    def spki(self) -> bytes:
        """SHA-256 of the certificate's public key."""
        return hashlib.sha256(spki_of(self.certificate_pem)).digest()


class SiteLinks:
    """The links of one node. Sites are added and removed while it runs."""

    def __init__(
        self,
        listening: Listening,
        identity: Identity,
        end: LinkEnd,
        prng: Prng,
        counters: Counter[str],
    ) -> None:
        self._listening, self._identity, self._end = listening, identity, end
        self._prng, self.counters = prng, counters
        self._files = (listening.certificate, listening.private_key)
        self._context = server_context(*self._files, [listening.certificate_pem])
        self._pins: dict[bytes, str] = {}
        self._keys: dict[str, bytes] = {}
        self._acceptor = Acceptor(
            end.make_codec, context=self._context, pins=self._pins, counters=counters
        )
        self._quic = QuicPort(
            end,
            QuicIdentity(identity.site, identity.key, listening.spki),
            self._keys,
            certificate=self._files[0],
            private_key=self._files[1],
            prng=prng.fork(),
        )
        self._diallers: dict[str, list[Dialler]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self, peers: tuple[PeerSite, ...]) -> None:
        """Listen by TCP and by UDP; ConfigurationError when that is impossible."""
        await self._acceptor.start(self._listening.host, self._listening.port)
        await self._quic.start(self._listening.host, self._listening.port)
        for peer in peers:
            self.add(peer)

    def add(self, peer: PeerSite) -> None:
        """Let this site in, and dial it if that is ours to do."""
        self.remove(peer.name)
        pins = {node.spki: peer.name for node in peer.nodes}
        self._pins.update(pins)
        self._keys[peer.name] = bytes.fromhex(peer.public_key)
        for node in peer.nodes:
            add_anchor(self._context, node.certificate)
        self._diallers[peer.name] = []
        if self._identity.site > peer.name:
            return
        for node in peer.nodes:
            dialler = Dialler(
                self._end.make_codec,
                node.host,
                node.port,
                context=client_context(*self._files, [node.certificate]),
                pins={node.spki: peer.name},
                prng=self._prng.fork(),
                counters=self.counters,
                pause_ms_max=SITE_DIAL_MS_MAX,
            )
            dialler.start()
            self._diallers[peer.name].append(dialler)
            if peer.carrier == "datagram":
                address = (node.host, node.port)
                self._quic.keep(Peer(peer.name, address, node.spki))

    def remove(self, name: str) -> None:
        """Let it in no more, and end its links."""
        for spki in [spki for spki, site in self._pins.items() if site == name]:
            del self._pins[spki]
        self._keys.pop(name, None)
        for dialler in self._diallers.pop(name, []):
            task = asyncio.get_running_loop().create_task(dialler.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._quic.forget(name)
        self._end.close_links(name)

    @property
    def datagram_counters(self) -> Counter[str]:
        return self._quic.endpoint.counters

    async def close(self) -> None:
        diallers = [dialler for found in self._diallers.values() for dialler in found]
        await asyncio.gather(*(dialler.close() for dialler in diallers), *self._closing)
        self._quic.close()
        await self._acceptor.close()
