"""Headers of proxies, both versions: what they say, what is refused, however they are cut."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.checksum import crc32c
from appliance.base.limits import PROXY_HEADER_SIZE_MAX
from appliance.formats.proxy_header import (
    LINE_SIZE_MAX,
    SIGNATURE,
    Incomplete,
    ProxyHeader,
    ProxyHeaderMalformed,
    parse_proxy_header,
)

IPV4 = bytes([198, 51, 100, 7, 192, 0, 2, 1]) + struct.pack("!HH", 51234, 7443)
LONG = ipaddress.ip_address("2001:db8::7").packed
IPV6 = LONG + ipaddress.ip_address("2001:db8::1").packed + struct.pack("!HH", 51234, 7443)
UNIX = b"/run/client".ljust(108, b"\0") + b"/run/server".ljust(108, b"\0")


def binary(
    rest: bytes, *, command: int = 0x21, family: int = 0x11, size: int | None = None
) -> bytes:
    """A header of version 2."""
    told = len(rest) if size is None else size
    return SIGNATURE + bytes([command, family]) + told.to_bytes(2, "big") + rest


def field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + len(value).to_bytes(2, "big") + value


def summed(rest: bytes, spoilt: int = 0) -> bytes:
    """With the checksum as last field."""
    zeroed = binary(rest + field(0x03, bytes(4)))
    return zeroed[:-4] + (crc32c(zeroed) ^ spoilt).to_bytes(4, "big")


LINES = {
    b"PROXY TCP4 198.51.100.7 192.0.2.1 51234 7443\r\n": "198.51.100.7",
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": "255.255.255.255",
    b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n": "0.0.0.0",
    b"PROXY TCP6 2001:db8::7 2001:db8::1 51234 7443\r\n": "2001:db8::7",
    b"PROXY TCP6 ::1 ::1 1 2\r\n": "::1",
    b"PROXY TCP6 ::ffff:198.51.100.7 ::1 1 2\r\n": "::ffff:c633:6407",
    b"PROXY TCP6 2001:0DB8:0:0:0:0:0:7 ::1 1 2\r\n": "2001:db8::7",
    b"PROXY TCP6 %s %s 65535 65535\r\n" % ((b":".join([b"ffff"] * 8),) * 2): (
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    ),
    b"PROXY UNKNOWN\r\n": "",
    b"PROXY UNKNOWN 198.51.100.7 192.0.2.1 51234 7443\r\n": "",
    b"PROXY UNKNOWN " + b"x" * (LINE_SIZE_MAX - 16) + b"\r\n": "",
}
BINARIES = {
    binary(IPV4): "198.51.100.7",
    binary(IPV6, family=0x21): "2001:db8::7",
    binary(UNIX, family=0x31): "",
    binary(b"", family=0x00): "",
    binary(b"", command=0x20, family=0x00): "",
    binary(IPV4, command=0x20): "",
    binary(b"\xff" * 9, command=0x20, family=0xFF): "",
    binary(IPV4 + field(0x04, bytes(7))): "198.51.100.7",
    binary(IPV4 + field(0x02, b"chat.example") + field(0xEA, b"")): "198.51.100.7",
    binary(IPV6 + field(0x20, b"\x01" + bytes(4) + field(0x21, b"TLSv1.3")), family=0x21): (
        "2001:db8::7"
    ),
    summed(IPV4 + field(0x02, b"chat.example")): "198.51.100.7",
    binary(IPV4 + field(0x04, bytes(PROXY_HEADER_SIZE_MAX - 16 - 12 - 3))): "198.51.100.7",
}
GOOD = {**LINES, **BINARIES}
WRONG_LINES = {
    b"PROXY TCP5 198.51.100.7 192.0.2.1 1 2\r\n": "family is not TCP4, TCP6 or UNKNOWN",
    b"PROXY tcp4 198.51.100.7 192.0.2.1 1 2\r\n": "family is not",
    b"PROXY  TCP4 198.51.100.7 192.0.2.1 1 2\r\n": "family is not",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 1\r\n": "a source, a target and their ports",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 1 2 3\r\n": "a source, a target and their ports",
    b"PROXY TCP4  198.51.100.7 192.0.2.1 1 2\r\n": "a source, a target and their ports",
    b"PROXY TCP4\r\n": "a source, a target and their ports",
    b"PROXY TCP4 198.51.100.007 192.0.2.1 1 2\r\n": "not one in numbers",
    b"PROXY TCP4 198.51.100.256 192.0.2.1 1 2\r\n": "not one in numbers",
    b"PROXY TCP4 client.example 192.0.2.1 1 2\r\n": "not one in numbers",
    b"PROXY TCP4 198.51.100.7 target 1 2\r\n": "not one in numbers",
    b"PROXY TCP4 \xff\xfe 192.0.2.1 1 2\r\n": "not one in numbers",
    b"PROXY TCP4 2001:db8::7 192.0.2.1 1 2\r\n": "not one of IPv4",
    b"PROXY TCP6 198.51.100.7 ::1 1 2\r\n": "not one of IPv6",
    b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n": "not one of IPv6",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 65536 2\r\n": "a port is not",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 -1 2\r\n": "a port is not",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 01 2\r\n": "a port is not",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 1 \xb2\r\n": "a port is not",
    b"PROXY TCP4 198.51.100.7 192.0.2.1 1 2\n" + b"x" * 80: "no line of at most 107 bytes",
    b"PROXY UNKNOWN " + b"x" * (LINE_SIZE_MAX - 15) + b"\r\n": "no line of at most 107 bytes",
}
WRONG_BINARIES = {
    binary(IPV4, command=0x11): "version and command are 0x11",
    binary(IPV4, command=0x22): "version and command are 0x22",
    binary(IPV4, family=0x12): "family and transport are 0x12",
    binary(IPV6, family=0x22): "family and transport are 0x22",
    binary(UNIX, family=0x32): "family and transport are 0x32",
    binary(IPV4, family=0x41): "family and transport are 0x41",
    binary(IPV4, family=0x01): "family and transport are 0x01",
    binary(IPV4, family=0x10): "family and transport are 0x10",
    binary(IPV4[:11]): "11 bytes do not hold the addresses",
    binary(IPV4, family=0x21): "12 bytes do not hold the addresses",
    binary(UNIX[:215], family=0x31): "215 bytes do not hold the addresses",
    binary(IPV4 + b"\x04"): "a field behind the addresses is cut off",
    binary(IPV4 + b"\x04\x00\x05abcd"): "a field behind the addresses is cut off",
    binary(IPV4 + field(0x03, bytes(4))): "the checksum is wrong",
    binary(IPV4 + field(0x03, b"")): "the checksum is wrong",
    summed(IPV4, spoilt=1): "the checksum is wrong",
    binary(b"", size=PROXY_HEADER_SIZE_MAX - 15): "4097 bytes, at most 4096 are taken",
    binary(b"", size=0xFFFF): "at most 4096 are taken",
}
WRONG = {**WRONG_LINES, **WRONG_BINARIES}


@pytest.mark.parametrize(("data", "host"), GOOD.items())
@pytest.mark.parametrize("behind", [b"", b"\x16\x03\x01", b"PROXY ", SIGNATURE])
def test_a_header_says_for_whom_and_where_it_ends(data: bytes, host: str, behind: bytes) -> None:
    assert parse_proxy_header(data + behind) == ProxyHeader(len(data), host)


@pytest.mark.parametrize("data", GOOD)
def test_a_header_may_come_in_any_pieces(data: bytes) -> None:
    for size in range(len(data)):
        found = parse_proxy_header(data[:size])
        assert isinstance(found, Incomplete), size
        assert size < found.size <= len(data)


@pytest.mark.parametrize(("data", "why"), WRONG.items())
def test_what_begins_as_one_and_is_none_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(ProxyHeaderMalformed) as error:
        parse_proxy_header(data)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n", b"POST /", b"PROXYTCP4", b"proxy ", b"\r\n\n"],
)
def test_what_does_not_begin_as_one_is_none(data: bytes) -> None:
    assert parse_proxy_header(data) is None


ANY = st.one_of(
    st.binary(max_size=64),
    st.binary(max_size=120).map(lambda rest: b"PROXY " + rest),
    st.binary(max_size=300).map(lambda rest: SIGNATURE + rest),
    st.binary(max_size=300).map(lambda rest: binary(IPV4 + rest)),
    st.text("TCP46 .:0123456789abcdf\r\n", max_size=110).map(
        lambda rest: b"PROXY " + rest.encode()
    ),
)


@given(ANY)
def test_whatever_comes_is_a_header_or_none_or_refused(data: bytes) -> None:
    try:
        found = parse_proxy_header(data)
    except ProxyHeaderMalformed:
        return
    if isinstance(found, Incomplete):
        assert len(data) < found.size <= max(PROXY_HEADER_SIZE_MAX, LINE_SIZE_MAX)
    elif found is not None:
        assert found.size <= len(data)
        assert not found.host or str(ipaddress.ip_address(found.host)) == found.host


@given(st.sampled_from(list(BINARIES)), st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_never_worse_than_refused(data: bytes, at: int, change: int) -> None:
    at %= len(data)
    spoilt = data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]
    try:
        parse_proxy_header(spoilt)
    except ProxyHeaderMalformed:
        pass
