"""Asks a replica of this machine how it is: one question, one answer, no loop needed."""

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from appliance.base.json_text import parse_json
from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network.framing import Signer
from appliance.formats.envelope import LOCAL_STATUS, SENDER_CLIENT, decode, make
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.site import Site
from appliance.formats.site_view import SiteView, configuration_in
from appliance.formats.status.status import Status, parse

ANSWER_SIZE_MAX = 1 << 20
Told = TypeVar("Told", bound=Status)


def ask_status(
    folder: Path,
    *,
    cluster: bytes,
    shard: int,
    kind: str = "shard",
    timeout_s: float = 1.0,
    wish: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """The status of the replica of `shard` whose socket lies in `folder`; None: no answer.

    With `kind` "edge" or "shipper", that of the edge or shipper of this number; a shipper takes
    a `wish`. The patience is for the whole answer, however slowly it comes.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with _reached(folder) as (sock, place):
            sock.settimeout(timeout_s)
            sock.connect(f"{place}/{kind}-{shard}")
            body = b"" if wish is None else json.dumps(wish).encode()
            question = make(LOCAL_STATUS, cluster=cluster, shard=shard, body=body)
            sock.sendall(Signer(sender=SENDER_CLIENT, key=None).frame(question, body))
            header = decode(_exactly(sock, HEADER_SIZE, deadline))
            if header is None or header.command != LOCAL_STATUS:
                return None
            if header.body_size > ANSWER_SIZE_MAX:
                return None
            answer = parse_json(_exactly(sock, header.body_size, deadline))
            _exactly(sock, SIGNATURE_SIZE, deadline)
            return answer if isinstance(answer, dict) else None
    except (OSError, ValueError):
        return None


def status_of(
    kind: type[Told], folder: Path, *, cluster: bytes, number: int = 0, timeout_s: float = 1.0
) -> Told | None:
    """How the process of that kind is whose socket lies in `folder`; None: no answer. FormatError
    when its answer is no such status."""
    said = ask_status(
        folder, cluster=cluster, shard=number, kind=kind.socket or kind.role, timeout_s=timeout_s
    )
    return None if said is None else parse(kind, said)


def ask_view(site: Site, sockets: Mapping[int, Path]) -> SiteView:
    """The site as those replicas report it that answer in these folders, by the index of their
    node; what none of them tells is as the site file describes it."""
    view = SiteView(site)
    for index, folder in sockets.items():
        for shard in site.shards_of(index):
            status = ask_status(folder, cluster=site.cluster, shard=shard.number)
            if status is not None:
                view = view.learned(shard.number, configuration_in(status))
    return view


def listens(folder: Path, *, kind: str, number: int = 0) -> bool:
    """Whether a process is there to be asked, though it may be stuck and never answer."""
    try:
        with _reached(folder) as (sock, place):
            sock.setblocking(False)
            code = sock.connect_ex(f"{place}/{kind}-{number}")
            return code in (0, errno.EAGAIN)  # EAGAIN: more wait to be let in than it takes
    except OSError:
        return False


@contextlib.contextmanager
def _reached(folder: Path) -> Iterator[tuple[socket.socket, str]]:
    """A fresh socket, and a name by which it can connect to what lies in `folder`, however long the
    folder's own is. OSError where there is none, or no descriptor."""
    holder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
            yield sock, f"/proc/self/fd/{holder}"
    finally:
        os.close(holder)


def _exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no whole answer in time")
        sock.settimeout(left_s)
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed before the answer was whole")
        data += piece
    return bytes(data)
