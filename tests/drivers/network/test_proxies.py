"""Known proxies say for whom they speak, before TLS or in HTTP; nobody else is believed."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from appliance.drivers.network import accepting
from appliance.drivers.network.proxies import Proxies
from appliance.formats.client_errors import FieldInvalid
from tests.drivers.network.client_port import (
    Client,
    Port,
    handshake,
    run,
    server_tls,
    trusting,
    until,
)
from tests.formats.test_proxy_header import IPV4, IPV6, UNIX, binary, field, summed

PROXY, OTHER = "127.0.0.5", "127.0.0.6"
KNOWN = Proxies(["127.0.0.5", "10.0.0.0/8", "2001:db8:5::/48"])
LINE = b"PROXY TCP4 198.51.100.7 192.0.2.1 51234 7443\r\n"
BY_PROXY = b"PROXY TCP4 10.1.1.1 192.0.2.1 1 2\r\n"
HEADERS = {
    "line": (LINE, "198.51.100.7"),
    "line of IPv6": (b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n", "2001:db8::/64"),
    "IPv4 in IPv6": (b"PROXY TCP6 ::ffff:198.51.100.7 ::1 1 2\r\n", "198.51.100.7"),
    "binary": (binary(IPV4), "198.51.100.7"),
    "binary of IPv6": (binary(IPV6, family=0x21), "2001:db8::/64"),
    "unknown": (b"PROXY UNKNOWN\r\n", PROXY),
    "local": (binary(b"", command=0x20, family=0), PROXY),
    "none": (b"", PROXY),
}


def forwarded(*values: str) -> bytes:
    """A handshake with these fields."""
    fields = "".join(f"X-Forwarded-For: {value}\r\n" for value in values)
    return handshake().removesuffix(b"\r\n") + fields.encode() + b"\r\n"


async def first_line(client: Client) -> bytes:
    """Of the answer; empty: the connection ended."""
    with contextlib.suppress(ConnectionError):
        return await client.reader.readline()
    return b""


def address_at(port: Port) -> str:
    (connection,) = port.server.conversations()
    return connection.address


@pytest.mark.parametrize("over", ["plain", "TLS"])
@pytest.mark.parametrize("kind", HEADERS)
def test_a_known_proxy_names_its_client_before_anything_else(
    kind: str, over: str, tmp_path: Path
) -> None:
    header, address = HEADERS[kind]

    async def test(port: Port) -> None:
        client = await port.dial(PROXY)
        client.writer.write(header)
        if over == "TLS":
            await client.writer.start_tls(trusting())
        client.writer.write(handshake())
        assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
        await client.asked()
        assert address_at(port) == address
        entrance = port.server.entrance
        assert dict(entrance._per_address) == {address: 1}
        client.writer.close()
        await until(lambda: not entrance.visitors)
        assert not entrance._per_address and not entrance.strangers

    run(test, tls=server_tls(tmp_path) if over == "TLS" else None, proxies=KNOWN)


def test_a_header_comes_in_single_bytes() -> None:
    async def test(port: Port) -> None:
        for header in (LINE, binary(IPV4)):
            client = await port.dial(PROXY)
            sock = client.writer.get_extra_info("socket")
            assert sock is not None
            for byte in header + handshake():
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
            await client.asked()
            assert address_at(port) == "198.51.100.7"
            client.writer.close()
            await until(lambda: not port.server.entrance.visitors)
        for first in (b"P", b"\r"):  # of something else
            client = await port.dial(PROXY)
            client.writer.write(first)
            await until(lambda: any(one.peeked for one in port.server.listener._callers.values()))
            client.writer.write(b"OST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"HTTP/1.1 4" in await client.reader.readline()
            client.writer.close()

    run(test, proxies=KNOWN)


@pytest.mark.parametrize("over", ["plain", "TLS"])
@pytest.mark.parametrize("header", [LINE, binary(IPV4)], ids=["line", "binary"])
def test_from_anybody_else_such_a_header_is_what_it_is_without_proxies(
    header: bytes, over: str, tmp_path: Path
) -> None:
    """No TLS, and no HTTP."""

    async def test(port: Port) -> None:
        client = await port.dial(OTHER)
        client.writer.write(header + handshake())
        answer = await client.ended()
        assert b" 101 " not in answer
        assert over == "TLS" or b" 400 " in answer
        assert not port.server.count() and not port.server.counters["proxied"]

    run(test, tls=server_tls(tmp_path) if over == "TLS" else None, proxies=KNOWN)


@pytest.mark.parametrize(
    "sent",
    [
        b"PROXY TCP4 me you 1 2\r\n",
        b"PROXY " + b"x" * 200,
        binary(IPV4, family=0x12),
        binary(IPV4[:5]),
    ],
)
def test_a_malformed_header_ends_the_connection_and_is_counted(sent: bytes) -> None:
    async def test(port: Port) -> None:
        client = await port.dial(PROXY)
        client.writer.write(sent + handshake())
        assert await client.ended() == b""
        assert port.server.counters["proxy_header_malformed"] == 1
        assert not port.server.entrance.visitors and not port.server.listener._callers

    run(test, proxies=KNOWN)


def test_a_header_that_breaks_off_ends_with_its_connection() -> None:
    async def test(port: Port) -> None:
        client = await port.dial(PROXY)
        client.writer.write(LINE[:20])
        await until(lambda: any(one.peeked for one in port.server.listener._callers.values()))
        client.writer.write_eof()
        assert await client.ended() == b""
        assert not port.server.entrance.visitors

    run(test, proxies=KNOWN)


def test_clients_behind_a_proxy_have_a_pace_and_a_number_each_and_the_proxy_none() -> None:
    async def test(port: Port) -> None:
        async def come(number: int) -> Client:
            client = await port.dial(PROXY)
            client.writer.write(b"PROXY TCP4 198.51.100.%d 192.0.2.1 1 2\r\n" % number)
            client.writer.write(handshake())
            return client

        clients = [await come(number % 10) for number in range(20)]
        for client in clients:
            assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
        assert await (await come(3)).ended() == b""
        assert port.server.counters["too_many_of_address"] == 1
        fast = [await come(11) for _ in range(8)]
        await until(lambda: port.server.counters["too_fast_of_address"] >= 1)
        for client in [*clients, *fast]:
            client.writer.close()
        await until(lambda: not port.server.entrance.visitors)

    run(test, proxies=KNOWN, connections_per_address_max=2, address_connect_rate=1)


FORWARDED = {
    "one": (["198.51.100.7"], "198.51.100.7"),
    "the last that is no proxy": (["203.0.113.1, 198.51.100.7, 10.1.1.1"], "198.51.100.7"),
    "of several fields": (["203.0.113.1", "198.51.100.7,10.1.1.1", "10.2.2.2"], "198.51.100.7"),
    "with a port": (["198.51.100.7:51234"], "198.51.100.7"),
    "IPv6": (["2001:db8::7"], "2001:db8::/64"),
    "IPv6 with a port": (["[2001:db8::7]:51234"], "2001:db8::/64"),
    "IPv6 in brackets": (["[2001:db8::7]"], "2001:db8::/64"),
    "IPv4 in IPv6": (["::ffff:198.51.100.7"], "198.51.100.7"),
    "what is behind is not read": (["somebody, 198.51.100.7"], "198.51.100.7"),
    "proxies alone": (["10.1.1.1, 2001:db8:5::1"], PROXY),
    "nobody": ([], PROXY),
}
NOT_FORWARDED = [
    "unknown", "_hidden", "", "198.51.100.7,", "198.51.100", "198.51.100.7:", "198.51.100.7:x",
    "198.51.100.7:123456", "[2001:db8::7", "[2001:db8::7]x", "[198.51.100.7]:1", "fe80::1%eth0",
    "chat.example", "198.51.100.7 203.0.113.1", "\x7f", "x" * 1000,
]  # fmt: skip


@pytest.mark.parametrize("kind", FORWARDED)
def test_a_known_proxy_names_its_client_in_the_handshake(kind: str) -> None:
    values, address = FORWARDED[kind]

    async def test(port: Port) -> None:
        client = await port.dial(PROXY)
        client.writer.write(forwarded(*values))
        assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
        assert address_at(port) == address
        await client.asked()
        assert dict(port.server.entrance._per_address) == {address: 1}
        client.writer.close()
        await until(lambda: not port.server.entrance.visitors)
        assert not port.server.entrance._per_address

    run(test, proxies=KNOWN)


@pytest.mark.parametrize("value", NOT_FORWARDED)
def test_what_names_nobody_is_refused_with_a_reason(value: str) -> None:
    with pytest.raises(FieldInvalid, match="X-Forwarded-For: .* is no address in numbers") as error:
        KNOWN.client_of([value])
    assert str(error.value).isprintable() and len(str(error.value)) < 150


def test_such_a_handshake_is_refused() -> None:
    async def test(port: Port) -> None:
        client = await port.dial(PROXY)
        client.writer.write(forwarded("unknown"))
        answer = await client.ended()
        assert answer.startswith(b"HTTP/1.1 400") and b"field_invalid" in answer

    run(test, proxies=KNOWN)


@pytest.mark.parametrize("header", [b"", LINE], ids=["other", "client of a proxy"])
def test_from_anybody_else_the_field_is_not_read(header: bytes) -> None:
    async def test(port: Port) -> None:
        client = await port.dial(PROXY if header else OTHER)
        client.writer.write(header + forwarded("203.0.113.1"))
        assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
        assert address_at(port) == ("198.51.100.7" if header else OTHER)

    run(test, proxies=KNOWN)


def test_a_proxy_in_front_of_a_proxy_is_believed_as_well() -> None:
    async def test(port: Port) -> None:
        client = await port.dial(PROXY)
        client.writer.write(b"PROXY TCP4 10.1.1.1 192.0.2.1 1 2\r\n" + forwarded("203.0.113.1"))
        assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
        assert address_at(port) == "203.0.113.1"

    run(test, proxies=KNOWN)


CLIENTS_LINE = b"PROXY TCP4 203.0.113.1 192.0.2.1 1 2\r\n"
HEADS = {  # what the proxy says of its client: for whom the connection counts, and so the named
    "UNKNOWN": (b"PROXY UNKNOWN\r\n", PROXY),
    "UNKNOWN and addresses": (b"PROXY UNKNOWN 198.51.100.7 192.0.2.1 1 2\r\n", PROXY),
    "LOCAL": (binary(b"", command=0x20, family=0), PROXY),
    "LOCAL and addresses": (binary(IPV4, command=0x20), PROXY),
    "LOCAL and fields": (binary(field(0x04, bytes(7)), command=0x20, family=0), PROXY),
    "no family": (binary(b"", family=0), PROXY),
    "no family, but fields": (binary(field(0x02, b"chat.example"), family=0), PROXY),
    "a client of Unix": (binary(UNIX, family=0x31), PROXY),
    "a line": (LINE, "198.51.100.7"),
    "binary": (binary(IPV4), "198.51.100.7"),
    "binary with fields": (summed(IPV4 + field(0x02, b"chat.example")), "198.51.100.7"),
    "binary of IPv6": (binary(IPV6, family=0x21), "2001:db8::/64"),
    "a proxy, and that UNKNOWN": (BY_PROXY + b"PROXY UNKNOWN\r\n", "10.1.1.1"),
    "a proxy, and that LOCAL": (BY_PROXY + binary(b"", command=0x20, family=0), "10.1.1.1"),
    "a proxy, and that a client": (BY_PROXY + binary(IPV4), "198.51.100.7"),
}
NAMED_BY_ITSELF = {
    "in a second line": CLIENTS_LINE + handshake(),
    "in a second binary header": binary(IPV6, family=0x21) + handshake(),
    "in two more": binary(b"", command=0x20, family=0) + CLIENTS_LINE + handshake(),
    "in the first field": forwarded("203.0.113.1"),
}


@pytest.mark.parametrize("cut", ["at once", "apart", "in single bytes"])
@pytest.mark.parametrize("how", NAMED_BY_ITSELF)
@pytest.mark.parametrize("head", HEADS)
def test_a_client_of_which_its_proxy_says_nothing_cannot_name_itself(
    head: str, how: str, cut: str
) -> None:
    """What follows the proxy's header is its client's, and is no header any more."""
    (said, address), sent = HEADS[head], NAMED_BY_ITSELF[how]
    size = {"at once": len(said + sent), "apart": len(said), "in single bytes": 1}[cut]

    async def test(port: Port) -> None:
        client = await port.dial(PROXY)
        for start in range(0, len(said + sent), size):
            if not client.writer.is_closing():  # it may be known already that this is no HTTP
                client.writer.write((said + sent)[start : start + size])
            await asyncio.sleep(0)
        if how == "in the first field":
            assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
            await client.asked()
            assert address_at(port) == address
            assert dict(port.server.entrance._per_address) == {address: 1}
        else:
            assert b" 101 " not in await first_line(client)
            assert port.server.counters["proxied"] == (address not in (PROXY, "10.1.1.1"))
        assert port.server.counters["forwarded"] == 0
        client.writer.close()
        await until(lambda: not port.server.entrance.visitors)
        assert not port.server.entrance._per_address

    run(test, proxies=KNOWN)


WIDE = Proxies(["127.0.0.5", "2001:db8:5::5"])
WHOSE = {  # (address of the proxy, what it sends before and in the handshake, whose it is)
    "nobody": (PROXY, b"", [], PROXY),
    "proxies alone": (PROXY, b"", ["2001:db8:5::5"], PROXY),
    "UNKNOWN": (PROXY, b"PROXY UNKNOWN\r\n", [], PROXY),
    "LOCAL": (PROXY, binary(b"", command=0x20, family=0), [], PROXY),
    "one elsewhere": (PROXY, b"", ["198.51.100.7"], "198.51.100.7"),
    "one in the network of the proxy": ("2001:db8:5::5", b"", ["2001:db8:5::7"], "2001:db8:5::/64"),
    "the same by a header": (
        "2001:db8:5::5", b"PROXY TCP6 2001:db8:5::7 ::1 1 2\r\n", [], "2001:db8:5::/64"
    ),
    "nobody, in such a network": ("2001:db8:5::5", b"", [], "2001:db8:5::/64"),
    "UNKNOWN, in such a network": (
        "2001:db8:5::5", b"PROXY UNKNOWN\r\n", [], "2001:db8:5::/64"
    ),
}  # fmt: skip


@pytest.mark.parametrize("limit", ["number", "pace"])
@pytest.mark.parametrize("whose", WHOSE)
def test_whom_a_proxy_names_or_not_has_a_number_whatever_the_address(
    whose: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, header, fields, address = WHOSE[whose]
    if host != PROXY:  # as if it came from there
        monkeypatch.setattr(accepting, "address_of", lambda _: address)
        monkeypatch.setattr(WIDE, "knows", lambda one: one in (PROXY, "127.0.0.6", host))

    async def test(port: Port) -> None:
        async def come() -> Client:
            client = await port.dial(PROXY)
            client.writer.write(header + forwarded(*fields))
            return client

        held = [await come() for _ in range(2)]
        for client in held:
            assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
            await client.asked()
        assert dict(port.server.entrance._per_address) == {address: 2}
        idle = [await port.dial(PROXY) for _ in range(5)]  # that say nothing yet count for nobody
        more = [await come() for _ in range(10)]
        for client in more:
            answer = await first_line(client)
            assert b" 429 " in answer or (header and not answer), answer
        counted = "too_many_of_address" if limit == "number" else "too_fast_of_address"
        assert port.server.counters[counted] >= 1
        for client in [*held, *idle]:
            client.writer.close()
        await until(lambda: not port.server.entrance.visitors)
        assert not port.server.entrance._per_address

    few = {"connections_per_address_max": 2, "address_connect_rate": 1000}
    slow = {"connections_per_address_max": 2, "address_connect_rate": 1}
    run(test, proxies=WIDE, **(few if limit == "number" else slow))


def test_clients_that_a_proxy_names_in_the_handshake_have_a_number_each() -> None:
    async def test(port: Port) -> None:
        held = []
        for number in (1, 2, 1, 2):
            client = await port.dial(PROXY)
            held.append(client)
            client.writer.write(forwarded(f"198.51.100.{number}"))
            assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
            await client.asked()
        client = await port.dial(PROXY)
        client.writer.write(forwarded("198.51.100.1"))
        answer = await client.ended()
        assert answer.startswith(b"HTTP/1.1 429") and b"rate_limited" in answer
        assert port.server.counters["too_many_of_address"] == 1
        for client in held:
            client.writer.close()

    run(test, proxies=KNOWN, connections_per_address_max=2)


def test_nobody_is_known_where_the_site_names_none() -> None:
    assert not Proxies().knows("127.0.0.1") and not KNOWN.knows("")
    assert KNOWN.knows("10.255.0.1") and KNOWN.knows("::ffff:10.0.0.1") and KNOWN.knows(PROXY)
    assert not KNOWN.knows("11.0.0.1") and not KNOWN.knows("2001:db8:6::1")
