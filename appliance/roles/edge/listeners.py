"""The client port of one edge: TCP and, where clients speak TLS, UDP of the same number.

TCP   pages, probes, WebSocket, conversations in plain HTTP
UDP   QUIC: the same by HTTP/3, WebTransport
"""

import hashlib
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from appliance.drivers.host import clock, resources
from appliance.drivers.host.descriptors import clients_max, files_max
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, TLS_KEY_FILE, NodeFolder
from appliance.drivers.network import (
    found_messages,
    room_files,
    websocket,
    webtransport_offer,
)
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.owner import Owner
from appliance.drivers.network.pages import Pages
from appliance.drivers.network.plain.conversations import Conversations
from appliance.drivers.network.plain.routes import Routes
from appliance.drivers.network.proxies import Proxies
from appliance.drivers.network.quic.certificate import load_shown
from appliance.drivers.network.quic.keys import PortKeys
from appliance.drivers.network.quic.neighbours import Neighbours
from appliance.drivers.network.quic.port import QuicPort
from appliance.drivers.network.quic.streams import Services
from appliance.drivers.network.refusals import HTTP3, SERVED
from appliance.drivers.network.tls import show_certificate
from appliance.drivers.network.weighed import OnBody
from appliance.roles.edge.addresses import addresses_of, host_names
from appliance.roles.edge.quic_certificates import QuicCertificates

WEB = resources.web()
_ALSO_S = 86_400  # a browser remembers so long that there is QUIC
_PURPOSE = b"tigerchat-quic"


class Listeners:
    """`start`, then `close`. `server` is that of WebSockets, whatever carries them."""

    def __init__(
        self,
        owner: Owner,
        node: Callable[[], NodeFolder],
        number: int,
        *,
        health: Callable[[], str],
        directory: Callable[[], bytes],
        open_room: room_files.Open,
        open_search: found_messages.Open,
        on_body: OnBody,
        counters: Counter[str],
    ) -> None:
        """`node` gives the newest view of the node's files, `number` is that of this edge."""
        self._node = node
        settings = node().settings
        self._hosts = hosts = Hosts(host_names(node()))
        self.pages = Pages(
            WEB,
            nodes=lambda: addresses_of(node()),
            hosts=hosts,
            secure=settings.client_tls,
            health=health,
            full=lambda: self.server.entrance.is_full,
            directory=directory,
            farm_key=node().site.farm_key,
            also=self._also,
            on_body=on_body,
        )
        self.server = websocket.WebSocketServer(
            owner,
            make_http=self.pages.protocol,
            hosts=hosts,
            connections_max=clients_max(settings.connections_max, files_max()),
            connections_per_address_max=settings.connections_per_address_max,
            address_connect_rate=settings.address_connect_rate,
            counters=counters,
            proxies=Proxies(node().site.client_proxies),
        )
        self.pages.serve(Routes(Conversations(self.server, number), hosts).all)
        self.pages.serve(room_files.RoomFiles(open_room, node().signing_key).all)
        self.pages.serve(found_messages.FoundMessages(open_search).all)
        self.pages.serve([webtransport_offer.route(self._digests, hosts)])
        self.quic: QuicPort | None = None
        self._certificates: QuicCertificates | None = None  # if there is QUIC
        self._neighbours: Neighbours | None = None  # if there are several processes
        if settings.client_tls:
            shown = load_shown(*node().client_certificate)
            self.quic = QuicPort(
                entrance=self.server.entrance,
                services=Services(app=self.pages.app, hosts=hosts, server=self.server),
                keys=PortKeys(_secret(node()), number),
                shown=shown,
                counters=counters,
            )
            self._certificates = QuicCertificates(shown, self.quic.show)
            self._certificates.on_time(clock.realtime_us())
            if settings.edge_processes > 1:
                self._neighbours = Neighbours(
                    Path(SOCKETS_FOLDER), number, take=self.quic.on_handed, counters=counters
                )
                self.quic.hand_over = self._neighbours.hand_over

    @property
    def port(self) -> int:
        return self.server.port

    def on_site(self) -> None:
        """Nodes were added, whose pages may come from other hosts."""
        self._hosts.learn(host_names(self._node()))

    def _also(self) -> bytes:
        """The Alt-Svc of what TCP answers."""
        return b"" if self.quic is None else b'h3=":%d"; ma=%d' % (self.port, _ALSO_S)

    def _digests(self) -> list[bytes] | None:
        """Of certificates that QUIC shows; empty: it is the operator's own. None without QUIC."""
        return None if self._certificates is None else self._certificates.digests

    def on_second(self, now_us: int) -> None:
        """It is so late: the certificate of QUIC may be another one from now on."""
        if self._certificates is not None:
            self._certificates.on_time(now_us)

    async def start(self) -> None:
        """Bind; ConfigurationError when that cannot be."""
        node, settings = self._node().node, self._node().settings
        shared = settings.edge_processes > 1
        await self.server.start(node.host, node.client_port, tls=self._tls(), shared=shared)
        if self.quic is not None:
            await self.quic.open(node.host, self.port, shared=shared)
        if self._neighbours is not None:
            self._neighbours.open()

    def _tls(self) -> ssl.SSLContext | None:
        node = self._node()
        if not node.settings.client_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        show_certificate(context, *node.client_certificate)
        context.num_tickets = 0  # a handshake is cheap; nothing secret is kept to resume
        context.set_alpn_protocols(["http/1.1"])
        return context

    def drain(self) -> None:
        """Let nobody in, take no new request of HTTP/3; what is there goes on."""
        self.server.listener.close()
        if self.quic is not None:
            self.quic.drain()

    async def close(self) -> None:
        """Let connections end, then end them."""
        self.drain()
        await self.server.close()
        if self.quic is not None:
            self.quic.close()
        if self._neighbours is not None:
            self._neighbours.close()
        await self.pages.close()

    def connections(self) -> dict[str, int]:
        """How many there are, by what carries them."""
        return {
            **dict.fromkeys(SERVED, 0),
            **self.server.counts(),
            HTTP3: 0 if self.quic is None else self.quic.plain_count(),
        }

    @property
    def quic_connections(self) -> int:
        return 0 if self.quic is None else self.quic.count()


def _secret(node: NodeFolder) -> bytes:
    """What all processes of this node know, and nobody else."""
    key = (node.path / TLS_KEY_FILE).read_bytes()
    return hashlib.blake2b(key, person=_PURPOSE, digest_size=32).digest()
