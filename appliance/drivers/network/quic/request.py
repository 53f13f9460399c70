"""A request of HTTP/3, checked: what its pseudo-headers say, and its fields as ASGI has them."""

from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True, frozen=True)
class Request:
    """`headers` begin with `host`; `protocol` is that of an extended CONNECT, or empty."""

    method: str
    scheme: str
    authority: str
    raw_path: bytes
    query: bytes
    protocol: str
    headers: Headers

    @property
    def path(self) -> str:
        return unquote_to_bytes(self.raw_path).decode("utf-8", "replace")

    def values(self, name: bytes) -> list[str]:
        """Of all fields of this name."""
        return [value.decode("latin-1") for key, value in self.headers if key == name]


def parse_request(fields: Headers) -> Request | None:
    """None for a request that is malformed (RFC 9114, section 4.3)."""
    pseudo = {name: value for name, value in fields if name.startswith(b":")}
    headers: Headers = []
    cookies: list[bytes] = []
    length: bytes | None = None
    authority = pseudo.get(b":authority", b"")
    for name, value in fields:
        if name.startswith(b":"):
            continue
        if name == b"host":
            if authority and value != authority:
                return None
            authority = value
        elif name == b"content-length" and (length is not None or not value.isdigit()):
            return None
        elif name == b"cookie":
            cookies.append(value)
        else:
            length = value if name == b"content-length" else length
            headers.append((name, value))
    if cookies:
        headers.append((b"cookie", b"; ".join(cookies)))
    method = pseudo.get(b":method", b"").decode("latin-1")
    target = pseudo.get(b":path", b"")
    is_plain_connect = method == "CONNECT" and b":protocol" not in pseudo
    if not authority or not method or (b":protocol" in pseudo and method != "CONNECT"):
        return None
    if (
        is_plain_connect == bool(target)
        or is_plain_connect == (b":scheme" in pseudo)
        or (not is_plain_connect and not target.startswith(b"/") and target != b"*")
    ):
        return None
    raw_path, _, query = target.partition(b"?")
    return Request(
        method=method,
        scheme=pseudo.get(b":scheme", b"").decode("latin-1"),
        authority=authority.decode("latin-1"),
        raw_path=raw_path,
        query=query,
        protocol=pseudo.get(b":protocol", b"").decode("latin-1"),
        headers=[(b"host", authority), *headers],
    )
