"""Streams between members of a farm: TCP, with TLS 1.3 and a pinned key unless on loopback.

TLS alone does not say who dials: the login that follows does. What is pinned is the key of who is
dialled, as SHA-256 of its SubjectPublicKeyInfo; names and authorities are not looked at.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.base.authority import authority
from appliance.base.errors import ConfigurationError, Reasoned
from appliance.drivers.network.stream_end import end
from appliance.drivers.network.tls import show_certificate, spki_digest

ALPN = "http/1.1"
DIAL_S_MAX = 5.0  # to a connection with TLS, through a proxy where there is one
PROXY_HEAD_SIZE_MAX = 8192  # bytes of a proxy's answer to CONNECT

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class DialFailed(Reasoned):
    """No connection."""


@dataclass(slots=True, frozen=True)
class Route:
    """How a peer is reached. `pin`: digest of its key, None: without TLS. `proxy`: host, port;
    `absolute`: it is asked for whole URLs by who logs in, instead of CONNECT."""

    host: str
    port: int
    pin: bytes | None = None
    proxy: tuple[str, int] | None = None
    absolute: bool = False


def is_loopback(host: str) -> bool:
    """Whether a literal address, or the name localhost, never leaves this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Shows our certificate; asks for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show_certificate(context, certificate, key)
    context.set_alpn_protocols([ALPN])
    context.num_tickets = 0
    return context


def _client_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key is compared instead
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    return context


async def open_stream(route: Route) -> Stream:
    """A connection whose other end has proved to own the pinned key. DialFailed otherwise."""
    try:
        async with asyncio.timeout(DIAL_S_MAX):
            return await _open(route)
    except TimeoutError:
        raise DialFailed("dial_timeout") from None
    except (OSError, ssl.SSLError, EOFError, RuntimeError) as error:  # the last: it ended already
        refused = isinstance(error, ConnectionRefusedError)
        raise DialFailed("dial_refused" if refused else "dial_failed") from error


async def _open(route: Route) -> Stream:
    host, port = route.proxy or (route.host, route.port)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        keep_alive(writer)
        if route.proxy is not None and not route.absolute:
            await _through_proxy(reader, writer, route)
        if route.pin is not None:
            await writer.start_tls(_client_tls(), server_hostname=route.host)
            tls = writer.get_extra_info("ssl_object")
            certificate = tls.getpeercert(binary_form=True)
            if certificate is None or spki_digest(certificate) != route.pin:
                raise DialFailed("key_not_pinned")
    except BaseException:
        await end(writer)
        raise
    return reader, writer


async def _through_proxy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, route: Route
) -> None:
    """CONNECT: afterwards the proxy is not noticed."""
    where = authority(route.host, route.port)
    writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise DialFailed("proxy_refused") from None
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(head) > PROXY_HEAD_SIZE_MAX or len(status) < 2 or status[1] != b"200":
        raise DialFailed("proxy_refused")


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """A peer's death is noticed without traffic; small frames leave at once."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def listen(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    on_stream: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> asyncio.Server:
    """Take connections; ConfigurationError when the address cannot be had."""
    try:
        return await asyncio.start_server(on_stream, host, port, ssl=tls, limit=1 << 16)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror}; stop what uses it, or choose "
            "another port"
        ) from error
