"""The header by which a proxy names its client before anything else: PROXY protocol, versions 1, 2.

    PROXY TCP4 198.51.100.7 192.0.2.1 51234 7443\\r\\n          1: a line of at most 107 bytes

    0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A                      2: signature
    version and command | family and transport | u16 size    2 is the version; 0 LOCAL, 1 PROXY
    addresses: 12 bytes of IPv4, 36 of IPv6, 216 of Unix     source, target, ports
    type, u16 size, value; again and again                   0x03: CRC32C of the header

Integers are big-endian. Source: "The PROXY protocol, Versions 1 & 2", haproxy.org.
"""

import ipaddress
import struct
from typing import NamedTuple

from appliance.base.checksum import crc32c
from appliance.base.errors import FormatError
from appliance.base.limits import PROXY_HEADER_SIZE_MAX

LINE_START = b"PROXY "
LINE_SIZE_MAX = 107  # with its end
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD = struct.Struct("!12sBBH")
_LOCAL, _PROXY = 0, 1
_ADDRESSES_SIZE = {0: 0, 1: 12, 2: 36, 3: 216}  # by family: none, IPv4, IPv6, Unix
_FAMILIES = {b"TCP4": 4, b"TCP6": 6}
_CHECKSUM = 0x03
_PORT_MAX = 65_535


class ProxyHeaderMalformed(FormatError):
    """A known proxy sent what begins as such a header and is none; the sentence says where."""

    code = 1007


class ProxyHeader(NamedTuple):
    """`size` bytes; `host` is the client's address in numbers, "" where the proxy speaks for
    itself or its client has none."""

    size: int
    host: str


class Incomplete(NamedTuple):
    """So many bytes are needed at least to know more."""

    size: int


def parse_proxy_header(data: bytes) -> ProxyHeader | Incomplete | None:
    """The header that `data` begins with; None: with none. Raises ProxyHeaderMalformed."""
    for start, parse in ((SIGNATURE, _parse_binary), (LINE_START, _parse_line)):
        if data[: len(start)] == start[: len(data)]:
            return parse(data) if len(data) >= len(start) else Incomplete(len(start))
    return None


# --- version 1


def _parse_line(data: bytes) -> ProxyHeader | Incomplete:
    end = data.find(b"\r\n", 0, LINE_SIZE_MAX)
    if end < 0:
        if len(data) >= LINE_SIZE_MAX:
            raise ProxyHeaderMalformed(f"no line of at most {LINE_SIZE_MAX} bytes")
        return Incomplete(len(data) + 1)
    family, *words = data[len(LINE_START) : end].split(b" ")
    size = end + 2
    if family == b"UNKNOWN":  # what follows is to be ignored
        return ProxyHeader(size, "")
    if family not in _FAMILIES:
        raise ProxyHeaderMalformed("family is not TCP4, TCP6 or UNKNOWN")
    if len(words) != 4:
        raise ProxyHeaderMalformed("a line has a source, a target and their ports")
    source, _ = (_address(word, _FAMILIES[family]) for word in words[:2])
    for word in words[2:]:
        number = word.decode("latin-1")
        is_number = number.isascii() and number.isdigit() and len(number) <= 5
        if not is_number or str(int(number)) != number or int(number) > _PORT_MAX:
            raise ProxyHeaderMalformed(f"a port is not 0 to {_PORT_MAX}")
    return ProxyHeader(size, source)


def _address(word: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(word.decode("ascii"))
    except ValueError:
        raise ProxyHeaderMalformed("an address is not one in numbers") from None
    if address.version != version or b"%" in word:
        raise ProxyHeaderMalformed(f"an address is not one of IPv{version}")
    return str(address)


# --- version 2


def _parse_binary(data: bytes) -> ProxyHeader | Incomplete:
    if len(data) < _HEAD.size:
        return Incomplete(_HEAD.size)
    _, version_command, family_transport, rest_size = _HEAD.unpack_from(data)
    size = _HEAD.size + rest_size
    version, command = divmod(version_command, 16)
    if version != 2 or command not in (_LOCAL, _PROXY):
        raise ProxyHeaderMalformed(f"version and command are 0x{version_command:02x}")
    if size > PROXY_HEADER_SIZE_MAX:
        raise ProxyHeaderMalformed(f"{size} bytes, at most {PROXY_HEADER_SIZE_MAX} are taken")
    if len(data) < size:
        return Incomplete(size)
    family, transport = divmod(family_transport, 16)
    if command == _LOCAL:
        family = 0  # what is said of it is to be ignored
        fields_at = size
    elif family not in _ADDRESSES_SIZE or transport != (1 if family else 0):
        raise ProxyHeaderMalformed(f"family and transport are 0x{family_transport:02x}")
    else:
        fields_at = _HEAD.size + _ADDRESSES_SIZE[family]
    if fields_at > size:
        raise ProxyHeaderMalformed(f"{rest_size} bytes do not hold the addresses")
    if family:
        _check_fields(data[:size], fields_at)
    host = ""
    if family == 1:
        host = str(ipaddress.IPv4Address(data[_HEAD.size : _HEAD.size + 4]))
    elif family == 2:
        host = str(ipaddress.IPv6Address(data[_HEAD.size : _HEAD.size + 16]))
    return ProxyHeader(size, host)


def _check_fields(header: bytes, at: int) -> None:
    """All are whole, and a checksum among them is right; what else they say is not asked for."""
    while at < len(header):
        end = at + 3
        if end <= len(header):
            end += int.from_bytes(header[at + 1 : end], "big")
        if end > len(header):
            raise ProxyHeaderMalformed("a field behind the addresses is cut off")
        if header[at] == _CHECKSUM:
            zeroed = header[: at + 3] + bytes(end - at - 3) + header[end:]
            if header[at + 3 : end] != crc32c(zeroed).to_bytes(4, "big"):
                raise ProxyHeaderMalformed("the checksum is wrong")
        at = end
