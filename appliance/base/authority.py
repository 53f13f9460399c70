"""Where somebody listens, as URLs and HTTP have it."""


def authority(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets (RFC 3986, section 3.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
