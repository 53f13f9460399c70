"""A small server on loopback that answers as a name node does, or as nobody should.

No real name node sends anybody to nonsense, and gateways of old releases are a cluster each.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit


class NameNode(http.server.BaseHTTPRequestHandler):
    """Says yes, but to an operation of which `says` has (status, JSON or bytes, place)."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def _do(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = {name: one[0] for name, one in parse_qs(urlsplit(self.path).query).items()}
        self.server.sent.append(sent)
        self.server.asked.append((urlsplit(self.path).path, asked))
        ok: tuple[int, Any, str | None] = (200, {"boolean": True}, None)
        status, said, place = self.server.says.get(asked["op"], ok)
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        if place is not None:
            self.send_header("Location", place)
        size = self.server.sizes.get(asked["op"], len(body))
        if size is not None:
            self.send_header("Content-Length", str(size))
        if size != len(body):
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = _do

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), NameNode)
        self.says: dict[str, tuple[int, Any, str | None]] = {}
        self.sizes: dict[str, int | None] = {}  # announced, by operation; None: not at all
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent: list[bytes] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def name_node() -> Iterator[Server]:
    """One that serves until the block is left."""
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()
