"""Links to other sites: by address and fingerprint, kept in `objects.peers` of the node's folder.

Each side adds the other. The site with the larger number dials, the other one accepts: so there is
one stream between them. A linked site sees every object of ours, as we see theirs.
"""

import ssl
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from appliance.base.errors import ConfigurationError, TextRefused
from appliance.base.limits import SITE_LINKS_MAX
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.network.stream.certificate import add_anchor, certificate_of
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.tls import client_context
from appliance.formats.object_source import site_of
from appliance.formats.site import SITE_NUMBER_MAX
from appliance.formats.status.metadata import LinkedSite
from appliance.roles.metadata.live import LiveLinks
from appliance.roles.metadata.service import Service

PEERS_FILE = "objects.peers"
SEES_ALL = "the linked site sees every object of this one, and this one every object of it"


@dataclass(frozen=True)
class SiteLink:
    """One node of another site."""

    site: int
    host: str
    port: int
    fingerprint: str  # SHA-256 of its public key, hexadecimal
    certificate: str  # PEM


class SiteLinks:
    """Of one node. `pins` and `context` are those of its listener, and are changed here."""

    def __init__(
        self,
        folder: Path,
        service: Service,
        *,
        own_site: int,
        files: tuple[Path, Path],
        context: ssl.SSLContext,
        pins: dict[bytes, str],
        live: LiveLinks,
    ) -> None:
        self._live = live
        self._file, self._service, self._own_site = folder / PEERS_FILE, service, own_site
        self._files, self._context, self._pins = files, context, pins
        self._diallers: dict[int, Dialler] = {}
        self.links: dict[int, SiteLink] = {}
        for link in _read(self._file):
            self._open(link)

    def announced(self, peer: str, source: int) -> bool:
        return peer == _name(site_of(source)) and site_of(source) in self.links

    async def add(self, site: int, host: str, port: int, fingerprint: str) -> dict[str, Any]:
        """Fetch the certificate shown there, compare it, keep it, link."""
        if not 1 <= site <= SITE_NUMBER_MAX or site == self._own_site:
            raise TextRefused(f"site {site}: 1 to {SITE_NUMBER_MAX}, and not our own")
        if len(self.links) >= SITE_LINKS_MAX and site not in self.links:
            raise TextRefused(f"{SITE_LINKS_MAX} sites are linked already: remove one first")
        try:
            digest = bytes.fromhex(fingerprint)
        except ValueError as error:
            raise TextRefused("a fingerprint is 64 hexadecimal digits") from error
        certificate = await certificate_of(host, port, digest)
        await self.remove(site)
        link = SiteLink(site, host, port, digest.hex(), certificate)
        self._keep({**self.links, site: link})
        self._open(link)
        return {"linked": site, "dials": self._own_site > site, "notice": SEES_ALL}

    async def remove(self, site: int) -> dict[str, Any]:
        """Forget a site: its streams are closed, what it made stays."""
        if site not in self.links:
            return {"linked": None}
        self._keep({number: link for number, link in self.links.items() if number != site})
        link = self.links.pop(site)
        self._pins.pop(bytes.fromhex(link.fingerprint), None)
        dialler = self._diallers.pop(site, None)
        if dialler is not None:
            await self._service.disconnect(dialler)
        await self._live.disconnect(_name(site))
        for codec in list(self._service.codecs):
            if codec.stream.peer == _name(site):
                codec.stream.close("unlinked")
        return {"linked": None}

    def shown(self) -> list[LinkedSite]:
        return [
            LinkedSite(site=site, host=link.host, port=link.port, fingerprint=link.fingerprint)
            for site, link in sorted(self.links.items())
        ]

    def _open(self, link: SiteLink) -> None:
        self.links[link.site] = link
        pin = {bytes.fromhex(link.fingerprint): _name(link.site)}
        add_anchor(self._context, link.certificate)
        self._pins.update(pin)
        if self._own_site > link.site:
            context = client_context(*self._files, [link.certificate])
            self._diallers[link.site] = self._service.connect(link.host, link.port, context, pin)
            context = client_context(*self._files, [link.certificate])
            self._live.connect(_name(link.site), link.host, link.port, context, pin)

    def _keep(self, links: dict[int, SiteLink]) -> None:
        rows = [asdict(links[site]) for site in sorted(links)]
        write_durable(self._file, msgspec.json.encode(rows), 0o600)


def _name(site: int) -> str:
    return f"site-{site}"


def _read(file: Path) -> list[SiteLink]:
    if not file.exists():
        return []
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[SiteLink])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(
            f"{file} is not as it was written ({error}): move it away and add the sites again"
        ) from error
