"""Links over QUIC on one UDP port: the socket, the time, and dialling again."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from appliance.base.errors import ConfigurationError
from appliance.base.limits import LINK_PING_S, STREAM_DIAL_MS_MAX, STREAM_DIAL_MS_MIN
from appliance.base.prng import Prng
from appliance.drivers.network.quic_links.quic_endpoint import Address, QuicEndpoint
from appliance.drivers.network.quic_links.quic_link import Down, Identity, QuicLink, Received, Up
from appliance.roles.federation.carrier import LinkEnd

_log = logging.getLogger("tigerchat.quic")
_TELL_S = 60.0  # between two lines of what peers cause


@dataclass(slots=True, frozen=True)
class Peer:
    """A site that we dial: where, and SHA-256 of the public key of its certificate."""

    site: str
    address: Address
    fingerprint: bytes


class QuicBearer:
    """One link, for the carrier."""

    def __init__(self, port: "QuicPort", link: QuicLink) -> None:
        self._port, self._link = port, link

    def send(self, frame: bytes, kind: str) -> bool:
        taken = self._link.send(frame)
        self._port.wake()
        return taken

    def is_busy(self) -> bool:
        return self._link.is_busy

    def close(self, reason: str) -> None:
        self._link.close(reason)
        self._port.wake()

    def let_wait(self, waits: bool) -> None:
        """Nothing holds back datagrams: what there is no room for is sent again."""


class QuicPort(asyncio.DatagramProtocol):
    """Serves one UDP port, and keeps a link to each of `peers`."""

    def __init__(
        self,
        carrier: LinkEnd,
        identity: Identity,
        keys: dict[str, bytes],
        *,
        certificate: Path,
        private_key: Path,
        prng: Prng,
    ) -> None:
        self.carrier, self.prng = carrier, prng
        self.endpoint = QuicEndpoint(
            identity,
            keys,
            certificate=x509.load_pem_x509_certificate(certificate.read_bytes()),
            private_key=load_pem_private_key(private_key.read_bytes(), None),
            random_bytes=os.urandom,
        )
        self.numbers: dict[QuicLink, int] = {}  # links that are up
        self._dialled: dict[QuicLink, Peer] = {}
        self._kept: set[Peer] = set()
        self._pauses: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._woken = False
        self._closed = False
        self._tell_at_s = 0.0
        self._tasks: set[asyncio.TimerHandle] = set()

    async def start(self, host: str, port: int) -> None:
        """Bind; ConfigurationError when that is impossible."""
        self._loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await self._loop.create_datagram_endpoint(
                lambda: self, local_addr=(host, port)
            )
        except OSError as error:
            raise ConfigurationError(
                f"UDP port {port} on {host} cannot be bound ({error.strerror or error}): stop what "
                f"uses it, or choose another port"
            ) from error
        self._ping()

    @property
    def port(self) -> int:
        return int(self._transport.get_extra_info("sockname")[1])

    def keep(self, peer: Peer) -> None:
        """Dial this site, and again whenever the link ends, until it is forgotten."""
        self._kept.add(peer)
        link = self.endpoint.dial(peer.address, peer.site, peer.fingerprint, self._loop.time())
        self._dialled[link] = peer
        self.wake()

    def forget(self, site: str) -> None:
        """Dial it no more."""
        self._kept = {peer for peer in self._kept if peer.site != site}

    def close(self) -> None:
        """End every link and give the port back."""
        self._closed = True
        for handle in (self._timer, *self._tasks):
            if handle is not None:
                handle.cancel()
        for link in self.endpoint.links:
            link.close("closing")
        self._send()
        for number in self.numbers.values():
            self.carrier.detach(number)
        self.numbers.clear()
        self._transport.close()

    # --- the loop ---------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.endpoint.on_datagram(data, (addr[0], addr[1]), self._loop.time())
        self.wake()

    def error_received(self, error: Exception) -> None:
        self.endpoint.counters["socket_error"] += 1

    def wake(self) -> None:
        """Look at everything in the loop's next turn, once for all that comes until then."""
        if not self._woken and not self._closed:
            self._woken = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._woken = False
        if self._closed:
            return
        for link, told in self.endpoint.events():
            for event in told:
                self._on_event(link, event)
        self._send()
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        deadline = self.endpoint.deadline(now)
        if deadline is not None:
            self._timer = self._loop.call_later(max(0.001, deadline - now), self._on_timer)

    def _on_timer(self) -> None:
        self.endpoint.on_timer(self._loop.time())
        self._turn()

    def _on_event(self, link: QuicLink, event: Up | Received | Down) -> None:
        if isinstance(event, Up):
            self.numbers[link] = self.carrier.attach(QuicBearer(self, link), event.site)
            self._pauses.pop(event.site, None)
        elif isinstance(event, Received):
            if link in self.numbers:
                self.carrier.on_frames(self.numbers[link], event.found)
        else:
            self.endpoint.counters["closed_" + event.reason] += 1
            if event.fault:
                self._tell(event.fault)
            if link in self.numbers:
                self.carrier.detach(self.numbers.pop(link))
            if (peer := self._dialled.pop(link, None)) is not None:
                self._dial_later(peer)

    def _tell(self, fault: str) -> None:
        """One line in a while; all are counted."""
        if self._loop.time() >= self._tell_at_s:
            _log.warning("the library of QUIC failed: %s", fault)
            self._tell_at_s = self._loop.time() + _TELL_S

    def _dial_later(self, peer: Peer) -> None:
        pause_ms = self._pauses.get(peer.site, STREAM_DIAL_MS_MIN)
        self._pauses[peer.site] = min(2 * pause_ms, STREAM_DIAL_MS_MAX)
        delay_s = self.prng.between(pause_ms // 2, pause_ms) / 1000
        self._later(delay_s, lambda: self.keep(peer) if peer in self._kept else None)

    def _ping(self) -> None:
        self.endpoint.ping()
        self.wake()
        self._later(LINK_PING_S, self._ping)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._tasks.discard(handle)
            action()

        handle = self._loop.call_later(delay_s, run)
        self._tasks.add(handle)

    def _send(self) -> None:
        for data, address in self.endpoint.datagrams(self._loop.time()):
            self._transport.sendto(data, address)
