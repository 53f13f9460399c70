"""The UDP side of the client port: whose a datagram is, and who may begin a connection.

    datagram ──▶ an identifier of ours ──▶ its connection
             ├─▶ made by another process of this node ──▶ handed to that one
             ├─▶ Initial without our token ──▶ Retry: nothing is kept for who asks
             ├─▶ Initial with our token ──▶ admitted as a stranger, at a bounded rate; if there are
             │                              too many: CONNECTION_REFUSED, and nothing is kept
             ├─▶ a version that we do not speak ──▶ the one that we do
             └─▶ of a connection that is forgotten ──▶ stateless reset

In one turn of the loop a bounded number of datagrams is read; what is answered without a
connection has a rate of its own. Beyond both, the kernel's buffer and then the network drop.
"""

import asyncio
import ipaddress
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import (
    QuicHeader,
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)

from appliance.base.limits import (
    QUIC_ANSWERS_RATE,
    QUIC_DATAGRAM_FRAME_SIZE_MAX,
    QUIC_DATAGRAMS_PER_TURN,
    QUIC_HANDSHAKES_BURST,
    QUIC_HANDSHAKES_RATE,
    QUIC_IDLE_S,
    QUIC_PATH_SIZES,
    QUIC_STREAM_WINDOW,
    QUIC_WINDOW,
)
from appliance.drivers.network.entrance import Entrance, address_of
from appliance.drivers.network.quic.certificate import Shown
from appliance.drivers.network.quic.client import Client
from appliance.drivers.network.quic.keys import ID_SIZE, RESET_TOKEN_SIZE, PortKeys
from appliance.drivers.network.quic.sessions import conversations_on
from appliance.drivers.network.quic.sockets import Peer, Source, UdpSocket, bind_all
from appliance.drivers.network.quic.streams import Services
from appliance.drivers.network.rate import Rate
from appliance.drivers.quic.library import BoundedConnection, Bounds, encode_refusal

ALPN = ["h3"]
INITIAL_SIZE_MIN = 1200  # bytes of a datagram that begins a connection
VERSIONS = [int(QuicProtocolVersion.VERSION_1)]
PING_SECONDS = 20.0  # between two signs of life of a connection that has a session
_RESET_SIZE_MIN, _RESET_SIZE_MAX = 5 + RESET_TOKEN_SIZE, 42  # bytes; smaller than what it answers
_LONG_HEADER = 0x80
_BOUNDS = Bounds(path_sizes=QUIC_PATH_SIZES)

for _name in ("quic", "http3"):  # of the library: a line or more for each connection
    logging.getLogger(_name).setLevel(logging.CRITICAL)


HandOver = Callable[[int, bytes, Peer, Source], bool]


@dataclass(slots=True, frozen=True)
class Datagram:
    """As it came."""

    data: bytes
    peer: Peer
    source: Source
    sock: UdpSocket


class QuicPort:
    """All QUIC connections of a process."""

    def __init__(
        self,
        *,
        entrance: Entrance,
        services: Services,
        keys: PortKeys,
        shown: Shown,
        counters: Counter[str],
    ) -> None:
        """`entrance` counts who comes in, as it does for TCP; `shown` is what they are shown until
        `show` says otherwise."""
        self.entrance, self.services, self.keys = entrance, services, keys
        self.counters = counters
        self.clients: dict[Client, None] = {}
        self.hand_over: HandOver | None = None  # to another process, if the port is shared
        self._by_id: dict[bytes, Client] = {}
        self._configuration = _configuration(shown)
        self._sockets: list[UdpSocket] = []
        self._dirty: dict[Client, None] = {}
        self._is_woken = self._is_draining = False
        self._handshakes = Rate(QUIC_HANDSHAKES_RATE, QUIC_HANDSHAKES_BURST)
        self._answers = Rate(QUIC_ANSWERS_RATE, QUIC_ANSWERS_RATE / 10)
        self._pinger: asyncio.TimerHandle | None = None

    # --- life

    def show(self, shown: Shown) -> None:
        """This, from now on, to whoever begins a connection."""
        self._configuration = _configuration(shown)

    async def open(self, host: str, port: int, *, shared: bool) -> None:
        """Bind, `shared` with other processes; ConfigurationError when that cannot be."""
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        addresses = [(info[0], info[4]) for info in dict.fromkeys(infos)]
        self._sockets = bind_all(addresses, shared=shared)
        for sock in self._sockets:
            loop.add_reader(sock.sock, self._on_readable, sock)
        self._ping_all()

    @property
    def port(self) -> int:
        return int(self._sockets[0].sock.getsockname()[1])

    def drain(self) -> None:
        """Take no new connection and no new request; what is under way goes on."""
        self._is_draining = True
        for client in list(self.clients):
            client.drain()

    def close(self) -> None:
        """End every connection, and give the port back."""
        self._is_draining = True
        if self._pinger is not None:
            self._pinger.cancel()
        for client in list(self.clients):
            client.close()
            client.flush()
            self.forget(client)
        for sock in self._sockets:
            asyncio.get_running_loop().remove_reader(sock.sock)
            sock.sock.close()
        self._sockets.clear()

    # --- datagrams

    def _on_readable(self, sock: UdpSocket) -> None:
        for _ in range(QUIC_DATAGRAMS_PER_TURN):
            came = sock.receive()
            if came is None:
                break
            data, peer, source = came
            self.on_datagram(Datagram(data, peer, source, sock))

    def on_handed(self, data: bytes, peer: Peer, source: Source) -> None:
        """Another process got what is ours."""
        family = socket.AF_INET6 if len(peer) == 4 else socket.AF_INET
        for sock in self._sockets:
            if sock.family == family:
                self.counters["quic_handed_to_us"] += 1
                self._give(Datagram(data, peer, source, sock), handed=True)
                return

    def on_datagram(self, came: Datagram) -> None:
        """One datagram of anybody."""
        self._give(came, handed=False)

    def _give(self, came: Datagram, *, handed: bool) -> None:
        try:
            header = pull_quic_header(Buffer(data=came.data), host_cid_length=ID_SIZE)
        except ValueError:
            self.counters["quic_malformed"] += 1
            return
        client = self._by_id.get(header.destination_cid)
        if client is not None:
            client.receive(came.data, came.peer, came.source, came.sock)
            return
        if not handed and self._hand_over(header, came):
            return
        if not came.data[0] & _LONG_HEADER:
            self._reset(header, came)
        elif len(came.data) < INITIAL_SIZE_MIN:
            self.counters["quic_stray"] += 1
        elif header.version not in VERSIONS:
            self._negotiate(header, came)
        elif header.packet_type == QuicPacketType.INITIAL and not self._is_draining:
            self._on_initial(header, came)
        else:
            self.counters["quic_stray"] += 1

    def _hand_over(self, header: QuicHeader, came: Datagram) -> bool:
        """Whether it is another process's, and that one got it. The first Initial of a client
        bears an identifier that nobody made."""
        is_first = header.packet_type == QuicPacketType.INITIAL and not header.token
        if self.hand_over is None or is_first or len(header.destination_cid) != ID_SIZE:
            return False
        owner = self.keys.owner_of(header.destination_cid)
        if owner == self.keys.number or not self.hand_over(
            owner, came.data, came.peer, came.source
        ):
            return False
        self.counters["quic_handed_over"] += 1
        return True

    def _on_initial(self, header: QuicHeader, came: Datagram) -> None:
        """Somebody begins: first with nothing, then with the token of our Retry."""
        where = _packed(came.peer)
        now_s = time.time()
        original_id = self.keys.open_retry(header.token, where, header.destination_cid, now_s)
        if original_id is None:
            self._retry(header, came, where, now_s)
            return
        loop_s = asyncio.get_running_loop().time()
        if not self._handshakes.take(loop_s):
            self.counters["quic_handshakes_too_many"] += 1  # the client sends it again
            return
        quic = BoundedConnection(
            configuration=self._configuration,
            original_id=original_id,
            retry_id=header.destination_cid,
            new_id=self.keys.new_id,
            reset_token=self.keys.reset_token,
            bounds=_BOUNDS,
        )
        client = Client(self, quic, address_of(str(came.peer[0])))
        if not self.entrance.admit(client, loop_s):
            self._refuse(header, came)
            return
        self.counters["quic_accepted"] += 1
        self.clients[client] = None
        client.initial_id = header.destination_cid
        self._by_id[header.destination_cid] = client
        for identifier in quic.ids:
            self._by_id[identifier] = client
        client.begin()
        client.receive(came.data, came.peer, came.source, came.sock)

    # --- answers without a connection

    def _answer(self, name: str, came: Datagram, data: bytes) -> None:
        if self._answers.take(asyncio.get_running_loop().time()):
            self.counters[name] += 1
            came.sock.send(data, came.peer, came.source)
        else:
            self.counters["quic_answers_too_many"] += 1

    def _retry(self, header: QuicHeader, came: Datagram, where: bytes, now_s: float) -> None:
        assert header.version is not None
        retry_id = self.keys.new_id()
        token = self.keys.retry_token(where, retry_id, header.destination_cid, now_s)
        packet = encode_quic_retry(
            version=header.version,
            source_cid=retry_id,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )
        self._answer("quic_retry", came, packet)

    def _refuse(self, header: QuicHeader, came: Datagram) -> None:
        """It may go elsewhere at once."""
        assert header.version is not None
        packet = encode_refusal(
            version=header.version,
            source_id=header.destination_cid,
            destination_id=header.source_cid,
            reason="no more connections are served here: use another node, or wait",
        )
        self._answer("quic_refused", came, packet)

    def _negotiate(self, header: QuicHeader, came: Datagram) -> None:
        packet = encode_quic_version_negotiation(
            source_cid=header.destination_cid,
            destination_cid=header.source_cid,
            supported_versions=VERSIONS,
        )
        self._answer("quic_version", came, packet)

    def _reset(self, header: QuicHeader, came: Datagram) -> None:
        """Tell a client that its connection is forgotten; with fewer bytes than it sent, so that
        two who both know nothing come to an end."""
        size = min(_RESET_SIZE_MAX, len(came.data) - 1)
        if size < _RESET_SIZE_MIN:
            self.counters["quic_stray"] += 1
            return
        noise = bytearray(self.keys.chance(size - RESET_TOKEN_SIZE))
        noise[0] = 0x40 | noise[0] & 0x3F  # as the first byte of a short header
        token = self.keys.reset_token(header.destination_cid)
        self._answer("quic_reset", came, bytes(noise) + token)

    # --- for clients

    def is_known(self, client: Client) -> bool:
        """Whether it is not forgotten."""
        return client in self.clients

    def learn(self, client: Client, identifier: bytes) -> None:
        """The client may use this one from now on."""
        self._by_id[identifier] = client

    def unlearn(self, identifier: bytes) -> None:
        self._by_id.pop(identifier, None)

    def wake(self, client: Client) -> None:
        """Send what this one has in the loop's next turn, once for all that is written until
        then."""
        self._dirty[client] = None
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_woken = False
        dirty, self._dirty = self._dirty, {}
        for client in dirty:
            client.flush()

    def forget(self, client: Client) -> None:
        """It is gone."""
        if client not in self.clients:
            return
        del self.clients[client]
        self._dirty.pop(client, None)
        self.unlearn(client.initial_id)
        for identifier in client.known_ids:
            self.unlearn(identifier)
        self.entrance.forget(client)
        client.on_forgotten()

    def _ping_all(self) -> None:
        for client in self.clients:
            client.probe()
        self._pinger = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping_all)

    def count(self) -> int:
        """Connections, with a session or without."""
        return len(self.clients)

    def plain_count(self) -> int:
        """Those without."""
        return sum(not conversations_on(client) for client in self.clients)


def _packed(peer: Peer) -> bytes:
    """Address and port, as a Retry is bound to."""
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    return address.packed + int(peer[1]).to_bytes(2, "big")


def _configuration(shown: Shown) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=False,
        alpn_protocols=ALPN,
        connection_id_length=ID_SIZE,
        idle_timeout=float(QUIC_IDLE_S),
        max_data=QUIC_WINDOW,
        max_stream_data=QUIC_STREAM_WINDOW,
        max_datagram_frame_size=QUIC_DATAGRAM_FRAME_SIZE_MAX,
        supported_versions=VERSIONS,
        certificate=shown.certificate,
        certificate_chain=list(shown.above),
        private_key=shown.key,
    )
