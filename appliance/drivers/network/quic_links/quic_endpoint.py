"""All QUIC connections of one UDP port, dialled and accepted.

Who dials has to show that its address is its own (Retry, RFC 9000 section 8.1.2) before anything is
kept for it. A connection is found by its identifiers, so it goes on when an address changes.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicHeader, QuicPacketType, encode_quic_retry, pull_quic_header
from aioquic.quic.retry import QuicRetryTokenHandler
from cryptography import x509

from appliance.base.library_faults import described
from appliance.base.limits import (
    LINK_DATAGRAMS_MAX,
    LINK_IDLE_S,
    LINK_PIECES_MAX,
    LINK_PROOF_S_MAX,
    LINK_STREAM_WINDOW,
    LINK_WINDOW,
    LINKS_MAX,
)
from appliance.drivers.network.quic_links.authentication import CHALLENGE_SIZE
from appliance.drivers.network.quic_links.quic_link import Down, Identity, LinkEvent, QuicLink
from appliance.drivers.quic.library import FAULTS, BoundedConnection, Bounds

Address = tuple[str, int]
ALPN = "tigerchat-federation/1"
_INITIAL_SIZE_MIN = 1200  # bytes of a client's first datagram; smaller ones are no beginning
_FRAME_SIZE_MAX = 1200  # bytes of a datagram frame that we take
_CERTIFICATES_NOT_VERIFIED = 0  # by the library: keys are compared with those we know
_ID_SIZE = 8  # bytes of a connection identifier
_RESET_TOKEN_SIZE = 16  # bytes
_BOUNDS = Bounds(LINK_WINDOW, LINK_STREAM_WINDOW, LINK_PIECES_MAX, LINK_DATAGRAMS_MAX)


class QuicEndpoint:
    """`keys` are the signing keys of sites that may dial, by name, and may change while it runs.
    Times are seconds of a clock that only rises.
    """

    def __init__(
        self,
        identity: Identity,
        keys: dict[str, bytes],
        *,
        certificate: x509.Certificate,
        private_key: object,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.identity, self.keys = identity, keys
        self.random_bytes = random_bytes
        self.counters: Counter[str] = Counter()
        self._server = _configuration(is_client=False)
        self._server.certificate, self._server.private_key = certificate, private_key
        self._client = _configuration(is_client=True)
        self._retry = QuicRetryTokenHandler()
        self._links: dict[bytes, QuicLink] = {}  # by each identifier that we gave out
        self._born: dict[QuicLink, float] = {}
        self._out: list[tuple[bytes, Address]] = []
        self._failed: list[tuple[QuicLink, Down]] = []  # of which is to be told

    @property
    def links(self) -> list[QuicLink]:
        """Those that have not ended."""
        return list(self._born)

    def dial(self, address: Address, site: str, fingerprint: bytes, now: float) -> QuicLink:
        """Begin a connection to a site whose certificate's key has this SHA-256."""
        connection = self._connection(self._client)
        made = QuicLink(connection, self.identity, self.keys, b"", (site, fingerprint))
        self._keep(made, connection.host_cid, now)
        connection.connect(address, now=now)
        return made

    def on_datagram(self, data: bytes, address: Address, now: float) -> None:
        """One datagram of anybody."""
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=_ID_SIZE)
        except ValueError:
            self.counters["header"] += 1
            return
        found = self._links.get(header.destination_cid)
        if found is None:
            found = self._begin(header, data, address, now)
        if found is not None:
            with self._bearing(found):
                found.connection.receive_datagram(data, address, now=now)

    def _begin(
        self, header: QuicHeader, data: bytes, address: Address, now: float
    ) -> QuicLink | None:
        """Somebody dials: first with nothing, then with the token of our Retry."""
        known = header.version in self._server.supported_versions
        initial = header.packet_type == QuicPacketType.INITIAL
        if not known or not initial or len(data) < _INITIAL_SIZE_MIN:
            self.counters["stray"] += 1
            return None
        if not header.token:
            self._answer_retry(header, address, now)
            return None
        try:
            original = self._retry.validate_token(
                address=address,
                destination_cid=header.destination_cid,
                token=header.token,
                now=now,
            )
        except ValueError:
            self.counters["token"] += 1
            return None
        if len(self._born) >= LINKS_MAX:
            self.counters["too_many_links"] += 1
            return None
        connection = self._connection(self._server, original, header.destination_cid)
        nonce = self.random_bytes(CHALLENGE_SIZE)
        made = QuicLink(connection, self.identity, self.keys, nonce, None)
        self._keep(made, header.destination_cid, now)
        self._links[connection.host_cid] = made
        return made

    def _connection(
        self,
        configuration: QuicConfiguration,
        original_id: bytes | None = None,
        retry_id: bytes | None = None,
    ) -> BoundedConnection:
        return BoundedConnection(
            configuration=configuration,
            new_id=lambda: self.random_bytes(_ID_SIZE),
            reset_token=lambda _: self.random_bytes(_RESET_TOKEN_SIZE),  # none is ever sent
            original_id=original_id,
            retry_id=retry_id,
            bounds=_BOUNDS,
        )

    def _answer_retry(self, header: QuicHeader, address: Address, now: float) -> None:
        assert header.version is not None
        source = self.random_bytes(_ID_SIZE)
        token = self._retry.create_token(
            address=address,
            original_destination_connection_id=header.destination_cid,
            retry_source_connection_id=source,
            now=now,
        )
        packet = encode_quic_retry(
            version=header.version,
            source_cid=source,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )
        self._out.append((packet, address))
        self.counters["retry"] += 1

    def _keep(self, made: QuicLink, identifier: bytes, now: float) -> None:
        self._links[identifier] = made
        self._born[made] = now

    def on_timer(self, now: float) -> None:
        """Everything that is due; who has not proved itself in time is closed."""
        for link, born in list(self._born.items()):
            due = link.connection.get_timer()
            if due is not None and due <= now:
                with self._bearing(link):
                    link.connection.handle_timer(now)
            if link in self._born and _is_unproved(link) and now - born > LINK_PROOF_S_MAX:
                self.counters["proof_late"] += 1
                link.close("proof_late")

    def ping(self) -> None:
        """Have every link show that it lives, from the address that is ours now. That brings to
        light what was lost, a challenge or a proof too, sooner than timers that double do."""
        for link in self._born:
            if link.is_encrypted and not link.ended:
                link.connection.send_ping(0)

    def deadline(self, now: float) -> float | None:
        times = [due for link in self._born if (due := link.connection.get_timer()) is not None]
        times += [now] * bool(self._failed)
        times += [
            born + LINK_PROOF_S_MAX for link, born in self._born.items() if _is_unproved(link)
        ]
        return min(times, default=None)

    def events(self) -> list[tuple[QuicLink, list[LinkEvent]]]:
        """What happened on each link; links that ended are forgotten."""
        failed, self._failed = self._failed, []
        found: list[tuple[QuicLink, list[LinkEvent]]] = [(link, [down]) for link, down in failed]
        for link in list(self._born):
            self._learn_identifiers(link)
            told = link.events()
            if told:
                found.append((link, told))
            if any(isinstance(event, Down) for event in told):
                self._forget(link)
        return found

    def _learn_identifiers(self, link: QuicLink) -> None:
        for identifier in link.connection.ids:
            self._links.setdefault(identifier, link)

    def _forget(self, link: QuicLink) -> None:
        del self._born[link]
        for identifier in [known for known, other in self._links.items() if other is link]:
            del self._links[identifier]
        link.connection.let_go()

    def datagrams(self, now: float) -> list[tuple[bytes, Address]]:
        """What is to be sent now."""
        out, self._out = self._out, []
        for link in list(self._born):
            with self._bearing(link):
                out += link.connection.datagrams_to_send(now=now)
        return out

    @contextlib.contextmanager
    def _bearing(self, link: QuicLink) -> Iterator[None]:
        """Around a call into the library, which meets what the peer has sent: an error that it lets
        out is the end of this link alone, of which `events` tells."""
        try:
            yield
        except FAULTS as error:
            self.counters["library_failed"] += 1
            link.ended = link.ended or "library_failed"
            self._forget(link)
            self._failed.append((link, Down(link.ended, described(error))))


def _is_unproved(link: QuicLink) -> bool:
    """Whether the time for its proof runs."""
    return not link.site and not link.ended


def _configuration(*, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=[ALPN],
        connection_id_length=_ID_SIZE,
        idle_timeout=LINK_IDLE_S,
        max_datagram_frame_size=_FRAME_SIZE_MAX,
        max_data=LINK_WINDOW,
        max_stream_data=LINK_STREAM_WINDOW,
        verify_mode=_CERTIFICATES_NOT_VERIFIED if is_client else None,
    )
