"""The UDP sockets of a port: datagrams in and out, from the address that the client had asked.

On a machine with several addresses the kernel would choose one to answer from, and a client that
had asked another takes no such answer. So sockets bound to all addresses are told by the kernel
which one a datagram was for, and tell it the same with the answer.
"""

import contextlib
import socket
import struct
from collections.abc import Sequence
from typing import Any

from appliance.base.errors import ConfigurationError

Peer = tuple[Any, ...]  # as the kernel names it: two places for IPv4, four for IPv6
Source = list[tuple[int, int, bytes]]  # what `sendmsg` is told, empty for the only address

DATAGRAM_SIZE_MAX = 2048  # bytes; no client sends larger ones over a network
BUFFER_SIZE = 4 << 20  # bytes that the kernel is asked to keep for us, in each direction
_ANCILLARY_SIZE = 64
_V4_WANTED, _V4 = 8, struct.Struct("=i4s4s")  # IP_PKTINFO: interface, ours, the datagram's
_V6_WANTED, _V6_TYPE = 49, 50  # IPV6_RECVPKTINFO, IPV6_PKTINFO
# IP_MTU_DISCOVER, IPV6_MTU_DISCOVER: datagrams are never cut on their way, and nobody's word for
# what is too large is taken: it is found out by trying
_V4_WHOLE, _V6_WHOLE, _WHOLE = 10, 23, 3


class UdpSocket:
    """One bound socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.family = sock.family
        host = sock.getsockname()[0]
        self._is_any = host in ("0.0.0.0", "::")
        if self._is_any and self.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _V4_WANTED, 1)
        elif self._is_any:
            sock.setsockopt(socket.IPPROTO_IPV6, _V6_WANTED, 1)

    def receive(self) -> tuple[bytes, Peer, Source] | None:
        """A datagram, from whom, and how to answer; None when there is none."""
        try:
            if not self._is_any:
                data, peer = self.sock.recvfrom(DATAGRAM_SIZE_MAX)
                return data, peer, []
            data, found, _, peer = self.sock.recvmsg(DATAGRAM_SIZE_MAX, _ANCILLARY_SIZE)
        except OSError:  # nothing there, or an answer of ours reached nobody
            return None
        return data, peer, [_answer(row) for row in found]

    def send(self, data: bytes, peer: Peer, source: Source) -> bool:
        """Now or never; the protocol above sends again what matters."""
        try:
            if source:
                self.sock.sendmsg([data], source, 0, peer)
            else:
                self.sock.sendto(data, peer)
        except OSError:
            return False
        return True


def _answer(row: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
    level, kind, value = row
    if level == socket.IPPROTO_IP and kind == _V4_WANTED:
        _, _, address = _V4.unpack(value[: _V4.size])
        return level, kind, _V4.pack(0, address, bytes(4))
    return level, _V6_TYPE, value


def bind_all(addresses: Sequence[tuple[int, Peer]], *, shared: bool) -> list[UdpSocket]:
    """A socket for each (family, address), all or none; ConfigurationError when one cannot be."""
    made: list[UdpSocket] = []
    for family, address in addresses:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.setsockopt(socket.IPPROTO_IPV6, _V6_WHOLE, _WHOLE)
            else:
                sock.setsockopt(socket.IPPROTO_IP, _V4_WHOLE, _WHOLE)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_SIZE)
            sock.setblocking(False)
            sock.bind(address)
        except OSError as error:
            for other in made:
                other.sock.close()
            sock.close()
            raise ConfigurationError(
                f"client_port {address[1]} on {address[0]} cannot be bound for UDP "
                f"({error.strerror or error}): stop what uses it, or choose another client_port "
                "in site.toml"
            ) from error
        made.append(UdpSocket(sock))
    return made
