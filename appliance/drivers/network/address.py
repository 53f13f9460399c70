"""Addresses of strangers: what counts as one of them."""

import ipaddress


def address_group(host: str) -> str:
    """What shares one cap: an IPv4 address, the /64 of an IPv6 one; IPv4 inside IPv6 is IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False).network_address)
