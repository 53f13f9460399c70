"""Proxies that an operator knows: from them alone it is believed for whom they speak."""

import ipaddress
from collections.abc import Iterable, Sequence

from starlette.requests import Request

from appliance.formats.client_errors import FieldInvalid

FORWARDED_FIELD = "X-Forwarded-For"
_SHOWN_MAX = 64  # characters of what is wrong

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_host(host: str) -> Address | None:
    """An address in numbers; IPv4 within IPv6 is IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class Proxies:
    """`networks` in CIDR notation, as the site file has them."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def knows(self, host: str) -> bool:
        """Whether a connection from `host` comes from one of them."""
        if not self._networks:
            return False
        address = parse_host(host)
        return address is not None and any(address in network for network in self._networks)

    def client_of(self, forwarded: Sequence[str]) -> str | None:
        """The host of the client in the fields X-Forwarded-For that a known proxy sent: the last
        that is no known proxy, for those before it may be anybody's word. None: it names none.
        Raises FieldInvalid."""
        hosts = [word.strip() for value in forwarded for word in value.split(",")]
        for word in reversed(hosts):
            address = _parse_forwarded(word)
            if address is None:
                shown = word[:_SHOWN_MAX].encode("ascii", "backslashreplace").decode()
                raise FieldInvalid(f"{FORWARDED_FIELD}: {shown!r} is no address in numbers")
            if not self.knows(str(address)):
                return str(address)
        return None


NOBODY = Proxies()


def client_of(request: Request) -> str:
    """For which address a request counts. Raises FieldInvalid."""
    bearer = request.scope["state"].get("bearer")
    if bearer is None:
        return ""
    return str(bearer.address_for(request.headers.getlist(FORWARDED_FIELD)))


def _parse_forwarded(word: str) -> Address | None:
    """198.51.100.7, 2001:db8::7, and both with a port: 198.51.100.7:51234, [2001:db8::7]:51234."""
    host, port = word, ""
    if word.startswith("["):
        host, _, rest = word[1:].partition("]")
        if "]" not in word or (rest and not rest.startswith(":")) or ":" not in host:
            return None
        port = rest[1:] if rest else "0"
    elif word.count(":") == 1:
        host, _, port = word.partition(":")
    else:
        port = "0"
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return None if "%" in host else parse_host(host)
