"""Which hosts a browser may name: the one it asks, and the page that asks.

A page of another site can open a WebSocket to this one, and a name of another site can be made to
point here. Neither could do much without a token; neither gets that far. Addresses in numbers are
always right as `Host`, for a name that somebody else controls is none. Clients that are no browser
send no `Origin`, and are not asked for one.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit


def split_host(value: str) -> tuple[str, int | None] | None:
    """Host in lower case and port of a `Host` header, or None if that is none."""
    try:
        parts = urlsplit(f"//{value}")
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in value:
        return None
    return parts.hostname.rstrip("."), port


def is_address(host: str) -> bool:
    """Whether `host` is an address in numbers."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Hosts:
    """The names of this site."""

    def __init__(self, names: Iterable[str]) -> None:
        self.learn(names)

    def learn(self, names: Iterable[str]) -> None:
        """From now on these."""
        self._names = {"localhost", *(name.lower() for name in names)}

    def may_ask(self, host: str | None) -> bool:
        """Whether a request with this `Host` is meant for us."""
        split = split_host(host) if host else None
        return split is not None and (split[0] in self._names or is_address(split[0]))

    def may_connect(self, origin: str | None, host: str | None) -> bool:
        """Whether a page of this `Origin` may open a WebSocket here: one of this site's, or of the
        host that it connects to."""
        if origin is None:
            return True
        scheme, _, rest = origin.partition("://")
        page = split_host(rest)
        asked = split_host(host) if host else None
        if scheme not in ("https", "http") or page is None:
            return False
        return page[0] in self._names or (asked is not None and page[0] == asked[0])
