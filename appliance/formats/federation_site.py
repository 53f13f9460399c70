"""The file `federation.json` of a node: its site's name and key among sites, and the sites it
knows.

Every node of a site has the same file, mode 0600: whoever carries a room signs with the site's key.
An invitation is a code with what another site must know of this one: name, key, and where its nodes
listen with which certificates. It holds nothing secret, but whoever can change it on its way can
stand in for the site, so it belongs on a way that both operators trust.
"""

import base64
import binascii
import hashlib
from typing import TypeVar

import msgspec

from appliance.base.errors import ConfigurationError
from appliance.base.limits import FEDERATION_SITES_MAX, INVITATION_SIZE_MAX, SHARING_SITES_MAX
from appliance.base.signature import SEED_SIZE, SigningKey
from appliance.formats import sharing
from appliance.formats.causal.link import PROFILE_DATAGRAM, PROFILE_STREAM
from appliance.formats.site import NODES_MAX, spki_of

PROFILES = {"stream": PROFILE_STREAM, "datagram": PROFILE_DATAGRAM}
_KEY_SIZE = 32
Decoded = TypeVar("Decoded", bound=msgspec.Struct)


class PeerNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one node of another site listens, by TCP and by UDP, and its certificate (PEM)."""

    host: str
    port: int
    certificate: str

    @property
    def spki(self) -> bytes:
        """SHA-256 of the certificate's public key, by which the node is known."""
        return hashlib.sha256(spki_of(self.certificate)).digest()


class PeerSite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another site. `carrier`: over streams, or over datagrams too, where the link loses some."""

    name: str
    public_key: str  # hexadecimal
    nodes: tuple[PeerNode, ...]
    carrier: str = "stream"


class FederationSite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This site among others. `ports` has one for each of its nodes; what a site that was
    `removed` says is refused, whoever passes it on.
    """

    name: str
    seed: str  # hexadecimal, of the Ed25519 key
    ports: tuple[int, ...]
    peers: tuple[PeerSite, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def key(self) -> SigningKey:
        return SigningKey(bytes.fromhex(self.seed))

    def peer(self, name: str) -> PeerSite | None:
        """The site of that name, or None."""
        return next((peer for peer in self.peers if peer.name == name), None)

    def with_peer(self, peer: PeerSite) -> "FederationSite":
        """The same with this site, in place of one of its name. ConfigurationError past a bound."""
        check_peer(peer)
        if peer.name == self.name:
            raise ConfigurationError(f"{peer.name} is this site: add the code of another one")
        others = [other for other in self.peers if other.name != peer.name]
        if len(others) >= FEDERATION_SITES_MAX:
            raise ConfigurationError(
                f"{FEDERATION_SITES_MAX} sites are known already: remove one first"
            )
        peers = tuple(sorted([*others, peer], key=lambda other: other.name))
        removed = tuple(name for name in self.removed if name != peer.name)
        return msgspec.structs.replace(self, peers=peers, removed=removed)

    def without_peer(self, name: str) -> "FederationSite":
        """The same, with this site removed. ConfigurationError if it is not known."""
        if self.peer(name) is None:
            known = ", ".join(peer.name for peer in self.peers) or "none"
            raise ConfigurationError(f"no site {name[:40]!r} is known; known: {known}")
        peers = tuple(peer for peer in self.peers if peer.name != name)
        removed = (*self.removed, name)[-FEDERATION_SITES_MAX:]
        return msgspec.structs.replace(self, peers=peers, removed=removed)


def check_name(name: str) -> None:
    """Raises ConfigurationError unless a site may be called so."""
    if not sharing.site_name_valid(name):
        raise ConfigurationError(
            f"a site is called {name[:40]!r}; allowed: 1 to 30 letters a-z, digits and hyphens"
        )


def check_peer(peer: PeerSite) -> None:
    """Raises ConfigurationError that names what is wrong with it."""
    check_name(peer.name)
    _check_hex("public key", peer.public_key, _KEY_SIZE)
    if not 1 <= len(peer.nodes) <= NODES_MAX:
        raise ConfigurationError(f"site {peer.name} has {len(peer.nodes)} nodes")
    if peer.carrier not in PROFILES:
        raise ConfigurationError(f"carrier {peer.carrier!r}; allowed: {', '.join(PROFILES)}")
    for node in peer.nodes:
        if not node.host or not 1 <= node.port <= 65535:
            raise ConfigurationError(f"a node of {peer.name} has no address")
        try:
            spki_of(node.certificate)
        except ValueError as error:
            raise ConfigurationError(f"{peer.name}: a certificate is broken: {error}") from error


def _check_hex(what: str, text: str, size: int) -> None:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != size:
        raise ConfigurationError(f"the {what} is not {2 * size} hexadecimal digits")


def encode_site(site: FederationSite) -> bytes:
    return msgspec.json.format(msgspec.json.encode(site), indent=1)


def decode_site(raw: bytes, where: str) -> FederationSite:
    """Raises ConfigurationError that names `where` and what is wrong."""
    try:
        site = msgspec.json.decode(raw, type=FederationSite)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(
            f"{where} is not as it was written ({error}): restore it from another node"
        ) from error
    check_name(site.name)
    _check_hex("seed", site.seed, SEED_SIZE)
    for peer in site.peers:
        check_peer(peer)
    return site


def encode_code(value: msgspec.Struct) -> str:
    """One line of letters, digits, - and _."""
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def decode_code(code: str, kind: type[Decoded]) -> Decoded:
    """What `encode_code` was given. Raises ConfigurationError."""
    text = "".join(code.split())
    try:
        if len(text) > INVITATION_SIZE_MAX:
            raise ValueError(f"{len(text)} letters")
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, binascii.Error) as error:
        raise ConfigurationError(
            f"the code is not whole, or of another kind ({error}): copy all of it again"
        ) from error


class SharedWith(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One site in the code that invites to a room."""

    name: str
    public_key: str
    right: str  # read, send or attached


class RoomInvitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The code that invites to a room: equal at every site that accepts it."""

    room: str
    sites: tuple[SharedWith, ...]
    repair_ms_min: int
    repair_ms_max: int
    groups: int


RIGHTS = {
    "read": sharing.RIGHT_READ,
    "send": sharing.RIGHT_SEND,
    "attached": sharing.RIGHT_ATTACHED,
}


def sharing_of(invitation: RoomInvitation) -> sharing.Sharing:
    """The policy that it asks for. Raises ConfigurationError."""
    sites = []
    for site in invitation.sites:
        check_name(site.name)
        _check_hex("public key", site.public_key, _KEY_SIZE)
        if site.right not in RIGHTS:
            raise ConfigurationError(f"right {site.right[:20]!r}; allowed: {', '.join(RIGHTS)}")
        sites.append(
            sharing.SharedSite(site.name, bytes.fromhex(site.public_key), RIGHTS[site.right])
        )
    if len(sites) < 2 or len({site.number for site in sites}) != len(sites):
        raise ConfigurationError("a room is shared by two or more sites, each named once")
    if len(sites) > SHARING_SITES_MAX:
        raise ConfigurationError(f"a room is shared by {SHARING_SITES_MAX} sites at most")
    if not 0 < invitation.repair_ms_min < invitation.repair_ms_max or invitation.groups < 1:
        raise ConfigurationError("the times of repair do not go together")
    return sharing.Sharing(
        tuple(sorted(sites)),
        invitation.repair_ms_min,
        invitation.repair_ms_max,
        invitation.groups,
    )
