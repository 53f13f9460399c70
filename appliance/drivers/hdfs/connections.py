"""Connections to name nodes and data nodes: one for each request, all of which `abort` ends."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from appliance.drivers.hdfs.target import BLOCK_SIZE, Limiter
from appliance.formats.webhdfs_call import Ask

CONNECT_S, ANSWER_S = 5.0, 30.0  # until a connection stands; between two bytes of an answer


class Connections:
    """What is sent and waited for passes `limiter`, which `abort` stops."""

    def __init__(
        self, *, secure: bool, ca_file: Path | None, limiter: Limiter, answer_s: float
    ) -> None:
        self.limiter = limiter
        self._answer_s = answer_s
        self._tls = ssl.create_default_context(cafile=ca_file) if secure else None
        self._lock = threading.Lock()
        # the socket too: a connection gives its own away when the answer says that it is the last
        self._open: dict[http.client.HTTPConnection, socket.socket | None] = {}

    @contextmanager
    def to(self, ask: Ask) -> Iterator[http.client.HTTPConnection]:
        """One for this request, not connected yet."""
        host, port = ask.address.host, ask.address.port
        link = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        if self._tls is not None:
            link = http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=self._tls)
        with self._lock:
            self._open[link] = None
        try:
            with closing(link):
                yield link
        finally:
            with self._lock:
                del self._open[link]

    def send(
        self, link: http.client.HTTPConnection, ask: Ask, data: bytes
    ) -> http.client.HTTPResponse:
        """The head of the answer. Raises OSError and HTTPException."""
        link.connect()
        link.sock.settimeout(self._answer_s)
        with self._lock:
            self._open[link] = link.sock
        body, headers = self._paced(data) if ask.sends else None, ask.headers(len(data))
        try:
            link.request(ask.method, ask.address.target, body=body, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            with suppress(OSError, http.client.HTTPException):
                return link.getresponse()  # who closed before it had all has mostly said why
            raise
        return link.getresponse()

    def abort(self) -> None:
        self.limiter.stop()
        with self._lock:
            for link, taken in self._open.items():
                if connected := link.sock or taken:
                    with suppress(OSError):  # it may have ended by itself
                        connected.shutdown(socket.SHUT_RDWR)

    def _paced(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), BLOCK_SIZE):
            block = data[at : at + BLOCK_SIZE]
            self.limiter.take(len(block))
            yield block
