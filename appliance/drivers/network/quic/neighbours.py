"""The other processes of this node that share the port: datagrams go from the one that the kernel
gave them to the one whose connection they are of.

    quic-0 ◀── [peer, source, data] ── process 1      one Unix datagram socket for each process

The kernel chooses the process by the addresses of a datagram, so a client that changes its own, or
whose network does, is heard by another process than before. `peer` and `source` are as in
`sockets`: the answer goes out from the owner's own socket, by the same way.

Who may write to the folder of the sockets is this user. What does not fit the kernel's queue is
lost, as on a network, and counted.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from appliance.base.errors import ConfigurationError
from appliance.base.limits import QUIC_DATAGRAMS_PER_TURN
from appliance.drivers.network.quic.sockets import DATAGRAM_SIZE_MAX, Peer, Source

_HANDED_SIZE_MAX = DATAGRAM_SIZE_MAX + 512  # bytes, with the addresses
_Handed = tuple[list[int | str], list[tuple[int, int, bytes]], bytes]
Take = Callable[[bytes, Peer, Source], None]


class Neighbours:
    """`open`, then `hand_over` what is others'; `take` is called with what they hand to us."""

    def __init__(self, folder: Path, number: int, *, take: Take, counters: Counter[str]) -> None:
        """`folder` holds the sockets; `number` is this process's."""
        self._folder, self._number, self._take = folder, number, take
        self._counters = counters
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_Handed).decode
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """ConfigurationError when the socket cannot be made; a dead process's is removed."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        path = self._path(self._number)
        try:
            path.unlink(missing_ok=True)
            sock.bind(str(path))
            path.chmod(0o600)
        except OSError as error:
            sock.close()
            raise ConfigurationError(
                f"socket {path} cannot be made ({error.strerror or error}): let this user write "
                "its folder, and keep its name short"
            ) from error
        sock.setblocking(False)
        self._socket = sock
        asyncio.get_running_loop().add_reader(sock, self._on_readable)

    def close(self) -> None:
        """Neither give nor take any more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._path(self._number).unlink(missing_ok=True)

    def hand_over(self, number: int, data: bytes, peer: Peer, source: Source) -> bool:
        """Give a datagram to process `number`; False if there is none."""
        if self._socket is None:
            return False
        handed = self._encode((peer, source, data))
        try:
            self._socket.sendto(handed, str(self._path(number)))
        except (BlockingIOError, InterruptedError):
            self._counters["quic_handed_over_lost"] += 1
        except OSError:  # nobody there
            return False
        return True

    def _path(self, number: int) -> Path:
        return self._folder / f"quic-{number}"

    def _on_readable(self) -> None:
        for _ in range(QUIC_DATAGRAMS_PER_TURN):
            with contextlib.suppress(OSError):
                assert self._socket is not None
                handed = self._socket.recv(_HANDED_SIZE_MAX)
                self._on_handed(handed)
                continue
            return

    def _on_handed(self, handed: bytes) -> None:
        try:
            peer, source, data = self._decode(handed)
        except msgspec.DecodeError:
            self._counters["quic_handed_malformed"] += 1
            return
        self._take(data, tuple(peer), source)
