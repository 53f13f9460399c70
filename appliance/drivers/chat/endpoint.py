"""Where a node listens for chat clients, and how its TLS is judged."""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from appliance.base.errors import ConfigurationError
from appliance.formats.client.address import PATH, client_url
from appliance.formats.site import Node

_PORTS = {"ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A node's client port. `tls` None: without TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @property
    def url(self) -> str:
        """The WebSocket's address."""
        return client_url(self.host, self.port, tls=self.tls is not None)


def endpoint_of_node(node: Node, *, client_tls: bool) -> Endpoint:
    """The endpoint of a node of a site file: TLS 1.3 with exactly the certificate named there."""
    if not client_tls:
        return Endpoint(node.host, node.client_port, None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is pinned, whatever it is named
    context.load_verify_locations(cadata=node.client_anchor)
    return Endpoint(node.host, node.client_port, context)


def endpoint_of_url(url: str, ca_file: str | None = None) -> Endpoint:
    """The endpoint of `wss://host:port`; certificates of `ca_file`, else of the machine."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise ConfigurationError(f"--url is {url!r}; allowed: wss://HOST[:PORT]") from None
    if not parts.hostname or parts.path.rstrip("/") not in {"", PATH}:
        raise ConfigurationError(f"--url is {url!r}; allowed: wss://HOST[:PORT]")
    if parts.scheme == "ws":
        return Endpoint(parts.hostname, port, None)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--ca {ca_file}: no certificates there: {error}") from None
    return Endpoint(parts.hostname, port, context)
